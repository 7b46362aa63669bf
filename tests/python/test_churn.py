"""Slots that are killed from outside while they work: nothing is lost, nothing comes twice, and it does not stall.

The short form runs with every `make test`; the full one, a thousand kills during a map of fifty thousand, is part of
the nightly list.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import paceline as pl
from support import wait_until
from support.processes import is_dead

CPUS = 2


def worker(directory: Path) -> pl.RemoteFunction[[int, float], int]:
    """A function that says what it is at, and that travels by value: a slot should not have to import pytest for it."""
    path = str(directory)

    @pl.remote
    def work(item: int, seconds: float) -> int:
        with open(f"{path}/{os.getpid()}", "w") as file:
            file.write(f"{item}\n")
        # Keeps its CPU busy, because a sleeping slot would be killed in the kernel only.
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            pass
        return item * 3

    return work


@pl.remote
def deadly(item: int, directory: str) -> int:
    """Item 50 ends every slot it runs in; the others count their runs."""
    with open(f"{directory}/{item}", "a") as file:
        file.write("x")
    if item == 50:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


@dataclass
class Killer:
    """Kills a random slot at work, again and again, until it has done so often enough or is told to stop.

    No item is hit a third time, because then it would rightly be given up: with one kill for fifty items that happens
    to one of fifty thousand in every other run.
    """

    cluster: pl.Cluster
    directory: Path
    kills: int
    every: float
    seed: int = 7
    killed: set[int] = field(default_factory=set)
    hits: Counter[str] = field(default_factory=Counter)
    stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        chance = random.Random(self.seed)
        while len(self.killed) < self.kills and not self.stopped.wait(chance.uniform(0, 2 * self.every)):
            pids = [slot["pid"] for slot in self.cluster.nodes[0]["slots"] if slot["state"] == "leased"]
            chance.shuffle(pids)
            for pid in pids:
                if pid not in self.killed and self.hits[item := self.item_of(pid)] < 2 and item:
                    os.kill(pid, signal.SIGKILL)
                    self.killed.add(pid)
                    self.hits[item] += 1
                    break

    def item_of(self, pid: int) -> str:
        """What the slot runs, or ran last; empty if it has not begun anything."""
        try:
            text = (self.directory / f"{pid}").read_text()
        except FileNotFoundError:
            return ""
        return text if text.endswith("\n") else ""

    def __enter__(self) -> Killer:
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self.thread.join()


def churn(cluster: pl.Cluster, directory: Path, tasks: int, kills: int, chunksize: int | None) -> float:
    """A map of so many tasks of two milliseconds under that many kills. Says how much longer it took for them."""
    seconds = 0.002
    alone = tasks * seconds / CPUS
    with Killer(cluster, directory, kills, every=0.8 * alone / kills) as killer:
        began = time.monotonic()
        results = worker(directory).starmap(((item, seconds) for item in range(tasks)), chunksize=chunksize)
        took = time.monotonic() - began
    assert results == [item * 3 for item in range(tasks)]
    # Some of the last kills may come too late.
    assert len(killer.killed) >= kills * 0.9
    return took - alone


@pytest.mark.slow
@pytest.mark.parametrize("chunksize", [1, None], ids=["single", "default chunks"])
def test_a_map_survives_many_kills(cluster: pl.Cluster, tmp_path: Path, chunksize: int | None) -> None:
    """In chunks of our own making too, where each of them would die more often than one task may."""
    delay = churn(cluster, tmp_path, tasks=4000, kills=80, chunksize=chunksize)
    # A place that had to wait before it is filled again would cost a quarter of a second and more each time.
    assert delay < 8, f"{delay:.1f} s more than the work takes"


@pytest.mark.nightly
@pytest.mark.timeout(240)
@pytest.mark.parametrize("chunksize", [1, None], ids=["single", "default chunks"])
def test_a_thousand_kills_during_a_map_of_fifty_thousand(
    cluster: pl.Cluster, tmp_path: Path, chunksize: int | None
) -> None:
    delay = churn(cluster, tmp_path, tasks=50_000, kills=1000, chunksize=chunksize)
    assert delay < 100, f"{delay:.1f} s more than the work takes"


def test_poison_among_its_neighbours(cluster: pl.Cluster, tmp_path: Path) -> None:
    """It ends exactly three slots; what was sent ahead beside it has not begun, and runs once."""
    futures = [deadly.submit(item, str(tmp_path)) for item in range(100)]
    with pytest.raises(pl.PoisonTask) as caught:
        futures[50].result(timeout=20)
    assert len(caught.value.slots) == len(set(caught.value.slots)) == caught.value.attempts == 3
    assert [futures[item].result(timeout=20) for item in range(100) if item != 50] == [
        item for item in range(100) if item != 50
    ]
    runs = Counter({item: len((tmp_path / f"{item}").read_text()) for item in range(100)})
    assert runs.pop(50) == 3
    # One that had ended, and whose answer died with the slot, has no other way than to run again.
    assert max(runs.values()) <= 2, runs.most_common(5)
    assert sum(runs.values()) <= 99 + 3, runs.most_common(5)


def test_a_killed_slot_is_reported_at_once_though_its_children_live(cluster: pl.Cluster, tmp_path: Path) -> None:
    """The children hold every descriptor they could inherit; death is told by the process itself."""

    @pl.remote(retries=0)
    def leave_children(path: str) -> None:
        for group in (False, True):
            if os.fork() == 0:
                if group:
                    os.setsid()
                time.sleep(60)
                os._exit(0)
        with open(path + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(path + ".new", path)
        time.sleep(60)

    path = tmp_path / "pid"
    future = leave_children.submit(str(path))
    wait_until(path.exists, "the task to have its children")
    began = time.monotonic()
    os.kill(int(path.read_text()), signal.SIGKILL)
    with pytest.raises(pl.SlotDied):
        future.result(timeout=10)
    assert time.monotonic() - began < 1


@pytest.mark.parametrize("first", ["zygote", "all", "slot"])
def test_children_of_a_killed_zygotes_slots_end_with_them(cluster: pl.Cluster, tmp_path: Path, first: str) -> None:
    """ZN-1: also those with a session of their own, which nobody's death ends."""

    @pl.remote(retries=0)
    def leave_children(path: str) -> None:
        pids = [os.getppid(), os.getpid()]
        pids.append(subprocess.Popen(["sleep", "600"], start_new_session=True).pid)
        if (pid := os.fork()) == 0:
            os.setsid()
            time.sleep(600)
            os._exit(0)
        with open(path + ".new", "w") as file:
            file.write(" ".join(map(str, [*pids, pid])))
        os.rename(path + ".new", path)
        time.sleep(60)

    path = tmp_path / "pids"
    future = leave_children.submit(str(path))
    wait_until(path.exists, "the task to have its children")
    zygote, slot, *children = map(int, path.read_text().split())
    for pid in {"zygote": [zygote], "all": [zygote, slot], "slot": [slot, zygote]}[first]:
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(pl.SlotDied):
        future.result(timeout=10)
    wait_until(lambda: all(is_dead(pid) for pid in children), "its children to end", 2)
    assert pl.remote(abs)(-1) == 1

"""Objects that are lost with their node and made again, by running their tasks again."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import paceline as pl
from support.daemons import Commands
from support.waiting import wait_until

numpy = pytest.importorskip("numpy")

MANY = 1 << 17


@dataclass
class Nodes:
    """A node that stays, called `a`, and others that come when they are needed and are killed."""

    paceline: Commands
    address: str
    marks: Path

    def add(self, name: str, *options: str) -> None:
        self.paceline.join(self.address, name, "--cpus", "2", *options)
        wait_until(lambda: name in self.up(), f"node {name}")

    def up(self) -> list[str]:
        return [node["name"] for node in self.paceline.status()["nodes"] if node["state"] == "up"]

    def kill(self, name: str) -> None:
        found = [node["pid"] for node in self.paceline.status()["nodes"] if node["name"] == name]
        os.kill(found[-1], signal.SIGKILL)
        wait_until(lambda: name not in self.up(), f"node {name} to be gone")

    def runs(self, name: str) -> int:
        """How often the task of this name has begun."""
        marks = self.marks / name
        return len(marks.read_text()) if marks.exists() else 0

    def counts(self) -> int:
        up = [node for node in self.paceline.status()["nodes"] if node["state"] == "up"]
        return sum(node["objects"]["count"] for node in up)


@pytest.fixture(params=["near", "far"])
def nodes(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "home"))
    if request.param == "far":
        monkeypatch.setenv("PACELINE_LOCAL", "off")
    yield from started(tmp_path)


@pytest.fixture
def near(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "home"))
    yield from started(tmp_path)


def started(tmp_path: Path) -> Iterator[Nodes]:
    paceline = Commands(tmp_path / "home")
    marks = tmp_path / "marks"
    marks.mkdir()
    try:
        head = paceline.start("--cpus", "2", "--node-name", "a")
        with pl.connect(head["address"]):
            found = Nodes(paceline, head["address"], marks)
            found.add("b")
            yield found
    finally:
        pl.shutdown()
        paceline.end()


def mark(marks: Path, name: str) -> None:
    with open(marks / name, "a") as file:
        file.write(".")


@pl.remote
def filled(marks: Path, name: str, value: Any) -> Any:
    mark(marks, name)
    return numpy.full(MANY, float(value))


@pl.remote
def doubled(marks: Path, name: str, values: Any) -> Any:
    mark(marks, name)
    return values * 2


@pl.remote
def total(values: Any) -> float:
    return float(values.sum())


def elsewhere(function: Any, **options: Any) -> Any:
    """On any node but the first, and its result stays there."""
    return function.options(keep=True, placement=pl.Placement(exclude=["a"]), **options)


def on(place: str, function: Any) -> Any:
    return function.options(placement=pl.Placement(nodes=[place]))


def test_what_a_node_took_along_is_made_again(nodes: Nodes) -> None:
    large = elsewhere(filled).submit(nodes.marks, "large", 3).result()
    small = elsewhere(pl.remote(len)).submit("four").result()
    nodes.add("c")
    nodes.kill("b")
    assert [on("a", total).submit(large) for _ in range(6)][5].result(timeout=30) == 3.0 * MANY
    assert pl.get(large, timeout=30).sum() == 3.0 * MANY
    assert pl.get(small, timeout=30) == 4
    assert nodes.runs("large") == 2, "once, however many need it"
    nodes.add("d")
    nodes.kill("c")
    assert on("d", total)(large) == 3.0 * MANY, "others have copies by now"
    assert nodes.runs("large") == 2
    del large, small
    gc.collect()
    wait_until(lambda: nodes.counts() == 0, "every object to go")


def test_a_chain_is_made_again_though_what_is_between_is_gone(nodes: Nodes) -> None:
    first = elsewhere(filled).submit(nodes.marks, "first", 1)
    second = elsewhere(doubled).submit(nodes.marks, "second", first)
    third = elsewhere(doubled).submit(nodes.marks, "third", [second][0]).result()
    del first, second
    gc.collect()
    wait_until(lambda: nodes.counts() == 1, "what is between to go")
    nodes.add("c")
    nodes.kill("b")
    assert pl.get(third, timeout=30).sum() == 4.0 * MANY
    assert [nodes.runs(name) for name in ("first", "second", "third")] == [2, 2, 2]
    wait_until(lambda: nodes.counts() == 1, "what was made for it alone to go")


def test_many_of_a_map_are_made_again(near: Nodes) -> None:
    several = elsewhere(filled).starmap([(near.marks, "map", value) for value in range(20)], chunksize=5)
    lazily = list(elsewhere(pl.remote(abs)).imap_unordered([-1, 2, -3]))
    near.add("c")
    near.kill("b")
    sums = on("a", total).map(several)
    assert sums == [float(value * MANY) for value in range(20)]
    assert sorted(pl.get(lazily, timeout=30)) == [1, 2, 3]
    assert near.runs("map") == 40


def test_a_task_that_waits_leaves_its_cpus_to_what_it_waits_for(near: Nodes) -> None:
    """All CPUs of the only node that is left are taken by tasks that need what has to be made there."""

    @pl.remote(cpus=2)
    def needs(values: Any) -> float:
        return float(values.sum())

    @pl.remote(cpus=2)
    def asks(refs: list[Any]) -> float:
        return float(pl.get(refs[0]).sum())

    lost = filled.options(keep=True, cpus=2, placement=pl.Placement(exclude=["a"]))
    ref = lost.submit(near.marks, "lost", 5).result()
    other = lost.submit(near.marks, "other", 6).result()
    box = pl.put([other])
    near.add("c")
    near.kill("b")
    on_c = pl.Placement(nodes=["c"])
    assert needs.options(placement=on_c).submit(ref).result(timeout=30) == 5.0 * MANY
    assert asks.options(placement=on_c).submit(box).result(timeout=30) == 6.0 * MANY


def test_a_reference_that_only_a_task_has(near: Nodes) -> None:
    @pl.remote
    def holds(refs: list[Any], marks: Path) -> float:
        mark(marks, "holds")
        while not (marks / "go").exists():
            time.sleep(0.01)
        return float(pl.get(refs[0]).sum())

    ref = elsewhere(filled).submit(near.marks, "value", 7).result()
    box = pl.put([ref])
    future = on("a", holds).submit(box, near.marks)
    wait_until(lambda: near.runs("holds") == 1, "the task to have the reference")
    del ref, box
    gc.collect()
    near.add("c")
    near.kill("b")
    mark(near.marks, "go")
    assert future.result(timeout=30) == 7.0 * MANY


def test_what_cannot_be_made_again_says_why(near: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    @pl.remote
    def puts(value: Any) -> Any:
        return pl.put(value)

    @pl.remote
    def fails_later(marks: Path) -> str:
        mark(marks, "fails")
        if (marks / "fails").read_text() != ".":
            raise ValueError("not twice")
        return "once"

    put = puts.options(placement=pl.Placement(exclude=["a"]))("by a task")
    only_once = elsewhere(filled, retries=0).submit(near.marks, "once", 1).result()
    fails = elsewhere(fails_later).submit(near.marks).result()
    argument = pl.put(numpy.ones(MANY))
    orphan = elsewhere(doubled).submit(near.marks, "orphan", argument).result()
    from_failing = elsewhere(pl.remote(len)).submit(fails).result()
    del argument
    gc.collect()
    near.add("c")
    near.kill("b")
    with pytest.raises(pl.ObjectLost, match="nobody knows how to make it again: that is known of results of tasks"):
        pl.get(put, timeout=30)
    with pytest.raises(pl.ObjectLost, match="may not be run again, for it has retries=0"):
        on("a", total)(only_once)
    with pytest.raises(pl.ObjectLost, match="what its task was given is gone, too"):
        pl.get(orphan, timeout=30)
    with pytest.raises(pl.ObjectLost, match=r"failed when it was run again: .*fails_later: ValueError: not twice"):
        pl.get(from_failing, timeout=30)
    assert near.runs("once") == 1
    assert near.runs("orphan") == 1


def test_an_object_is_made_again_three_times(near: Nodes) -> None:
    ref = elsewhere(filled).submit(near.marks, "value", 2).result()
    before = "b"
    for name in ("c", "d", "e"):
        near.add(name)
        near.kill(before)
        assert on(name, total).submit(ref).result(timeout=30) == 2.0 * MANY
        before = name
    near.add("f")
    near.kill(before)
    with pytest.raises(pl.ObjectLost, match="made again three times"):
        pl.get(ref, timeout=30)
    assert near.runs("value") == 4


def test_so_much_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PACELINE_REMEMBER", "1MiB")
    for near in started(tmp_path):
        data = bytes(600_000)
        first, second = (elsewhere(pl.remote(len)).submit(data).result() for _ in range(2))
        near.add("c")
        near.kill("b")
        assert pl.get(second, timeout=30) == 600_000
        with pytest.raises(pl.ObjectLost, match="how it was made is forgotten"):
            pl.get(first, timeout=30)


def test_waiting_for_it_can_be_ended(near: Nodes) -> None:
    @pl.remote
    def waits(marks: Path) -> str:
        mark(marks, "waits")
        while (marks / "waits").read_text() != ".":
            time.sleep(0.01)
        return "done"

    ref = elsewhere(waits).submit(near.marks).result()
    near.add("c")
    near.kill("b")
    future = on("a", pl.remote(len)).submit(ref)
    with pytest.raises(TimeoutError):
        pl.get(ref, timeout=0.5)
    wait_until(lambda: near.runs("waits") == 2, "the task to run again")
    assert future._interrupt()
    wait_until(future.done, "the task that needs it to end")
    ended: list[BaseException] = []

    def get() -> None:
        try:
            pl.get(ref)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=get)
    thread.start()
    pl.shutdown()
    thread.join(20)
    assert not thread.is_alive()
    assert isinstance(ended[0], pl.ClusterClosed)

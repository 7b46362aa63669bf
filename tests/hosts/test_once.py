"""What must exist once: no two copies of an actor live at a time, whatever becomes of its node and of the head."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from itertools import pairwise
from pathlib import Path

import pytest

from lab import Lab, Running
from lab.cluster import Cluster, daemon, tell
from support.processes import process
from support.waiting import wait_until

HEAD_LOST = 8
# How long two copies are looked at before it is said that one of them had ended.
OBSERVED = 1.0

# Every copy writes down when it lives, every ten milliseconds, on the host where it is. All hosts have one clock.
ACTORS = """
class Living:
    def __init__(self, kind, number):
        import threading, time, uuid

        def live(path):
            with open(path, "a", buffering=1) as file:
                while True:
                    file.write(f"{time.monotonic()}\\n")
                    time.sleep(0.01)

        path = f"/srv/living-{kind}-{number}-{uuid.uuid4().hex}"
        threading.Thread(target=live, args=(path,), daemon=True).start()

    def where(self):
        return socket.gethostname()

make = pl.remote(cpus=0)(Living)
kind = sys.argv[1]
name = "actor{}".format if kind == "named" else lambda number: None
actors = [make.options(name=name(n), restarts=9)(kind, n) for n in range(6)]
number = next(n for n, one in enumerate(actors) if one.where() == "node1")
actor = actors[number]
print("made", number, flush=True)
wait_for("silent")
while True:
    try:
        host = actor.where.submit().result(timeout=100)
    except pl.PacelineError as error:
        host = type(error).__name__
    if host not in ("node1", "ActorUnavailable", "ActorDied"):
        break
    time.sleep(0.05)
print("rebuilt on", host, flush=True)
wait_for("end")
"""


@pytest.fixture
def quick(lab: Lab) -> Cluster:
    """A head that runs nothing itself and two nodes, which wait for the head for a few seconds only."""
    flags = ("--cpus", "0", "--heartbeat", "1", "--head-lost", str(HEAD_LOST))
    made = Cluster(lab, lab.host("head"), *flags)
    made.join(lab.host("node1"), lab.host("node2"))
    made.give_key(lab.host("alice"))
    made.wait_for_nodes("node1", "node2")
    return made


def begin(cluster: Cluster, lab: Lab, kind: str) -> tuple[Running, str]:
    """A program with an actor on node1 that waits for it to be rebuilt, and what the files of its copies are called."""
    script = cluster.client(lab.hosts["alice"], ACTORS, kind)
    script.said("made", 60)
    [made] = [line for line in script.output().splitlines() if line.startswith("made ")]
    return script, f"{kind}-{made.split()[1]}"


def lives(lab: Lab, what: str) -> list[tuple[float, float, str]]:
    """From when to when each copy lived, and where; the first one first."""
    found = []
    for host in lab.hosts.values():
        for path in (host.files / "srv").glob(f"living-{what}-*"):
            written = path.read_text().splitlines()[:-1]
            if written:
                found.append((float(written[0]), float(written[-1]), host.name))
    return sorted(found)


def both_lives(lab: Lab, what: str, timeout: float) -> list[tuple[float, float, str]]:
    """Two lives, the second of which has lasted for a while: a first copy that still lives has written so meanwhile."""

    def found() -> bool:
        copies = lives(lab, what)
        return len(copies) == 2 and copies[1][1] > copies[1][0] + OBSERVED

    wait_until(found, "the second copy to have lived for a while", timeout, lambda: lives(lab, what))
    return lives(lab, what)


def assert_once(lab: Lab, what: str) -> None:
    """The second copy was not there before the first one had ended."""
    copies = both_lives(lab, what, 10)
    assert [host for _, _, host in copies] == ["node1", "node2"], copies
    for (_, ended, _), (born, _, _) in pairwise(copies):
        assert ended < born, f"for {ended - born:.2f} s there were two: {copies}"


def rebuild(lab: Lab, script: Running, what: str) -> None:
    """Wait until the actor is elsewhere, and look at what became of the copies."""
    script.said("rebuilt on", 90)
    assert_once(lab, what)
    tell(lab.hosts["alice"], "end")
    script.wait(40).ok()


def cut_off(lab: Lab) -> None:
    lab.networks["lan"].unplug(lab.hosts["node1"])
    tell(lab.hosts["alice"], "silent")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["named", "unnamed"])
def test_actor_on_a_host_cut_off_exists_once(quick: Cluster, lab: Lab, kind: str) -> None:
    script, what = begin(quick, lab, kind)
    cut_off(lab)
    rebuild(lab, script, what)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["named", "unnamed"])
@pytest.mark.parametrize("told", ["owner knows", "owner does not know"])
def test_actor_on_a_host_cut_off_exists_once_after_a_head_restart(
    quick: Cluster, lab: Lab, kind: str, told: str
) -> None:
    """The new head is there long before the old copy has ended, and hears of that from the owner alone."""
    script, what = begin(quick, lab, kind)
    cut_off(lab)
    if told == "owner knows":
        quick.wait_for_nodes("node2")
    os.kill(daemon(quick.head).pid, signal.SIGKILL)
    quick.start()
    rebuild(lab, script, what)


@pytest.mark.slow
@pytest.mark.parametrize("cut", ["before", "after"])
def test_actor_on_a_host_cut_off_exists_once_when_the_new_head_is_hastier(quick: Cluster, lab: Lab, cut: str) -> None:
    """The node goes by the longer time if it is cut off before the new head comes, by the shorter one afterwards."""
    script, what = begin(quick, lab, "unnamed")
    if cut == "before":
        cut_off(lab)
    os.kill(daemon(quick.head).pid, signal.SIGKILL)
    flags = ("--bind", "0.0.0.0", "--cpus", "0", "--heartbeat", "1", "--head-lost", "3")
    quick.head.run("paceline", "start", *flags, timeout=20, env={"PACELINE_CLIENT_LOST": "3s"}).ok()
    if cut == "after":
        quick.wait_for_nodes("node1", "node2")
        cut_off(lab)
    rebuild(lab, script, what)


@pytest.mark.slow
def test_actor_exists_once_when_its_node_stood_still_while_cut_off(quick: Cluster, lab: Lab) -> None:
    """For longer than a heartbeat, and for less than it takes to be given up."""
    (script, what), node1 = begin(quick, lab, "unnamed"), lab.hosts["node1"]
    cut_off(lab)
    began, stopped = time.monotonic(), daemon(node1).pid
    node1.stop(stopped)
    wait_until(lambda: time.monotonic() > began + HEAD_LOST * 0.6, "the node to have stood still for a while", 20)
    node1.go_on(stopped)
    rebuild(lab, script, what)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["unnamed", "named"])
def test_actor_ends_in_time_though_its_node_stands_still(quick: Cluster, lab: Lab, kind: str) -> None:
    (script, what), node1 = begin(quick, lab, kind), lab.hosts["node1"]
    cut_off(lab)
    stopped = daemon(node1).pid
    node1.stop(stopped)
    rebuild(lab, script, what)
    node1.go_on(stopped)


PROGRAM = """
import sys, time
with open(f"/srv/living-program-{time.monotonic()}", "a", buffering=1) as file:
    while True:
        file.write(f"{time.monotonic()}\\n")
        time.sleep(0.01)
"""


@pytest.mark.slow
def test_program_ends_in_time_though_its_node_stands_still(quick: Cluster, lab: Lab) -> None:
    node1, node2 = lab.hosts["node1"], lab.hosts["node2"]
    for host in (node1, node2):
        (host.files / "srv/program.py").write_text(PROGRAM)
    quick.head.run(
        "paceline", "submit", "--name", "living", "--restarts", "3", "--", "{python}", "/srv/program.py"
    ).ok()
    wait_until(lambda: lives(lab, "program"), "the program to run", 30)
    [(_, _, name)] = lives(lab, "program")
    host, other = (node1, node2) if name == "node1" else (node2, node1)
    lab.networks["lan"].unplug(host)
    stopped = daemon(host).pid
    host.stop(stopped)
    (_, ended, _), (born, _, where) = both_lives(lab, "program", 60)
    assert (where, ended < born) == (other.name, True), f"for {ended - born:.2f} s there were two"
    host.go_on(stopped)


@pytest.mark.parametrize("copied", ["directory", "disk"])
def test_older_start_of_a_node_is_sent_away(quick: Cluster, lab: Lab, copied: str) -> None:
    """A machine that was restored from a copy of the node's disk is an earlier start of it, and proves nothing."""
    node1, twin = lab.hosts["node1"], lab.host("twin")
    state = node1.files / "root/.local"
    shutil.copytree(state, twin.files / "root/.local", symlinks=True, dirs_exist_ok=True)
    if copied == "disk":
        # There the directory is the same one, as far as anybody can tell.
        [path] = (twin.files / "root/.local").rglob("node1.json")
        path.write_text(json.dumps(json.loads(path.read_text()) | {"directory": ""}))
    for _ in range(2):
        os.kill(daemon(node1).pid, signal.SIGKILL)
        wait_until(lambda: not node1.traces().processes, "its slots to end", 10, node1.traces)
        node1.run("paceline", "join", "head:7077", "--cpus", "2").ok()
        quick.wait_for_nodes("node1", "node2")
    script, what = begin(quick, lab, "unnamed")
    later = daemon(node1).pid
    joined = twin.run("paceline", "join", "head:7077", "--cpus", "2", "--node-name", "node1", timeout=40)
    wait_until(lambda: not twin.traces().processes, "the earlier start to end", 30, twin.traces)
    assert process(later) is not None
    quick.wait_for_nodes("node1", "node2")
    assert [host for _, _, host in lives(lab, what)] == ["node1"], "the actor is where it was"
    script.end()
    if copied == "directory":
        assert joined.returncode == 5, joined.transcript()
        return
    log = "".join(path.read_text(errors="replace") for path in Path(quick.head.files / "root").rglob("*.log"))
    assert "later start" in log, log

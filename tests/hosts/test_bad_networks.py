"""Networks that lose, delay, cut and reset, and processes that stand still: work goes on, and comes out once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from lab import Host, Lab
from lab.cluster import Cluster, daemon, tell
from support.waiting import wait_until

pytestmark = pytest.mark.slow

COUNTED = """
@pl.remote
def counted(x):
    time.sleep(0.005)
    return x * x

rounds = 0
while not told("enough"):
    assert counted.map(range(300), chunksize=1) == [x * x for x in range(300)]
    rounds += 1
    print("round", rounds, flush=True)
print("done", flush=True)
"""


def rounds(output: str) -> int:
    return output.count("round")


@contextmanager
def steady_work(cluster: Cluster, host: Host, patience: float = 60.0) -> Iterator[Callable[[], int]]:
    """A client that maps all the time; gives how often it has, and sees it through to its end."""
    script = cluster.client(host, COUNTED)
    cluster.assert_encrypted(host.name, "head", "node1", "node2")
    wait_until(lambda: rounds(script.output()) >= 1 or script.ended(), "the first round", 20, script.transcript)

    def progress() -> int:
        assert not script.ended(), script.transcript()
        return rounds(script.output())

    yield progress
    before = progress()
    wait_until(lambda: progress() > before + 1, "work to go on", patience, script.transcript)
    tell(host, "enough")
    script.wait(patience).ok()


def one_more(progress: Callable[[], int], times: int = 1, patience: float = 20.0) -> None:
    before = progress()
    wait_until(lambda: progress() >= before + times, "work to go on", patience)


def test_a_tenth_of_all_packets_is_lost(cluster: Cluster, lab: Lab) -> None:
    with steady_work(cluster, lab.hosts["alice"]) as progress:
        with lab.networks["lan"].lossy(10):
            one_more(progress, 3, 40)


def test_everything_takes_forty_milliseconds(lab: Lab) -> None:
    lab.network("far", delay=0.04)
    cluster = Cluster(lab, lab.host("head", "far"), "--cpus", "2")
    cluster.join(lab.host("node1", "far"), lab.host("node2", "far"))
    alice = lab.host("alice", "far")
    cluster.give_key(alice)
    cluster.wait_for_nodes("head", "node1", "node2")
    with steady_work(cluster, alice) as progress:
        began = time.monotonic()
        one_more(progress, 3, 40)
        # Windows cover the distance: 300 tasks of 5 ms on six slots take 0.25 s; with a round trip for each, 4 s.
        assert (time.monotonic() - began) / 3 < 2.5


@pytest.mark.parametrize("peer", ["head", "node1"])
def test_connections_are_reset(cluster: Cluster, lab: Lab, peer: str) -> None:
    alice = lab.hosts["alice"]
    with steady_work(cluster, alice) as progress:
        for _ in range(5):
            lab.hosts[peer].reset_connections(alice.address)
            one_more(progress)
        cluster.assert_encrypted("alice", "head", "node1", "node2")


def test_connections_of_a_node_with_its_head_are_reset(cluster: Cluster, lab: Lab) -> None:
    node1 = lab.hosts["node1"]
    with steady_work(cluster, lab.hosts["alice"]) as progress:
        for _ in range(5):
            node1.reset_connections(cluster.head.address)
            one_more(progress)
        cluster.wait_for_nodes("head", "node1", "node2")


Fault = Callable[[Lab], AbstractContextManager[None]]


def cut(one: str, other: str) -> Fault:
    return lambda lab: lab.networks["lan"].cut(lab.hosts[one], lab.hosts[other])


def half_open(source: str, target: str) -> Fault:
    return lambda lab: lab.networks["lan"].one_way(lab.hosts[source], lab.hosts[target])


@contextmanager
def standing_still(host: Host, pid: int) -> Iterator[None]:
    host.stop(pid)
    try:
        yield
    finally:
        host.go_on(pid)


PAIRS = [("alice", "head"), ("alice", "node1"), ("node1", "head")]


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_a_short_cut(cluster: Cluster, lab: Lab, one: str, other: str) -> None:
    """Shorter than three heartbeats: nothing is given up."""
    with steady_work(cluster, lab.hosts["alice"]):
        with cut(one, other)(lab):
            time.sleep(2)
    cluster.wait_for_nodes("head", "node1", "node2")


@pytest.mark.nightly
@pytest.mark.timeout(180)
@pytest.mark.parametrize(("one", "other"), PAIRS)
@pytest.mark.parametrize("fault", ["cut", "out", "in"])
def test_twenty_seconds_of_silence(cluster: Cluster, lab: Lab, one: str, other: str, fault: str) -> None:
    """Longer than three heartbeats, both ways or only one: what was given up comes back."""
    made = {"cut": cut(one, other), "out": half_open(one, other), "in": half_open(other, one)}[fault]
    with steady_work(cluster, lab.hosts["alice"]):
        with made(lab):
            time.sleep(20)
        cluster.wait_for_nodes("head", "node1", "node2", timeout=30)
        cluster.assert_encrypted("alice", "head", "node1", "node2")


@pytest.mark.nightly
@pytest.mark.timeout(180)
@pytest.mark.parametrize("who", ["head", "node1"])
def test_a_daemon_stands_still_for_twenty_seconds(cluster: Cluster, lab: Lab, who: str) -> None:
    host = lab.hosts[who]
    with steady_work(cluster, lab.hosts["alice"]):
        with standing_still(host, daemon(host).pid):
            time.sleep(20)
        cluster.wait_for_nodes("head", "node1", "node2", timeout=30)
        cluster.assert_encrypted("alice", "head", "node1", "node2")


@pytest.mark.nightly
@pytest.mark.timeout(180)
def test_a_client_stands_still_for_twenty_seconds(cluster: Cluster, lab: Lab) -> None:
    alice = lab.hosts["alice"]
    script = cluster.client(alice, COUNTED)
    cluster.assert_encrypted("alice", "head", "node1", "node2")
    wait_until(lambda: rounds(script.output()) >= 1, "the first round", 20)
    with standing_still(alice, script.pid):
        time.sleep(20)
    before = rounds(script.output())
    wait_until(lambda: rounds(script.output()) > before + 1, "work to go on", 20, script.transcript)
    tell(alice, "enough")
    script.wait(40).ok()


@pytest.mark.slow
@pytest.mark.parametrize("who", ["head", "node1", "client"])
def test_a_process_stands_still_for_a_moment(cluster: Cluster, lab: Lab, who: str) -> None:
    alice = lab.hosts["alice"]
    script = cluster.client(alice, COUNTED)
    cluster.assert_encrypted("alice", "head", "node1", "node2")
    host, pid = (alice, script.pid) if who == "client" else (lab.hosts[who], daemon(lab.hosts[who]).pid)
    with standing_still(host, pid):
        time.sleep(3)
    before = rounds(script.output())
    wait_until(lambda: rounds(script.output()) > before + 1, "work to go on", 20, script.transcript)
    cluster.wait_for_nodes("head", "node1", "node2")
    tell(alice, "enough")
    script.wait(40).ok()

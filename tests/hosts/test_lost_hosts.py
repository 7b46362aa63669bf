"""Hosts and slots that die: who hears of it, how soon, and what becomes of their work."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

from lab import Lab
from lab.cluster import Cluster, daemon, tell
from support.waiting import wait_until

HEARTBEAT = 2.0

LONG = """
@pl.remote
def long(x):
    time.sleep(2)
    return x, socket.gethostname()

futures = [long.submit(x) for x in range(12)]
print("submitted", flush=True)
found = [future.result() for future in futures]
assert [x for x, _ in found] == list(range(12)), found
print(*sorted({host for _, host in found}), flush=True)
"""


def test_a_silent_node_is_given_up_after_three_heartbeats(cluster: Cluster, lab: Lab) -> None:
    alice, node1 = lab.hosts["alice"], lab.hosts["node1"]
    script = cluster.client(alice, LONG)
    script.said("submitted")
    cluster.assert_encrypted("alice", "head", "node1", "node2")
    lab.power_off(node1)
    began = time.monotonic()
    cluster.wait_for_nodes("head", "node2", timeout=4 * HEARTBEAT)
    assert time.monotonic() - began < 3 * HEARTBEAT + 1.5
    done = script.wait(50).ok()
    assert set(done.stdout.splitlines()[-1].split()) <= {"head", "node1", "node2"}
    # What had been on it was begun again elsewhere at once, not waited for.
    assert done.seconds < 25


def test_the_death_of_a_slot_on_another_host_is_known_within_a_second(cluster: Cluster, lab: Lab) -> None:
    alice, node1 = lab.hosts["alice"], lab.hosts["node1"]
    stay = """
@pl.remote(retries=0)
def stay(x):
    print("begun on", socket.gethostname(), "as", os.getpid(), flush=True)
    time.sleep(600)

futures = [stay.submit(x) for x in range(6)]
done, _ = pl.wait(futures, n=1)
now = time.monotonic()
for future in done:
    error = future.exception()
    print("known at", now, type(error).__name__, error, flush=True)
os._exit(0)
"""
    script = cluster.client(alice, stay)
    # A call that has not begun would go elsewhere without a word.
    begun = re.compile(r"begun on node1 as (\d+)")
    wait_until(lambda: begun.search(script.output()), "a task on node1", 30, script.transcript)
    cluster.assert_encrypted("alice", "node1")
    [chosen, *_] = begun.findall(script.output())
    victim = next(one for one in node1.processes() if inner_pid(one.pid) == int(chosen))
    killed = time.monotonic()
    os.kill(victim.pid, signal.SIGKILL)
    line = next(line for line in script.wait(40).ok().stdout.splitlines() if line.startswith("known at"))
    known = float(line.split()[2])
    assert "SlotDied" in line
    assert known - killed < 1.0, line
    assert "on node1" in line


def inner_pid(pid: int) -> int:
    """The pid of a process as its own host counts."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    raise ProcessLookupError(pid)


def test_a_killed_node_daemon_takes_its_slots_along_and_may_join_again(cluster: Cluster, lab: Lab) -> None:
    alice, node1 = lab.hosts["alice"], lab.hosts["node1"]
    script = cluster.client(alice, LONG)
    script.said("submitted")
    cluster.assert_encrypted("alice", "node1")
    os.kill(daemon(node1).pid, signal.SIGKILL)
    wait_until(lambda: not node1.traces().processes, "its slots to end", 5, node1.traces)
    # A connection that closes says it at once: no heartbeat is waited for.
    cluster.wait_for_nodes("head", "node2", timeout=HEARTBEAT)
    script.wait(50).ok()
    # It kept the cluster's key when it joined, so that it needs no token now.
    node1.run("paceline", "join", "head:7077", "--cpus", "2").ok()
    cluster.wait_for_nodes("head", "node1", "node2")


def test_an_unplugged_node_comes_back(cluster: Cluster, lab: Lab) -> None:
    alice, node1 = lab.hosts["alice"], lab.hosts["node1"]
    steady = """
@pl.remote
def short(x):
    time.sleep(0.02)
    return x, socket.gethostname()

print("begun", flush=True)
while not told("enough"):
    found = short.map(range(100), chunksize=1)
    assert [x for x, _ in found] == list(range(100))
    print(*sorted({host for _, host in found}), flush=True)
print("done", flush=True)
"""
    script = cluster.client(alice, steady)
    cluster.assert_encrypted("alice", "head", "node1", "node2")
    with lab.networks["lan"].unplugged(node1):
        cluster.wait_for_nodes("head", "node2", timeout=4 * HEARTBEAT)
    cluster.wait_for_nodes("head", "node1", "node2", timeout=20)
    cluster.assert_encrypted("alice", "node1")
    tell(alice, "enough")
    script.wait(40).ok()

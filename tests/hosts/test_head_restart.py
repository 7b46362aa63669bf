"""The head is killed and started again while work runs: every result once, and never more leases than a node has."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from lab import Host, Lab, Running
from lab.cluster import Cluster, Status, daemon, tell
from support.processes import process
from support.waiting import wait_until

# The number of tasks and their length come as arguments; the results are counted one by one.
MAP = """
@pl.remote
def square(x):
    time.sleep(pause)
    return x, x * x, socket.gethostname()

total, pause = int(sys.argv[1]), float(sys.argv[2])
hosts, seen = set(), set()
for x, y, host in square.imap_unordered(range(total), chunksize=1):
    assert y == x * x and x not in seen, (x, y)
    seen.add(x)
    hosts.add(host)
    if len(seen) % 100 == 0:
        print("so far", len(seen), flush=True)
assert seen == set(range(total))
print("hosts", *sorted(hosts), flush=True)
"""

# Asks for a whole node's CPUs when it is told to, and says when it has them.
SECOND = """
@pl.remote(cpus=2)
def both(x):
    return socket.gethostname()

print("connected", flush=True)
wait_for("ask")
print("asking", flush=True)
print("granted on", both.submit(1).result(), flush=True)
"""


def kill_head(cluster: Cluster) -> None:
    os.kill(daemon(cluster.head).pid, signal.SIGKILL)


def so_far(output: str) -> int:
    lines = [line for line in output.splitlines() if line.startswith("so far")]
    return int(lines[-1].split()[-1]) if lines else 0


def wait_for_progress(script: Running, since: int | None = None) -> None:
    before = so_far(script.output()) if since is None else since
    wait_until(lambda: so_far(script.output()) > before or script.ended(), "progress", 40, script.transcript)


def restart_in_the_middle(cluster: Cluster, lab: Lab, total: int, pause: float, kills: int) -> None:
    alice, bob = lab.hosts["alice"], lab.hosts["bob"]
    script = cluster.client(alice, MAP, str(total), str(pause))
    second = cluster.client(bob, SECOND)
    second.said("connected")
    cluster.assert_encrypted("alice", "node1", "node2", "node3")
    wait_until(lambda: so_far(script.output()) >= total // 10, "a tenth", 60, script.transcript)
    join_line = cluster.join_line()  # before: nobody is there to make a token later

    kill_head(cluster)
    before = so_far(script.output())
    lab.power_off(lab.hosts["node1"])
    tell(bob, "ask")
    second.said("asking")
    late = lab.host("late")
    cluster.give_key(late)
    joining = late.start(*join_line, "--cpus", "2")
    # The leases that alice holds on living nodes go on without any head.
    wait_for_progress(script, before)
    joining.wait(40)  # there is no head: that is said at once

    cluster.start()
    late.run("paceline", "join", "head:7077", "--key-file", "/srv/key", "--cpus", "2").ok()
    second.said("granted on", 60)
    assert_within(cluster.wait_for_nodes("node2", "node3", "late", timeout=30))
    victims = random.Random(total)
    for _ in range(kills):
        kill_something(lab, victims)
        assert_within(cluster.status())
        wait_for_progress(script)
    done = script.wait(240).ok()
    second.wait(40).ok()
    assert "late" in done.stdout.splitlines()[-1].split()


def kill_something(lab: Lab, random: random.Random) -> None:
    """A slot of any node, or now and then a whole node, which joins again."""
    name = random.choice(["node2", "node3", "late"])
    host = lab.hosts[name]
    if random.random() < 0.25:
        os.kill(daemon(host).pid, signal.SIGKILL)
        wait_until(lambda: not host.traces().processes, "its slots to end", 5, host.traces)
        host.run("paceline", "join", "head:7077", "--cpus", "2").ok()
        return
    slots = slots_of(host)
    if slots:
        try:
            os.kill(random.choice(slots), signal.SIGKILL)
        except ProcessLookupError:
            pass


def slots_of(host: Host) -> list[int]:
    """Children of the zygote."""
    everyone = host.processes()
    parents = {one.parent for one in everyone}
    return [one.pid for one in everyone if one.name != "paceline" and one.pid not in parents]


def assert_within(status: Status) -> None:
    """What is leased on a node is not more than the node has, at this moment."""
    for node in status["nodes"]:
        leased = sum(lease["needs"]["cpus"] for lease in status["leases"] if lease["node"] == node["name"])
        assert leased <= node["total"]["cpus"], status


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_head_is_killed_and_started_again_in_the_middle_of_a_map(three_nodes: Cluster, lab: Lab) -> None:
    restart_in_the_middle(three_nodes, lab, total=3_000, pause=0.03, kills=0)


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_twenty_thousand_tasks_and_twenty_kills(three_nodes: Cluster, lab: Lab) -> None:
    restart_in_the_middle(three_nodes, lab, total=20_000, pause=0.01, kills=20)


def test_a_second_head_on_the_same_journal_does_not_start(cluster: Cluster) -> None:
    second = cluster.head.run("paceline", "start", "--foreground", "--port", "7099", "--cpus", "0", timeout=20)
    assert "runs already" in second.stdout + second.stderr, second.transcript()
    cluster.wait_for_nodes("head", "node1", "node2")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_of_two_heads_from_one_journal_one_exits(three_nodes: Cluster, lab: Lab) -> None:
    """The second works from a copy of the first one's state on another machine, which gets the first one's address."""
    head, twin, lan = three_nodes.head, lab.host("twin"), lab.networks["lan"]
    copy_state(head, twin)
    first = daemon(head)
    lan.unplug(head)
    twin.run("ip", "address", "add", f"{head.address}/24", "dev", "eth0").ok()
    forget_neighbours(lab)
    twin.run("paceline", "start", "--bind", "0.0.0.0", "--cpus", "0", timeout=20).ok()
    # The nodes find the second at the address they know. It has the next epoch, and they obey it from now on.
    wait_until(lambda: nodes_of(twin) == ["node1", "node2", "node3"], "the nodes to find the second head", 40)

    twin.run("ip", "address", "del", f"{head.address}/24", "dev", "eth0").ok()
    lan.plug_again(head)
    forget_neighbours(lab)
    # Now they meet the first again, which has not noticed anything: it is the one that goes.
    wait_until(lambda: process(first.pid) is None, "the first head to exit", 40, lab.report)
    logs = "".join(path.read_text(errors="replace") for path in (head.files / "root").rglob("*.log"))
    assert "was started after this one" in logs, logs


def copy_state(source: Host, target: Host) -> None:
    """As a backup would, or a directory that two machines share."""
    shutil.copytree(source.files / "root/.local", target.files / "root/.local", symlinks=True, dirs_exist_ok=True)


def forget_neighbours(lab: Lab) -> None:
    """So that an address that moved to another card is asked for at once, and not only after the old one failed."""
    for host in lab.hosts.values():
        host.run("ip", "neighbour", "flush", "all")


def nodes_of(host: Host) -> list[str]:
    done = host.run("paceline", "status", "--json", timeout=15)
    if done.returncode != 0:
        return []
    found = json.loads(done.stdout)
    status = found["clusters"][0] if "clusters" in found else found
    return sorted(node["name"] for node in status["nodes"] if node["state"] == "up")


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_nodes_without_a_head_end_themselves(lab: Lab) -> None:
    cluster = Cluster(lab, lab.host("head"), "--cpus", "0", "--head-lost", "10")
    cluster.join(lab.host("node1"), lab.host("node2"))
    cluster.wait_for_nodes("node1", "node2")
    lab.power_off(cluster.head)
    began = time.monotonic()
    nodes = [lab.hosts[name] for name in ("node1", "node2")]
    left = [(one, one.traces()) for one in nodes]

    def ended() -> bool:
        left[:] = [(one, one.traces()) for one in nodes]
        return not any(traces.processes or traces.sockets or traces.listeners for _, traces in left)

    wait_until(ended, "the nodes to end themselves", 30, lambda: left)
    assert time.monotonic() - began > 8
    for one, traces in left:
        # Only what lets them join again when there is a head: the key, where the head was, and what they have logged.
        home = Path.home() / ".local/state/paceline/clusters/default"
        kept = {f"{home}/key", f"{home}/nodes/{one.name}.json", f"{home}/logs/node-{one.name}.log"}
        files = {file for file in traces.files if not any(other.startswith(f"{file}/") for other in traces.files)}
        assert files == kept, traces

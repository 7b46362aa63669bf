"""A cluster on several hosts while all goes well: work, clients, nodes that come and go, the end."""

from __future__ import annotations

import json

import pytest

from lab import Lab
from lab.cluster import Cluster, tell

WHERE = """
@pl.remote
def where(x):
    time.sleep(0.01)
    return x, socket.gethostname()

seen = set()
while not told("enough"):
    found = where.map(range(200), chunksize=1)
    assert [x for x, _ in found] == list(range(200))
    seen |= {host for _, host in found}
    print(*sorted(seen), flush=True)
print("done", flush=True)
"""


def test_a_map_runs_on_all_nodes_over_encrypted_links(cluster: Cluster, lab: Lab) -> None:
    alice, bob = lab.hosts["alice"], lab.hosts["bob"]
    first = cluster.client(alice, WHERE)
    cluster.assert_encrypted("alice", "head", "node1", "node2")
    first.said("head node1 node2")
    # Another client comes: it gets its share, which may be on fewer nodes.
    second = cluster.client(bob, WHERE)
    second.said("\n")
    status = cluster.wait_for(
        lambda status: all(cluster.links(status, name) for name in ("alice", "bob")), "leases of both clients"
    )
    for name in ("alice", "bob"):
        assert set(cluster.links(status, name).values()) == {"tcp+tls"}, status
        assert [one["link"] for one in status["clients"] if one["name"] == name] == ["tcp+tls"]
    for script, host in ((first, alice), (second, bob)):
        tell(host, "enough")
        assert script.wait(40).ok().stdout.splitlines()[-1] == "done"


def test_a_new_node_is_used_at_once_and_a_drained_one_finishes(cluster: Cluster, lab: Lab) -> None:
    alice = lab.hosts["alice"]
    script = cluster.client(alice, WHERE)
    cluster.assert_encrypted("alice", "head", "node1", "node2")
    late = lab.host("late")
    cluster.join(late)
    cluster.assert_encrypted("alice", "late")
    script.said("late")
    cluster.head.run("paceline", "node", "drain", "node1").ok()
    cluster.wait_for_nodes("head", "node2", "late")
    lab.assert_nothing_left(lab.hosts["node1"])
    tell(alice, "enough")
    script.wait(40).ok()


def test_stop_leaves_nothing_on_any_host(cluster: Cluster, lab: Lab) -> None:
    alice = lab.hosts["alice"]
    work = """
    @pl.remote
    def leave_traces(x):
        open("here", "w").close()  # in the directory that is the slot's own
        return os.getcwd()

    print(sorted(set(leave_traces.map(range(100), chunksize=1))), flush=True)
    """
    cluster.client(alice, work.replace("\n    ", "\n")).wait(40).ok()
    cluster.stop()
    lab.assert_nothing_left()
    assert cluster.head.run("paceline", "status").stdout.strip() == "no active cluster"


def test_stop_ends_nodes_in_the_middle_of_work(cluster: Cluster, lab: Lab) -> None:
    alice = lab.hosts["alice"]
    busy = """
    @pl.remote
    def stuck(x):
        time.sleep(600)

    futures = [stuck.submit(x) for x in range(12)]
    print("submitted", flush=True)
    try:
        futures[0].result()
    except pl.PacelineError as error:
        print(type(error).__name__, error, flush=True)
    try:
        stuck(13)
    except pl.PacelineError as error:
        print("later:", type(error).__name__, error, flush=True)
    """
    script = cluster.client(alice, busy.replace("\n    ", "\n"))
    script.said("submitted")
    cluster.assert_encrypted("alice", "head", "node1", "node2")
    cluster.stop()
    # The client hears of it, and does not wait for what will never come.
    said = script.wait(40).ok().stdout
    assert "\nClusterStopped task 1 (stuck) ended with the cluster, which was stopped by `paceline stop`" in said
    assert "\nlater: ClusterStopped" in said
    assert "paceline start" in said
    lab.assert_nothing_left()


def test_two_clusters_on_the_same_hosts_do_not_meet(lab: Lab) -> None:
    head, other = lab.host("head"), lab.host("other")
    for name, port in (("red", 7101), ("blue", 7102)):
        flags = ("--name", name, "--port", str(port), "--bind", "0.0.0.0", "--cpus", "1")
        head.run("paceline", "start", *flags).ok()
        token = json.loads(head.run("paceline", "token", "--name", name, "--json").ok().stdout)["token"]
        other.run("paceline", "join", f"head:{port}", "--token", token, "--cpus", "1").ok()
    head.run("paceline", "stop", "--name", "red").ok()
    status = json.loads(head.run("paceline", "status", "--json", "--name", "blue").ok().stdout)
    status = status["clusters"][0] if "clusters" in status else status
    assert sorted(node["name"] for node in status["nodes"]) == ["head", "other"]
    head.run("paceline", "stop", "--name", "blue").ok()
    lab.assert_nothing_left()


@pytest.mark.parametrize("dead", [pytest.param("client", marks=pytest.mark.nightly), "script"])
def test_what_a_client_held_is_free_when_its_machine_dies(cluster: Cluster, lab: Lab, dead: str) -> None:
    alice = lab.hosts["alice"]
    busy = """
@pl.remote
def stuck(x):
    time.sleep(600)

futures = [stuck.submit(x) for x in range(12)]
print("submitted", flush=True)
time.sleep(600)
"""
    script = cluster.client(alice, busy)
    cluster.assert_encrypted("alice", "head", "node1", "node2")
    if dead == "script":
        script.end()
        limit = 5.0  # the end of a process is known at once
    else:
        lab.power_off(alice)
        limit = 40.0  # nobody says so: `client_lost` is 30 s
    cluster.wait_for(lambda status: not status["clients"] and not status["leases"], "the client to be gone", limit)


NESTED = """
@pl.remote
def leaf(x):
    time.sleep(0.01)
    return socket.gethostname()

@pl.remote
def branch(x):
    return socket.gethostname(), sorted(set(leaf.map(range(60), chunksize=1)))

for here, below in branch.map(range(6), chunksize=1):
    print(here, "asked", *below, flush=True)
"""


def test_tasks_on_other_hosts_submit_tasks(cluster: Cluster, lab: Lab) -> None:
    done = cluster.client(lab.hosts["alice"], NESTED).wait(40).ok()
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) == 6
    assert len({line[0] for line in lines}) > 1
    # A task's own tasks may run on any host, by data links between hosts that no client has.
    assert any(set(line[2:]) - {line[0]} for line in lines)


def test_what_remote_code_prints_and_raises_comes_home(cluster: Cluster, lab: Lab) -> None:
    script = """
@pl.remote
def speak(x):
    print("hello from", socket.gethostname(), flush=True)
    time.sleep(0.05)
    if x == 30:
        raise ValueError(f"no {x} on {socket.gethostname()}")

try:
    speak.map(range(60), chunksize=1)
except ValueError as error:
    print(repr(error))
"""
    done = cluster.client(lab.hosts["alice"], script).wait(50).ok()
    assert "ValueError('no 30 on " in done.stdout
    for host in ("head", "node1", "node2"):
        assert f"hello from {host}" in done.stdout, done.transcript()


def test_a_cluster_by_ipv6(lab: Lab) -> None:
    head, node1, alice = lab.host("head"), lab.host("node1"), lab.host("alice")
    head.run("paceline", "start", "--bind", "::", "--cpus", "0").ok()
    token = json.loads(head.run("paceline", "token", "--json").ok().stdout)["token"]
    node1.run("paceline", "join", "[fd77:1::1]:7077", "--token", token, "--cpus", "2").ok()
    key = next((head.files / "root").rglob("clusters/*/key"))
    (alice.files / "srv/key").write_bytes(key.read_bytes())
    (alice.files / "srv/key").chmod(0o600)
    script = """
import paceline as pl
pl.connect("[fd77:1::1]:7077", key_file="/srv/key")
print(pl.map(abs, [-1, 2, -3], engine="cluster"))
"""
    assert alice.python(script).ok().stdout == "[1, 2, 3]\n"


@pytest.mark.parametrize("given", ["right horse", "wrong horse"])
def test_a_password(lab: Lab, given: str) -> None:
    head, alice = lab.host("head"), lab.host("alice")
    (head.files / "srv/password").write_text("right horse\n")
    (head.files / "srv/password").chmod(0o600)
    head.run("paceline", "start", "--bind", "0.0.0.0", "--cpus", "2", "--password-file", "/srv/password").ok()
    script = f"""
import paceline as pl
pl.connect("head:7077", password={given!r})
print(pl.map(abs, [-1, 2, -3], engine="cluster"))
"""
    done = alice.python(script)
    if given == "right horse":
        assert done.ok().stdout == "[1, 2, 3]\n"
    else:
        assert done.returncode != 0
        assert "head:7077" in done.stderr
        assert "password" in done.stderr


DOUBLES = """
@pl.remote
def inner(x):
    return x + 1

@pl.remote
def outer(x):
    return inner.submit(x).result() + inner(x)

print("values", outer.map(range(4)), flush=True)
"""


def test_task_on_another_host_submits_tasks_of_its_own(cluster: Cluster, lab: Lab) -> None:
    script = cluster.client(lab.hosts["alice"], DOUBLES)
    script.said("values [2, 4, 6, 8]", 40)
    script.wait(20).ok()

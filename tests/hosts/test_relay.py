"""A node that a client cannot reach: another node hands on the sealed bytes."""

from __future__ import annotations

import os
import signal
import time

import pytest

from lab import Capture, Lab, Running
from lab.cluster import Cluster, Status, daemon, tell
from support.waiting import wait_until

# Three heartbeats without a connection, in seconds, and a little: then a lease is given up.
BROKEN_AFTER = 8.0

MARK = b"seen only by its slot "

WORK = """
mark = b"seen only by its slot "

@pl.remote
def where(data):
    time.sleep(0.02)
    return len(data), socket.gethostname()

seen = set()
while not told("enough"):
    found = where.map([mark * 1000] * 30, chunksize=1)
    assert {size for size, _ in found} == {len(mark) * 1000}
    seen |= {host for _, host in found}
    print(*sorted(seen), flush=True)
"""


def test_a_node_behind_another_network_is_used_by_relay(lab: Lab) -> None:
    lab.network("office")
    lab.network("rack")
    head, middle = lab.host("head", "office", "rack"), lab.host("middle", "office", "rack")
    behind, alice = lab.host("behind", "rack"), lab.host("alice", "office")
    cluster = Cluster(lab, head, "--cpus", "0")
    cluster.join(middle, behind)
    cluster.give_key(alice)
    cluster.wait_for_nodes("middle", "behind")
    with Capture(middle) as seen:
        script = cluster.client(alice, WORK)
        script.said("behind middle", 30)
        status = cluster.wait_for(
            lambda status: cluster.links(status, "alice") == {"middle": "tcp+tls", "behind": "relayed"},
            "a relayed link",
        )
        tell(alice, "enough")
        script.wait(40).ok()
    assert [one["link"] for one in status["clients"]] == ["tcp+tls"]
    # The one in the middle copies what it cannot read.
    assert MARK not in seen
    assert seen.size > 30 * 1000 * len(MARK)


LONELY = """
@pl.remote
def where():
    return socket.gethostname()

future = where.submit()
print("submitted", flush=True)
future.result()
"""


def test_a_node_that_nobody_can_pass_on_to_is_told_to_the_user(lab: Lab) -> None:
    lab.network("office")
    lab.network("rack")
    head, behind, alice = lab.host("head", "office", "rack"), lab.host("behind", "rack"), lab.host("alice", "office")
    cluster = Cluster(lab, head, "--cpus", "0")  # so it has no node that could pass anything on
    cluster.join(behind)
    cluster.give_key(alice)
    cluster.wait_for_nodes("behind")
    script = cluster.client(alice, LONELY)
    script.said("submitted")
    wait_until(lambda: "paceline doctor" in script.errors(), "a word about it", 20, script.transcript)
    said = script.errors()
    assert "behind cannot be reached from here" in said, said
    assert f"{behind.address}:7078" in said, said
    # Once is enough, however often it is tried again.
    for _ in range(2):
        tried = leases(cluster.wait_for(leases, "a lease on it", 20))
        cluster.wait_for(lambda status, tried=tried: leases(status) - tried, "another try", 30)
    assert script.errors().count("cannot be reached from here") == 1, script.errors()
    script.end()


def leases(status: Status) -> set[str]:
    return {lease["lease"] for lease in status["leases"]}


# Calls an actor when it is told to, and says where and in which process it lives.
ACTOR = """
class Counter:
    def __init__(self):
        self.count = 0

    def up(self):
        self.count += 1
        return self.count, socket.gethostname(), os.getpid()

# More CPUs than the others have.
counter = pl.remote(cpus=2)(Counter)()
first = counter.up()
print("first", *first, flush=True)
for number in range(2, 4):
    wait_for(str(number))
    count, *where = counter.up()
    assert where == list(first[1:]), (where, first)
    print("count", count, flush=True)
"""


def relayed_actor(lab: Lab) -> tuple[Cluster, Running]:
    """An actor on the host `behind`, which `alice` reaches by way of the host `middle`."""
    lab.network("office")
    lab.network("rack")
    head, middle = lab.host("head", "office", "rack"), lab.host("middle", "office", "rack")
    behind, alice = lab.host("behind", "rack"), lab.host("alice", "office")
    cluster = Cluster(lab, head, "--cpus", "0")
    cluster.join(middle, flags=("--cpus", "1"))
    cluster.join(behind)
    cluster.give_key(alice)
    cluster.wait_for_nodes("middle", "behind")
    script = cluster.client(alice, ACTOR)
    script.said("first 1 behind", 30)
    assert cluster.links(cluster.status(), "alice") == {"behind": "relayed"}
    return cluster, script


def assert_lives_on_after_a_break(cluster: Cluster, script: Running) -> None:
    alice, middle = cluster.lab.hosts["alice"], cluster.lab.hosts["middle"]
    middle.reset_connections(alice.address)
    # Longer than a connection may be away.
    time.sleep(BROKEN_AFTER)
    tell(alice, "2")
    script.said("count 2", 30)
    assert cluster.links(cluster.status(), "alice") == {"behind": "relayed"}
    middle.reset_connections(alice.address)
    tell(alice, "3")
    script.wait(40).ok()
    assert "count 3" in script.output()


@pytest.mark.slow
def test_an_actor_that_is_reached_by_relay_lives_on_when_its_head_starts_again_and_the_connection_breaks(
    lab: Lab,
) -> None:
    cluster, script = relayed_actor(lab)
    os.kill(daemon(cluster.head).pid, signal.SIGKILL)
    cluster.start()
    cluster.wait_for(lambda status: cluster.links(status, "alice").keys() == {"behind"}, "the lease", 30)
    cluster.wait_for_nodes("middle", "behind")
    assert_lives_on_after_a_break(cluster, script)


@pytest.mark.slow
def test_an_actor_that_is_reached_by_relay_lives_on_when_the_link_to_the_head_of_who_passes_it_on_breaks(
    lab: Lab,
) -> None:
    cluster, script = relayed_actor(lab)
    cluster.head.reset_connections(lab.hosts["middle"].address)
    cluster.wait_for_nodes("middle", "behind")
    assert_lives_on_after_a_break(cluster, script)

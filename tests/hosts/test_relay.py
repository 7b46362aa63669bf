"""A node that a client cannot reach: another node hands on the sealed bytes."""

from __future__ import annotations

from lab import Capture, Lab
from lab.cluster import Cluster, Status, tell
from support.waiting import wait_until

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

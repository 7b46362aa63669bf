"""A node that a client cannot reach: another node hands on the sealed bytes."""

from __future__ import annotations

from lab import Capture, Lab
from lab.cluster import Cluster, tell

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

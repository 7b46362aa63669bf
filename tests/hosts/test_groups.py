"""Groups whose members are on several hosts: they meet by what they are told, and are lost with one host."""

from __future__ import annotations

from lab import Lab
from lab.cluster import Cluster, tell

TOGETHER = """
def meet():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    name = socket.gethostname().encode()
    if rank == 0:
        with socket.create_server(("", address[1])) as server:
            peers = [server.accept()[0] for _ in range(size - 1)]
            names = b" ".join(sorted([name, *(peer.recv(100) for peer in peers)]))
            for peer in peers:
                peer.sendall(names)
        return names.decode()
    until = time.monotonic() + 20
    while True:
        try:
            with socket.create_connection(address) as link:
                link.sendall(name)
                return link.recv(1000).decode()
        except ConnectionRefusedError:
            assert time.monotonic() < until
            time.sleep(0.05)

def stay():
    while True:
        time.sleep(0.1)

with pl.group(3, placement="one_per_node", wait=60) as group:
    print(set(group.run(meet)), sorted(group.nodes), flush=True)
    try:
        futures = [group.submit(rank, stay) for rank in range(3)]
        wait_for("lost")
        for future in futures:
            future.result(60)
    except pl.GroupLost as error:
        print("lost with", error.node, flush=True)
"""


def test_members_on_three_hosts_meet_and_are_lost_with_one(cluster: Cluster, lab: Lab) -> None:
    alice = lab.hosts["alice"]
    script = cluster.client(alice, TOGETHER)
    script.said("{'head node1 node2'} ['head', 'node1', 'node2']", 40)
    lab.power_off(lab.hosts["node2"])
    tell(alice, "lost")
    script.said("lost with node2", 40)
    script.wait(40).ok()

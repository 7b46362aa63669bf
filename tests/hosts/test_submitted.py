"""Programs that the cluster owns, when the head and their node do not hear each other: never two of them answer."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

import pytest

from lab import Host, Lab, Running
from lab.cluster import Cluster, daemon, tell
from support.waiting import wait_until

NODES = ("node1", "node2", "node3")

# A server that tells everybody who it is: another one after each start.
SERVER = """
import os, socket, socketserver

me = os.urandom(4).hex()

class Answer(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(f"{me} {socket.gethostname()}\\n".encode())

class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True

print("serving as", me, flush=True)
Server(("", 9000), Answer).serve_forever()
"""

# Asks every host all the time, and writes down who answered: when it was asked, when it had answered, who and where.
POLLER = """
import os, socket, sys, threading, time

def ask(host):
    while not os.path.exists("/srv/enough"):
        asked = time.monotonic()
        try:
            with socket.create_connection((host, 9000), timeout=1) as link:
                link.settimeout(1)
                answer = link.makefile().readline().split()
            if answer:
                print("answer", asked, time.monotonic(), *answer, flush=True)
        except OSError:
            pass
        time.sleep(0.05)

print("polling", flush=True)
threads = [threading.Thread(target=ask, args=(host,)) for host in sys.argv[1:]]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


@dataclass(frozen=True)
class Answer:
    asked: float
    answered: float
    who: str
    host: str


def answers(poller: Running) -> list[Answer]:
    found = []
    for line in poller.output().splitlines():
        word, *rest = line.split()
        if word == "answer" and len(rest) == 4:
            found.append(Answer(float(rest[0]), float(rest[1]), rest[2], rest[3]))
    return sorted(found, key=lambda answer: answer.answered)


def starts(poller: Running) -> list[str]:
    """Who answered, in the order of the first answers; fails if one answered after another had begun to."""
    seen: list[str] = []
    for answer in answers(poller):
        if answer.who not in seen:
            seen.append(answer.who)
        assert answer.who == seen[-1], f"{answer.who} answers on {answer.host} beside {seen[-1]}: {seen}"
    return seen


def serve(lab: Lab, cluster: Cluster, *flags: str) -> tuple[Running, Host]:
    """The server, submitted from the head's host, whoever polls it, and where it runs."""
    alice = lab.hosts["alice"]
    for name in NODES:
        (lab.hosts[name].files / "srv" / "server.py").write_text(SERVER)
    poller = alice.script(POLLER, *NODES)
    poller.said("polling")
    cluster.head.run("paceline", "submit", "--name", "server", *flags, "--", "python", "/srv/server.py").ok()
    wait_until(lambda: answers(poller), "the server to answer", 20, poller.transcript)
    return poller, lab.hosts[answers(poller)[0].host]


def state(cluster: Cluster) -> str:
    [program] = cluster.status()["programs"]
    return str(program["state"])


def wait_for_state(cluster: Cluster, wanted: str, timeout: float = 30.0) -> None:
    wait_until(lambda: state(cluster) == wanted, f"the program to be {wanted}", timeout, cluster.status)


def still_answers(poller: Running, since: float, timeout: float = 10.0) -> None:
    wait_until(lambda: answers(poller)[-1].asked > since, "another answer", timeout, poller.transcript)


def quick_cluster(lab: Lab) -> Cluster:
    """Nodes that have not heard of the head for six seconds end its work, as the head tells them to."""
    beat = ("--heartbeat", "1s")
    made = Cluster(lab, lab.host("head"), "--cpus", "0", "--head-lost", "6s", *beat)
    made.join(*(lab.host(name) for name in NODES), flags=("--cpus", "1", *beat))
    lab.host("alice")
    made.wait_for_nodes(*NODES)
    return made


@pytest.mark.nightly
@pytest.mark.timeout(180)
def test_a_cut_of_thirty_seconds_leaves_the_same_one_serving(three_nodes: Cluster, lab: Lab) -> None:
    poller, node = serve(lab, three_nodes, "--restarts", "5")
    status = three_nodes.status()
    assert {one["name"]: one["link"] for one in status["nodes"]} == dict.fromkeys(NODES, "tcp+tls")
    with lab.networks["lan"].cut(three_nodes.head, node):
        until = time.monotonic() + 30
        wait_for_state(three_nodes, "unreachable")
        while time.monotonic() < until:
            assert state(three_nodes) == "unreachable"
            assert len(starts(poller)) == 1
            time.sleep(0.5)
        still_answers(poller, time.monotonic())
    wait_for_state(three_nodes, "running")
    still_answers(poller, time.monotonic())
    tell(lab.hosts["alice"], "enough")
    poller.wait(20).ok()
    assert len(starts(poller)) == 1
    three_nodes.stop()
    assert all(not lab.hosts[name].traces().processes for name in NODES)


@pytest.mark.slow
def test_after_a_cut_that_lasts_the_old_one_is_gone_before_the_new_one_serves(lab: Lab) -> None:
    cluster = quick_cluster(lab)
    poller, node = serve(lab, cluster, "--restarts", "1")
    first = answers(poller)[0].who
    with lab.networks["lan"].cut(cluster.head, node):
        cut = time.monotonic()
        wait_for_state(cluster, "unreachable")
        wait_until(lambda: len(starts(poller)) == 2, "another one", 30, poller.transcript)
        assert time.monotonic() - cut > 5
        wait_for_state(cluster, "running")
        # Long enough for the first one to show up again, if it could.
        still_answers(poller, time.monotonic() + 3, 20)
    # A node that was without its head for that long has ended, and all that was on it.
    cluster.wait_for_nodes(*(name for name in NODES if name != node.name))
    wait_until(lambda: not node.traces().processes, "the end of its node", 20, lambda: str(node.traces()))
    still_answers(poller, time.monotonic() + 3, 20)
    tell(lab.hosts["alice"], "enough")
    poller.wait(20).ok()
    [old, new] = starts(poller)
    assert old == first
    elsewhere = {answer.host for answer in answers(poller) if answer.who == new}
    assert node.name not in elsewhere


@pytest.mark.slow
def test_the_head_is_killed_under_it(lab: Lab) -> None:
    cluster = quick_cluster(lab)
    poller, _ = serve(lab, cluster, "--restarts", "3")
    os.kill(daemon(cluster.head).pid, signal.SIGKILL)
    cluster.start()
    wait_for_state(cluster, "running")
    # Longer than a head waits that has not found it.
    still_answers(poller, time.monotonic() + 10, 25)
    tell(lab.hosts["alice"], "enough")
    poller.wait(20).ok()
    assert len(starts(poller)) == 1


@pytest.mark.nightly
@pytest.mark.timeout(180)
def test_a_node_that_stood_still_does_not_go_on_with_what_runs_elsewhere(lab: Lab) -> None:
    """The daemon alone stands still, not the program; the cut begins before it goes on."""
    cluster = quick_cluster(lab)
    poller, node = serve(lab, cluster, "--restarts", "1")
    pid = daemon(node).pid
    node.stop(pid)
    try:
        time.sleep(3)
        with lab.networks["lan"].cut(cluster.head, node):
            node.go_on(pid)
            wait_until(lambda: len(starts(poller)) == 2, "another one", 30, poller.transcript)
    finally:
        node.go_on(pid)
    tell(lab.hosts["alice"], "enough")
    poller.wait(20).ok()
    assert len(starts(poller)) == 2

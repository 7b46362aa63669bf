"""Large values between two hosts, over TLS: 64 MiB as argument and as result.

Hosts are network namespaces of this machine, those of the tests, so both ends of the encryption use the
same CPUs. Beside it stands what a plain TCP connection between the same hosts carries. Needs root, as hosts do.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from harness import Must, Plan, Row, Samples

TESTS = Path(__file__).resolve().parent.parent / "tests"
SIZE = 64 << 20
PORT = 9000

# One call after the other, each way, round by round; the typical rate of each round.
CLIENT = """
import json, numpy

size, rounds, calls = map(int, sys.argv[1:])

@pl.remote
def ends(array):
    return int(array[0]) + int(array[-1])

@pl.remote
def made(size):
    global _made
    if "_made" not in globals():
        _made = numpy.ones(size, numpy.uint8)
    return _made

array = numpy.ones(size, numpy.uint8)
ways = {"argument": lambda: ends(array), "result": lambda: made(size)}
rates = {way: [] for way in ways}
for number in range(rounds + 1):
    for way, call in ways.items():
        spans = []
        for _ in range(calls):
            begin = time.perf_counter()
            call()
            spans.append(time.perf_counter() - begin)
        if number:
            rates[way].append(size / sorted(spans)[calls // 2] / 1e9)
print(json.dumps(rates), flush=True)
"""

RECEIVE = """
import socket, sys
with socket.create_server(("", int(sys.argv[1]))) as server:
    print("listens", flush=True)
    for _ in range(int(sys.argv[2])):
        taken, _ = server.accept()
        with taken:
            room = bytearray(1 << 20)
            while taken.recv_into(room):
                pass
"""

SEND = """
import socket, sys, time
size = int(sys.argv[2])
rates, data = [], bytes(size)
for _ in range(int(sys.argv[3])):
    with socket.create_connection(("node", int(sys.argv[1]))) as sock:
        begin = time.perf_counter()
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        sock.recv(1)
        rates.append(size / (time.perf_counter() - begin) / 1e9)
print(*rates)
"""


def measure(plan: Plan, size: int) -> tuple[dict[str, list[float]], list[float]]:
    sys.path[:0] = [str(TESTS / "hosts"), str(TESTS / "python")]
    from lab import Lab
    from lab.cluster import Cluster

    with Lab() as lab:
        cluster = Cluster(lab, lab.host("head"), "--cpus", "0")
        cluster.join(lab.host("node"), flags=("--cpus", "1"))
        alice = lab.host("alice")
        cluster.give_key(alice)
        cluster.wait_for_nodes("node")
        receiver = lab.hosts["node"].script(RECEIVE, str(PORT), str(plan.rounds))
        receiver.said("listens")
        plain = alice.script(SEND, str(PORT), str(size), str(plan.rounds)).wait(120).ok()
        calls = plan.repeats(5)
        client = cluster.client(alice, CLIENT, str(size), str(plan.rounds), str(calls))
        rates: dict[str, list[float]] = json.loads(client.wait(300).ok().stdout)
        return rates, [float(rate) for rate in plain.stdout.split()]


def run(plan: Plan) -> Iterator[Row]:
    if plan.peers_only or (plan.smoke and os.geteuid() != 0):
        return
    size = plan.size(SIZE, least=1 << 20)
    rates, plain = measure(plan, size)
    peer = Samples("GB/s", plain)
    for way in ("argument", "result"):
        must = Must(">=", 0.7, of="figure")
        what = f"{size >> 20} MiB array as {way}, over TLS"
        yield Row("tls", what, Samples("GB/s", rates[way]), peer, "plain TCP", must)

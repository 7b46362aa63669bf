"""Objects on several hosts: each byte goes once over the client's link, and a lost node takes only its own."""

from __future__ import annotations

import json

import pytest

from lab import Lab
from lab.cluster import Cluster, tell

BROADCAST = """
import gc
import json
import sys

import numpy

size = int(sys.argv[1]) << 20
nodes = [f"node{number}" for number in range(1, int(sys.argv[2]) + 1)]


def sent():
    for line in open("/proc/net/dev"):
        name, _, counts = line.partition(":")
        if counts and name.strip() != "lo":
            yield int(counts.split()[8])


@pl.remote
def total(values):
    return socket.gethostname(), int(values[::4096].sum())


@pl.remote
def ready():
    return None


def on(node, function):
    return function.options(placement=pl.Placement(nodes=[node]))


for node in nodes:
    on(node, ready)()
data = pl.put(numpy.ones(size, dtype=numpy.uint8))
before = sum(sent())
started = time.monotonic()
found = [on(node, total).submit(data) for node in nodes for _ in range(2)]
found = sorted({future.result() for future in found})
seconds = time.monotonic() - started
assert found == [(node, size // 4096) for node in nodes], found
print(json.dumps({"sent": sum(sent()) - before, "seconds": seconds}), flush=True)
"""


def broadcast(lab: Lab, mebibytes: int, count: int) -> None:
    made = Cluster(lab, lab.host("head"), "--cpus", "0")
    names = [f"node{number}" for number in range(1, count + 1)]
    made.join(*(lab.host(name) for name in names))
    made.give_key(lab.host("alice"))
    made.wait_for_nodes(*names)
    script = made.client(lab.hosts["alice"], BROADCAST, str(mebibytes), str(count))
    told = json.loads(script.wait(120).ok().stdout)
    print(told)
    assert told["sent"] <= 1.05 * (mebibytes << 20), told


def test_a_broadcast_goes_once_over_the_link_of_the_client(lab: Lab) -> None:
    broadcast(lab, 32, 4)


@pytest.mark.nightly
def test_a_large_broadcast_goes_once_over_the_link_of_the_client(lab: Lab) -> None:
    broadcast(lab, 256, 4)


LOST = """
import gc

import numpy


@pl.remote
def made(size):
    return pl.put(numpy.ones(size))


@pl.remote(retries=3)
def total(values):
    return float(values.sum())


def on(node, function):
    return function.options(placement=pl.Placement(nodes=[node]))


lost, copied, here = (on("node1", made)(1 << 20) for _ in range(3))
assert on("node2", total)(copied) == 1 << 20
assert pl.get(here).sum() == 1 << 20
print("kept", flush=True)
wait_for("off")
assert on("node2", total)(copied) == 1 << 20
assert pl.get(copied).sum() == 1 << 20
assert on("node3", total)(here) == 1 << 20
try:
    pl.get(lost)
except pl.ObjectLost as error:
    print(error.code, flush=True)
try:
    on("node2", total)(lost)
except pl.ObjectLost as error:
    print(" is lost: it was made on the node of number " in str(error), flush=True)
assert on("node3", total)(pl.put(numpy.ones(5))) == 5
print("done", flush=True)
"""


def test_what_other_nodes_have_outlives_a_node(three_nodes: Cluster, lab: Lab) -> None:
    alice = lab.hosts["alice"]
    script = three_nodes.client(alice, LOST)
    script.said("kept", 40)
    lab.power_off(lab.hosts["node1"])
    three_nodes.wait_for_nodes("node2", "node3")
    tell(alice, "off")
    assert script.wait(90).ok().stdout.split() == ["kept", "object-lost", "True", "done"]

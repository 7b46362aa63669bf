"""Detached actors on hosts that fall silent."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from lab import Lab
from lab.cluster import Cluster, daemon, tell
from support.waiting import wait_until

ACTORS = """
import json

class Box:
    def __init__(self, number):
        self.number = number

    def where(self):
        return socket.gethostname()

make = pl.remote(cpus=0)(Box)
boxes = [make.options(name=f"box{number}", detached=True)(number) for number in range(6)]
[box, *_] = [box for box in boxes if box.where() == "node1"]
print("made", flush=True)
wait_for("silent")
began = time.monotonic()
heard = []
while True:
    call = box.where.submit()
    try:
        host = call.result(timeout=100)
    except pl.PacelineError as error:
        what = [type(error).__name__, str(error)]
    else:
        what = ["host", host]
    if what != (heard and heard[-1][1]):
        heard.append((time.monotonic() - began, what))
    if what[0] == "host" and what[1] != "node1":
        break
    time.sleep(0.05)
print("heard", json.dumps(heard), flush=True)
wait_for("back")
print("in the end", box.where(), flush=True)
"""


@pytest.mark.slow
def test_an_actor_on_a_silent_host_is_out_of_reach_and_then_elsewhere(cluster: Cluster, lab: Lab) -> None:
    """It is rebuilt only when its host, if it lives, has ended it by its own clock; until then callers are told so."""
    alice, node1 = lab.hosts["alice"], lab.hosts["node1"]
    script = cluster.client(alice, ACTORS)
    script.said("made")
    with lab.networks["lan"].unplugged(node1):
        tell(alice, "silent")
        script.said("heard", timeout=150)
        [line] = [line for line in script.output().splitlines() if line.startswith("heard ")]
        heard: list[tuple[float, list[str]]] = json.loads(line.partition(" ")[2])
        kinds = [what[0] for _, what in heard]
        assert "ActorUnavailable" in kinds, heard
        assert kinds[-1] == "host"
        away: Any = next((at, what) for at, what in heard if what[0] == "ActorUnavailable")
        assert away[0] < 10, "three heartbeats, and a little"
        assert "its node is silent" in away[1][1]
        wait_until(lambda: not node1.traces().processes, "the host to have ended what it had", 20, node1.traces)
    tell(alice, "back")
    done = script.wait(30).ok()
    assert done.stdout.splitlines()[-1] != "in the end node1"


AWAITED = """
class Box:
    def where(self):
        return socket.gethostname()

pl.remote(cpus=0)(Box).options(name="box", detached=True)().where()
print("made", flush=True)
wait_for("gone")
try:
    pl.get_actor("box")
except pl.PacelineError as error:
    print(error.code, error, flush=True)
"""


@pytest.mark.slow
def test_detached_actor_without_a_node_is_unavailable_and_not_unknown(lab: Lab) -> None:
    """It is in the head's journal and is built anew when there is a node: whoever looks for it is told so."""
    cluster = Cluster(lab, lab.host("head"), "--cpus", "0")
    cluster.join(lab.host("node1"))
    cluster.give_key(lab.host("alice"))
    cluster.wait_for_nodes("node1")
    script = cluster.client(lab.hosts["alice"], AWAITED)
    script.said("made")
    lab.power_off(lab.hosts["node1"])
    # A head that has just been started knows of the actor from its journal only.
    os.kill(daemon(cluster.head).pid, signal.SIGKILL)
    cluster.start()
    tell(lab.hosts["alice"], "gone")
    script.said("actor-unavailable get_actor('box') did not run: its actor cannot be reached", 30)

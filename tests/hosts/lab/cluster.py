"""A Paceline cluster on the hosts of a lab, started and used with the commands that users have."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from typing import Any

from lab.host import Completed, Host, Running
from lab.lab import Lab
from support.processes import Process
from support.waiting import wait_until

PORT = 7077
# Where programs on machines outside the cluster find a copy of its key.
KEY = "/srv/key"

# What every client's script begins with.
CONNECT = """
import os, signal, socket, sys, time
import paceline as pl

def told(name):
    '''Whether the test has said so.'''
    return os.path.exists(f"/srv/{name}")

def wait_for(name):
    while not told(name):
        time.sleep(0.005)

cluster = pl.connect("head:7077", key_file="/srv/key", name=socket.gethostname())
"""

Status = dict[str, Any]


class Cluster:
    """One head, named `head` in its lab, and the nodes that joined it."""

    def __init__(self, lab: Lab, head: Host, *flags: str) -> None:
        self.lab = lab
        self.head = head
        self.flags = flags
        self.said = self.start()

    def start(self) -> Completed:
        """`paceline start` on the head's host: the first time, or again after it was killed."""
        return self.head.run("paceline", "start", "--bind", "0.0.0.0", *self.flags, timeout=20).ok()

    def join(self, *hosts: Host, flags: tuple[str, ...] = ("--cpus", "2")) -> None:
        """Let hosts join, each with a token of its own."""
        for host in hosts:
            host.run(*self.join_line(), *flags, timeout=20).ok()

    def join_line(self) -> list[str]:
        token: Any = self.head.run("paceline", "token", "--json").json()
        return ["paceline", "join", f"head:{PORT}", "--token", token["token"]]

    def give_key(self, *hosts: Host) -> None:
        """Copy the key to machines that are not of the cluster, as users do with scp."""
        found = sorted((self.head.files / "root").rglob("clusters/*/key"))
        assert len(found) == 1, found
        for host in hosts:
            shutil.copy(found[0], host.files / KEY[1:])
            (host.files / KEY[1:]).chmod(0o600)

    def client(self, host: Host, text: str, *args: str, env: Mapping[str, str] | None = None) -> Running:
        """Start a script that is connected from its first line on."""
        return host.script(CONNECT + text, *args, env=env)

    def status(self, host: Host | None = None) -> Status:
        done = (host or self.head).run("paceline", "status", "--json", timeout=30)
        # One that does not answer is a failure, and is told all the same.
        found: Any = json.loads(done.stdout) if done.stdout.startswith("{") else done.json()
        # One cluster a machine in these tests.
        return dict(found["clusters"][0] if "clusters" in found else found)

    def wait_for(self, condition: Callable[[Status], object], what: str, timeout: float = 30.0) -> Status:
        """The first status of which `condition` is true."""
        deadline = time.monotonic() + timeout
        while True:
            status = self.status()
            if condition(status):
                return status
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {timeout:g} s for {what}; last status: {json.dumps(status, indent=1)}")
            # A question is a process and a connection of its own: not as often as a machine can.
            time.sleep(0.1)

    def wait_for_nodes(self, *names: str, timeout: float = 30.0) -> Status:
        """Exactly these nodes are there and up."""
        wanted = sorted(names)
        return self.wait_for(
            lambda status: sorted(node["name"] for node in status["nodes"] if node["state"] == "up") == wanted,
            f"nodes {', '.join(wanted)}",
            timeout,
        )

    def links(self, status: Status, client: str) -> dict[str, str]:
        """How one client's leases are linked, by the name of the node."""
        ids = [one["client"] for one in status["clients"] if one["name"] == client]
        return {lease["node"]: lease["link"] for lease in status["leases"] if lease["client"] in ids and lease["link"]}

    def assert_encrypted(self, client: str, *nodes: str) -> Status:
        """Everything between machines that this client's work on these nodes is about is `tcp+tls`."""
        wanted = dict.fromkeys(nodes, "tcp+tls")
        status = self.wait_for(
            lambda status: wanted.items() <= self.links(status, client).items(),
            f"leases of {client} on {', '.join(nodes)} by tcp+tls",
        )
        assert [one["link"] for one in status["clients"] if one["name"] == client] == ["tcp+tls"], status
        for node in status["nodes"]:
            if node["name"] in nodes and node["name"] != self.head.name:
                assert node["link"] == "tcp+tls", node
        return status

    def stop(self) -> Completed:
        return self.head.run("paceline", "stop", timeout=30).ok()


def tell(host: Host, word: str) -> None:
    """What a client's script waits for with `wait_for(word)`."""
    (host.files / "srv" / word).touch()


def daemon(host: Host) -> Process:
    """The one Paceline process of a host that is neither a slot nor a zygote."""
    found = [one for one in host.processes() if one.name == "paceline"]
    assert len(found) == 1, host.processes()
    return found[0]


def seconds_until(condition: Callable[[], object], what: str, timeout: float) -> float:
    began = time.monotonic()
    wait_until(condition, what, timeout)
    return time.monotonic() - began

"""The cluster under test: a head, three nodes and two clients on hosts made of namespaces, and what befalls them."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

from chaos import history
from chaos.history import Record, Writer, now
from chaos.plan import CLIENT_LOST, CLIENTS, HEAD, HEAD_LOST, HEARTBEAT, HOSTS, NODES
from chaos.services import Service
from lab.host import ROOT, Host
from lab.lab import Lab
from lab.slow_network import SlowNetwork
from support.waiting import wait_until

PORT = 7077
KEY = "/srv/key"
CPUS_PER_NODE = 4
# Small enough that objects spill, and that a file system is full soon.
OBJECT_MEMORY = "16M"
FILE_SYSTEM_SIZE = "96M"
# Even a quick network takes some time.
NETWORK_DELAY = 0.0002
SETTINGS = {
    "PACELINE_HEARTBEAT": f"{HEARTBEAT}s",
    "PACELINE_HEAD_LOST": f"{HEAD_LOST}s",
    "PACELINE_CLIENT_LOST": f"{CLIENT_LOST}s",
    "PACELINE_OBJECT_MEMORY": OBJECT_MEMORY,
}


class Arena:
    """Hosts, their network and the processes that are kept running on them."""

    def __init__(self, lab: Lab, seed: int, rest: float, results: Path) -> None:
        self.lab = lab
        self.results = results
        self.writer = Writer(str(results / "history" / "run"))
        network = lab.network("lan", delay=NETWORK_DELAY)
        assert isinstance(network, SlowNetwork)
        self.network = network
        self.hosts: dict[str, Host] = {name: self._host(name) for name in HOSTS}
        self.services: dict[str, Service] = {HEAD: self._service(HEAD, self._head_command)}
        for node in NODES:
            self.services[node] = self._service(node, self._node_command)
        for client in CLIENTS:
            words = ["python", "-m", "chaos.client", client]
            rests = [str(seed), str(rest)]
            self.services[client] = self._service(
                client, lambda start, words=words, rests=rests: [*words, str(start), *rests]
            )

    def _host(self, name: str) -> Host:
        host = self.lab.host(name)
        host.variables.update(SETTINGS)
        if name in CLIENTS:
            host.variables["PYTHONPATH"] = str(ROOT / "tests")
        for directory in ("/root", "/tmp"):
            host.run("mount", "-o", f"remount,size={FILE_SYSTEM_SIZE}", directory).ok()
        # `mount` keeps notes there, which are not the cluster's.
        shutil.rmtree(host.files / "run/mount", ignore_errors=True)
        return host

    def _service(self, name: str, command: Any) -> Service:
        return Service(name, self.hosts[name], command, self.writer)

    def _head_command(self, start: int) -> list[str]:
        return ["paceline", "start", "--foreground", "--bind", "0.0.0.0", "--cpus", "0"]

    def _node_command(self, start: int) -> list[str]:
        words = ["paceline", "join", f"{HEAD}:{PORT}", "--foreground", "--key-file", KEY]
        return [*words, "--cpus", str(CPUS_PER_NODE)]

    def start(self) -> None:
        """Starts head, nodes and clients, and waits until all are there."""
        self.services[HEAD].poll()
        root = self.hosts[HEAD].files / "root"
        wait_until(lambda: list(root.rglob("clusters/*/key")), "the head's key", 20)
        [key] = root.rglob("clusters/*/key")
        for name in HOSTS:
            copy = self.hosts[name].files / KEY[1:]
            shutil.copy(key, copy)
            copy.chmod(0o600)
        for node in NODES:
            self.services[node].poll()
        self.wait_for_nodes(30)
        for client in CLIENTS:
            self.services[client].poll()
        wait_until(self._clients_are_connected, "the clients to connect", 30, self.lab.report)

    def _clients_are_connected(self) -> bool:
        seen = {record["client"] for record in self.histories() if record["event"] == "connected"}
        return seen >= set(CLIENTS)

    def poll(self) -> None:
        for service in self.services.values():
            service.poll()

    def set_network(self, delay: float, percent: int, dropped: list[tuple[str, str]]) -> None:
        """Sets what the network does from now on."""
        pairs = tuple((self.hosts[source], self.hosts[target]) for source, target in dropped)
        self.network.change(delay or NETWORK_DELAY, percent, pairs)

    def status(self) -> dict[str, Any] | None:
        """Returns what the head says of the cluster, or None if it does not answer."""
        with contextlib.suppress(AssertionError, KeyError, IndexError, ValueError):
            done = self.hosts[HEAD].run("paceline", "status", "--json", timeout=20)
            found = json.loads(done.stdout)
            return dict(found["clusters"][0] if "clusters" in found else found)
        return None

    def nodes_up(self) -> list[str]:
        status = self.status() or {}
        return sorted(node["name"] for node in status.get("nodes", ()) if node["state"] == "up")

    def wait_for_nodes(self, timeout: float) -> bool:
        """Waits until all nodes are there; returns whether they came in time."""
        deadline = now() + timeout
        while now() < deadline:
            self.poll()
            if self.nodes_up() == list(NODES):
                return True
        return False

    def histories(self) -> list[Record]:
        """Returns what all processes have written so far."""
        directories = [host.files / history.DIRECTORY[1:] for host in self.hosts.values() if host.alive]
        return history.read([*directories, self.results / "history" / "run"])

    def save(self) -> None:
        """Copies histories, outputs and logs to the results; hosts take theirs along when they end."""
        for name, host in self.hosts.items():
            with contextlib.suppress(OSError):
                shutil.copytree(host.files / history.DIRECTORY[1:], self.results / "history" / name, dirs_exist_ok=True)
            for log in (host.files / "root").rglob("*.log*"):
                with contextlib.suppress(OSError):
                    shutil.copy(log, self.results / f"{name}-{log.name}")
        shutil.copytree(self.lab.directory, self.results / "output", dirs_exist_ok=True)

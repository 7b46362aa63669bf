"""A network between hosts: a switch in a namespace of its own, and what can go wrong in it.

The switch is a bridge, with a veth pair for every host. Faults are filters of the switch, so the hosts at both ends see
of them what they would see of a bad cable: nothing. A slow network has another switch, in `slow.py`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator

from lab.host import Host
from support.waiting import wait_until


def command(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=20)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout


def in_network_of(pid: int, *words: str) -> str:
    return command("nsenter", f"--target={pid}", "--net", *words)


class Network:
    """Made by `Lab.network`; `plug` connects a host. Every fault ends with its `with` block, or with `mend`."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.hosts: list[Host] = []
        self._begin()

    def _begin(self) -> None:
        # It ends when its standard input does: when this process ends, however.
        self._switch = subprocess.Popen(
            ["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
        )
        ours, its = "/proc/self/ns/net", f"/proc/{self._switch.pid}/ns/net"
        wait_until(lambda: os.readlink(ours) != os.readlink(its), f"the switch of network {self.name}")
        self._inside("ip", "link", "add", "lan", "type", "bridge")
        self._inside("ip", "link", "set", "lan", "up")
        self._inside("nft", "add", "table", "bridge", "faults")
        self._inside("nft", "add", "chain", "bridge", "faults", "crossing", "{ type filter hook forward priority 0; }")

    def _inside(self, *words: str) -> str:
        return in_network_of(self._switch.pid, *words)

    def plug(self, host: Host) -> None:
        """Give the host an address here: 10.77.network.place, and the same in IPv6."""
        self.hosts.append(host)
        device = f"eth{len(host.addresses)}"
        self._connect(host, device)
        place = len(self.hosts)
        host.addresses[self.name] = f"10.77.{self.number}.{place}"
        in_network_of(host.init, "ip", "address", "add", f"{host.addresses[self.name]}/24", "dev", device)
        with contextlib.suppress(RuntimeError):  # a machine without IPv6
            address = f"fd77:{self.number}::{place}/64"
            in_network_of(host.init, "ip", "address", "add", address, "dev", device, "nodad")
        in_network_of(host.init, "ip", "link", "set", device, "up")

    def _connect(self, host: Host, device: str) -> None:
        port = self._port(host)
        ends = ("ip", "link", "add", device, "netns", str(host.init), "type", "veth")
        command(*ends, "peer", "name", port, "netns", str(self._switch.pid))
        self._inside("ip", "link", "set", port, "master", "lan")
        self._inside("ip", "link", "set", port, "up")

    def _port(self, host: Host) -> str:
        """The switch's end of a host's cable."""
        return f"port{self.hosts.index(host) + 1}"

    def unplug(self, host: Host) -> None:
        """Take the cable out: the host's link is down."""
        self._inside("ip", "link", "set", self._port(host), "down")

    def plug_again(self, host: Host) -> None:
        self._inside("ip", "link", "set", self._port(host), "up")

    def drop(self, source: Host, target: Host, percent: int = 100) -> None:
        """Lose what goes from `source` to `target`, or that share of it; the other way is not touched."""
        pair = ("iifname", self._port(source), "oifname", self._port(target))
        share = () if percent >= 100 else ("numgen", "random", "mod", "100", "<", str(percent))
        self._inside("nft", "add", "rule", "bridge", "faults", "crossing", *pair, *share, "counter", "drop")

    def mend(self) -> None:
        """End all faults but unplugged cables."""
        self._inside("nft", "flush", "chain", "bridge", "faults", "crossing")

    @contextlib.contextmanager
    def unplugged(self, host: Host) -> Iterator[None]:
        self.unplug(host)
        try:
            yield
        finally:
            self.plug_again(host)

    @contextlib.contextmanager
    def cut(self, one: Host, other: Host) -> Iterator[None]:
        """Nothing goes between these two, and everything else does."""
        self.drop(one, other)
        self.drop(other, one)
        try:
            yield
        finally:
            self.mend()

    @contextlib.contextmanager
    def one_way(self, source: Host, target: Host) -> Iterator[None]:
        """A half-open connection: `target` hears nothing of `source` any more, not even a reset."""
        self.drop(source, target)
        try:
            yield
        finally:
            self.mend()

    @contextlib.contextmanager
    def lossy(self, percent: int) -> Iterator[None]:
        """Every packet between any two hosts is lost with this chance."""
        share = ("numgen", "random", "mod", "100", "<", str(percent))
        self._inside("nft", "add", "rule", "bridge", "faults", "crossing", *share, "counter", "drop")
        try:
            yield
        finally:
            self.mend()

    def end(self) -> None:
        if self._switch.stdin is not None:
            self._switch.stdin.close()
        self._switch.wait(10)

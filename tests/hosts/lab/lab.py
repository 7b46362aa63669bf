"""All hosts and networks of one test."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

from lab.host import Host, Traces
from lab.network import Network
from lab.slow_network import SlowNetwork
from support.waiting import wait_until


class Lab:
    """Leaving the `with` block ends every host and network, whatever state they are in."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="paceline-hosts-"))
        self.networks: dict[str, Network] = {}
        self.hosts: dict[str, Host] = {}

    def network(self, name: str = "lan", delay: float = 0.0) -> Network:
        """A new network. With a `delay`, everything in it takes that many seconds, each way."""
        number = len(self.networks) + 1
        made = SlowNetwork(name, number, delay) if delay else Network(name, number)
        self.networks[name] = made
        return made

    def host(self, name: str, *networks: str) -> Host:
        """A new host in these networks; without names in `lan`, which is made if need be."""
        if not networks:
            networks = ("lan",)
            if "lan" not in self.networks:
                self.network("lan")
        made = Host(name, self.directory)
        self.hosts[name] = made
        for network in networks:
            self.networks[network].plug(made)
        self._name_all()
        return made

    def _name_all(self) -> None:
        """Every host knows every other by name, as far as they share a network."""
        living = [host for host in self.hosts.values() if host.alive]
        for host in living:
            known = {host.name: host.address}
            for other in living:
                shared = [network for network in host.addresses if network in other.addresses]
                if other is not host and shared:
                    known[other.name] = other.addresses[shared[0]]
            host.names(known)

    def power_off(self, host: Host) -> None:
        """As if its plug were pulled: its peers hear nothing at all, not even that its connections end."""
        for network in host.addresses:
            self.networks[network].unplug(host)
        host.end()

    def assert_nothing_left(self, *hosts: Host, within: float = 5.0) -> None:
        """Neither process, file nor socket is on these hosts, or on all of them, that was not there when they began."""
        wanted = hosts or tuple(one for one in self.hosts.values() if one.alive)
        left = dict[str, Traces]()

        def clean() -> bool:
            left.clear()
            left.update({host.name: traces for host in wanted if (traces := host.traces())})
            return not left

        wait_until(clean, "nothing to be left", within, lambda: left)

    def report(self) -> str:
        """What the clusters on the hosts have logged, for a test that failed."""
        parts = []
        for host in self.hosts.values():
            if not host.alive:
                parts.append(f"==== {host.name} is gone")
                continue
            parts.append(f"==== {host.name}")
            parts += [str(one) for one in host.processes()]
            # Files come and go while a cluster ends.
            with contextlib.suppress(OSError):
                for log in sorted((host.files / "root").rglob("*.log")):
                    lines = [line for line in log.read_text(errors="replace").splitlines() if "came in" not in line]
                    parts.append(f"---- {log.name}\n" + "\n".join(lines[-40:]))
        return "\n".join(parts)

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
            for network in self.networks.values():
                stack.callback(network.end)
            for host in self.hosts.values():
                stack.callback(host.end)

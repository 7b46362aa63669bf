"""The slow network as tests use it; the switch itself is `slow.py`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from lab.host import Host
from lab.namespaces import inside_network_of
from lab.network import Network
from lab.slow import tap


class SlowNetwork(Network):
    """Everything takes `delay` seconds each way. `change` sets its faults; those by `with` are for plain networks."""

    def __init__(self, name: str, number: int, delay: float) -> None:
        self.delay = delay
        super().__init__(name, number)

    def _begin(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(20)
        program = [sys.executable, "-I", str(Path(__file__).with_name("slow.py")), str(self.delay)]
        self._switch = subprocess.Popen(program, stdin=theirs.fileno(), start_new_session=True)
        theirs.close()

    def _connect(self, host: Host, device: str) -> None:
        descriptor = inside_network_of(host.init, lambda: tap(device))
        socket.send_fds(self._control, [b"p"], [descriptor])
        os.close(descriptor)

    def change(self, delay: float, percent: int = 0, dropped: tuple[tuple[Host, Host], ...] = ()) -> None:
        """Set the delay, the share of frames that is lost, and the pairs (source, target) that lose all."""
        pairs = [[self.hosts.index(source), self.hosts.index(target)] for source, target in dropped]
        self._control.send(json.dumps({"delay": delay, "percent": percent, "dropped": pairs}).encode())
        answer = self._control.recv(16)
        assert answer == b"done", f"the switch of {self.name} is gone"

    def _inside(self, *words: str) -> str:
        raise NotImplementedError(f"a slow network has no such fault: {' '.join(words)}")

    def end(self) -> None:
        self._control.close()
        self._switch.wait(10)

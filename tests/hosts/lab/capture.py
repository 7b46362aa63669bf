"""What crosses a host's cards, byte by byte."""

from __future__ import annotations

import socket
import struct
import threading
import time

from lab.host import Host
from lab.namespaces import inside_network_of

ETH_P_ALL = 0x0003
SOL_PACKET, PACKET_STATISTICS = 263, 6
SO_RCVBUFFORCE = 33


class Capture:
    """`with Capture(host) as seen:` keeps every frame that leaves or reaches the host by a card, the loopback too."""

    def __init__(self, host: Host) -> None:
        self.frames: list[bytes] = []
        self.missed = 0
        self._socket = inside_network_of(
            host.init, lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        )
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 256 << 20)
        self._socket.settimeout(0.05)
        self._ending = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def _read(self) -> None:
        # What was sent before the end is read; traffic that goes on is not waited for.
        until = float("inf")
        while time.monotonic() < until:
            if self._ending.is_set():
                until = min(until, time.monotonic() + 1)
            try:
                self.frames.append(self._socket.recv(1 << 17))
            except TimeoutError:
                if self._ending.is_set():
                    return

    def __enter__(self) -> Capture:
        self._reader.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ending.set()
        self._reader.join()
        _, self.missed = struct.unpack("II", self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        self._socket.close()

    @property
    def size(self) -> int:
        return sum(map(len, self.frames))

    def __contains__(self, mark: bytes) -> bool:
        return any(mark in frame for frame in self.frames)

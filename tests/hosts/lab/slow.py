"""A slow network: a switch in user space that hands on every frame after a while, or loses it.

It works where the kernel has no netem. Every host has a TAP device whose other end is this process, so the hosts'
kernels cut and check-sum packets themselves, as for a real card. Frames go to the host whose address they name, all
others to everybody else; their order changes only when the delay becomes shorter.

This file is both the class that tests use and, started as a program, the switch.
"""

from __future__ import annotations

import fcntl
import heapq
import json
import os
import random
import selectors
import socket
import struct
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000


def tap(name: str) -> int:
    """A TAP device in the network of the calling thread; it goes with the descriptor."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return descriptor


class Switch:
    """Frames under way, each with the time when it is due; ports are numbered from 0 in the order of their arrival."""

    def __init__(self, control: socket.socket, delay: float) -> None:
        self.control = control
        self.delay = delay
        self.percent = 0
        self.dropped: set[tuple[int, int]] = set()
        self.ports: list[int] = []
        self.number: dict[int, int] = {}
        self.learned: dict[bytes, int] = {}
        self.under_way: list[tuple[float, int, int, bytes]] = []
        self.taken = 0
        self.selector = selectors.DefaultSelector()
        self.selector.register(control, selectors.EVENT_READ)

    def run(self) -> None:
        """Until the testing process closes its end, however that ends."""
        while True:
            self._deliver()
            rest = max(0.0, self.under_way[0][0] - time.monotonic()) if self.under_way else None
            for key, _ in self.selector.select(rest):
                if key.fileobj is not self.control:
                    self._take(key.fd)
                elif not self._on_control():
                    return

    def _on_control(self) -> bool:
        """A new port comes as a descriptor; faults come as what the switch does from now on."""
        data, descriptors, _, _ = socket.recv_fds(self.control, 65536, 16)
        for descriptor in descriptors:
            os.set_blocking(descriptor, False)
            self.number[descriptor] = len(self.number)
            self.ports.append(descriptor)
            self.selector.register(descriptor, selectors.EVENT_READ)
        if data and not descriptors:
            faults = json.loads(data)
            self.delay, self.percent = faults["delay"], faults["percent"]
            self.dropped = {(source, target) for source, target in faults["dropped"]}
            # The caller waits for this: from now on it is so.
            self.control.send(b"done")
        return bool(data)

    def _take(self, port: int) -> None:
        due = time.monotonic() + self.delay
        for _ in range(64):
            try:
                frame = os.read(port, 65536)
            except BlockingIOError:
                return
            except OSError:
                # Its host is gone.
                self.selector.unregister(port)
                self.ports.remove(port)
                return
            self.learned[frame[6:12]] = port
            self.taken += 1
            heapq.heappush(self.under_way, (due, self.taken, port, frame))

    def _deliver(self) -> None:
        now = time.monotonic()
        while self.under_way and self.under_way[0][0] <= now:
            _, _, source, frame = heapq.heappop(self.under_way)
            known = self.learned.get(frame[:6])
            for port in [known] if known is not None else [one for one in self.ports if one != source]:
                if self._loses(source, port):
                    continue
                try:
                    os.write(port, frame)
                except OSError:
                    pass  # full, or gone: a switch drops

    def _loses(self, source: int, target: int) -> bool:
        if self.dropped and (self.number[source], self.number[target]) in self.dropped:
            return True
        return bool(self.percent) and random.randrange(100) < self.percent


def main() -> None:
    Switch(socket.socket(fileno=0), float(sys.argv[1])).run()


if __name__ == "__main__":
    main()

"""A network that can fail: a TCP proxy on this machine that cuts, stalls and refuses connections when it is told to."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

PIECE = 1 << 16


class Proxy:
    """Passes connections on to an address, until told otherwise.

    `cut` ends those there are, at once and without a word (RST) or in good order; `refuse` takes no new ones; while it
    is `stalled` nothing gets through, and nobody is told. After so many bytes of answers `cut_after` cuts by itself.
    """

    def __init__(self, target: str | None = None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._target = target
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._flows = threading.Event()
        self._flows.set()
        self._refuses = False
        self._budget: int | None = None
        self.accepted = 0
        self.cuts = 0
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def lead_to(self, target: str) -> None:
        self._target = target

    def close(self) -> None:
        self._refuses = True
        self._flows.set()
        # The thread must be out of it first: it would take connections of whatever gets the descriptor's number next.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join(10)
        self._listener.close()
        self.cut()

    @property
    def open(self) -> int:
        with self._lock:
            return len(self._pairs)

    def cut(self, *, reset: bool = True) -> int:
        """End every connection there is. Says how many."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    if reset:
                        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    # Whoever reads it is woken by this, and by closing alone would not be.
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
        self.cuts += len(pairs)
        return len(pairs)

    def cut_after(self, answered: int) -> None:
        """Cut everything once so many more bytes have come back."""
        self._budget = answered

    def refuse(self, refuses: bool = True) -> None:
        self._refuses = refuses

    def stall(self, stalls: bool = True) -> None:
        if stalls:
            self._flows.clear()
        else:
            self._flows.set()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refuses or self._target is None:
                client.close()
                continue
            host, _, port = self._target.rpartition(":")
            try:
                server = socket.create_connection((host, int(port)), 5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = (client, server)
            with self._lock:
                self._pairs.add(pair)
                self.accepted += 1
            threading.Thread(target=self._pass_on, args=(client, server, pair, False), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(server, client, pair, True), daemon=True).start()

    def _pass_on(
        self, source: socket.socket, target: socket.socket, pair: tuple[socket.socket, socket.socket], answers: bool
    ) -> None:
        try:
            while piece := source.recv(PIECE):
                self._flows.wait()
                if answers and self._budget is not None:
                    self._budget -= len(piece)
                    if self._budget <= 0:
                        self._budget = None
                        target.sendall(piece[: len(piece) // 2])
                        self.cut()
                        return
                target.sendall(piece)
        except OSError:
            pass
        with self._lock:
            known = pair in self._pairs
            self._pairs.discard(pair)
        if known:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

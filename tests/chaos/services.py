"""Processes that are kept running: head, nodes and clients, each in a host of its own.

A supervisor, such as systemd, would do the same: what has ended is started again, a while later if a fault says so.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from chaos.history import Writer, now
from lab.host import Host, Running

# How long after an end that no fault asked for a service is started again.
RESTART_DELAY = 1.0


class Service:
    """One process and what becomes of it. `command` gives the words that start it for the nth time, from 1."""

    def __init__(self, name: str, host: Host, command: Callable[[int], list[str]], writer: Writer) -> None:
        self.name = name
        self.host = host
        self.command = command
        self.writer = writer
        self.starts = 0
        self.running: Running | None = None
        self.pid = 0
        self.wanted = True
        self._due = 0.0
        # Why it is expected to end, if it is.
        self._expected: str | None = None

    def poll(self) -> None:
        """Notices an end, and starts the process when it is due."""
        if self.running is not None and self.running.ended():
            code = self.running.process.returncode
            self.writer.write(
                "exited", service=self.name, pid=self.pid, code=code, expected=self._expected, text=self._last_words()
            )
            self.running = None
            if self._expected is None:
                self._due = now() + RESTART_DELAY
            self._expected = None
        if self.running is None and self.wanted and now() >= self._due:
            self.starts += 1
            self.running = self.host.start(*self.command(self.starts), directory="/srv")
            self.pid = self.running.pid
            self.writer.write("launched", service=self.name, pid=self.pid, start=self.starts)

    def _last_words(self) -> str:
        assert self.running is not None
        return (self.running.errors() + self.running.output())[-600:]

    @property
    def alive(self) -> bool:
        return self.running is not None and not self.running.ended()

    def send(self, number: int, expected: str, down: float) -> None:
        """Sends a signal that ends the process, and has it started again `down` seconds later."""
        if self.alive:
            self._expected = expected
            self._due = now() + down
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def expect(self, why: str) -> None:
        """Takes the next end for what was asked for."""
        self._expected = why

    def pause(self) -> None:
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                self.host.stop(self.pid)

    def resume(self) -> None:
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                self.host.go_on(self.pid)

    def abort(self) -> str:
        """Ends a process that hangs and returns what it said; Python says what each thread was doing."""
        if not self.alive or self.running is None:
            return ""
        self.resume()
        self._expected = "hung"
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGABRT)
        return self.running.errors()

"""Histories: what a process did, one line for each event, in a file that outlives it.

Owns: the form of a record, and how records are written and read. `checker` says which histories are good.

* HI-1: a record is written by one system call to a file opened for appending, so a process that is killed leaves whole
  records only.
* HI-2: every host is a namespace of one kernel, so all processes share one clock and records can be compared.
* HI-3: it imports the standard library only, for it travels to nodes with the functions that use it.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# Every host has a file system of its own there, which no fault fills.
DIRECTORY = "/srv/history"

Record = dict[str, Any]


def now() -> float:
    """Returns seconds since the machine booted, suspended time included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Writer:
    """Appends the records of this process; a forked child begins a file of its own."""

    def __init__(self, directory: str = DIRECTORY) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._pid = 0
        self._descriptor = -1
        self.process = ""

    def write(self, event: str, **fields: Any) -> float:
        """Writes one record and returns its time."""
        with self._lock:
            self._open()
            at = now()
            record = {"t": round(at, 6), "event": event, "process": self.process, **fields}
            os.write(self._descriptor, json.dumps(record).encode() + b"\n")
        return at

    def name(self) -> str:
        """Returns the name of this process in histories."""
        with self._lock:
            self._open()
            return self.process

    def _open(self) -> None:
        if self._pid == os.getpid():
            return
        os.makedirs(self.directory, exist_ok=True)
        self._pid = os.getpid()
        # Process ids are reused within a host; the process is not.
        self.process = f"{socket.gethostname()}/{self._pid}/{os.urandom(4).hex()}"
        path = os.path.join(self.directory, self.process.replace("/", "-") + ".jsonl")
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)


_writer = Writer()


def _renew_lock() -> None:
    # Another thread may have been writing when this process was forked.
    _writer._lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def write(event: str, **fields: Any) -> float:
    """Writes one record of this process and returns its time."""
    return _writer.write(event, **fields)


def process() -> str:
    """Returns the name of this process in histories, which no other process ever has."""
    return _writer.name()


def read(directories: Iterable[Path]) -> list[Record]:
    """Returns the records of all processes, oldest first."""
    records: list[Record] = []
    for directory in directories:
        for path in sorted(directory.glob("*.jsonl")):
            with path.open() as lines:
                records.extend(json.loads(line) for line in lines if line.endswith("\n"))
    records.sort(key=lambda record: record["t"])
    return records

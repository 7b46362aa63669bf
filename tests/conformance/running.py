"""Runs CPython's suites in processes of their own, and gathers what became of each case.

* A case has `LIMIT` seconds. One that takes longer is ended with its process, and counts as failed; what was to run
  after it runs in a new process.
* Cases of one class run in one process, in order; several classes run side by side, because most of them sleep.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import sources

HERE = Path(__file__).parent
LIMIT = 30.0
SIDE_BY_SIDE = 6


@dataclass
class Case:
    """A case of a suite, by the name of its class and its own."""

    name: str
    home: str
    source: str

    @property
    def group(self) -> str:
        return self.name.partition(".")[0]

    @property
    def written_as(self) -> str:
        return f"{self.home}.{self.name.partition('.')[2]}"


@dataclass
class Ended:
    """What became of a case."""

    name: str
    outcome: str
    words: str = ""
    seconds: float = 0.0


@dataclass
class Report:
    """What became of a suite."""

    ended: list[Ended] = field(default_factory=list)

    def names(self, outcome: str) -> list[str]:
        return sorted(case.name for case in self.ended if case.outcome == outcome)

    def __str__(self) -> str:
        lines = [f"{len(self.names('passed'))} passed, {len(self.names('failed'))} failed"]
        for case in self.ended:
            if case.outcome == "skipped":
                lines.append(f"skipped by the suite itself: {case.name}: {case.words}")
        for case in self.ended:
            if case.outcome == "failed":
                lines.append(f"FAILED {case.name} after {case.seconds:.1f} s")
                lines += [f"    {line}" for line in case.words.splitlines()]
        return "\n".join(lines)


def list_cases(suite: str) -> list[Case]:
    """All cases of a suite that concern us."""
    with _Process("ours", "list", suite, []) as process:
        return [Case(*words[1:]) for words in process.lines(60.0)]


def run(suite: str, names: list[str], whose: str = "ours", limit: float = LIMIT) -> Report:
    """Run these cases."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.partition(".")[0], []).append(name)
    report = Report()
    with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
        for ended in threads.map(lambda group: _run_group(suite, group, whose, limit), groups.values()):
            report.ended += ended
    return report


def _run_group(suite: str, names: list[str], whose: str, limit: float) -> list[Ended]:
    ended: list[Ended] = []
    left = list(names)
    while left:
        before = len(left)
        with _Process(whose, "run", suite, left) as process:
            running, since = "", time.monotonic()
            try:
                for kind, name, *words in process.lines(limit):
                    now = time.monotonic()
                    if kind == "begin":
                        running, since = name, now
                        continue
                    ended.append(Ended(name, *words, seconds=now - since))
                    if name in left:
                        left.remove(name)
                    running = ""
                how = f"its process ended: exit code {process.wait()}\n{process.errors()}"
            except TimeoutError:
                how = f"it did not end within {limit:g} s\n{process.errors()}"
        if running:
            ended.append(Ended(running, "failed", how, time.monotonic() - since))
            left.remove(running)
        elif len(left) == before:
            ended += [Ended(name, "failed", how) for name in left]
            left = []
    return ended


class _Process:
    """A runner, in a session of its own so that all it started can be ended with it."""

    def __init__(self, whose: str, action: str, suite: str, names: list[str]) -> None:
        self._reading, writing = os.pipe()
        command = [sys.executable, "-X", "faulthandler", str(HERE / "runner.py"), str(sources.directory())]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
        self._process = subprocess.Popen(
            [*command, whose, str(writing), action, suite, *names],
            pass_fds=[writing],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=environment,
            text=True,
            errors="replace",
        )
        os.close(writing)
        assert self._process.stderr is not None
        os.set_blocking(self._process.stderr.fileno(), False)
        self._errors = b""

    def lines(self, limit: float) -> Iterator[list[str]]:
        """What it says, line by line. Raises `TimeoutError` if it says nothing for so long."""
        assert self._process.stderr is not None
        noise = self._process.stderr.fileno()
        rest = b""
        deadline = time.monotonic() + limit
        while True:
            if time.monotonic() > deadline:
                self._abort(noise)
                raise TimeoutError
            ready, _, _ = select.select([self._reading, noise], [], [], 0.5)
            if noise in ready:
                self._hear(noise)
            if self._reading in ready:
                data = os.read(self._reading, 1 << 16)
                *lines, rest = (rest + data).split(b"\n")
                if lines:
                    deadline = time.monotonic() + limit
                    yield from map(json.loads, lines)
                if not data:
                    return
            elif self._process.poll() is not None:
                return  # something that it started still holds the pipe

    def _abort(self, noise: int) -> None:
        """End it with the stacks of its threads, and hear all of them."""
        os.kill(self._process.pid, signal.SIGABRT)
        deadline = time.monotonic() + 10
        while self._process.poll() is None and time.monotonic() < deadline:
            select.select([noise], [], [], 0.05)
            self._hear(noise)
        self._hear(noise)

    def _hear(self, noise: int) -> None:
        try:
            while data := os.read(noise, 1 << 16):
                self._errors = (self._errors + data)[-20_000:]
        except BlockingIOError:
            return

    def wait(self) -> int:
        return self._process.wait(timeout=20)

    def errors(self) -> str:
        return self._errors.decode(errors="replace")

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        os.close(self._reading)
        assert self._process.stderr is not None
        self._process.stderr.close()

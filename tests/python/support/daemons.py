"""The command line and its daemons, in a home of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline._cli import program

from .leftovers import unix_sockets
from .processes import MARKER, Process, end_all, processes_of
from .waiting import wait_until

# A command that has not ended by then hangs.
LIMIT = 30.0


@dataclass
class Told:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def ok(self) -> Told:
        assert self.code == 0, f"exit code {self.code}\n{self.out}\n{self.err}"
        return self


@dataclass
class Commands:
    """Runs `paceline` with its own home; everything it starts can be found again by its marker."""

    home: Path
    marker: str = field(default_factory=lambda: uuid.uuid4().hex)

    def environment(self, **more: str) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PACELINE_")}
        set_here = {"PACELINE_HOME": str(self.home), "PACELINE_PYTHON": sys.executable, MARKER: self.marker}
        return {**ours, **set_here, **more}

    def __call__(self, *arguments: str, cwd: Path | None = None, **variables: str) -> Told:
        return self.run(arguments, variables, cwd)

    def run(self, arguments: Sequence[str], variables: Mapping[str, str], cwd: Path | None = None) -> Told:
        done = subprocess.run(
            [program(), *arguments],
            env=self.environment(**variables),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        return Told(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str, **variables: str) -> dict[str, Any]:
        """A cluster at a free port."""
        told = self.run(["start", "--port", "0", "--json", *arguments], variables)
        return dict(told.ok().json)

    def join(self, address: str, name: str, *arguments: str, **variables: str) -> dict[str, Any]:
        told = self.run(["join", address, "--node-port", "0", "--node-name", name, "--json", *arguments], variables)
        return dict(told.ok().json)

    def status(self, *arguments: str) -> dict[str, Any]:
        """The status of the only cluster."""
        [cluster] = self("status", "--json", *arguments).ok().json["clusters"]
        return dict(cluster)

    def nodes(self, state: str = "up") -> list[str]:
        return [node["name"] for node in self.status()["nodes"] if node["state"] == state]

    def processes(self) -> list[Process]:
        return processes_of(self.marker)

    def files(self) -> list[str]:
        return [str(path.relative_to(self.home)) for path in self.home.rglob("*")] if self.home.exists() else []

    def assert_nothing_left(self, within: float = 3.0) -> None:
        """No process, no file, no socket."""
        wait_until(lambda: not self.processes(), "the processes to be gone", within, self.processes)
        assert self.files() == []

    def end(self) -> None:
        end_all(self.marker)


def abstract_sockets() -> list[str]:
    """The names of all abstract sockets of Paceline on this machine."""
    return [name for name in unix_sockets().values() if name.startswith("@paceline-")]

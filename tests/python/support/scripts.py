"""A user's script in a fresh interpreter, as users run it: its own process, directory and temporary files."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from support import processes


class ScriptTimeout(AssertionError):
    """A script did not end in time. The message has its output and what its processes were doing."""


@dataclass(frozen=True)
class Run:
    """How to recognise everything that belongs to one script."""

    marker: str
    directory: Path
    started: float

    @property
    def temporary(self) -> Path:
        """Where the script's temporary files go: what is in it afterwards was left behind."""
        return self.directory / "tmp"


@dataclass(frozen=True)
class Completed:
    """A script that has ended."""

    returncode: int
    stdout: str
    stderr: str
    seconds: float
    run: Run

    def ok(self) -> Completed:
        """This, if the script ended well; else an error with all it said.

        >>> run_script("print(6 * 7)").ok().stdout
        '42\\n'
        """
        assert self.returncode == 0, f"exit code {self.returncode}\n{self.transcript()}"
        return self

    def transcript(self) -> str:
        return f"---- stdout\n{self.stdout}\n---- stderr\n{self.stderr}"


class Running:
    """A script that may still run. Leaving the `with` block ends it and removes its directory."""

    def __init__(self, process: subprocess.Popen[bytes], run: Run) -> None:
        self.process = process
        self.run = run

    @property
    def pid(self) -> int:
        return self.process.pid

    def output(self) -> str:
        """What it has written to standard output so far."""
        return (self.run.directory / "stdout").read_text(errors="replace")

    def errors(self) -> str:
        """What it has written to standard error so far."""
        return (self.run.directory / "stderr").read_text(errors="replace")

    def send_signal(self, number: int) -> None:
        self.process.send_signal(number)

    def processes(self) -> list[processes.Process]:
        """Its living processes, itself included."""
        return processes.processes_of(self.run.marker)

    def wait(self, timeout: float = 30.0) -> Completed:
        """Wait for its end; after `timeout` raise with the last state of all its processes, and end them."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            state = self._last_state()
            self.end()
            raise ScriptTimeout(f"the script still ran after {timeout:g} s\n{state}") from None
        return Completed(code, self.output(), self.errors(), time.time() - self.run.started, self.run)

    def _last_state(self) -> str:
        living = [processes.describe(one.pid) for one in self.processes()]
        # The fault handler writes every Python thread's stack to standard error and ends the process.
        self.process.send_signal(signal.SIGABRT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        return "\n".join(("---- processes", *living, "---- stdout", self.output(), "---- stderr", self.errors()))

    def end(self) -> None:
        """Kill what is left of it."""
        if self.process.poll() is None:
            self.process.kill()
        processes.end_all(self.run.marker)
        self.process.wait()

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        shutil.rmtree(self.run.directory, ignore_errors=True)


def prepare(
    text: str, *, env: Mapping[str, str | None] | None = None, files: Mapping[str, str] | None = None
) -> tuple[Run, dict[str, str]]:
    """A directory with the script in it, and the environment to run it in."""
    directory = Path(tempfile.mkdtemp(prefix="paceline-run-"))
    run = Run(uuid.uuid4().hex, directory, time.time())
    run.temporary.mkdir()
    for name, content in {"script.py": text, **(files or {})}.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(textwrap.dedent(content))
    environment = dict(os.environ)
    environment |= {processes.MARKER: run.marker, "TMPDIR": str(run.temporary), "PYTHONFAULTHANDLER": "1"}
    environment.pop("PYTHONPATH", None)
    for name, value in (env or {}).items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    return run, environment


def start_script(
    text: str,
    *,
    args: Sequence[str] = (),
    env: Mapping[str, str | None] | None = None,
    interpreter: Sequence[str] = (),
    prefix: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
) -> Running:
    """Start a script. Its directory holds it as `script.py`, beside `files`.

    `env` adds to this process's environment (None removes a name), `interpreter` are flags of Python, `prefix` is put
    before the whole command, as in `("taskset", "-c", "0")`.
    """
    run, environment = prepare(text, env=env, files=files)
    directory = run.directory
    with open(directory / "stdout", "wb") as stdout, open(directory / "stderr", "wb") as stderr:
        process = subprocess.Popen(
            [*prefix, sys.executable, *interpreter, "script.py", *args],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            # Its own group: a Ctrl-C in a test is a signal to this group, and never reaches the tests themselves.
            start_new_session=True,
            preexec_fn=processes.restore_signals,
        )
    return Running(process, run)


def run_script(
    text: str,
    *,
    args: Sequence[str] = (),
    env: Mapping[str, str | None] | None = None,
    timeout: float = 30.0,
    interpreter: Sequence[str] = (),
    prefix: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
) -> Completed:
    """Run a script to its end. What it leaves behind stays for `leftovers` to find.

    >>> run_script("import sys; sys.exit(3)").returncode
    3
    """
    running = start_script(text, args=args, env=env, interpreter=interpreter, prefix=prefix, files=files)
    try:
        done = running.wait(timeout)
    except ScriptTimeout:
        shutil.rmtree(running.run.directory, ignore_errors=True)
        raise
    # Everything but the temporary files, which tell what was left behind.
    for path in running.run.directory.iterdir():
        if path != running.run.temporary:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    if not any(running.run.temporary.iterdir()):
        shutil.rmtree(running.run.directory)
    return done

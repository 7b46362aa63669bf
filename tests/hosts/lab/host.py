"""One host: processes, files and a network of its own.

* HO-1: a host shares with the machine nothing but a read-only view of its programs; what it writes is its own.
* HO-2: every process started in it dies with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lab.init import OWN
from support import processes
from support.processes import Process
from support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
NAMESPACES = ("--mount", "--pid", "--net", "--uts", "--ipc")


class HostTimeout(AssertionError):
    """A command did not end in time. The message has its output and what the host's processes were doing."""


@dataclass(frozen=True)
class Completed:
    """A command that has ended."""

    command: tuple[str, ...]
    host: str
    returncode: int
    stdout: str
    stderr: str
    seconds: float

    def ok(self) -> Completed:
        assert self.returncode == 0, f"exit code {self.returncode}\n{self.transcript()}"
        return self

    def json(self) -> object:
        try:
            return json.loads(self.ok().stdout)
        except ValueError as error:
            raise AssertionError(f"not JSON: {error}\n{self.transcript()}") from None

    def transcript(self) -> str:
        command = " ".join(self.command)[:400]
        end = f"---- after {self.seconds:.1f} s, exit code {self.returncode}"
        return f"{self.host}$ {command}\n{end}, stdout\n{self.stdout}\n---- stderr\n{self.stderr}"


class Running:
    """A command that may still run in its host."""

    def __init__(self, host: Host, process: subprocess.Popen[bytes], command: tuple[str, ...], output: Path) -> None:
        self.host = host
        self.process = process
        self.command = command
        self._output = output
        self._began = time.monotonic()

    @property
    def pid(self) -> int:
        """The command's process, as this machine counts (`self.process` is the `nsenter` that waits for it)."""
        child = wait_until(self._child, f"{self.command} to start on {self.host.name}")
        assert child is not None
        return child

    def _child(self) -> int | None:
        children = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        with contextlib.suppress(OSError, ValueError):
            return int(Path(children).read_text())
        return None

    def output(self) -> str:
        return self._output.with_suffix(".out").read_text(errors="replace")

    def errors(self) -> str:
        return self._output.with_suffix(".err").read_text(errors="replace")

    def transcript(self) -> str:
        return self._completed(self.process.poll()).transcript()

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def ended(self) -> bool:
        return self.process.poll() is not None

    def said(self, text: str, timeout: float = 20.0) -> None:
        """Wait until it has printed `text`."""
        wait_until(
            lambda: text in self.output() or self.ended(), f"{text!r} from {self.host.name}", timeout, self.transcript
        )
        assert text in self.output(), f"ended without saying {text!r}\n{self.transcript()}"

    def wait(self, timeout: float = 30.0) -> Completed:
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            living = "\n".join(processes.describe(one.pid) for one in self.host.processes())
            # The fault handler writes every Python thread's stack to standard error and ends the process.
            with contextlib.suppress(ProcessLookupError, AssertionError):
                self.send_signal(signal.SIGABRT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
            text = self.transcript()
            self.end()
            raise HostTimeout(f"still ran after {timeout:g} s\n{text}\n---- processes\n{living}") from None
        return self._completed(code)

    def _completed(self, code: int | None) -> Completed:
        seconds = time.monotonic() - self._began
        code = -1000 if code is None else code
        return Completed(self.command, self.host.name, code, self.output(), self.errors(), seconds)

    def end(self) -> None:
        if not self.ended():
            child = self._child()
            with contextlib.suppress(ProcessLookupError):
                os.kill(child if child is not None else self.process.pid, signal.SIGKILL)
            self.process.wait(10)


@dataclass(frozen=True)
class Traces:
    """What is on a host beyond what it began with. Empty, and so false, when nothing is."""

    processes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    listeners: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.processes or self.files or self.sockets or self.listeners)


@dataclass
class Host:
    """A host that runs. `Lab.host` makes it."""

    name: str
    directory: Path
    marker: str = field(default_factory=lambda: uuid.uuid4().hex)
    addresses: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    started: int = 0

    def __post_init__(self) -> None:
        self._begun: list[subprocess.Popen[bytes]] = []
        config = {
            "name": self.name,
            "machine_id": uuid.uuid4().hex,
            "visible": [str(ROOT), sys.prefix, sys.base_prefix],
        }
        command = ["unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child"]
        with (self.directory / f"{self.name}-init.err").open("wb") as errors:
            self._unshare = subprocess.Popen(
                [*command, sys.executable, "-I", str(Path(__file__).with_name("init.py")), json.dumps(config)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=self.environment(),
                # A Ctrl-C at the terminal is for the tests; they end the hosts.
                start_new_session=True,
            )
        assert self._unshare.stdout is not None
        ready, _, _ = select.select([self._unshare.stdout], [], [], 20)
        line = self._unshare.stdout.readline() if ready else b""
        self._unshare.stdout.close()
        if line != b"ready\n":
            self._unshare.kill()
            said = (self.directory / f"{self.name}-init.err").read_text()
            raise RuntimeError(f"host {self.name} did not start: {said or line!r}")
        self.init = int(Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children").read_text())
        self._pid_namespace = os.readlink(f"/proc/{self.init}/ns/pid")
        self._first = self._traces()

    @property
    def address(self) -> str:
        """Its address in the first network it was plugged into."""
        return next(iter(self.addresses.values()))

    @property
    def files(self) -> Path:
        """The root of its file system, as seen from here."""
        return Path(f"/proc/{self.init}/root")

    def environment(self) -> dict[str, str]:
        path = [
            str(ROOT / ".venv" / "bin"),
            "/usr/local/sbin",
            "/usr/local/bin",
            "/usr/sbin",
            "/usr/bin",
            "/sbin",
            "/bin",
        ]
        return {
            "PATH": os.pathsep.join(path),
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "PYTHONFAULTHANDLER": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            processes.MARKER: self.marker,
        } | self.variables

    def start(self, *command: str, env: Mapping[str, str] | None = None, directory: str = "/root") -> Running:
        """Start a command in this host, with a small environment of its own."""
        self.started += 1
        output = self.directory / f"{self.name}-{self.started}"
        with open(output.with_suffix(".out"), "wb") as out, open(output.with_suffix(".err"), "wb") as err:
            process = subprocess.Popen(
                ["nsenter", f"--target={self.init}", *NAMESPACES, "env", "-C", directory, *command],
                env=self.environment() | dict(env or {}),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self._begun.append(process)
        return Running(self, process, command, output)

    def run(
        self, *command: str, timeout: float = 30.0, env: Mapping[str, str] | None = None, directory: str = "/root"
    ) -> Completed:
        """Run a command to its end."""
        return self.start(*command, env=env, directory=directory).wait(timeout)

    def shell(self, text: str, timeout: float = 30.0) -> Completed:
        return self.run("bash", "-c", text, timeout=timeout)

    def script(self, text: str, *args: str, env: Mapping[str, str] | None = None) -> Running:
        """Start a user's script: a file in /srv, run by the Python of all hosts."""
        path = f"/srv/script{self.started + 1}.py"
        (self.files / path[1:]).write_text(textwrap.dedent(text))
        return self.start("python", path, *args, env=env, directory="/srv")

    def python(self, text: str, *args: str, timeout: float = 30.0, env: Mapping[str, str] | None = None) -> Completed:
        """Run a user's script to its end."""
        return self.script(text, *args, env=env).wait(timeout)

    def processes(self) -> list[Process]:
        """The living processes of the host but its first, with pids as this machine counts."""
        found = []
        for pid in processes.pids():
            with contextlib.suppress(OSError):
                if pid != self.init and os.readlink(f"/proc/{pid}/ns/pid") == self._pid_namespace:
                    one = processes.process(pid)
                    if one is not None:
                        found.append(one)
        return found

    def traces(self) -> Traces:
        """What is here now and was not in the beginning."""
        now, first = self._traces(), self._first
        return Traces(
            tuple(one for one in now.processes if one not in first.processes),
            tuple(one for one in now.files if one not in first.files and not one.startswith("/srv/")),
            tuple(one for one in now.sockets if one not in first.sockets),
            tuple(one for one in now.listeners if one not in first.listeners),
        )

    def _traces(self) -> Traces:
        root = self.files
        unix = (line.split(maxsplit=7) for line in Path(f"/proc/{self.init}/net/unix").read_text().splitlines()[1:])
        files = []
        visible = {str(ROOT), sys.prefix, sys.base_prefix}
        for own in OWN:
            for directory, names, plain in os.walk(root / own[1:]):
                inside = "/" + str(Path(directory).relative_to(root))
                names[:] = [name for name in names if f"{inside}/{name}" not in visible]
                files += [f"{inside}/{name}" for name in (*names, *plain)]
        return Traces(
            tuple(str(one) for one in self.processes()),
            tuple(sorted(files)),
            tuple(sorted(fields[7] for fields in unix if len(fields) == 8)),
            tuple(sorted(self._listeners())),
        )

    def _listeners(self) -> list[str]:
        found = []
        for table in ("tcp", "tcp6"):
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{self.init}/net/{table}").read_text().splitlines()[1:]:
                    fields = line.split()
                    if fields[3] == "0A":
                        found.append(f"{table} port {int(fields[1].rpartition(':')[2], 16)}")
        return found

    def stop(self, pid: int) -> None:
        """SIGSTOP: the process stands still, its connections stay open."""
        os.kill(pid, signal.SIGSTOP)

    def go_on(self, pid: int) -> None:
        os.kill(pid, signal.SIGCONT)
        self._wake()

    def _wake(self) -> None:
        """`nsenter` stands still when its command does, and would then neither reap it nor tell of its end."""
        for process in self._begun:
            process.send_signal(signal.SIGCONT)

    def reset_connections(self, peer: str) -> None:
        """End every TCP connection with `peer` by a reset, which both ends see at once."""
        subprocess.run(
            [
                "nsenter",
                f"--target={self.init}",
                "--net",
                "ss",
                "--kill",
                "--numeric",
                "state",
                "connected",
                "dst",
                peer,
            ],
            capture_output=True,
            check=True,
            timeout=10,
        )

    def names(self, names: Mapping[str, str]) -> None:
        """The other hosts' addresses by name."""
        lines = ["127.0.0.1 localhost", "::1 localhost", *(f"{address} {name}" for name, address in names.items())]
        (self.files / "etc/hosts").write_text("\n".join(lines) + "\n")

    def end(self) -> None:
        """End the host with all its processes."""
        if self._unshare.stdin is not None:
            with contextlib.suppress(OSError):
                self._unshare.stdin.close()
        # Its first process ends by itself on that, unless it stands still; and with it all others.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.init, signal.SIGKILL)
        self._wake()
        self._unshare.wait(10)
        for process in self._begun:
            process.wait(10)

    @property
    def alive(self) -> bool:
        return self._unshare.poll() is None

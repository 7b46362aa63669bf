"""A script, or a shell, in a terminal of its own: with a foreground group, Ctrl-C, Ctrl-Z and a line to hang up."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from support import processes
from support.scripts import Completed, Run, Running, ScriptTimeout, prepare

CTRL_C = "\x03"
CTRL_Z = "\x1a"

# A new session has no terminal until its leader takes one.
TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)


class Terminal(Running):
    """What runs in the terminal, and its other end."""

    def __init__(self, process: subprocess.Popen[bytes], run: Run, line: int) -> None:
        super().__init__(process, run)
        self._line: int | None = line
        self._seen = b""

    def output(self) -> str:
        """All that the terminal has shown so far."""
        with contextlib.suppress(BlockingIOError):
            while self._line is not None:
                try:
                    piece = os.read(self._line, 1 << 16)
                except OSError as error:
                    if isinstance(error, BlockingIOError):
                        raise
                    break  # nobody has the terminal open any more
                if not piece:
                    break
                self._seen += piece
        return self._seen.decode(errors="replace").replace("\r\n", "\n")

    def errors(self) -> str:
        return ""

    def type(self, keys: str) -> None:
        """Press these keys."""
        assert self._line is not None, "the terminal is closed"
        os.write(self._line, keys.encode())

    def hang_up(self) -> None:
        """Close the terminal's window."""
        self.output()
        if self._line is not None:
            os.close(self._line)
            self._line = None

    def wait(self, timeout: float = 30.0) -> Completed:
        """As for any script. What it shows is taken from the terminal meanwhile, which has little room."""
        deadline = time.monotonic() + timeout
        while self.process.poll() is None:
            self.output()
            if time.monotonic() > deadline:
                state = self._last_state()
                self.end()
                raise ScriptTimeout(f"it still ran in its terminal after {timeout:g} s\n{state}")
            time.sleep(0.005)
        return Completed(self.process.returncode, self.output(), "", time.time() - self.run.started, self.run)

    def end(self) -> None:
        super().end()
        self.hang_up()


def _start(command: Sequence[str], run: Run, environment: dict[str, str]) -> Terminal:
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", TAKE_TERMINAL, *command],
            cwd=run.directory,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=processes.restore_signals,
        )
    finally:
        os.close(theirs)
    os.set_blocking(ours, False)
    return Terminal(process, run, ours)


def in_terminal(text: str, *, env: Mapping[str, str | None] | None = None) -> Terminal:
    """Start a script as the foreground program of a terminal, as `exec python script.py` does."""
    run, environment = prepare(text, env=env)
    return _start([sys.executable, "script.py"], run, environment)


def shell_in_terminal(text: str) -> Terminal:
    """An interactive shell in a terminal, in a directory with `script.py`. Its prompt is `$$ `."""
    assert shutil.which("bash"), "an interactive bash is needed"
    run, environment = prepare(text)
    environment |= {"PS1": "$$ ".replace("$$", r"\$\$"), "PYTHON": sys.executable, "HISTFILE": "", "TERM": "dumb"}
    return _start(["bash", "--norc", "--noprofile", "-i"], run, environment)

"""Ctrl-C while the head of a cluster does not answer: whatever it was asked, the wait ends."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import start_script, wait_until
from support.daemons import Commands

QUESTIONS = {
    "an actor": "pl.get_actor('nobody')",
    "the status": "pl.status()",
    "why a task waits": "waiting.explain()",
    "an actor of its own": "Box.options(name='box')()",
    "a detached actor": "Box.options(name='box', detached=True)()",
}

SCRIPT = """
import os, time
import paceline as pl
pl.connect(ADDRESS)

@pl.remote(cpus=0)
class Box:
    pass

waiting = pl.remote(abs).submit(-1)
print("ready", flush=True)
until = time.monotonic() + 60
while not os.path.exists("go") and time.monotonic() < until:
    time.sleep(0.005)
print("asks", flush=True)
try:
    QUESTION
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.fixture
def paceline(tmp_path: Path) -> Iterator[Commands]:
    paceline = Commands(tmp_path / "home")
    try:
        yield paceline
    finally:
        paceline.end()


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_ctrl_c_ends_a_question_to_a_head_that_stands_still(paceline: Commands, question: str) -> None:
    head = paceline.start("--no-node")
    script = SCRIPT.replace("ADDRESS", repr(head["address"])).replace("QUESTION", question)
    with start_script(script, env={"PACELINE_HOME": str(paceline.home)}) as asker:
        wait_until(lambda: "ready" in asker.output(), "the program", 30, asker.errors)
        with stopped(head["pid"]):
            (asker.run.directory / "go").touch()
            wait_until(lambda: "asks" in asker.output() and sleeps(asker.pid), "the question", 30, asker.errors)
            asker.send_signal(signal.SIGINT)
            began = time.monotonic()
            wait_until(lambda: "interrupted" in asker.output(), "the end of the question", 30, asker.errors)
            # A detached actor's maker waits a moment for the head to say that it will end the program.
            assert time.monotonic() - began < 3.0
    wait_until(lambda: not living(paceline), "no program of an actor that nobody waits for", 30)


def sleeps(pid: int) -> bool:
    """Its main thread waits for something."""
    return Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def living(paceline: Commands) -> list[str]:
    return [each["program"] for each in paceline.status()["programs"] if each["state"] != "ended"]

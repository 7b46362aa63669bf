"""Where a task is and why it waits: asked of its future, or on the command line."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import paceline as pl
from paceline import _cluster
from paceline._functions import pack
from support import wait_until
from support.daemons import Commands
from support.scripts import start_script


def hold(path: str) -> None:
    Path(f"{path}.{os.getpid()}").touch()
    while not os.path.exists(path):
        time.sleep(0.01)


def test_a_future_says_where_its_task_is(tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    with pl.connect(cpus=1):
        first = pl.remote(hold).submit(gate)
        wait_until(first.running, "it runs")
        said = first.explain()
        assert said.startswith("task 1 runs in slot "), said
        assert " on node " in said
        second, third = (pl.remote(abs).submit(-1) for _ in range(2))
        wait_until(lambda: "behind" in third.explain(), "what is in front of it is told", 10, third.explain)
        large = pl.remote(cpus=1, memory="256MB")(abs).submit(-1)
        said = large.explain()
        assert "waits, first in its queue: its program has no slot with 1 CPU" in said, said
        assert "the head says: the nodes that could hold it are in use" in said
        Path(gate).touch()
        assert [second.result(30), third.result(30), large.result(30)] == [1, 1, 1]
        assert first.explain() == "task 1 (hold) has ended"


def test_attempts_are_counted(tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    with pl.connect(cpus=1):
        future = pl.remote(hold).submit(gate)
        wait_until(lambda: any(tmp_path.glob("gate.*")), "it runs")
        [mark] = tmp_path.glob("gate.*")
        os.kill(int(mark.suffix[1:]), signal.SIGKILL)
        wait_until(lambda: len(list(tmp_path.glob("gate.*"))) == 2, "it runs again")
        said = future.explain()
        assert "it was begun 1 time before, and 1 slot died under it; 2 retries are left" in said
        Path(gate).touch()
        future.result(30)


def test_a_group_that_is_not_there_yet_is_told(tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    with pl.connect(cpus=2):
        session = _cluster.current()._connected()
        busy = pl.remote(hold).submit(gate)
        wait_until(busy.running, "one of two is busy")
        group = session.group(2, cpus=1.0, gpus=0.0, memory=0, resources=(), placement=None)
        payload, _ = pack(abs)
        function = group.function(payload, "abs", 0, wait=None, retries=0, retry_on=(), timeout=None, priority=0)
        future = function.submit((-1,), {})
        assert "its group has 0 of 2 members, and begins when all are there" in future.explain()
        Path(gate).touch()
        assert future.result(30) == 1
        group.close()


@pytest.fixture
def paceline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    commands = Commands(tmp_path / "home")
    monkeypatch.setenv("PACELINE_HOME", str(commands.home))
    yield commands
    pl.shutdown()
    commands.end()


def test_the_command_line_finds_tasks_at_their_programs(paceline: Commands, tmp_path: Path) -> None:
    head = paceline.start("--cpus", "1", "--node-name", "here")
    gate = str(tmp_path / "gate")
    with pl.connect(head["address"], name="trainer"):
        running = pl.remote(hold).submit(gate)
        wait_until(running.running, "it runs")
        waiting = pl.remote(cpus=0.5)(abs).submit(-1)
        told = paceline("explain", str(running.task_id)).ok().out
        assert f"client trainer: task {running.task_id} runs in slot " in told
        assert "on node here" in told
        told = paceline("explain", f"trainer/{waiting.task_id}").ok().out
        assert f"task {waiting.task_id} waits" in told
        assert "the head says: the nodes that could hold it are in use: here has 0 of 1 CPUs free" in told, told
        [task] = paceline("explain", str(waiting.task_id), "--json").ok().json["tasks"]
        assert (task["name"], task["state"], task["node"]) == ("trainer", "waiting", None)
        refused = paceline("explain", "4711")
        assert refused.code == 1
        assert "no program of this cluster has a task 4711" in refused.err
        assert paceline("explain", "nobody/1").code == 1
        Path(gate).touch()
        assert waiting.result(30) == 1
    assert paceline("explain", "1").code == 1, "its program has gone"


def test_a_program_that_stands_still_does_not_hold_up_the_answer(paceline: Commands, tmp_path: Path) -> None:
    head = paceline.start("--cpus", "1")
    script = start_script(
        f"""
        import time
        import paceline as pl

        with pl.connect("{head["address"]}", name="sleeper"):
            future = pl.remote(time.sleep).submit(60)
            while not future.running():
                time.sleep(0.01)
            print("runs", flush=True)
            time.sleep(60)
        """,
        env={"PACELINE_HOME": str(paceline.home)},
    )
    with script:
        wait_until(lambda: "runs" in script.output(), "its task to run", 30, script.errors)
        script.send_signal(signal.SIGSTOP)
        started = time.monotonic()
        told = paceline("explain", "1").ok().out
        assert time.monotonic() - started < 8
        assert "did not answer in time" in told

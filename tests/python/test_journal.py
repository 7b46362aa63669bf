"""The head's journal and logs on disks that hang, fail and are full, and heads that are killed while they write."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from paceline._cli import program
from support.daemons import Commands
from support.disks import FaultyDisk, fill, small_disk
from support.processes import is_dead
from support.waiting import wait_until

HEAD_LOST = 4.0
QUICK = ("--heartbeat", "500ms", "--head-lost", f"{HEAD_LOST:g}s")
# Long enough for a test, and it can be found again.
NAP = ("--", "sleep", "600")


@pytest.fixture
def paceline(tmp_path: Path) -> Iterator[Commands]:
    commands = Commands(tmp_path / "home")
    yield commands
    commands.end()


def submit(paceline: Commands, *arguments: str) -> str:
    return str(paceline("submit", "--json", *arguments).ok().json["program"])


def programs(paceline: Commands) -> dict[str, dict[str, Any]]:
    return {one["program"]: one for one in paceline.status()["programs"]}


def wait_for_state(paceline: Commands, name: str, state: str) -> None:
    wait_until(
        lambda: programs(paceline).get(name, {}).get("state") == state,
        f"program {name} to be {state}",
        20,
        lambda: programs(paceline),
    )


def naps(paceline: Commands) -> list[int]:
    return [process.pid for process in paceline.processes() if process.command.startswith("sleep 600")]


def journal_state(paceline: Commands) -> str:
    return str(paceline.status()["journal"]["state"])


def restart_killed(paceline: Commands, up: dict[str, Any]) -> dict[str, Any]:
    """Kill the head, and start it again."""
    os.kill(up["pid"], signal.SIGKILL)
    wait_until(lambda: is_dead(up["pid"]), "the head to be dead")
    again = paceline.start("--cpus", "8", *QUICK)
    assert not again["already"], "a start that finds the killed head's record says that it runs"
    return again


@pytest.mark.slow
def test_hanging_disk_ends_no_work_and_submit_says_what_it_waits_for(paceline: Commands, tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path / "home", tmp_path / "control")
    up = paceline.start("--no-node", *QUICK, **disk.variables)
    # A node of its own process, whose own disk is fine.
    paceline.join(up["address"], "n1", "--cpus", "4", PACELINE_TOKEN=up["token"])
    first = submit(paceline, *NAP)
    wait_for_state(paceline, first, "running")
    [running] = wait_until(lambda: naps(paceline), "the program to begin", 10, paceline.processes)
    with disk.fault("hang"):
        began = time.monotonic()
        second = subprocess.Popen(
            [program(), "submit", "--json", *NAP],
            env=paceline.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_until(lambda: journal_state(paceline) == "stalled", "the head to say so", 15, paceline.status)
        # For twice as long as a node goes on without its head.
        while time.monotonic() < began + 2 * HEAD_LOST:
            assert paceline.nodes() == ["n1"]
            assert not is_dead(running)
        assert "has not answered for" in paceline("explain").ok().out
        assert "has not answered for" in paceline("doctor").out
        assert "journal stalled" in paceline("status").ok().out
        assert second.poll() is None
    _, err = second.communicate(timeout=30)
    assert second.returncode == 0, err
    assert "has not answered for" in err
    wait_until(lambda: len(naps(paceline)) == 2, "the second program to run", 20, paceline.processes)
    assert running in naps(paceline)
    assert set(programs(paceline)) >= {first}
    wait_until(lambda: journal_state(paceline) == "ok", "the journal to be written", 10, paceline.status)


def test_logs_asked_for_on_a_hanging_disk_keep_neither_head_nor_node_from_answering(
    paceline: Commands, tmp_path: Path
) -> None:
    disk = FaultyDisk(tmp_path / "home", tmp_path / "control")
    # Head and node in one process, whose log does not come back from the disk.
    up = paceline.start("--cpus", "1", "--debug", *QUICK, **disk.variables)
    with disk.fault("hang"):
        # It is logged, so the thread of the log waits for the disk.
        paceline("status").ok()
        asked = [
            subprocess.Popen(
                [program(), "logs", "--json"],
                env=paceline.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for _ in range(12)
        ]
        while any(process.poll() is None for process in asked):
            began = time.monotonic()
            assert len(paceline.nodes()) == 1
            assert time.monotonic() - began < 1.5, "somebody waits for the disk of the log"
        for process in asked:
            out, _ = process.communicate(timeout=10)
            said = {log["of"]: log.get("text", log.get("error", "")) for log in json.loads(out)["logs"]}
            assert "head" in said, out
    assert not is_dead(up["pid"])
    wait_until(lambda: "does not answer" not in paceline("logs").out, "the log to be read again", 10)


def test_head_on_a_hanging_disk_is_stopped_in_time(paceline: Commands, tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path / "home", tmp_path / "control")
    up = paceline.start("--no-node", *QUICK, **disk.variables)
    with disk.fault("hang"):
        began = time.monotonic()
        paceline("stop").ok()
        wait_until(lambda: is_dead(up["pid"]), "the head to end", 15)
        assert time.monotonic() - began < 15


def test_full_disk_refuses_submit_until_there_is_room(paceline: Commands, tmp_path: Path) -> None:
    with small_disk(tmp_path / "home", "4m") as home:
        try:
            up = paceline.start("--cpus", "4", *QUICK)
            first = submit(paceline, *NAP)
            wait_for_state(paceline, first, "running")
            filler = fill(home)
            refused = paceline("submit", *NAP)
            # A little room may be left within the file.
            while refused.code == 0:
                refused = paceline("submit", "--env", "PAD=" + "x" * 60_000, *NAP)
            assert "no space left on the disk for the journal" in refused.err, refused.err
            assert str(home) in refused.err
            assert "damaged" not in refused.err
            known = set(programs(paceline))
            # What was refused was removed meanwhile, which the disk has room for.
            for _ in range(10):
                assert journal_state(paceline) == "failed", paceline.status()["journal"]
                time.sleep(0.1)
            assert "journal failed" in paceline("status").ok().out
            assert "no space left" in paceline("doctor").out
            filler.unlink()
            second = submit(paceline, *NAP)
            assert journal_state(paceline) == "ok"
            # All that was accepted is on disk, and nothing else.
            restart_killed(paceline, up)
            assert set(programs(paceline)) == known | {second}
        finally:
            paceline.end()


def test_start_on_a_full_disk_says_so(paceline: Commands, tmp_path: Path) -> None:
    with small_disk(tmp_path / "home", "1m") as home:
        try:
            paceline.start("--no-node", *QUICK)
            paceline("stop", "--head").ok()
            fill(home)
            told = paceline("start", "--no-node", "--port", "0", *QUICK)
            assert told.code != 0
            assert "no space left" in told.err.lower(), told.err
            assert "damaged" not in told.err
        finally:
            paceline.end()


def test_disk_error_is_no_damage_and_passes(paceline: Commands, tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path / "home", tmp_path / "control")
    paceline.start("--cpus", "4", *QUICK, **disk.variables)
    first = submit(paceline, *NAP)
    with disk.fault("eio"):
        for _ in range(2):
            told = paceline("submit", *NAP)
            assert told.code != 0
            assert "cannot be used" in told.err, told.err
            assert "damaged" not in told.err
    second = submit(paceline, *NAP)
    assert set(programs(paceline)) == {first, second}
    assert journal_state(paceline) == "ok"


def test_killed_head_starts_with_everything_that_was_acknowledged(paceline: Commands, tmp_path: Path) -> None:
    accepted: set[str] = set()
    over = threading.Event()

    def keep_submitting() -> None:
        while not over.is_set():
            # One that is cut off by a kill asks again, with the same token.
            told = paceline("submit", "--json", "--cpus", "8", *NAP)
            if told.code == 0:
                accepted.add(told.json["program"])

    def accepted_are(goal: int) -> bool:
        return len(accepted) >= goal

    up = paceline.start("--cpus", "8", *QUICK)
    threads = [threading.Thread(target=keep_submitting) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(4):
            goal = len(accepted) + 4
            wait_until(partial(accepted_are, goal), "more to be accepted", 30)
            known = set(accepted)
            up = restart_killed(paceline, up)
            assert set(programs(paceline)) >= known
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert set(programs(paceline)) >= accepted


def test_damaged_journal_is_named_and_left_alone(paceline: Commands, tmp_path: Path) -> None:
    paceline.start("--no-node", *QUICK)
    submit(paceline, "--env", "PAD=" + "x" * 60_000, *NAP)
    paceline("stop", "--head").ok()
    [journal] = (tmp_path / "home").rglob("journal")
    data = journal.read_bytes()
    damaged = data[: len(data) // 4]
    journal.write_bytes(damaged)
    told = paceline("start", "--no-node", "--port", "0", *QUICK)
    assert told.code != 0
    assert "damaged" in told.err, told.err
    assert str(journal) in told.err
    assert journal.read_bytes() == damaged
    journal.write_bytes(data)
    paceline.start("--no-node", *QUICK)
    assert len(programs(paceline)) == 1


def test_log_on_a_full_disk_says_how_much_is_missing(paceline: Commands, tmp_path: Path) -> None:
    with small_disk(tmp_path / "home", "4m") as home:
        try:
            paceline.start("--cpus", "2", *QUICK, PACELINE_LOG_LEVEL="trace")
            filler = fill(home)

            def print_much() -> None:
                paceline.run(["submit", "--", sys.executable, "-c", "pass"], {})

            for _ in range(30):
                print_much()
            filler.unlink()

            def log() -> str:
                print_much()
                return paceline("logs", "head", "-n", "100000").ok().out

            wait_until(lambda: "lines of this log are missing here" in log(), "the log to say so", 30, log)
        finally:
            paceline.end()

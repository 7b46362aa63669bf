"""What is left when a head or node ends by a defect of its own, and what peers and tasks may not do to them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline._cli import program
from support import run_script
from support.daemons import Commands
from support.processes import process
from support.waiting import wait_until
from support.wire import Client, bye, hello, want_cpu

# What a daemon ends with that ended by a defect of its own.
CRASH_EXIT_CODE = 70


@pytest.fixture
def paceline(tmp_path: Path) -> Iterator[Commands]:
    commands = Commands(tmp_path / "home")
    yield commands
    commands.end()


def fault(tmp_path: Path) -> Path:
    """A FIFO: a daemon that has it in its environment crashes when somebody writes to it."""
    path = tmp_path / "fault"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("part", ["HEAD", "NODE"])
def test_daemon_that_panics_is_gone_and_starts_anew(paceline: Commands, tmp_path: Path, part: str) -> None:
    path = fault(tmp_path)
    up = paceline.start("--cpus", "1", **{f"PACELINE_FAULT_CRASH_{part}": str(path)})
    path.write_bytes(b"now")
    wait_until(lambda: process(up["pid"]) is None, "the daemon to be gone")
    [log] = (paceline.home).rglob("head.log")
    text = log.read_text()
    assert "daemon crashed" in text, text
    assert "was asked to crash by a test" in text
    assert "paceline start" in text, "what to do next"
    again = paceline.start("--cpus", "1")
    assert again["already"] is False
    assert paceline.nodes() != []
    paceline("stop").ok()
    paceline.assert_nothing_left()


def test_joined_node_that_panics_is_gone_and_joins_anew(paceline: Commands, tmp_path: Path) -> None:
    path = fault(tmp_path)
    up = paceline.start("--no-node")
    joining = {"PACELINE_TOKEN": up["token"], "PACELINE_FAULT_CRASH_NODE": str(path)}
    node = paceline.join(up["address"], "n1", "--cpus", "1", **joining)
    path.write_bytes(b"now")
    wait_until(lambda: process(node["pid"]) is None, "the node to be gone")
    [text] = [log.read_text() for log in paceline.home.rglob("*.log") if "daemon crashed" in log.read_text()]
    assert "paceline join" in text, "what to do next"
    wait_until(lambda: paceline.nodes() == [], "the head to notice")
    again = paceline.join(up["address"], "n1", "--cpus", "1")
    assert again["pid"] != node["pid"]
    # `join` returns when the node is on its way to the head.
    wait_until(lambda: paceline.nodes() == ["n1"], "the head to count on it")
    paceline("stop").ok()
    paceline.assert_nothing_left()


def test_stop_after_a_panic_leaves_nothing(paceline: Commands, tmp_path: Path) -> None:
    path = fault(tmp_path)
    up = paceline.start("--cpus", "1", PACELINE_FAULT_CRASH_HEAD=str(path))
    path.write_bytes(b"now")
    wait_until(lambda: process(up["pid"]) is None, "the daemon to be gone")
    paceline("stop").ok()
    paceline.assert_nothing_left()


def test_daemon_in_the_foreground_reports_its_panic(paceline: Commands, tmp_path: Path) -> None:
    path = fault(tmp_path)
    daemon = subprocess.Popen(
        [program(), "start", "--port", "0", "--cpus", "1", "--foreground"],
        env=paceline.environment(PACELINE_FAULT_CRASH_HEAD=str(path)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    # Opening it for writing waits until the daemon reads.
    path.write_bytes(b"now")
    _, errors = daemon.communicate(timeout=30)
    assert daemon.returncode == CRASH_EXIT_CODE, errors
    assert "daemon crashed" in errors


@pytest.mark.parametrize("part", ["HEAD", "NODE"])
def test_embedded_cluster_that_panics_ends_what_waits(tmp_path: Path, part: str) -> None:
    path = fault(tmp_path)
    script = f"""
        import os, threading, time
        import paceline as pl

        @pl.remote
        def nap():
            time.sleep(60)

        if __name__ == "__main__":
            with pl.connect(cpus=1):
                tasks = [nap.submit(), nap.submit()]
                threading.Thread(target=lambda: open({str(path)!r}, "wb").write(b"now")).start()
                for task in tasks:
                    try:
                        task.result(timeout=30)
                    except pl.ClusterStopped as error:
                        print("stopped:", error)
                try:
                    nap()
                except pl.PacelineError as error:
                    print("later:", type(error).__name__)
    """
    done = run_script(script, env={f"PACELINE_FAULT_CRASH_{part}": str(path)}).ok()
    assert done.stdout.count("stopped:") == 2, done.transcript()
    assert "crash of its control thread" in done.stdout
    assert "later:" in done.stdout
    assert "was asked to crash by a test" in done.stderr, "the report"


LEFT_CHILDREN = """
    import os, time
    import paceline as pl

    @pl.remote
    def leaf():
        return os.getpid()

    @pl.remote
    def nests():
        return leaf()

    @pl.remote
    def left_behind(mark):
        # It outlives its interrupt within its grace, and calls a task that finds the slot of its parent warm.
        open(mark, "w").close()
        try:
            while True:
                time.sleep(0.01)
        except BaseException:
            pass
        calls = [nests.submit() for _ in range(2)]
        for call in calls:
            try:
                call.result(timeout=1.0)
            except BaseException:
                pass

    @pl.remote
    def returns_without_waiting(mark):
        left_behind.submit(mark)
        while not os.path.exists(mark):
            time.sleep(0.002)

    if __name__ == "__main__":
        with pl.connect(cpus=2):
            for turn in range(12):
                returns_without_waiting(os.path.join(os.environ["TMPDIR"], f"mark-{turn}"))
            print("still", leaf() > 0)
"""


def test_tasks_that_leave_children_behind_crash_nobody() -> None:
    done = run_script(LEFT_CHILDREN, timeout=55).ok()
    assert done.stdout == "still True\n", done.transcript()


# Set in the ids of clients that stand for programs.
WORK_TAG = 1 << 63


@pytest.mark.parametrize("tag", [0, WORK_TAG])
def test_client_with_the_id_of_the_next_program_harms_nobody(paceline: Commands, tag: int) -> None:
    paceline.start("--cpus", "1", "--heartbeat", "500ms")
    record = json.loads((paceline.home / "clusters/default/cluster.json").read_text())
    # Programs are numbered from one in each start of the head, so anybody can tell the next number.
    with Client(record["unix"]) as liar:
        liar.socket.sendall(hello(record["epoch"] << 32 | 1 | tag) + want_cpu(1))
        if tag == 0:
            wait_until(lambda: paceline.status()["leases"], "the client to have a lease")
        dropped = liar.is_dropped()
        name = paceline("submit", "--json", "--", sys.executable, "-c", "raise SystemExit(7)").ok().json["program"]
        if not dropped:
            liar.socket.sendall(bye())
    programs: list[dict[str, Any]] = []
    until = time.monotonic() + 10
    while time.monotonic() < until and not any(one["state"] == "ended" for one in programs):
        programs = paceline.status()["programs"]
    # What the head has of both must go without contradiction.
    paceline("stop").ok()
    paceline.assert_nothing_left()
    assert [(one["program"], one.get("exit_code")) for one in programs] == [(name, 7)]
    assert dropped == (tag == WORK_TAG), "no client has the id of a program"

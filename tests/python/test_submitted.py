"""Programs that a cluster runs by itself: submitted, found again, started again, stopped; never two at a time."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline._cli import program
from support.daemons import Commands, Told
from support.disks import FaultyDisk
from support.processes import is_dead, process, processes_of
from support.waiting import wait_until

# Soon enough for tests: a node without its head ends such work after four seconds, and the head waits a beat more.
QUICK = ("--heartbeat", "500ms", "--head-lost", "4s")

# What the journal writes of a program that runs to its end: its record, where it is placed, how it ended.
SYNCS_OF_A_PROGRAM = 3

# Writes down that it lives, for as long as it does: one line for each start, one for each tick.
ALIVE = """
import os, sys, time
folder, seconds = sys.argv[1], float(sys.argv[2])
me = os.path.join(folder, f"{os.getpid()}")
until = time.monotonic() + seconds
while time.monotonic() < until:
    with open(me, "w") as file:
        file.write(str(time.monotonic()))
    time.sleep(0.02)
"""

# Appends the time to a file of its own, for as long as it lives.
BEATS = """
import os, sys, time
mine = os.open(os.path.join(sys.argv[1], f"{os.getpid()}"), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
while True:
    os.write(mine, b"%d\\n" % time.monotonic_ns())
    time.sleep(0.02)
"""


@pytest.fixture
def paceline(tmp_path: Path) -> Iterator[Commands]:
    commands = Commands(tmp_path / "home")
    yield commands
    commands.end()


def submit(paceline: Commands, *arguments: str, **variables: str) -> str:
    told = paceline("submit", "--json", *arguments, **variables)
    return str(told.ok().json["program"])


def programs(paceline: Commands) -> dict[str, dict[str, Any]]:
    return {one["program"]: one for one in paceline.status()["programs"]}


def wait_for_state(paceline: Commands, name: str, state: str, timeout: float = 20.0) -> dict[str, Any]:
    wait_until(
        lambda: programs(paceline)[name]["state"] == state,
        f"program {name} to be {state}",
        timeout,
        lambda: programs(paceline),
    )
    return programs(paceline)[name]


class Marks:
    """The copies of a program that were ever seen, by the files they write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def command(self, seconds: float = 600) -> list[str]:
        return ["--", sys.executable, "-c", ALIVE, str(self.folder), str(seconds)]

    def started(self) -> set[int]:
        return {int(path.name) for path in self.folder.iterdir()}

    def beats(self, pid: int) -> list[int]:
        """When the copy of this number lived, by the clock of all of them."""
        return [int(line) for line in (self.folder / str(pid)).read_text().split("\n")[:-1]]

    def alive(self) -> set[int]:
        return {pid for pid in self.started() if Path(f"/proc/{pid}").exists() and not is_dead(pid)}

    def wait_for_one(self, but: set[int] = frozenset()) -> int:  # type: ignore[assignment]
        wait_until(lambda: self.started() - but, "the program to begin", 20)
        [one] = self.started() - but
        return one


def test_a_program_uses_the_cluster_that_runs_it(paceline: Commands, tmp_path: Path) -> None:
    paceline.start("--cpus", "2")
    script = tmp_path / "job.py"
    script.write_text(
        """
import os, sys
import paceline as pl

if __name__ == "__main__":
    pl.connect()
    print("sum", sum(pl.map(abs, range(-10, 0))), os.getcwd(), os.environ["LETTER"], *sys.argv[1:], flush=True)
"""
    )
    told = paceline(
        "submit",
        "--wait",
        "--json",
        "--env",
        "LETTER=x",
        "--name",
        "job",
        "--",
        sys.executable,
        str(script),
        "a b",
        cwd=tmp_path,
    )
    ended = told.ok().json
    assert (ended["state"], ended["exit_code"], ended["signal"]) == ("ended", 0, None)
    assert ended["node"] in [node["name"] for node in paceline.status()["nodes"]]
    lines = paceline("logs", "job").ok().out.splitlines()
    assert f"sum 55 {tmp_path} x a b" in lines, lines
    assert programs(paceline)["job"]["exit_code"] == 0
    assert "exit code 0" in paceline("status", "--verbose").ok().out
    paceline("stop").ok()
    paceline.assert_nothing_left()


def test_its_exit_code_is_that_of_submit(paceline: Commands) -> None:
    paceline.start("--cpus", "1")
    assert paceline("submit", "--wait", "--", sys.executable, "-c", "raise SystemExit(7)").code == 7
    killed = paceline("submit", "--wait", "--", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    assert killed.code == 128 + 9
    assert "signal 9" in killed.err
    missing = paceline("submit", "--wait", "--name", "ghost", "--", "/no/such/program")
    assert missing.code == 127
    assert "/no/such/program cannot be run: No such file" in paceline("logs", "ghost").ok().out
    nowhere = paceline("submit", "--wait", "--name", "lost", "--cwd", "/no/such/place", "--", "true")
    assert nowhere.code == 126
    assert "no such directory" in paceline("logs", "lost").ok().out


def test_it_outlives_the_shell_and_ends_with_the_cluster(paceline: Commands, tmp_path: Path) -> None:
    marks = Marks(tmp_path / "marks")
    paceline.start("--cpus", "1")
    # A shell of its own, which ends with everything in it.
    done = subprocess.run(
        [program(), "submit", *marks.command()],
        env=paceline.environment(),
        capture_output=True,
        text=True,
        timeout=30,
        start_new_session=True,
    )
    assert done.returncode == 0, done.stderr
    pid = marks.wait_for_one()
    assert os.getpgid(pid) == pid, "it leads its own group"
    paceline("stop").ok()
    assert is_dead(pid)
    paceline.assert_nothing_left()


def test_names_requests_and_records(paceline: Commands, tmp_path: Path) -> None:
    marks = Marks(tmp_path / "marks")
    paceline.start("--cpus", "1", "--head-lost", "1s", "--heartbeat", "200ms")
    assert submit(paceline, "--name", "first", *marks.command()) == "first"
    marks.wait_for_one()
    again = paceline("submit", "--name", "first", "--", "true")
    assert again.code != 0
    assert "a program first is there already" in again.err
    assert paceline("submit", "--name", "a/b", "--", "true").code != 0
    # Full: it waits, and says for what.
    submit(paceline, "--name", "second", "--", "true")
    waiting = wait_for_state(paceline, "second", "waiting")
    assert "1 CPU" in waiting["why"]
    # For a while after its start a head thinks nothing impossible.
    wait_until(
        lambda: "can never run" in paceline("submit", "--cpus", "64", "--", "true").err, "it to be impossible", 10
    )
    refused = submit_large(paceline)
    assert refused.code == 2
    assert "16777216" in refused.err
    told = paceline("stop", "--program", "first").ok()
    assert "has ended" in told.err
    wait_until(lambda: programs(paceline)["second"]["state"] == "ended", "the second to have its turn", 20)
    assert programs(paceline)["first"]["reason"] == "stopped"
    assert paceline("stop", "--program", "nobody").code != 0


def submit_large(paceline: Commands) -> Told:
    """More than sixteen megabytes, out of less than two: the most that a process can be given."""
    variables = {f"LARGE{number}": "x" * 120_000 for number in range(15)}
    return paceline("submit", *[f"--env={name}" for name in variables] * 10, "--", "true", **variables)


def test_it_goes_on_while_its_head_is_away(paceline: Commands, tmp_path: Path) -> None:
    marks = Marks(tmp_path / "marks")
    head = paceline.start("--no-node", "--heartbeat", "500ms", "--head-lost", "30s")
    other = Commands(tmp_path / "other", paceline.marker)
    token = paceline("token", "--json").ok().json["token"]
    other.join(head["address"], "a", "--cpus", "1", "--token", token, "--heartbeat", "500ms", "--head-lost", "30s")
    early = [sys.executable, "-c", "raise SystemExit(4)"]
    assert paceline("submit", "--wait", "--name", "early", "--", *early).code == 4
    name = submit(paceline, "--restarts", "3", *marks.command())
    pid = marks.wait_for_one()
    wait_for_state(paceline, name, "running")
    waiting = subprocess.Popen(
        [program(), "submit", "--wait", "--name", "later", "--", sys.executable, "-c", "raise SystemExit(5)"],
        env=paceline.environment(),
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: "later" in programs(paceline), "it to be accepted", 20)
    os.kill(head["pid"], signal.SIGKILL)
    wait_until(lambda: is_dead(head["pid"]), "the head to be gone", 5)
    port = head["address"].rsplit(":", 1)[1]
    paceline("start", "--port", port, "--no-node", "--heartbeat", "500ms", "--head-lost", "30s").ok()
    found = wait_for_state(paceline, name, "running", 30)
    assert (found["restarted"], found["node"]) == (0, "a")
    assert (marks.started(), is_dead(pid)) == ({pid}, False), "the same one, and no other"
    assert programs(paceline)["early"]["exit_code"] == 4, "how it ended is in the journal"
    # What was accepted before is not lost either: it has its turn.
    paceline("stop", "--program", name).ok()
    assert waiting.wait(30) == 5
    assert marks.started() == {pid}
    assert is_dead(pid)


def test_program_accepted_before_the_head_died_runs_though_its_node_never_heard_of_it(
    paceline: Commands, tmp_path: Path
) -> None:
    quick = ("--heartbeat", "500ms", "--head-lost", "30s")
    # This head is gone when its journal says where the program runs, and before the node hears of it.
    head = paceline.start("--no-node", *quick, PACELINE_FAULT_EXIT_BEFORE_RUN="1")
    other = Commands(tmp_path / "other", paceline.marker)
    token = paceline("token", "--json").ok().json["token"]
    other.join(head["address"], "a", "--cpus", "1", "--token", token, *quick)
    submitting = subprocess.Popen(
        [program(), "submit", "--wait", "--name", "w", "--", sys.executable, "-c", "raise SystemExit(7)"],
        env=paceline.environment(),
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: is_dead(head["pid"]), "the head to be gone", 10)
    port = head["address"].rsplit(":", 1)[1]
    paceline("start", "--port", port, "--no-node", *quick).ok()
    ended = wait_for_state(paceline, "w", "ended", 30)
    assert (ended["exit_code"], ended["restarted"]) == (7, 0), "it ran, and was charged for nothing"
    assert submitting.wait(30) == 7


@pytest.mark.slow
@pytest.mark.parametrize("syncs", range(1, SYNCS_OF_A_PROGRAM + 1))
def test_program_submitted_runs_wherever_its_head_is_killed(paceline: Commands, tmp_path: Path, syncs: int) -> None:
    """After each write of the journal: it is on disk, and nobody has heard of it."""
    quick = ("--heartbeat", "500ms", "--head-lost", "30s")
    disk = FaultyDisk(tmp_path / "home", tmp_path / "control")
    head = paceline.start("--no-node", *quick, **disk.variables)
    other = Commands(tmp_path / "other", paceline.marker)
    other.join(head["address"], "a", "--cpus", "1", "--token", head["token"], *quick)
    wait_until(lambda: paceline.nodes() == ["a"], "the node")
    (disk.control / "crash").write_text(str(syncs))
    submitting = subprocess.Popen(
        [program(), "submit", "--wait", "--name", "w", "--", sys.executable, "-c", "raise SystemExit(7)"],
        env=paceline.environment(),
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: is_dead(head["pid"]), "the head to be gone", 10)
    port = head["address"].rsplit(":", 1)[1]
    paceline("start", "--port", port, "--no-node", *quick).ok()
    assert submitting.wait(30) == 7, programs(paceline)
    assert programs(paceline)["w"]["restarted"] == 0, "it was charged for nothing"


@pytest.mark.slow
def test_it_is_started_once_more_when_its_node_is_lost(paceline: Commands, tmp_path: Path) -> None:
    marks = Marks(tmp_path / "marks")
    head = paceline.start("--no-node", *QUICK)
    joined = {}
    for node in ("a", "b"):
        token = paceline("token", "--json").ok().json["token"]
        home = Commands(tmp_path / node, paceline.marker)
        joined[node] = home.join(head["address"], node, "--cpus", "1", "--token", token, *QUICK)
    name = submit(paceline, "--restarts", "1", *marks.command())
    first = marks.wait_for_one()
    where = wait_for_state(paceline, name, "running")["node"]
    os.kill(joined[where]["pid"], signal.SIGKILL)
    killed = time.monotonic()
    wait_until(lambda: is_dead(first), "it to end with its node", 5)
    assert wait_for_state(paceline, name, "unreachable")["restarted"] == 0
    second = marks.wait_for_one(but={first})
    assert time.monotonic() - killed > 4.0, "no sooner than its node would have ended it by itself"
    found = wait_for_state(paceline, name, "running")
    assert (found["restarted"], found["node"] != where) == (1, True)
    os.kill(joined[found["node"]]["pid"], signal.SIGKILL)
    ended = wait_for_state(paceline, name, "ended")
    assert ended["reason"] == "node-lost"
    assert marks.started() == {first, second}


@pytest.mark.parametrize("zygote_is", ["stopped", "killed"])
def test_program_of_a_node_that_was_killed_has_ended_before_the_node_joins_again(
    paceline: Commands, tmp_path: Path, zygote_is: str
) -> None:
    marks = Marks(tmp_path / "marks")
    head = paceline.start("--no-node", *QUICK)
    token = paceline("token", "--json").ok().json["token"]
    home = Commands(tmp_path / "a", paceline.marker)
    node = home.join(head["address"], "a", "--cpus", "1", "--token", token, *QUICK)["pid"]
    (tmp_path / "beats.py").write_text(BEATS)
    beats = [sys.executable, str(tmp_path / "beats.py"), str(marks.folder)]
    # A shell ends with its zygote, and what it has started does not.
    command = beats if zygote_is == "stopped" else ["sh", "-c", shlex.join(beats) + "; true"]
    name = submit(paceline, "--restarts", "3", "--", *command)
    first = marks.wait_for_one()
    wait_for_state(paceline, name, "running")
    slot = first if zygote_is == "stopped" else process(first).parent  # type: ignore[union-attr]
    zygote = process(slot).parent  # type: ignore[union-attr]
    # Whoever is killed while it stands still has done nothing about it.
    os.kill(zygote if zygote_is == "stopped" else node, signal.SIGSTOP)
    if zygote_is == "killed":
        os.kill(zygote, signal.SIGKILL)
    os.kill(node, signal.SIGKILL)
    # All its threads: the last one gives its lock back.
    wait_until(lambda: process(node) is None, "the node to be gone", 5)
    assert home.join(head["address"], "a", "--cpus", "1", *QUICK)["pid"] != node
    second = marks.wait_for_one(but={first})
    wait_until(lambda: len(marks.beats(second)) > 50, "the second copy to have run for a second", 20)
    assert marks.beats(first)[-1] < marks.beats(second)[0], "two copies lived at the same time"
    assert is_dead(first)
    assert is_dead(zygote)
    paceline("stop").ok()
    wait_until(lambda: not paceline.processes(), "everything to end", 10, paceline.processes)


def test_it_is_let_finish_on_a_node_that_is_drained(paceline: Commands, tmp_path: Path) -> None:
    marks = Marks(tmp_path / "marks")
    paceline.start("--cpus", "1")
    name = submit(paceline, *marks.command(seconds=3))
    pid = marks.wait_for_one()
    [node] = paceline.nodes()
    paceline("node", "drain", node).ok()
    assert not is_dead(pid)
    ended = wait_for_state(paceline, name, "ended")
    assert ended["exit_code"] == 0
    wait_until(lambda: paceline.status()["nodes"] == [], "the node to have left", 10)


def test_what_it_started_ends_with_it(paceline: Commands, tmp_path: Path) -> None:
    paceline.start("--cpus", "1")
    script = "import subprocess, time; subprocess.Popen(['sleep', '600'], start_new_session=True); time.sleep(600)"
    name = submit(paceline, "--", sys.executable, "-c", script)
    sleeping = lambda: [one for one in processes_of(paceline.marker) if one.name == "sleep"]  # noqa: E731
    wait_until(sleeping, "its child", 20)
    paceline("stop", "--program", name).ok()
    wait_until(lambda: not sleeping(), "its child to be gone", 5)


def test_a_program_that_fails_is_started_again(paceline: Commands, tmp_path: Path) -> None:
    paceline.start("--cpus", "1")
    script = "import os, sys; open(sys.argv[1], 'a').write('x'); sys.exit(os.path.getsize(sys.argv[1]) < 3)"
    counter = tmp_path / "counter"
    told = paceline("submit", "--wait", "--json", "--restarts", "5", "--", sys.executable, "-c", script, str(counter))
    assert (told.ok().json["restarted"], counter.read_text()) == (2, "xxx")

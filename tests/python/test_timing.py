"""Settings of time: which are refused, and what happens when a head is started again with others."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import paceline as pl
from paceline import errors
from support.daemons import Commands, program
from support.processes import process
from support.waiting import wait_until


@pytest.fixture
def paceline(tmp_path: Path) -> Iterator[Commands]:
    commands = Commands(tmp_path / "home")
    yield commands
    commands.end()


def restart(paceline: Commands, head: dict[str, object], *flags: str) -> dict[str, object]:
    """Kill the head and start it again, with other settings."""
    pid = int(str(head["pid"]))
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: process(pid) is None, "the head to be gone")
    port = str(head["address"]).rpartition(":")[2]
    told = paceline("start", "--json", "--port", port, "--no-node", *flags)
    return dict(told.ok().json)


def written(lives: Path) -> dict[str, list[float]]:
    """When each process has written that it lives."""
    told: dict[str, list[float]] = {}
    for line in lives.read_text().splitlines()[:-1]:
        pid, at = line.split()
        told.setdefault(pid, []).append(float(at))
    return told


def test_head_with_a_shorter_heartbeat_keeps_its_nodes(paceline: Commands) -> None:
    head = paceline.start("--no-node", "--heartbeat", "5s")
    paceline.join(str(head["address"]), "a", "--cpus", "1")
    restart(paceline, head, "--heartbeat", "100ms", "--head-lost", "60s")
    wait_until(lambda: paceline.nodes() == ["a"], "the node to come back")
    until = time.monotonic() + 3
    while time.monotonic() < until:
        # After three of the new heartbeats a node that goes by the old one counts as lost.
        assert paceline.nodes() == ["a"]


def test_head_with_a_shorter_head_lost_is_missed_for_no_longer(paceline: Commands) -> None:
    head = paceline.start("--no-node", "--heartbeat", "200ms", "--head-lost", "50s")
    node = paceline.join(str(head["address"]), "a", "--cpus", "1")
    head = restart(paceline, head, "--heartbeat", "200ms", "--head-lost", "1s")
    wait_until(lambda: paceline.nodes() == ["a"], "the node to come back")
    os.kill(int(str(head["pid"])), signal.SIGKILL)
    wait_until(lambda: process(int(str(node["pid"]))) is None, "the node to end without a head", 10)


@pytest.mark.slow
def test_head_with_a_shorter_head_lost_waits_for_a_program_of_before(paceline: Commands, tmp_path: Path) -> None:
    """Its node stands still; what runs there ends by the settings that it was started under."""
    lives = tmp_path / "lives"
    beat = ("--heartbeat", "200ms")
    head = paceline.start("--no-node", *beat, "--head-lost", "12s")
    node = paceline.join(str(head["address"]), "a", "--cpus", "1")
    script = tmp_path / "living.py"
    script.write_text(
        "import os, time\n"
        f"with open({str(lives)!r}, 'a', buffering=1) as file:\n"
        "    while True:\n"
        "        file.write(f'{os.getpid()} {time.monotonic()}\\n')\n"
        "        time.sleep(0.01)\n"
    )
    paceline("submit", "--restarts", "1", "--", sys.executable, str(script)).ok()
    wait_until(lives.exists, "the program to run")
    os.kill(int(str(node["pid"])), signal.SIGSTOP)
    try:
        head = restart(paceline, head, *beat, "--head-lost", "1s")
        paceline.join(str(head["address"]), "b", "--cpus", "1")
        wait_until(lambda: len(written(lives)) == 2, "the program to be started again", 40)
        # Long enough for one that still lives to show it.
        second = lambda: min(map(len, written(lives).values()))  # noqa: E731
        wait_until(lambda: second() > 20, "the second one to have written that it lives", 20)
    finally:
        os.kill(int(str(node["pid"])), signal.SIGCONT)
    first, last = sorted(written(lives).values())
    assert first[-1] < last[0], f"for {first[-1] - last[0]:.2f} s there were two"


def test_durations_that_nobody_has_set_follow_the_heartbeat(paceline: Commands) -> None:
    paceline.start("--no-node", "--heartbeat", "25s")
    assert paceline.nodes() == []
    paceline("stop").ok()
    paceline.assert_nothing_left()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--heartbeat", "0s"), "10ms to 1h"),
        (("--heartbeat", "2h"), "10ms to 1h"),
        (("--head-lost", "0s"), "6s to 30d"),
        (("--heartbeat", "1s", "--head-lost", "2900ms"), "3s to 30d: three heartbeats at least"),
        (("--head-lost", "1000000d"), "6s to 30d"),
        (("--heartbeat", "1s", "--client-lost", "2s"), "3s to 30d: three heartbeats at least"),
    ],
)
def test_senseless_durations_are_refused_before_anything_starts(
    paceline: Commands, flags: tuple[str, ...], words: str
) -> None:
    if "--client-lost" in flags:
        told = paceline("start", "--port", "0", *flags[:2], PACELINE_CLIENT_LOST=flags[3])
    else:
        told = paceline("start", "--port", "0", *flags)
    assert told.code == 2
    assert words in told.err
    assert paceline.processes() == []
    assert paceline.files() == []


def test_status_has_the_epoch_of_the_head(paceline: Commands) -> None:
    head = paceline.start("--no-node")
    assert paceline.status()["cluster"]["epoch"] == 1
    restart(paceline, head)
    assert paceline.status()["cluster"]["epoch"] == 2


def test_starts_at_once_all_say_that_the_cluster_runs(paceline: Commands) -> None:
    """One of them starts it, the others say that it runs already; all of them as a later one would."""
    for _ in range(3):
        command = [program(), "start", "--no-node", "--port", "0", "--json"]
        started = [
            subprocess.Popen(
                command, env=paceline.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            for _ in range(4)
        ]
        told = [(one.communicate(timeout=30), one.returncode) for one in started]
        assert [code for _, code in told] == [0] * 4, told
        already = [(out, err) for (out, err), _ in told if '"already": true' in out or '"already":true' in out]
        assert len(already) == 3, told
        assert all("runs already" in err for _, err in already), told
        paceline("stop").ok()


OWNER = """
import os, signal
import paceline as pl

@pl.remote(cpus=1)
class Box:
    def put(self, value):
        return value

if __name__ == "__main__":
    pl.connect({address!r})
    box = Box.options(name="shared")()
    assert box.put(7) == 7
    print("made", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.slow
def test_client_stopped_before_its_first_heartbeat_is_given_up(
    paceline: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its CPUs and the names of its actors are free then, and who looks for one hears why there is none."""
    monkeypatch.setenv("PACELINE_HOME", str(paceline.home))
    head = paceline.start("--cpus", "1", "--heartbeat", "2s", PACELINE_CLIENT_LOST="6s")
    script = tmp_path / "owner.py"
    script.write_text(OWNER.format(address=head["address"]))
    owner = subprocess.Popen(
        [sys.executable, str(script)], env=paceline.environment(), stdout=subprocess.PIPE, text=True
    )
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "made\n"
        with pl.connect(str(head["address"])):
            assert pl.get_actor("shared") is not None, "it may come back"
            began = time.monotonic()
            assert pl.map(abs, [-1]) == [1]
            assert time.monotonic() - began < 15
            with pytest.raises(errors.NoSuchActor, match="any more: its owner, the client"):
                pl.get_actor("shared")

            @pl.remote(cpus=0)
            class Other:
                def get(self) -> int:
                    return 8

            assert Other.options(name="shared")().get() == 8
    finally:
        owner.kill()
        owner.communicate(timeout=10)


def test_node_started_from_a_copied_directory_is_refused(paceline: Commands, tmp_path: Path) -> None:
    head = paceline.start("--no-node")
    first, second = Commands(tmp_path / "first", paceline.marker), Commands(tmp_path / "second", paceline.marker)
    node = first.join(str(head["address"]), "a", "--cpus", "1", "--token", str(head["token"]))
    wait_until(lambda: paceline.nodes() == ["a"], "the node")
    shutil.copytree(first.home, second.home)
    told = second("join", str(head["address"]), "--node-name", "a", "--cpus", "1")
    assert told.code == 5, told
    assert "is a copy of the record of another node" in told.err
    assert process(int(node["pid"])) is not None, "the first one goes on"
    assert paceline.nodes() == ["a"]
    second.join(str(head["address"]), "b", "--cpus", "1")
    wait_until(lambda: sorted(paceline.nodes()) == ["a", "b"], "a node of its own")
    # The first one's own directory is still the first one's.
    os.kill(int(node["pid"]), signal.SIGKILL)
    wait_until(lambda: process(int(node["pid"])) is None, "the first one to be gone")
    first.join(str(head["address"]), "a", "--cpus", "1")

"""An actor of one Rust program, which another one calls: `crates/paceline/examples/tally.rs`."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import paceline as pl
from support.daemons import Commands
from support.programs import built
from support.waiting import wait_until


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A cluster of this user on this machine, of two CPUs."""
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "home"))
    paceline = Commands(tmp_path / "home")
    try:
        yield str(paceline.start("--cpus", "2")["address"])
    finally:
        pl.shutdown()
        paceline.end()


def votes(address: str, name: str, count: int) -> subprocess.CompletedProcess[str]:
    command = [built("tally"), address, "vote", name, str(count)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


def test_two_rust_programs_share_an_actor(address: str) -> None:
    assert "NoSuchActor" in votes(address, "ada", 1).stderr
    command = [built("tally"), address, "host"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        assert host.stdin is not None
        pid = int(host.stdout.readline())
        assert votes(address, "ada", 100).stdout.split("\n")[99] == "ada: 100"
        assert votes(address, "grace", 1).stdout == "grace: 1\n"
        second = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert "ActorRefused" in second.stderr, "the name is taken"

        os.kill(pid, signal.SIGKILL)

        def counted() -> int:
            """How often was voted, if the call was answered; it runs once at most."""
            told = votes(address, "edsger", 1).stdout.strip()
            return int(told.removeprefix("edsger: ")) if told.startswith("edsger: ") else 0

        wait_until(lambda: counted() > 0, "the actor to be there again")
        with pl.connect(address), pytest.raises(pl.ActorRefused, match="an actor of a Rust program"):
            pl.get_actor("tally")

        host.stdin.close()
        assert host.wait(30) == 0
        wait_until(lambda: "NoSuchActor" in votes(address, "ada", 1).stderr, "the actor to end with its maker")

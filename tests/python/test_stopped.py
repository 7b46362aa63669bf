"""Slots that were stopped, by SIGSTOP: who uses them is told, they go on when let, and no call waits for ever."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import faulty
import paceline as pl
from support import wait_until

# What a call has that does not stop when it is told to.
GRACE = 2.0


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[pl.Cluster]:
    """Where a slot may stand still for ever."""
    monkeypatch.setenv("PACELINE_STOPPED_LIMIT", "0")
    with pl.connect(cpus=2) as cluster:
        yield cluster


@pytest.mark.timeout(20)
def test_it_is_told_and_goes_on(patient: pl.Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    future = pl.remote(faulty.stop_here).submit(str(tmp_path))
    said = wait_until(lambda: capsys.readouterr().err, "a word about it")
    pid = int((tmp_path / "pid").read_text())
    assert f"this process ({pid}) was stopped by SIGSTOP and stands still until `kill -CONT {pid}`" in said
    assert not future.done()
    lets_go_on = f"its process ({pid}) was stopped by SIGSTOP, and `kill -CONT {pid}` lets it go on"
    assert lets_go_on in future.explain()
    [node] = patient.status()["nodes"]
    assert [slot.get("stopped") for slot in node["slots"] if slot["pid"] == pid] == ["SIGSTOP"]
    os.kill(pid, signal.SIGCONT)
    assert future.result(10) == "went on"
    wait_until(lambda: "stopped" not in repr(patient.status()), "a status without it", 5, patient.status)


@pytest.mark.timeout(20)
def test_its_time_goes_on(patient: pl.Cluster, tmp_path: Path) -> None:
    stop = pl.remote(timeout=1)(faulty.stop_here)
    began = time.monotonic()
    with pytest.raises(pl.TaskTimeout):
        stop(str(tmp_path))
    assert time.monotonic() - began < 1 + GRACE + 3
    assert (tmp_path / "pid").exists()
    assert pl.remote(abs)(-7) == 7


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", [faulty.Stopping, faulty.StoppingLater])
def test_the_time_of_an_actors_call_goes_on(patient: pl.Cluster, kind: Any) -> None:
    actor: Any = pl.remote(kind).options(restarts=1, timeout=1)()
    with pytest.raises((pl.TaskTimeout, pl.ActorDied), match=r"too long|timeout"):
        actor.stop()
    assert actor.fine() == "fine"


@pytest.mark.timeout(20)
def test_what_waits_behind_it_runs_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A slot that has nothing to do is ended, too, and costs the next call no retry."""
    monkeypatch.setenv("PACELINE_STOPPED_LIMIT", "200ms")
    with pl.connect(cpus=1):
        pid = pl.remote(os.getpid)()
        os.kill(pid, signal.SIGSTOP)
        assert pl.remote(retries=0)(os.getpid)() != pid


@pytest.mark.timeout(20)
def test_closing_does_not_wait_for_it(tmp_path: Path) -> None:
    with pl.connect(cpus=1):
        future = pl.remote(faulty.stop_here).submit(str(tmp_path))
        wait_until(lambda: (tmp_path / "pid").exists() and is_stopped(int((tmp_path / "pid").read_text())), "a stop")
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert future.cancelled()


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

"""How many slots a program holds at a time, all kinds of tasks together."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import paceline as pl
from support import wait_until


def hold(path: str) -> int:
    Path(f"{path}.{os.getpid()}").touch()
    while not os.path.exists(path):
        time.sleep(0.01)
    return os.getpid()


def test_no_more_slots_than_a_program_may_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_MAX_LINKS", "2")
    gate = str(tmp_path / "gate")
    with pl.connect(cpus=4):
        one, half = pl.remote(hold), pl.remote(cpus=0.5)(hold)
        futures = [one.submit(gate) for _ in range(4)]
        wait_until(lambda: len(list(tmp_path.glob("gate.*"))) == 2, "as many as may be")
        futures += [half.submit(gate) for _ in range(2)]
        said = futures[-1].explain()
        assert "holds at most 2 slots at a time" in said, said
        assert len(list(tmp_path.glob("gate.*"))) == 2, "though there are four CPUs"
        Path(gate).touch()
        assert len({future.result(30) for future in futures}) >= 2


def test_kinds_of_tasks_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_MAX_LINKS", "1")
    with pl.connect(cpus=2):
        kinds = [pl.remote(cpus=cpus)(abs) for cpus in (1, 0.5, 0.25)]
        futures = [kinds[number % 3].submit(-number) for number in range(60)]
        assert [future.result(30) for future in futures] == list(range(60))

"""References in calls that tasks make: on one machine they stay references, and there is one copy for all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

import paceline as pl
from support.memory import proportional
from support.waiting import wait_until
from test_objects import MIB, kept, nothing_kept

numpy = pytest.importorskip("numpy")

SIZE = 64 * MIB


@pl.remote
def used(values: Any, meeting: str, users: int) -> tuple[float, int]:
    """Has all of it mapped and read, and measures while the others have, too."""
    total = float(values.sum())
    meet(Path(meeting, "read"), users)
    size = proportional()
    meet(Path(meeting, "measured"), users)
    return total, size


def meet(directory: Path, users: int) -> None:
    """Waits until so many processes are here."""
    directory.mkdir(exist_ok=True)
    (directory / str(os.getpid())).touch()
    wait_until(lambda: len(list(directory.iterdir())) == users, f"all {users} tasks to have come", 30)


@pl.remote
def shares_what_is_inside(box: list[pl.Ref[Any]], users: int) -> tuple[list[float], int]:
    return _use(box[0], users)


def _use(ref: pl.Ref[Any], users: int) -> tuple[list[float], int]:
    with tempfile.TemporaryDirectory() as meeting:
        futures = [used.options(cpus=0.1).submit(ref, meeting, users) for _ in range(users)]
        totals, sizes = zip(*[future.result() for future in futures], strict=True)
    return list(totals), sum(sizes)


@pl.remote
def uses_its_own(size: int, users: int) -> tuple[list[float], int]:
    return _use(pl.put(numpy.ones(size // 8)), users)


def test_tasks_of_tasks_share_one_copy() -> None:
    with pl.connect(cpus=1) as cluster:
        _, bare = uses_its_own(MIB, 4)
        totals, grown = uses_its_own(SIZE, 4)
        assert totals == [SIZE / 8] * 4
        assert grown - bare < 1.5 * SIZE, "all of them together have one copy"
        nothing_kept(cluster)
        outer = pl.put(numpy.ones(SIZE // 8))
        totals, grown = shares_what_is_inside(pl.put([outer]), 4)
        assert totals == [SIZE / 8] * 4
        assert grown - bare < 1.5 * SIZE
        assert kept(cluster)["memory"] < SIZE + MIB
        del outer
        nothing_kept(cluster)

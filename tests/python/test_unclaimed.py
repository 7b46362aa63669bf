"""Results with references in them that nobody reads keep nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import paceline as pl
from support import wait_until
from test_cluster_objects import Nodes, nodes
from test_objects import kept, made, made_in_a_box, nothing_kept

numpy = pytest.importorskip("numpy")

__all__ = ["nodes"]  # a fixture of theirs

MIB = 1 << 20


@pl.remote
def made_late(path: str) -> pl.Ref[Any]:
    """Gives what it has made although it was told to stop."""
    ref = pl.put(numpy.ones(MIB))
    Path(path).touch()
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        pass
    return ref


def test_a_future_that_nobody_asks_keeps_nothing() -> None:
    with pl.connect(cpus=2) as cluster:
        futures = [made.submit(MIB), made_in_a_box.submit(MIB), made.options(keep=True).submit(100)]
        pl.wait(futures)
        assert kept(cluster)["count"] >= 4
        del futures
        nothing_kept(cluster)


@pl.remote
def made_with_much(count: int) -> dict[str, Any]:
    return {"ref": pl.put(numpy.ones(count)), "much": "x" * 200_000}


def test_what_is_read_is_kept() -> None:
    with pl.connect(cpus=1, result_bytes=1000) as cluster:
        box = made_in_a_box.submit(MIB)
        box.result()
        again = box.result()
        del box
        several = [made_with_much.submit(MIB) for _ in range(3)]
        pl.wait(several)
        assert [float(pl.get(one.result()["ref"]).sum()) for one in several] == [MIB] * 3
        assert float(pl.get(again["ref"]).sum()) == MIB
        assert pl.get(again["again"][1]) == "small"
        del several, again
        nothing_kept(cluster)


def test_results_of_a_map_that_nobody_takes_keep_nothing() -> None:
    with pl.connect(cpus=1) as cluster:
        results = made.imap([MIB] * 6, lookahead=6)
        assert pl.get(next(results)).shape == (MIB,)
        wait_until(lambda: kept(cluster)["count"] >= 5, "most of them")
        del results
        nothing_kept(cluster)


def test_a_task_that_was_cancelled_keeps_nothing(tmp_path: Path) -> None:
    with pl.connect(cpus=1) as cluster:
        future = made_late.submit(str(tmp_path / "there"))
        wait_until((tmp_path / "there").exists, "the object", 30)
        pl.cancel(future)
        del future
        nothing_kept(cluster)


def test_tasks_of_tasks_that_nobody_asks_keep_nothing() -> None:
    @pl.remote
    def outer() -> int:
        future = made.submit(MIB)
        pl.wait([future])
        del future
        return 7

    with pl.connect(cpus=2) as cluster:
        assert outer() == 7
        nothing_kept(cluster)


@pytest.mark.parametrize("nodes", ["far"], indirect=True)
def test_on_a_cluster_neither(nodes: Nodes) -> None:
    futures = [made.submit(MIB), made_in_a_box.submit(MIB)]
    pl.wait(futures)
    assert sum(nodes.counts()) == 3
    del futures
    nodes.nothing_kept()

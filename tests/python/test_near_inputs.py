"""Tasks run where what they need is, if that does not take longer than to bring it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

import paceline as pl
from support.waiting import wait_until
from test_cluster_objects import MIB, Nodes, made, nodes, on

numpy = pytest.importorskip("numpy")

__all__ = ["nodes"]  # a fixture of theirs


@pl.remote
def place() -> int:
    """The slots of one node have one parent."""
    return os.getppid()


@pl.remote
def place_with(*values: Any, seconds: float = 0.0) -> int:
    time.sleep(seconds)
    assert all(value[-1] == 1 for value in values)
    return os.getppid()


@pl.remote
def ones(count: int) -> Any:
    return numpy.ones(count)


@pl.remote
def held_up(path: str) -> None:
    until = time.monotonic() + 60
    while not os.path.exists(path) and time.monotonic() < until:
        time.sleep(0.005)


@pytest.mark.parametrize("nodes", ["far"], indirect=True)
def test_tasks_run_where_their_inputs_are(nodes: Nodes, tmp_path: Path) -> None:
    kept = {name: on(name, made).submit(16 * MIB).result() for name in "ab"}
    where = {name: on(name, place)() for name in "ab"}
    assert where["a"] != where["b"]
    busy = [held_up.submit(str(tmp_path / "end")) for _ in range(4)]
    wait_until(lambda: all(one.running() for one in busy), "all slots to be at work", 30)
    ran = {name: [place_with.submit(kept[name], seconds=0.005) for _ in range(8)] for name in "ab"}
    (tmp_path / "end").touch()
    near = [future.result() == where[name] for name, futures in ran.items() for future in futures]
    assert sum(near) >= 13, f"{near}: without a preference it would be half of them"
    del kept, ran
    nodes.nothing_kept()


@pytest.mark.parametrize("nodes", ["far"], indirect=True)
def test_the_first_slot_is_where_the_input_is(nodes: Nodes) -> None:
    for name in "ab":
        kept = on(name, ones).options(keep=True).submit(16 * MIB)
        assert isinstance(kept.result(), pl.Ref)
        where = on(name, place)()
        assert place_with.submit([kept][0]).result() == where
        assert nodes.counts() == [int(name == "a"), int(name == "b")], "it was not sent anywhere"
        del kept
        nodes.nothing_kept()
        # What the program has of slots goes back, so that the next is the first again.
        wait_until(lambda: not nodes.paceline.status()["leases"], "no leases", 30)


@pytest.mark.parametrize("nodes", ["far"], indirect=True)
def test_a_busy_node_does_not_keep_others_idle(nodes: Nodes, tmp_path: Path) -> None:
    kept = on("a", made)(MIB)
    where = on("a", place)()
    busy = [on("a", held_up).submit(str(tmp_path / "end")) for _ in range(2)]
    wait_until(lambda: all(one.running() for one in busy), "the node to be busy", 30)
    assert place_with.submit(kept).result(timeout=30) != where, "it runs elsewhere, and its input comes there"
    assert nodes.counts() == [1, 1]
    (tmp_path / "end").touch()
    assert [one.result() for one in busy] == [None, None]

"""Objects on a cluster at an address: one copy for each node, however far away it is."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import paceline as pl
from support.daemons import Commands
from support.scripts import start_script
from support.waiting import wait_until

numpy = pytest.importorskip("numpy")

MIB = 1 << 20


@dataclass
class Nodes:
    """Two nodes of two CPUs, of which a program sees nothing but their ports."""

    paceline: Commands
    address: str

    def kept(self) -> dict[str, dict[str, int]]:
        """What each node's store says of itself."""
        return {node["name"]: node["objects"] for node in self.paceline.status()["nodes"]}

    def counts(self) -> list[int]:
        return [kept["count"] for _, kept in sorted(self.kept().items())]

    def nothing_kept(self) -> None:
        gc.collect()
        wait_until(lambda: all(one["count"] + one["memory"] == 0 for one in self.kept().values()), "every object to go")


@pytest.fixture(params=["near", "far"])
def nodes(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "home"))
    if request.param == "far":
        monkeypatch.setenv("PACELINE_LOCAL", "off")
    paceline = Commands(tmp_path / "home")
    try:
        head = paceline.start("--cpus", "2", "--node-name", "a")
        paceline.join(head["address"], "b", "--cpus", "2")
        wait_until(lambda: len(paceline.nodes()) == 2, "both nodes")
        with pl.connect(head["address"]):
            yield Nodes(paceline, head["address"])
    finally:
        pl.shutdown()
        paceline.end()


@pl.remote
def total(values: Any) -> float:
    return float(values.sum())


@pl.remote
def overwrite(values: Any) -> float:
    values[:] = 7
    return float(values.sum())


@pl.remote
def made(count: int) -> pl.Ref[Any]:
    return pl.put(numpy.ones(count))


@pl.remote
def made_in_a_box(count: int) -> dict[str, Any]:
    ref = pl.put(numpy.ones(count))
    return {"ref": ref, "again": [ref, pl.put("small")]}


@pl.remote
def passed_on(values: Any) -> float:
    return total.submit(pl.put(values)).result() + total.submit([pl.put(values)][0]).result()


def on(place: str, function: Any) -> Any:
    return function.options(placement=pl.Placement(nodes=[place]))


def test_each_node_has_one_copy(nodes: Nodes) -> None:
    ref = pl.put(numpy.ones(MIB))
    futures = [on(place, total).submit(ref) for place in "ab" for _ in range(8)]
    assert [future.result() for future in futures] == [float(MIB)] * 16
    assert nodes.counts() == [1, 1]
    assert all(8 * MIB <= kept["memory"] < 9 * MIB for kept in nodes.kept().values())
    assert on("a", overwrite)(ref) == 7.0 * MIB
    assert [on(place, total)(ref) for place in "ab"] == [float(MIB)] * 2
    assert pl.get(ref).sum() == MIB
    del ref, futures
    nodes.nothing_kept()


def test_results_stay_where_they_are_made(nodes: Nodes) -> None:
    kept = on("a", made).submit(MIB).result()
    assert nodes.counts() == [1, 0]
    assert on("a", total)(kept) == MIB
    assert on("b", total)(kept) == MIB
    assert nodes.counts() == [1, 1]
    assert pl.get(kept).sum() == MIB
    sums = on("b", total).options(keep=True).submit(kept)
    assert pl.get(sums.result()) == MIB
    del kept, sums
    nodes.nothing_kept()


def test_nodes_pass_objects_on(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_OBJECT_MEMORY", "1MiB")
    kept = on("a", made)(MIB)
    assert on("b", total)(kept) == MIB, "it did not come by here, where there is no room for it"
    assert nodes.counts() == [1, 1]
    with pytest.raises(pl.StoreFull, match="8 MiB"):
        pl.get(kept)
    with pytest.raises(pl.StoreFull):
        pl.put(numpy.ones(MIB))
    assert on("a", total)(kept) == MIB
    del kept
    nodes.nothing_kept()


def test_references_in_results_count(nodes: Nodes) -> None:
    box = on("a", made_in_a_box)(1000)
    assert pl.get(box["again"][1]) == "small"
    assert pl.get(box["ref"]).sum() == 1000
    inside = pl.put([box["ref"], "and", box["again"]])
    del box
    gc.collect()
    ref, _, again = on("b", pl.remote(lambda parts: parts))(inside)
    assert pl.get(ref).sum() == 1000
    assert pl.get(again[1]) == "small"
    del ref, again, inside
    nodes.nothing_kept()


def test_tasks_of_tasks_take_values_along(nodes: Nodes) -> None:
    ref = pl.put(numpy.ones(MIB))
    assert on("a", passed_on)(ref) == 2.0 * MIB
    del ref
    nodes.nothing_kept()


def test_a_slot_that_dies_lets_go(nodes: Nodes) -> None:
    @pl.remote(retries=0)
    def dies(values: Any) -> None:
        held = [pl.put(values), pl.put(numpy.ones(MIB))]
        os.kill(os.getpid(), signal.SIGKILL)
        del held

    ref = pl.put(numpy.ones(MIB))
    with pytest.raises(pl.SlotDied):
        on("b", dies)(ref)
    wait_until(lambda: nodes.counts() == [0, 1], "what the slot had to go")
    assert on("b", total)(ref) == MIB
    del ref
    nodes.nothing_kept()


def test_objects_end_with_their_program(nodes: Nodes) -> None:
    script = f"""
        import signal
        import numpy
        import paceline as pl

        pl.connect({nodes.address!r})
        ref = pl.put(numpy.ones(1 << 20))
        kept = pl.remote(lambda values: pl.put(values))(ref)
        assert pl.remote(lambda values: values.sum())(kept) == 1 << 20
        print("there", flush=True)
        signal.pause()
    """
    with start_script(script, env={"PACELINE_HOME": str(nodes.paceline.home)}) as program:
        wait_until(lambda: "there" in program.output(), "its objects", 30, program.errors)
        assert sum(nodes.counts()) >= 2
        program.send_signal(signal.SIGKILL)
        nodes.nothing_kept()

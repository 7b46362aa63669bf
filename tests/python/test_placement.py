"""Which nodes tasks may run on, as far as one node can show it."""

import os
import platform

import pytest

import paceline as pl


def test_pack_and_spread_run() -> None:
    with pl.connect(cpus=2):
        for order in ("pack", "spread"):
            assert pl.remote(abs).options(placement=order).map([-1, 2]) == [1, 2]


def test_one_per_node_is_one_at_a_time_here() -> None:
    with pl.connect(cpus=2):
        alone = pl.remote(os.getpid).options(placement=pl.Placement(one_per_node=True))
        assert len({alone() for _ in range(3)}) == 1


def test_nodes_are_named_and_left_out() -> None:
    with pl.connect(cpus=1):
        here = pl.Placement(nodes=[platform.node()])
        assert pl.remote(abs).options(placement=here)(-1) == 1
        with pytest.raises(pl.NoResources, match="no node has one of the names elsewhere"):
            pl.remote(abs).options(placement=pl.Placement(nodes="elsewhere"))(-1)
        with pytest.raises(pl.NoResources, match="none of the names"):
            pl.remote(abs).options(placement=pl.Placement(exclude=[platform.node()]))(-1)


def test_a_label_that_no_node_has_is_named() -> None:
    with pl.connect(cpus=1):
        zone = pl.Placement(labels={"zone": "b"})
        with pytest.raises(pl.NoResources, match="no node has the label zone=b"):
            pl.remote(abs).options(placement=zone)(-1)


def test_placements_compare_by_what_they_say() -> None:
    assert pl.Placement(nodes=["a", "b"]) == pl.Placement(nodes=["b", "a"])
    assert pl.Placement("pack") != pl.Placement()
    assert len({pl.Placement(), pl.Placement("spread")}) == 1

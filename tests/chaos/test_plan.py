"""The plan is the seed's, and has what a run needs."""

from __future__ import annotations

from chaos import plan
from chaos.faults import HANDLERS


def test_plan_same_seed_same_faults() -> None:
    assert plan.make(7, 60) == plan.make(7, 60)
    assert plan.make(7, 60) != plan.make(8, 60)


def test_plan_every_fault_ends_within_it() -> None:
    for seed in range(50):
        assert all(0 < fault.at <= fault.end <= 60 for fault in plan.make(seed, 60)), f"PL-1, seed {seed}"


def test_plan_of_ten_minutes_has_every_kind() -> None:
    assert {fault.kind for fault in plan.make(1, 600)} == set(plan.DECK) == set(HANDLERS)


def test_plan_node_stands_still_only_while_nothing_else_silences_it() -> None:
    """PL-2."""
    for seed in range(50):
        faults = plan.make(seed, 300)
        for still in faults:
            if still.kind not in ("stop-node", "stop-host"):
                continue
            for other in faults:
                if other is not still and f"silence {still.target}" in set().union(*plan.claims(other)):
                    assert other.end + plan.SETTLE_TIME <= still.at or still.end + plan.SETTLE_TIME <= other.at

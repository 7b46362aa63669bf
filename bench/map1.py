"""Bar 2: how many no-op items a second does `map` with chunksize 1 get through, against `Pool.map(chunksize=1)`?"""

from collections.abc import Iterator
from typing import Any

from harness import Must, Plan, Row, interleave, paceline, pool, rate
from work import same


def inputs(count: int) -> dict[str, list[Any]]:
    return {
        "ints": list(range(count)),
        "small dicts": [{"id": i, "name": f"item {i % 10}", "weight": i * 0.5} for i in range(count)],
    }


def run(plan: Plan) -> Iterator[Row]:
    count = plan.size(10_000)
    with paceline(plan) as pl, pool() as peer:
        remote = pl and pl.remote(same)
        for kind, items in inputs(count).items():

            def ours(items: list[Any] = items) -> float:
                return rate(count, lambda: remote.map(items, chunksize=1), items) / 1e3

            def theirs(items: list[Any] = items) -> float:
                return rate(count, lambda: peer.map(same, items, chunksize=1), items) / 1e3

            got = interleave(plan.rounds, {"ours": ours if pl else None, "pool": theirs})
            what = f"map(chunksize=1), {count:,} {kind}"
            yield Row("2", what, got.get("ours", "k/s"), got.get("pool", "k/s"), "Pool.map", Must(">=", 8))

"""Bar 4: how many no-op items a second does `map` get through when it chooses the chunks, against `Pool.map`?"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from harness import Must, Plan, Row, interleave, paceline, pool, rate
from map1 import inputs
from work import same

# The large inputs take a fair part of a second; the small ones are repeated until they do.
SIZES = (
    ("ints", 1_000_000, 1),
    ("small dicts", 100_000, 1),
    ("ints", 10_000, 20),
    ("small dicts", 10_000, 5),
)


def run(plan: Plan) -> Iterator[Row]:
    with paceline(plan) as pl, pool() as peer:
        remote = pl and pl.remote(same)
        for kind, full, repeats in SIZES:
            count = plan.size(full)
            items = inputs(count)[kind]

            def timed(work: Any, items: list[Any] = items, count: int = count, repeats: int = repeats) -> float:
                taken = sum(count / rate(count, lambda: work(items), items) for _ in range(repeats))
                return repeats * count / taken / 1e6

            sides = {
                "ours": remote and (lambda timed=timed: timed(remote.map)),
                "pool": lambda timed=timed: timed(partial(peer.map, same)),
            }
            got = interleave(plan.rounds, sides)
            what = f"map, default chunks, {count:,} {kind}"
            yield Row("4", what, got.get("ours", "M/s"), got.get("pool", "M/s"), "Pool.map", Must(">=", 1.2))

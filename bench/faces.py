"""The same as bars 2 and 3 for the faces of the standard library: `pl.Pool` against `multiprocessing.Pool`, and
`pl.Executor` against `ProcessPoolExecutor`."""

from collections.abc import Iterator
from typing import Any

from harness import Must, Plan, Row, executor, interleave, paceline, pool, rate
from work import same


def futures(executor: Any, items: list[int]) -> list[int]:
    return [future.result() for future in [executor.submit(same, item) for item in items]]


def run(plan: Plan) -> Iterator[Row]:
    count = plan.size(10_000)
    items = list(range(count))
    with paceline(plan) as pl, executor() as their_executor, pool() as their_pool:
        our_executor, our_pool = (pl.Executor(2), pl.Pool(2)) if pl else (None, None)
        sides: dict[str, Any] = {
            "ours": (lambda: rate(count, lambda: futures(our_executor, items), items) / 1e3) if pl else None,
            "peer": lambda: rate(count, lambda: futures(their_executor, items), items) / 1e3,
        }
        got = interleave(plan.rounds, sides)
        what = f"Executor: submit + result, {count:,} futures"
        yield Row("3", what, got.get("ours", "k/s"), got.get("peer", "k/s"), "ProcessPoolExecutor", Must(">=", 30))
        sides = {
            "ours": (lambda: rate(count, lambda: our_pool.map(same, items, 1), items) / 1e3) if our_pool else None,
            "peer": lambda: rate(count, lambda: their_pool.map(same, items, 1), items) / 1e3,
        }
        got = interleave(plan.rounds, sides)
        what = f"Pool.map(chunksize=1), {count:,} ints"
        yield Row("2", what, got.get("ours", "k/s"), got.get("peer", "k/s"), "Pool.map", Must(">=", 8))
        if our_executor is not None and our_pool is not None:
            our_executor.shutdown()
            our_pool.terminate()

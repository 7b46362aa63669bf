"""Bar 5: how near to ideal do two slots run short tasks, and how well are short and long ones packed?

Tasks spin on `time.thread_time()`, so each is worth the same CPU time on every side. "two bare processes" is a Pool
that is given its work in two halves: what the machine allows when nothing is scheduled at all.
"""

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

from harness import SLOTS, Must, Plan, Row, elapsed_of, interleave, paceline, pool
from work import burn

SHORT, LONG = 0.001, 0.1


def run(plan: Plan) -> Iterator[Row]:
    with paceline(plan) as pl, pool() as peer:
        remote = pl and pl.remote(burn)
        yield from share(plan, remote, peer)
        yield from packing(plan, remote, peer)


def share(plan: Plan, remote: Any, peer: Any) -> Iterator[Row]:
    count = plan.size(1000, least=2 * SLOTS)
    tasks = [SHORT] * count
    ideal = count * SHORT / SLOTS
    halves = -(-count // SLOTS)

    def reached(run: Any, *args: Any, **kwargs: Any) -> float:
        return ideal / elapsed_of(partial(run, *args, **kwargs))

    sides = {
        "ours": remote and partial(reached, remote.map, tasks, chunksize=1),
        "ours default": remote and partial(reached, remote.map, tasks),
        "pool": partial(reached, peer.map, burn, tasks, chunksize=1),
        "pool default": partial(reached, peer.map, burn, tasks),
        "bare": partial(reached, peer.map, burn, tasks, chunksize=halves),
    }
    got = interleave(plan.rounds, sides)
    what = f"{count:,} tasks of 1 ms, share of ideal"
    ours, default = got.get("ours", ""), got.get("ours default", "")
    yield Row(
        "5",
        f"{what}, chunksize 1",
        ours,
        got.get("bare", ""),
        "two bare processes",
        Must(">=", 0.95, "figure"),
    )
    yield Row("5", f"{what}, chunksize 1", ours, got.get("pool", ""), "Pool.map", Must(">=", 1.1))
    yield Row("5", f"{what}, default chunks", default, got.get("pool default", ""), "Pool.map")


def submit_all(remote: Any, tasks: list[float]) -> None:
    for future in [remote.submit(task) for task in tasks]:
        future.result()


def packing(plan: Plan, remote: Any, peer: Any) -> Iterator[Row]:
    shorts, longs = plan.size(100, least=10), plan.size(10, least=2)
    shuffled = [SHORT] * shorts + [LONG] * longs
    random.Random(7).shuffle(shuffled)
    for order, tasks in (("shuffled", shuffled), ("long ones last", sorted(shuffled))):
        bound = sum(tasks) / SLOTS + LONG

        def over(run: Any, *args: Any, bound: float = bound, **kwargs: Any) -> float:
            return elapsed_of(partial(run, *args, **kwargs)) / bound

        sides = {
            "map": remote and partial(over, remote.map, tasks, chunksize=1),
            "default": remote and partial(over, remote.map, tasks),
            "submit": remote and partial(over, submit_all, remote, tasks),
            "pool": partial(over, peer.map, burn, tasks, chunksize=1),
        }
        got = interleave(plan.rounds, sides)
        theirs = got.get("pool", "")
        must = Must("<=", 1.05, "figure")
        what = f"makespan / (work / 2 + longest), {order}"
        yield Row("5", f"{what}, map(chunksize=1)", got.get("map", ""), theirs, "Pool.map", must)
        yield Row("5", f"{what}, submit", got.get("submit", ""), theirs, "Pool.map", must)
        yield Row("5", f"{what}, default chunks", got.get("default", ""), theirs, "Pool.map")

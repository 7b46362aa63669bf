"""Bar 3: how many futures a second, against ProcessPoolExecutor doing the same: `result`, `wait`, `as_completed`,
callbacks. The rows marked "stock" hand Paceline's futures to the functions of `concurrent.futures`."""

import concurrent.futures
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from harness import Must, Plan, Row, executor, interleave, paceline, rate
from work import same

Futures = Sequence[Any]


def by_result(futures: Futures) -> list[Any]:
    return [future.result() for future in futures]


def by_wait(wait: Callable[[Futures], object]) -> Callable[[Futures], list[Any]]:
    def consume(futures: Futures) -> list[Any]:
        wait(futures)
        return [future.result() for future in futures]

    return consume


def by_completion(as_completed: Callable[[Futures], Iterator[Any]]) -> Callable[[Futures], list[Any]]:
    def consume(futures: Futures) -> list[Any]:
        return sorted(future.result() for future in as_completed(futures))

    return consume


def by_callback(futures: Futures) -> list[Any]:
    results: list[Any] = []
    complete = threading.Event()

    def done(future: Any) -> None:
        results.append(future.result())
        if len(results) == len(futures):
            complete.set()

    for future in futures:
        future.add_done_callback(done)
    if not complete.wait(60):
        raise TimeoutError(f"{len(results)} of {len(futures)} callbacks within 60 s")
    return sorted(results)


def run(plan: Plan) -> Iterator[Row]:
    count = plan.size(10_000)
    items = list(range(count))
    stock_wait, stock_completed = (
        by_wait(concurrent.futures.wait),
        by_completion(concurrent.futures.as_completed),
    )
    with paceline(plan) as pl, executor() as peer:
        remote = pl and pl.remote(same)
        own_wait = pl and by_wait(lambda futures: pl.wait(futures, n=len(futures)))
        own_completed = pl and by_completion(pl.as_completed)
        for what, limit, consume, forms in (
            ("submit + result", 30, by_result, {"ours": by_result}),
            ("submit + wait", 8, stock_wait, {"ours": own_wait, "stock": stock_wait}),
            ("submit + as_completed", 8, stock_completed, {"ours": own_completed, "stock": stock_completed}),
            ("submit + callbacks", 8, by_callback, {"ours": by_callback}),
        ):
            sides: dict[str, Any] = {
                name: lambda form=form: rate(count, lambda: form([remote.submit(item) for item in items]), items) / 1e3
                for name, form in forms.items()
                if pl
            }
            sides["peer"] = lambda consume=consume: (
                rate(count, lambda: consume([peer.submit(same, item) for item in items]), items) / 1e3
            )
            got = interleave(plan.rounds, sides)
            name, must = "ProcessPoolExecutor", Must(">=", limit)
            theirs = got.get("peer", "k/s")
            yield Row("3", f"{what}, {count:,} futures", got.get("ours", "k/s"), theirs, name, must)
            if "stock" in forms and pl:
                yield Row("3", f"{what}, stock", got.get("stock", "k/s"), theirs, name)

"""Bar 8: does a busy slot hold anything up?

"behind a C call": one call that keeps the GIL for long goes to a slot that, by the habit of what came before, gets work
ahead of time. Everything that was queued behind it has to come back by way of the other slot. "in front of a long
task": with a single slot, a finished result must not wait for the task after it.
"""

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from harness import Must, Plan, Row, Samples, executor, interleave, paceline
from work import burn_until, count_to

TAIL = 200


def run(plan: Plan) -> Iterator[Row]:
    yield from withdrawal(plan)
    yield from in_front(plan)


def submitter(peer: Any, function: Any) -> Any:
    """The peer's `submit` in the form of Paceline's: bound to one function."""
    return partial(peer.submit, function)


def counting_speed() -> float:
    """How far `count_to` gets in a second."""
    begin = time.perf_counter()
    count_to(5_000_000)
    return 5_000_000 / (time.perf_counter() - begin)


def withdrawal(plan: Plan) -> Iterator[Row]:
    speed = counting_speed()

    def behind(submit: Any, seconds: float) -> float:
        """Milliseconds until all short calls queued after a long one are done."""
        for future in [submit(1) for _ in range(2000)]:
            future.result()
        begin = time.perf_counter()
        long = submit(int(speed * seconds))
        tail = [submit(1) for _ in range(TAIL)]
        for future in tail:
            future.result()
        took = time.perf_counter() - begin
        assert plan.smoke or not long.done(), "the long call ended too soon to show anything"
        long.result()
        return took * 1e3

    with paceline(plan) as pl, executor() as peer:
        ours, theirs = pl and pl.remote(count_to).submit, submitter(peer, count_to)
        must = Must("<=", 50, "figure")
        for seconds, rounds in (
            (plan.seconds(1.0, least=0.3), plan.rounds),
            (plan.seconds(10.0, least=0.3), 1),
        ):
            sides = {
                "ours": ours and partial(behind, ours, seconds),
                "peer": partial(behind, theirs, seconds),
            }
            got = interleave(rounds, sides, warm_up=False)
            what = f"{TAIL} calls behind a C call of {seconds:g} s are back after"
            yield Row("8", what, got.get("ours", "ms"), got.get("peer", "ms"), "ProcessPoolExecutor", must)


def in_front(plan: Plan) -> Iterator[Row]:
    def arrival(submit: Any) -> float:
        """Milliseconds from the end of a 20 us task to its result, with 5 ms of work before and 100 ms after it."""
        for future in [submit(0.0) for _ in range(500)]:
            future.result()
        _, short, long = submit(0.005), submit(0.00002), submit(0.1)
        ended = short.result()
        delay = time.monotonic() - ended
        long.result()
        return float(delay) * 1e3

    with paceline(plan, cpus=1) as pl, executor(1) as peer:
        ours = pl and pl.remote(burn_until).submit
        sides = {
            "ours": ours and partial(arrival, ours),
            "peer": partial(arrival, submitter(peer, burn_until)),
        }
        got = interleave(plan.repeats(15), sides)
        what = "result of a 20 us task in front of a 100 ms one arrives after"
        found = got.get("ours", "ms")
        must = Must("<=", 2, "figure")
        yield Row("8", f"{what}, median", found, got.get("peer", "ms"), "ProcessPoolExecutor", must)
        worst = found and Samples("ms", [max(found.values)])
        yield Row("8", f"{what}, worst", worst)

"""Bar 1: what does a blocking call cost, quiet and beside busy neighbours, and what does it cost the neighbours?

The floor is the echo of a small pickled tuple over a `multiprocessing.Pipe` to a spawned process. "blocking" is
Paceline with PACELINE_SPIN_US=0, which never waits actively. Each side measures in a process of its own, for the same
time, so that the neighbours' progress beside each can be compared: once calling as fast as it can, once paced at a
thousand calls a second, where every side does the same work.
"""

import contextlib
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from harness import Driver, Measure, Must, Plan, Row, Samples, interleave, paceline
from work import echo, same, spin

PAYLOAD = (7, "seven", 7.0)
PACE = 0.001

Call = Callable[[Any], Any]


@contextlib.contextmanager
def pipe_echo() -> Iterator[Call]:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=echo, args=(there,), daemon=True)
    process.start()
    there.close()

    def call(value: Any) -> Any:
        here.send(value)
        return here.recv()

    yield call
    here.close()
    process.join()


@contextlib.contextmanager
def paceline_call() -> Iterator[Call]:
    with paceline(Plan()) as pl:
        yield pl.remote(same)


def percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def measure(call: Call, seconds: float, pace: float) -> dict[str, float]:
    """Call for that long; one call every `pace` seconds, or back to back."""
    times = []
    clock = time.perf_counter
    begin = now = clock()
    while now - begin < seconds:
        before = clock()
        answer = call(PAYLOAD)
        times.append(clock() - before)
        if pace:
            time.sleep(max(0.0, begin + len(times) * pace - clock()))
        now = clock()
    assert answer == PAYLOAD
    times.sort()
    return {"p50": percentile(times, 0.5) * 1e6, "p99": percentile(times, 0.99) * 1e6, "calls": len(times)}


def serve(side: str) -> None:
    """The measuring process: a request a line on standard input, an answer a line on standard output."""
    with pipe_echo() if side == "pipe" else paceline_call() as call:
        for _ in range(200):
            call(PAYLOAD)
        for line in sys.stdin:
            print(json.dumps(measure(call, **json.loads(line))), flush=True)


class Neighbours:
    """Busy processes of normal priority."""

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._counters = [context.RawValue("Q", 0) for _ in range(count)]
        self._processes = [context.Process(target=spin, args=(counter,), daemon=True) for counter in self._counters]
        for process in self._processes:
            process.start()
        while not all(counter.value for counter in self._counters):
            time.sleep(0.001)

    def done(self) -> int:
        return sum(counter.value for counter in self._counters)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


def beside(neighbours: Neighbours, work: Callable[[], Mapping[str, float]]) -> dict[str, float]:
    """The figures of `work`, and how fast the neighbours got on meanwhile."""
    begin, before = time.perf_counter(), neighbours.done()
    figures = dict(work())
    figures["neighbours"] = (neighbours.done() - before) / (time.perf_counter() - begin) / 1e3
    return figures


def alone(seconds: float) -> dict[str, float]:
    time.sleep(seconds)
    return {}


def run(plan: Plan) -> Iterator[Row]:
    seconds = plan.seconds(0.4, least=0.1)
    with contextlib.ExitStack() as stack:
        drivers = {"pipe": stack.enter_context(Driver([__file__, "pipe"]))}
        if not plan.peers_only:
            drivers["ours"] = stack.enter_context(Driver([__file__, "paceline"]))
            drivers["blocking"] = stack.enter_context(Driver([__file__, "paceline"], {"PACELINE_SPIN_US": "0"}))
        for load in (0, 1, 2):
            neighbours = Neighbours(load)
            sides: dict[str, Measure | None] = {
                name + suffix: partial(beside, neighbours, partial(driver.ask, seconds=seconds, pace=pace))
                for suffix, pace in (("", 0.0), (" paced", PACE))
                for name, driver in drivers.items()
            }
            if load:
                sides["nobody"] = partial(beside, neighbours, partial(alone, seconds))
            try:
                rounds = interleave(plan.rounds, sides)
            finally:
                neighbours.close()
            yield from (row for row in rows(load, rounds.get) if row.ours or row.peer)


def rows(load: int, get: Callable[..., Samples | None]) -> Iterator[Row]:
    where = ("quiet", "beside 1 neighbour", "beside 2 neighbours")[load]
    pipe, blocking = "Pipe echo", "blocking build"
    for figure, limit in (("p50", 1.0), ("p99", 1.5)):
        must = None if load else Must("<=", limit)
        row = f"call {figure}, {where}"
        yield Row("1", row, get("ours", "us", figure), get("pipe", "us", figure), pipe, must)
        # "Not worse" within what two runs of the same build differ by.
        must = Must("<=", 1.1 if figure == "p50" else 1.5) if load else None
        yield Row("1", row, get("ours", "us", figure), get("blocking", "us", figure), blocking, must)
    figure = "p50"
    paced = f"call {figure}, {where}, paced"
    yield Row("1", paced, get("ours paced", "us", figure), get("pipe paced", "us", figure), pipe)
    yield Row("1", paced, get("ours paced", "us", figure), get("blocking paced", "us", figure), blocking)
    if load:
        for pace in ("", " paced"):
            what = f"neighbours' progress, {where}{',' if pace else ''}{pace}"
            for side, name, must in (
                ("blocking" + pace, blocking, Must(">=", 0.95)),
                ("pipe" + pace, pipe, None),
                ("nobody", "left alone", None),
            ):
                ours, peer = get("ours" + pace, "k/s", "neighbours"), get(side, "k/s", "neighbours")
                yield Row("1", what, ours, peer, name, must)


if __name__ == "__main__":
    serve(sys.argv[1])

"""Bar 1: what does a blocking call cost, quiet and beside busy neighbours, and what does it cost the neighbours?

The floor is the echo of a small pickled tuple over a `multiprocessing.Pipe` to a spawned process. "blocking" is
Paceline with PACELINE_SPIN_US=0, which never waits actively. Each side measures in a process of its own, for the same
time, so that the neighbours' progress beside each can be compared: once calling as fast as it can, once paced at a
thousand calls a second, where every side does the same work.

A caller and its slot that call back to back take turns, so together they may use up to one CPU, and how much they get
beside two neighbours depends on where the scheduler puts the four: either with a CPU of their own, or with one of the
neighbours on it. It changes its mind every few seconds, for a blocking build as for any other, so the neighbours'
progress and the slowest calls fall into two heaps. Those rows are means over many rounds; how far two equal builds
differ stands beside them ("again"), and so does the CPU time that a call takes.
"""

import contextlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from harness import SLOTS, Driver, Measure, Must, Plan, Row, Samples, cpu_time, interleave
from work import echo, same, spin

PAYLOAD = (7, "seven", 7.0)
PACE = 0.001

Call = Callable[[Any], Any]


Side = tuple[Call, Callable[[], list[int]]]
"""How to call, and the processes that take part in it beside the caller's own."""


@contextlib.contextmanager
def pipe_echo() -> Iterator[Side]:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=echo, args=(there,), daemon=True)
    process.start()
    there.close()

    def call(value: Any) -> Any:
        here.send(value)
        return here.recv()

    yield call, lambda: [process.pid or 0]
    here.close()
    process.join()


@contextlib.contextmanager
def paceline_call() -> Iterator[Side]:
    import paceline as pl

    with pl.connect(cpus=SLOTS) as cluster:

        def slots() -> list[int]:
            return [slot["pid"] for node in cluster.nodes for slot in node["slots"] if slot["pid"]]

        yield pl.remote(same), slots


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
    with pipe_echo() if side == "pipe" else paceline_call() as (call, others):
        for _ in range(200):
            call(PAYLOAD)
        for line in sys.stdin:
            before = cpu_time([os.getpid(), *others()])
            figures = measure(call, **json.loads(line))
            figures["cpu"] = (cpu_time([os.getpid(), *others()]) - before) / figures["calls"] * 1e6
            print(json.dumps(figures), flush=True)


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


def beside(neighbours: Neighbours, driver: Driver | None, seconds: float, pace: float = 0.0) -> dict[str, float]:
    """The figures of a side, and how fast the neighbours got on meanwhile."""
    begin, before = time.perf_counter(), neighbours.done()
    figures: dict[str, float] = {}
    if driver:
        figures |= driver.ask(seconds=seconds, pace=pace)
    else:
        time.sleep(seconds)
    figures["neighbours"] = (neighbours.done() - before) / (time.perf_counter() - begin) / 1e3
    return figures


def run(plan: Plan) -> Iterator[Row]:
    seconds = plan.seconds(0.4, least=0.1)
    with contextlib.ExitStack() as stack:
        drivers: dict[str, Driver | None] = {"pipe": stack.enter_context(Driver([__file__, "pipe"]))}
        if not plan.peers_only:
            blocking = {"PACELINE_SPIN_US": "0"}
            drivers["ours"] = stack.enter_context(Driver([__file__, "paceline"]))
            drivers["blocking"] = stack.enter_context(Driver([__file__, "paceline"], blocking))
            drivers["again"] = stack.enter_context(Driver([__file__, "paceline"], blocking))
        for load in (0, 1, 2):
            neighbours = Neighbours(load)
            sides: dict[str, Measure | None] = {
                name + suffix: partial(beside, neighbours, driver, seconds, pace)
                for suffix, pace in (("", 0.0), (" paced", PACE))
                for name, driver in drivers.items()
                if name != "again"
            }
            if load:
                sides["nobody"] = partial(beside, neighbours, None, seconds)
            flat_out = {name: partial(beside, neighbours, driver, seconds) for name, driver in drivers.items()}
            try:
                rounds = interleave(plan.rounds, sides)
                many = interleave(plan.repeats(42), flat_out) if load else rounds
            finally:
                neighbours.close()
            found = [*call_rows(load, many.get), *paced_rows(load, rounds.get)]
            if load:
                found += [*progress_rows(load, many.get), *paced_progress_rows(load, rounds.get)]
            # Without Paceline, and on the quiet machine without a second blocking build, there is nothing to compare.
            yield from (row for row in found if row.ours or (row.peer and row.peer_name != "again"))


WHERE = ("quiet", "beside 1 neighbour", "beside 2 neighbours")
PIPE, BLOCKING = "Pipe echo", "blocking build"


def call_rows(load: int, get: Callable[..., Samples | None]) -> Iterator[Row]:
    def times(side: str, figure: str) -> Samples | None:
        return get(side, "us", figure, mean=load == 2)

    for figure, limit in (("p50", 1.0), ("p99", 1.5)):
        must = None if load else Must("<=", limit)
        row = f"call {figure}, {WHERE[load]}"
        yield Row("1", row, times("ours", figure), times("pipe", figure), PIPE, must)
        # "Not worse" within what two runs of the same build differ by.
        must = Must("<=", 1.1 if figure == "p50" else 1.5) if load else None
        yield Row("1", row, times("ours", figure), times("blocking", figure), BLOCKING, must)
        yield Row("1", f"{row}: blocking build", times("again", figure), times("blocking", figure), "again")


def paced_rows(load: int, get: Callable[..., Samples | None]) -> Iterator[Row]:
    paced = f"call p50, {WHERE[load]}, paced"
    yield Row("1", paced, get("ours paced", "us", "p50"), get("pipe paced", "us", "p50"), PIPE)
    yield Row("1", paced, get("ours paced", "us", "p50"), get("blocking paced", "us", "p50"), BLOCKING)


def progress_rows(load: int, get: Callable[..., Samples | None]) -> Iterator[Row]:
    def progress(side: str) -> Samples | None:
        return get(side, "k/s", "neighbours", mean=True)

    what = f"neighbours' progress, {WHERE[load]}"
    yield Row("1", what, progress("ours"), progress("blocking"), BLOCKING, Must(">=", 0.95))
    yield Row("1", what, progress("ours"), progress("pipe"), PIPE)
    yield Row("1", f"{what}: blocking build", progress("again"), progress("blocking"), "again")
    cpu = f"CPU time a call, {WHERE[load]}"
    yield Row("1", cpu, get("ours", "us", "cpu"), get("blocking", "us", "cpu"), BLOCKING)
    yield Row("1", cpu, get("ours", "us", "cpu"), get("pipe", "us", "cpu"), PIPE)


def paced_progress_rows(load: int, get: Callable[..., Samples | None]) -> Iterator[Row]:
    what = f"neighbours' progress, {WHERE[load]}, paced"
    ours = get("ours paced", "k/s", "neighbours")
    for side, name, must in (
        ("blocking paced", BLOCKING, Must(">=", 0.95)),
        ("pipe paced", PIPE, None),
        ("nobody", "left alone", None),
    ):
        yield Row("1", what, ours, get(side, "k/s", "neighbours"), name, must)


if __name__ == "__main__":
    serve(sys.argv[1])

"""Bars of actors: a blocking call against the Pipe echo, pipelined calls against Ray, making one and making a thousand.

Ray is measured by the interpreter that `PACELINE_BENCH_RAY` names, or by this one if it has Ray; else its rows have no
peer. Everything is measured round by round, each side in a process of its own.
"""

import contextlib
import importlib.util
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from harness import SLOTS, Driver, Measure, Must, Plan, Row, interleave
from rtt import measure, pipe_echo
from work import Echo


@contextlib.contextmanager
def paceline_actor() -> Iterator[tuple[Callable[[Any], Any], Callable[[int], None]]]:
    import paceline as pl

    with pl.connect(cpus=SLOTS):
        actor = pl.remote(Echo)()

        def pipelined(count: int) -> None:
            futures = [actor.same.submit(number) for number in range(count)]
            assert [future.result() for future in futures] == list(range(count))

        yield actor.same, pipelined


@contextlib.contextmanager
def ray_actor() -> Iterator[tuple[Callable[[Any], Any], Callable[[int], None]]]:
    import ray  # type: ignore[import-not-found, unused-ignore]

    ray.init(num_cpus=SLOTS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    actor = ray.remote(Echo).remote()

    def pipelined(count: int) -> None:
        assert ray.get([actor.same.remote(number) for number in range(count)]) == list(range(count))

    yield lambda value: ray.get(actor.same.remote(value)), pipelined
    ray.shutdown()


def serve(side: str) -> None:
    """The measuring process: a request a line on standard input, an answer a line on standard output."""
    if side == "pipe":
        with pipe_echo() as (call, _):
            return answer(call, None)
    with paceline_actor() if side == "paceline" else ray_actor() as (call, pipelined):
        answer(call, pipelined)


def answer(call: Callable[[Any], Any], pipelined: Callable[[int], None] | None) -> None:
    for _ in range(200):
        call((7, "seven", 7.0))
    for line in sys.stdin:
        request = json.loads(line)
        count = request.pop("count", 0)
        if count and pipelined:
            begin = time.perf_counter()
            pipelined(count)
            figures = {"rate": count / (time.perf_counter() - begin) / 1e3}
        else:
            figures = measure(call, **request)
        print(json.dumps(figures), flush=True)


def ray_interpreter() -> str | None:
    named = os.environ.get("PACELINE_BENCH_RAY")
    return named or (sys.executable if importlib.util.find_spec("ray") else None)


def made(pl: Any, count: int) -> dict[str, float]:
    """Make one actor in a ready slot, and a thousand that share two CPUs; call them all."""
    light = pl.remote(cpus=0)(Echo)
    one = []
    for _ in range(9):
        time.sleep(0.02)  # until the spare that the last one took has been replaced
        begin = time.perf_counter()
        actor = light()
        one.append(time.perf_counter() - begin)
        pl.destroy(actor)
    begin = time.perf_counter()
    actors = [future.result() for future in [light.submit() for _ in range(count)]]
    futures = [actor.same.submit(number) for number, actor in enumerate(actors)]
    assert [future.result() for future in futures] == list(range(count))
    many = time.perf_counter() - begin
    actor = light()
    pid = actor.pid()
    asleep = actor.sleep.submit(60)
    while not asleep.running():
        time.sleep(0.001)
    begin = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    try:
        asleep.result(timeout=60)
    except pl.ActorDied:
        told = time.perf_counter() - begin
    return {"one": sorted(one)[len(one) // 2] * 1e3, "many": many, "told": told * 1e3}


def run(plan: Plan) -> Iterator[Row]:
    seconds, count = plan.seconds(0.4, least=0.05), plan.size(20_000, least=200)
    with contextlib.ExitStack() as stack:
        pipe = stack.enter_context(Driver([__file__, "pipe"]))
        sides: dict[str, Measure | None] = {"pipe": partial(pipe.ask, seconds=seconds, pace=0.0)}
        many: dict[str, Measure | None] = {}
        if not plan.peers_only:
            ours = stack.enter_context(Driver([__file__, "paceline"]))
            sides["ours"] = partial(ours.ask, seconds=seconds, pace=0.0)
            many["ours"] = partial(ours.ask, count=count)
        interpreter = None if plan.smoke else ray_interpreter()
        if interpreter:
            theirs = stack.enter_context(Driver([__file__, "ray"], interpreter=interpreter))
            many["ray"] = partial(theirs.ask, count=max(200, count // 10))
            sides["ray"] = partial(theirs.ask, seconds=seconds, pace=0.0)
        got, flow = interleave(plan.rounds, sides), interleave(plan.rounds, many)
    for figure, limit in (("p50", 1.0), ("p99", 1.5)):
        peer = got.get("pipe", "us", figure)
        yield Row(
            "actors", f"blocking call {figure}", got.get("ours", "us", figure), peer, "Pipe echo", Must("<=", limit)
        )
    yield Row("actors", "blocking call p50", got.get("ours", "us", "p50"), got.get("ray", "us", "p50"), "Ray")
    rate = flow.get("ours", "k/s", "rate")
    yield Row("actors", "pipelined calls to one", rate, flow.get("ray", "k/s", "rate"), "Ray", Must(">=", 60))
    if plan.peers_only:
        return
    import paceline as pl

    number = plan.size(1000, least=20)
    with pl.connect(cpus=SLOTS):
        making = interleave(
            1 if plan.smoke else min(plan.rounds, 3), {"ours": partial(made, pl, number)}, warm_up=False
        )
    yield Row("actors", "making one in a ready slot", making.get("ours", "ms", "one"), must=Must("<=", 10, "figure"))
    what = f"making and calling {number:,} actors"
    yield Row("actors", what, making.get("ours", "s", "many"), must=Must("<=", 10, "figure"))
    what = "kill -9 during a call, until the error"
    yield Row("actors", what, making.get("ours", "ms", "told"), must=Must("<=", 1000, "figure"))


if __name__ == "__main__":
    serve(sys.argv[1])

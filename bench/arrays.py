"""Bars of large values on one machine: a 64 MiB array as argument and as result against Ray, beside plain copies of it;
an array that is overwritten whole; and what a 28 KB array adds to an empty call.

Ray is measured as in `actors`. Everything is measured round by round, each side in a process of its own.
"""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from actors import ray_interpreter
from harness import SLOTS, Driver, Measure, Must, Plan, Row, interleave
from work import ends, made, overwrite, same

SIZE = 64 << 20
SMALL = 28_000

Calls = dict[str, Callable[[], Any]]


@contextlib.contextmanager
def paceline_calls(size: int) -> Iterator[Calls]:
    import numpy

    import paceline as pl

    array, small = numpy.ones(size, numpy.uint8), numpy.ones(SMALL, numpy.uint8)
    with pl.connect(cpus=SLOTS):
        remote: dict[Any, Any] = {function: pl.remote(function) for function in (ends, made, overwrite, same)}
        yield {
            "argument": lambda: remote[ends](array),
            "result": lambda: remote[made](size),
            "overwrite": lambda: remote[overwrite](array),
            "small": lambda: remote[ends](small),
            "back": lambda: remote[same](small),
            "empty": lambda: remote[same](None),
        }


@contextlib.contextmanager
def ray_calls(size: int) -> Iterator[Calls]:
    import numpy
    import ray  # type: ignore[import-not-found, unused-ignore]

    ray.init(num_cpus=SLOTS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    array = numpy.ones(size, numpy.uint8)
    argument, result = ray.remote(ends), ray.remote(made)
    yield {
        "argument": lambda: ray.get(argument.remote(array)),
        "result": lambda: ray.get(result.remote(size)),
    }
    ray.shutdown()


@contextlib.contextmanager
def copies(size: int) -> Iterator[Calls]:
    """What a copy in memory costs: into memory that was used before, and into new memory, which is then overwritten."""
    import numpy

    array, warm = numpy.ones(size, numpy.uint8), numpy.zeros(size, numpy.uint8)
    yield {"warm": lambda: numpy.copyto(warm, array), "overwrite": lambda: overwrite(array.copy())}


def serve(side: str, size: int) -> None:
    """The measuring process: which call, and for how long, a line; its figure a line."""
    sides = {"paceline": paceline_calls, "ray": ray_calls, "copies": copies}
    with sides[side](size) as calls:
        for call in calls.values():
            for _ in range(5):
                call()
        for line in sys.stdin:
            request = json.loads(line)
            spans: list[float] = []
            until = time.perf_counter() + request["seconds"]
            while time.perf_counter() < until or len(spans) < 3:
                begin = time.perf_counter()
                calls[request["call"]]()
                spans.append(time.perf_counter() - begin)
            typical = sorted(spans)[len(spans) // 2]
            print(json.dumps({"rate": size / typical / 1e9, "us": typical * 1e6}), flush=True)


def run(plan: Plan) -> Iterator[Row]:
    size = plan.size(SIZE, least=1 << 20)
    with contextlib.ExitStack() as stack:

        def driver(side: str, interpreter: str = sys.executable) -> Callable[[str], Measure]:
            asked = stack.enter_context(Driver([__file__, side, str(size)], interpreter=interpreter))
            return lambda call: partial(asked.ask, call=call, seconds=plan.seconds(0.5))

        plain = driver("copies")
        ours = None if plan.peers_only else driver("paceline")
        interpreter = None if plan.smoke else ray_interpreter()
        ray = driver("ray", interpreter) if interpreter else None
        for way, limit in (("argument", 2.0), ("result", 1.5)):
            sides: dict[str, Measure | None] = {"memcpy": plain("warm")}
            sides["ours"] = ours(way) if ours else None
            sides["ray"] = ray(way) if ray else None
            got = interleave(plan.rounds, sides)
            what = f"{size >> 20} MiB array as {way}"
            rate = got.get("ours", "GB/s", "rate")
            yield Row("arrays", what, rate, got.get("ray", "GB/s", "rate"), "Ray", Must(">=", limit))
            yield Row("arrays", what, rate, got.get("memcpy", "GB/s", "rate"), "memcpy")
        got = interleave(plan.rounds, {"copy": plain("overwrite"), "ours": ours("overwrite") if ours else None})
        what = "argument that is overwritten whole"
        peer = got.get("copy", "GB/s", "rate")
        yield Row("arrays", what, got.get("ours", "GB/s", "rate"), peer, "copy, overwritten", Must(">=", 1.0))
        if ours:
            calls = {name: ours(name) for name in ("small", "back", "empty")}
            got = interleave(plan.rounds, calls)
            peer = got.get("empty", "us", "us")
            what = f"{SMALL / 1000:g} KB array, blocking call p50"
            yield Row("arrays", what, got.get("small", "us", "us"), peer, "empty call", Must("<=", 1.5))
            yield Row("arrays", f"{what}, there and back", got.get("back", "us", "us"), peer, "empty call")


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))

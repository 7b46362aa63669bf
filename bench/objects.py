"""Bars of objects: 64 MiB that 50 tasks use, by reference, against Ray.

Putting the object is a part of it. Tasks look at a few elements, or read all of it; the bar is on the former, where it
is the system that counts and not memory. Ray is measured as for actors.
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

TASKS = 50
SIZE = 64 << 20


def look(values: Any, all_of_it: bool) -> float:
    return float(values.sum() if all_of_it else values[:: len(values) // 8].sum())


@contextlib.contextmanager
def paceline_objects() -> Iterator[Callable[[Any, bool], list[float]]]:
    import paceline as pl

    with pl.connect(cpus=SLOTS):
        task = pl.remote(look)

        def use(values: Any, all_of_it: bool) -> list[float]:
            ref = pl.put(values)
            return [future.result() for future in [task.submit(ref, all_of_it) for _ in range(TASKS)]]

        yield use


@contextlib.contextmanager
def ray_objects() -> Iterator[Callable[[Any, bool], list[float]]]:
    import ray  # type: ignore[import-not-found, unused-ignore]

    ray.init(num_cpus=SLOTS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    task = ray.remote(look)

    def use(values: Any, all_of_it: bool) -> list[float]:
        ref = ray.put(values)
        found: list[float] = ray.get([task.remote(ref, all_of_it) for _ in range(TASKS)])
        return found

    yield use
    ray.shutdown()


def serve(side: str) -> None:
    import numpy

    with paceline_objects() if side == "paceline" else ray_objects() as use:
        for line in sys.stdin:
            request = json.loads(line)
            values = numpy.ones(request["size"] // 8)
            begin = time.perf_counter()
            found = use(values, request["all_of_it"])
            elapsed = time.perf_counter() - begin
            assert found == [look(values, request["all_of_it"])] * TASKS
            print(json.dumps({"elapsed": elapsed * 1e3}), flush=True)


def run(plan: Plan) -> Iterator[Row]:
    size = plan.size(SIZE, least=1 << 20)
    interpreter = None if plan.smoke else ray_interpreter()
    for all_of_it in (False, True):
        with contextlib.ExitStack() as stack:
            sides: dict[str, Measure | None] = {}
            if not plan.peers_only:
                ours = stack.enter_context(Driver([__file__, "paceline"]))
                sides["ours"] = partial(ours.ask, size=size, all_of_it=all_of_it)
            if interpreter:
                theirs = stack.enter_context(Driver([__file__, "ray"], interpreter=interpreter))
                sides["ray"] = partial(theirs.ask, size=size, all_of_it=all_of_it)
            got = interleave(plan.rounds, sides)
        what = f"{size >> 20} MiB object {'read whole' if all_of_it else 'used'} by {TASKS} tasks"
        must = None if all_of_it else Must("<=", 0.5)
        yield Row("objects", what, got.get("ours", "ms", "elapsed"), got.get("ray", "ms", "elapsed"), "Ray", must)


if __name__ == "__main__":
    serve(sys.argv[1])

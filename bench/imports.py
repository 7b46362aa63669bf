"""Bar 7: what does `import paceline` cost and pull in, and does a slot keep to the CPUs it was given?"""

import json
import os
from collections.abc import Iterator

from harness import Must, Plan, Row, Samples, elapsed_of, fresh, interleave

IMPORT = "import time; begin = time.perf_counter(); import {module}; print(time.perf_counter() - begin)"
NOT_WANTED = ("numpy", "socket", "_socket", "asyncio", "ssl", "http", "urllib.request")
EVERYTHING = "paceline; [getattr(paceline, name) for name in paceline.__all__]"
MODULES = f"import sys, paceline; print(*[name for name in {NOT_WANTED!r} if name in sys.modules])"

# Thread pools of numpy's libraries start with the first product; Paceline's own threads are there before.
SLOTS = """
import json, os, time
import paceline as pl

@pl.remote
def who(_):
    time.sleep(0.02)
    return os.getpid()

@pl.remote
def threads():
    before = len(os.listdir("/proc/self/task"))
    import numpy
    import threadpoolctl
    square = numpy.ones((512, 512))
    square @ square
    started = len(os.listdir("/proc/self/task")) - before
    return 1 + started, max((pool["num_threads"] for pool in threadpoolctl.threadpool_info()), default=1)

pl.connect({cpus})
slots = len(set(who.map(range(8), chunksize=1)))
print(json.dumps([slots, max(threads())]))
"""


def run(plan: Plan) -> Iterator[Row]:
    def inside(module: str) -> float:
        return float(fresh(IMPORT.format(module=module))) * 1e3

    def beyond_bare(module: str) -> float:
        script = f"import {module}"
        return (elapsed_of(lambda: fresh(script)) - elapsed_of(lambda: fresh("pass"))) * 1e3

    with_us = not plan.peers_only
    got = interleave(
        plan.repeats(15),
        {
            "ours": (lambda: inside("paceline")) if with_us else None,
            # Names may be loaded when first used; that must not hide what they cost.
            "ours everything": (lambda: inside(EVERYTHING)) if with_us else None,
            "ours whole": (lambda: beyond_bare("paceline")) if with_us else None,
            "loky": lambda: inside("loky"),
            "loky whole": lambda: beyond_bare("loky"),
        },
    )
    must = Must("<=", 60, "figure")
    yield Row("7", "import", got.get("ours", "ms"), got.get("loky", "ms"), "import loky", must)
    what = "import, every public name loaded"
    yield Row("7", what, got.get("ours everything", "ms"), got.get("loky", "ms"), "import loky", must)
    what = "import, interpreter's life less a bare one's"
    yield Row("7", what, got.get("ours whole", "ms"), got.get("loky whole", "ms"), "import loky", must)
    if not with_us:
        return
    found = fresh(MODULES).split()
    note = f"found: {', '.join(found)}" if found else ""
    none = Must("==", 0, "figure")
    yield Row("7", "numpy and network modules it pulls in", Samples("", [len(found)]), must=none, note=note)

    one = Must("==", 1, "figure")
    first = str(min(os.sched_getaffinity(0)))
    slots, threads = json.loads(fresh(SLOTS.format(cpus=""), prefix=("taskset", "-c", first)))
    yield Row("7", "slots of connect() under taskset, one CPU", Samples("", [slots]), must=one)
    yield Row("7", "numpy's threads in that slot", Samples("", [threads]), must=one)
    _, threads = json.loads(fresh(SLOTS.format(cpus="cpus=2")))
    yield Row("7", "numpy's threads in one of two slots", Samples("", [threads]), must=one)

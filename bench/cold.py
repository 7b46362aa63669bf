"""Bar 6: how long from before the import to the first result, with two workers, in a fresh interpreter?"""

from collections.abc import Iterator

from harness import Must, Plan, Row, fresh, interleave

SCRIPT = """
import time
begin = time.perf_counter()
{start}
def first(x):
    return x + 1
assert {call} == 8
print(time.perf_counter() - begin)
"""

PACELINE = SCRIPT.format(
    start="import paceline as pl; pl.connect(cpus=2)",
    call="pl.remote(first)(7)",
)
LOKY = SCRIPT.format(
    start="from loky import get_reusable_executor; executor = get_reusable_executor(max_workers=2)",
    call="executor.submit(first, 7).result()",
)


def run(plan: Plan) -> Iterator[Row]:
    got = interleave(
        plan.repeats(15),
        {
            "ours": None if plan.peers_only else (lambda: float(fresh(PACELINE)) * 1e3),
            "loky": lambda: float(fresh(LOKY)) * 1e3,
        },
    )
    what = "cold start to first result, two workers"
    yield Row("6", what, got.get("ours", "ms"), got.get("loky", "ms"), "loky", Must("<=", 0.5))

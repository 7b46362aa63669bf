"""Every example runs as a visitor would run it, ends well, says what it promises and leaves nothing behind."""

from pathlib import Path

import pytest

from support import assert_nothing_left, run_script
from support.programs import built

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# What a reader of the example expects to see.
SAYS = {
    "demo": ("first result after", "calls a second"),
    "errors": ("ZeroDivisionError", "SlotDied", "still running: 49"),
    "from_cluster_workers": (
        "longest way below 10,000: from 6171 in 261 steps",
        "the first ten: 0 1 7 2 5 8 16 3 19 6",
        "a job that fails: TypeError",
    ),
    "from_distributed_computing": (
        "workers: 2 on 1 node",
        "in order: [0.0, 0.1, 0.2, 0.3, 0.4]",
        "results: 60",
        "best slope: 3.0",
        "given up early: True",
    ),
    "from_parl": (
        "plays: 3000",
        "what a simulator knows: 5 values",
        "a value is taken once",
        "verdict: arm 3 is best",
        "failed: [Error occurred in xparl, when calling function `verdict`]",
        "and gone: This instance is disconncted with the remote instance.",
        "without a cluster: arm 0 is best",
    ),
    "futures": ("slowest", "all done: 285"),
    "lazy": ("first five primes above a million: 1000003, 1000033, 1000037, 1000039, 1000081",),
    "quickstart": ("one call: 49", "a hundred calls: 328350"),
}


def test_python_calls_rust() -> None:
    done = run_script((EXAMPLES / "rust-shapes" / "call.py").read_text(), args=[built("shapes")]).ok()
    for words in ("one call: 6.0", "many: [0.0, 1.0, 4.0, 9.0, 16.0]", "'radius': 3.0", "no square", "[1.0, 2.0, 3.0]"):
        assert words in done.stdout, done.transcript()
    assert_nothing_left(done)


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_example(name: str) -> None:
    done = run_script((EXAMPLES / f"{name}.py").read_text(), env={"PACELINE_DEMO_SECONDS": "0.5"}).ok()
    for words in SAYS[name]:
        assert words in done.stdout, done.transcript()
    assert "\x1b" not in done.stdout, "no escape codes where there is no terminal"
    assert_nothing_left(done)

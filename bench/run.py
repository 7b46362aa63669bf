"""`make bench`: every bar, Paceline and its peers in one run, one process a question.

    python bench/run.py                   all questions, the table at the end
    python bench/run.py rtt map1 --quick  two of them, three short rounds
    python bench/run.py --peers-only      without paceline
    python bench/run.py --smoke           tiny sizes: does every question still run?

Results are also kept as JSON under bench/results/.
"""

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import harness
from harness import Plan, Row

HERE = Path(__file__).resolve().parent
QUESTIONS = (
    "rtt",
    "map1",
    "futures",
    "faces",
    "mapdef",
    "busy",
    "cold",
    "imports",
    "latency",
    "actors",
    "arrays",
    "objects",
    "files",
    "tls",
)
LONGEST = 600


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Paceline beside its peers.")
    parser.add_argument("questions", nargs="*", metavar="question", help=f"of: {', '.join(QUESTIONS)}")
    parser.add_argument("--quick", action="store_true", help="three short rounds: a hint, not a verdict")
    parser.add_argument("--smoke", action="store_true", help="one tiny round: only whether it runs")
    parser.add_argument("--peers-only", action="store_true", help="leave Paceline out")
    parser.add_argument("--rounds", type=int, help="rounds instead of 7")
    parser.add_argument("--strict", action="store_true", help="exit code 1 when a bar is missed")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.questions) - set(QUESTIONS)
    if unknown:
        parser.error(f"no such question: {', '.join(sorted(unknown))}")
    return options


def plan_of(options: argparse.Namespace) -> Plan:
    if options.smoke:
        return Plan(rounds=1, scale=0.01, smoke=True, peers_only=options.peers_only)
    if options.quick:
        return Plan(rounds=options.rounds or 3, scale=0.2, peers_only=options.peers_only)
    return Plan(rounds=options.rounds or 7, peers_only=options.peers_only)


def answer(question: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure in this process. The machine's state before and during the run goes with the figures."""
    idle = harness.others_busy(0.05 if options.smoke else 0.5)
    before = harness.cpu_times()
    begin = time.perf_counter()
    rows = list(importlib.import_module(question).run(plan_of(options)))
    after = harness.cpu_times()
    return {
        "question": question,
        "rows": [row.to_json() for row in rows],
        "seconds": time.perf_counter() - begin,
        "others_busy": idle,
        "stolen": (after[2] - before[2]) / max(after[0] - before[0], 1e-9),
    }


def ask(question: str, arguments: list[str], to: Path) -> dict[str, Any]:
    """Measure in a process of its own, so that one question can neither warm, slow nor end another."""
    command = [sys.executable, str(HERE / "run.py"), question, "--inside", str(to), *arguments]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        code = process.wait(timeout=LONGEST)
        if code == 0:
            result: dict[str, Any] = json.loads(to.read_text())
            return result
        problem = f"ended with exit code {code}"
    except subprocess.TimeoutExpired:
        problem = f"still running after {LONGEST} s"
    finally:
        to.unlink(missing_ok=True)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return {"question": question, "rows": [], "problem": problem, "seconds": 0, "others_busy": 0, "stolen": 0}


def main() -> int:
    options = arguments()
    if options.inside:
        options.inside.write_text(json.dumps(answer(options.questions[0], options)))
        return 0

    results = HERE / "results"
    results.mkdir(exist_ok=True)
    passed_on = [argument for argument in sys.argv[1:] if argument.startswith("-")]
    if options.rounds:
        passed_on = [a for a in passed_on if not a.startswith("--rounds")] + [f"--rounds={options.rounds}"]
    answers = []
    for question in options.questions or QUESTIONS:
        print(f"{question} ...", end=" ", file=sys.stderr, flush=True)
        got = ask(question, passed_on, results / f".{question}-{os.getpid()}.json")
        print(got.get("problem") or f"{got['seconds']:.1f} s", file=sys.stderr)
        answers.append(got)

    rows = [Row.from_json(row) for got in answers for row in got["rows"]]
    problems = [f"{got['question']}: {got['problem']}" for got in answers if "problem" in got]
    missed = [row for row in rows if row.verdict() == "FAIL"]
    for problem in problems:
        print(f"problem: {problem}")
    if options.smoke:
        print(f"{len(answers) - len(problems)} of {len(answers)} questions ran")
        return 1 if problems else 0

    print()
    print(harness.table(rows))
    print()
    about = harness.machine()
    others, stolen = max(got["others_busy"] for got in answers), max(got["stolen"] for got in answers)
    print(
        f"{about['cpus']} CPUs, Python {about['python']}, kernel {about['kernel']}; "
        f"others used up to {others:.0%} of the machine before a question, its host up to {stolen:.0%} during one"
    )
    if others > 0.1 or stolen > 0.05:
        print("hint: the machine was not quiet; repeat before believing a verdict")
    if options.quick:
        print("hint: short rounds; the figures are hints, not verdicts")
    passed = sum(row.verdict() == "PASS" for row in rows)
    print(f"bars: {passed} passed, {len(missed)} missed, {len(problems)} problems")

    stamp = time.strftime("%Y%m%d-%H%M%S")
    kept = results / f"{stamp}.json"
    kept.write_text(json.dumps({"machine": about, "arguments": sys.argv[1:], "answers": answers}, indent=1))
    print(f"kept: {kept.relative_to(HERE.parent)}")
    return 1 if problems or (options.strict and missed) else 0


if __name__ == "__main__":
    sys.exit(main())

"""Two builds of Paceline side by side: is the second as fast as the first?

    python bench/compare.py --before VENV --after VENV               all questions, nine rounds of each
    python bench/compare.py --before VENV --after VENV rtt map1      two of them
    python bench/compare.py --before VENV --after VENV --rounds 21   more rounds, narrower figures

Each side measures in processes of its own interpreter, which stay open for all rounds of a question; the two take
turns, and the order turns round with every round (BE-1). A ratio is the speed of the second build over that of the
first, from the medians of the rounds; its range is that of the ratios of single rounds. The exit code is 1 if a ratio
is below the bar.

Both builds must have been made in the same way: with the release profile of the project, not with one that builds fast.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import harness
from harness import SLOTS, Driver, interleave, rate

HERE = Path(__file__).resolve().parent
BAR = 0.97
MIN_ROUNDS = 7
QUESTIONS = ("rtt", "map1", "futures", "actors", "arrays")


@dataclass(frozen=True)
class Figure:
    """One figure of a question: how a measuring process is asked for it, and what of its answer counts."""

    question: str
    what: str
    unit: str
    request: dict[str, Any]
    of: str = "rate"

    @property
    def is_time(self) -> bool:
        """Whether less is better."""
        return self.unit in ("us", "ms", "s")

    def speed(self, value: float) -> float:
        return 1 / value if self.is_time else value


@dataclass(frozen=True)
class Compared:
    """A figure of both builds, round by round."""

    figure: Figure
    before: list[float]
    after: list[float]

    def ratio(self) -> float:
        speeds = [self.figure.speed(statistics.median(values)) for values in (self.after, self.before)]
        return speeds[0] / speeds[1]

    def ratio_range(self) -> tuple[float, float]:
        speed = self.figure.speed
        ratios = [speed(after) / speed(before) for before, after in zip(self.before, self.after, strict=True)]
        return min(ratios), max(ratios)


def figures_of(question: str, seconds: float, count: int) -> list[Figure]:
    if question == "rtt":
        call = {"seconds": seconds, "pace": 0.0}
        return [Figure(question, "blocking call p50", "us", call, "p50")]
    if question == "actors":
        return [
            Figure(question, "blocking call p50", "us", {"seconds": seconds, "pace": 0.0}, "p50"),
            Figure(question, "pipelined calls to one", "k/s", {"count": 2 * count}),
        ]
    if question == "arrays":
        ways = (("argument", "GB/s", "rate"), ("result", "GB/s", "rate"), ("overwrite", "GB/s", "rate"))
        small = (("small", "us", "us"), ("back", "us", "us"))
        return [
            Figure(question, f"array, {call}", unit, {"call": call, "seconds": seconds}, of)
            for call, unit, of in (*ways, *small)
        ]
    forms = {"map1": MAPS, "futures": CONSUMERS}[question]
    return [Figure(question, form, "k/s", {"form": form, "count": count}) for form in forms]


def command_of(question: str) -> list[str]:
    """The measuring process of one side."""
    if question in ("rtt", "actors"):
        return [str(HERE / f"{question}.py"), "paceline"]
    if question == "arrays":
        return [str(HERE / "arrays.py"), "paceline", str(64 << 20)]
    return [str(Path(__file__).resolve()), "--serve", question]


MAPS = ("map(chunksize=1), ints", "map(chunksize=1), small dicts")
CONSUMERS = ("submit + result", "submit + wait", "submit + as_completed", "submit + callbacks")


def serve(question: str) -> None:
    """The measuring process of the questions that have none: a request a line, an answer a line."""
    import futures
    import map1
    import paceline as pl
    from work import same

    with pl.connect(cpus=SLOTS):
        remote = pl.remote(same)
        consume: dict[str, Callable[[Any], Any]] = {
            "submit + result": futures.by_result,
            "submit + wait": futures.by_wait(lambda all_of: pl.wait(all_of, n=len(all_of))),
            "submit + as_completed": futures.by_completion(pl.as_completed),
            "submit + callbacks": futures.by_callback,
        }

        def submit(take: Callable[[Any], Any], items: list[Any]) -> Any:
            return take([remote.submit(item) for item in items])

        for line in sys.stdin:
            request = json.loads(line)
            form, count = request["form"], request["count"]
            work: Callable[[list[Any]], Any]
            if form in MAPS:
                items: list[Any] = map1.inputs(count)[form.partition(", ")[2]]
                work = partial(remote.map, chunksize=1)
            else:
                items, work = list(range(count)), partial(submit, consume[form])
            done = rate(count, partial(work, items), items)
            print(json.dumps({"rate": done / 1e3}), flush=True)


def compare(question: str, builds: dict[str, str], rounds: int, seconds: float, count: int) -> Iterator[Compared]:
    with contextlib.ExitStack() as stack:
        drivers = {
            name: stack.enter_context(Driver(command_of(question), interpreter=interpreter))
            for name, interpreter in builds.items()
        }
        for figure in figures_of(question, seconds, count):

            def ask(driver: Driver, figure: Figure = figure) -> float:
                return float(driver.ask(**figure.request)[figure.of])

            found = interleave(rounds, {name: partial(ask, driver) for name, driver in drivers.items()}).values
            yield Compared(figure, found["before"][""], found["after"][""])


def version_of(interpreter: str) -> str:
    """Where a build comes from, so that nobody compares one with itself."""
    script = "import paceline, os; print(paceline.__version__, os.path.dirname(paceline.__file__))"
    done = subprocess.run([interpreter, "-c", script], capture_output=True, text=True, cwd="/", check=False)
    if done.returncode:
        raise SystemExit(f"error: no paceline can be imported by {interpreter}:\n{done.stderr}")
    return done.stdout.strip()


def interpreter_in(environment: str) -> str:
    path = Path(environment) / "bin" / "python"
    if not path.exists():
        raise SystemExit(f"error: no virtual environment at {environment}: there is no {path}")
    return str(path.absolute())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare the speed of two installed builds of Paceline.")
    parser.add_argument("questions", nargs="*", metavar="question", help=f"of: {', '.join(QUESTIONS)}")
    parser.add_argument("--before", metavar="VENV", help="the virtual environment of the build to compare with")
    parser.add_argument("--after", metavar="VENV", help="the virtual environment of the build that is judged")
    parser.add_argument("--rounds", type=int, default=9, help=f"of each build, {MIN_ROUNDS} at least; 9")
    parser.add_argument("--quick", action="store_true", help="short rounds: does it run?")
    parser.add_argument("--bar", type=float, default=BAR, help=f"the least ratio; {BAR}")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return options
    if unknown := set(options.questions) - set(QUESTIONS):
        parser.error(f"no such question: {', '.join(sorted(unknown))}")
    if not options.before or not options.after:
        parser.error("--before and --after name the two virtual environments")
    if options.rounds < MIN_ROUNDS:
        parser.error(f"fewer than {MIN_ROUNDS} rounds say nothing")
    return options


def main() -> int:
    options = arguments()
    if options.serve:
        serve(options.serve)
        return 0
    builds = {"before": interpreter_in(options.before), "after": interpreter_in(options.after)}
    for name, interpreter in builds.items():
        print(f"{name:6} {version_of(interpreter)}")
    busy = harness.others_busy()
    seconds, count = (0.05, 500) if options.quick else (0.4, 10_000)
    slower = []
    print(f"\n{'':10}{'':32}{'before':>10}{'after':>10}       after/before, speed")
    for question in options.questions or QUESTIONS:
        for compared in compare(question, builds, options.rounds, seconds, count):
            figure, ratio, (low, high) = compared.figure, compared.ratio(), compared.ratio_range()
            verdict = "" if ratio >= options.bar else f"  below {options.bar:g}"
            slower += [figure] if verdict else []
            before, after = (harness.number(statistics.median(each)) for each in (compared.before, compared.after))
            print(
                f"{figure.question:10}{figure.what:32}{before:>10}{after:>10} {figure.unit:5} "
                f"{ratio:.3f} ({low:.2f}..{high:.2f}){verdict}",
                flush=True,
            )
    if busy > 0.1:
        print(f"hint: others used {busy:.0%} of the machine before the first round; repeat before believing a verdict")
    print(f"{len(slower)} figures below {options.bar:g}" if slower else f"no figure below {options.bar:g}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())

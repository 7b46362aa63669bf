"""What the questions share: the plan of a run, interleaved rounds, rows with a verdict, the table.

* BE-1: both sides of a ratio are measured in one run, round by round, and the order turns round with every round.
* BE-2: a figure is the median over the rounds, or their mean where it says so; the range stands beside it.
* BE-3: a ratio is the figure of one side over that of the other; its range is that of the rounds' own ratios.
"""

from __future__ import annotations

import contextlib
import gc
import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SLOTS = 2


@dataclass(frozen=True)
class Plan:
    """How long and against whom to measure."""

    rounds: int = 7
    scale: float = 1.0
    smoke: bool = False
    peers_only: bool = False

    def size(self, full: int, least: int = 1) -> int:
        """A number of items, smaller in quick runs."""
        return max(least, int(full * self.scale))

    def seconds(self, full: float, least: float = 0.02) -> float:
        return max(least, full * self.scale)

    def repeats(self, full: int) -> int:
        """A number of rounds for questions that want more than the usual seven."""
        return full if self.scale == 1.0 else self.rounds


@dataclass(frozen=True)
class Samples:
    """One figure, once a round. `mean`: its rounds fall into two heaps, and a median would say which was larger."""

    unit: str
    values: list[float]
    mean: bool = False

    @property
    def typical(self) -> float:
        return statistics.fmean(self.values) if self.mean else statistics.median(self.values)


@dataclass(frozen=True)
class Must:
    """What a row has to reach. `of` is "ratio" (Paceline's figure over the peer's) or "figure"."""

    sign: str
    limit: float
    of: str = "ratio"

    def met_by(self, value: float) -> bool:
        return {"<=": value <= self.limit, ">=": value >= self.limit, "==": value == self.limit}[self.sign]

    def __str__(self) -> str:
        return f"{self.sign} {self.limit:g}" + (" x" if self.of == "ratio" else "")


@dataclass(frozen=True)
class Row:
    """One line of the table. Without `must` it is there for information."""

    bar: str
    what: str
    ours: Samples | None
    peer: Samples | None = None
    peer_name: str = ""
    must: Must | None = None
    note: str = ""

    def ratio(self) -> float | None:
        if self.ours is None or self.peer is None or not self.peer.typical:
            return None
        return self.ours.typical / self.peer.typical

    def ratio_range(self) -> tuple[float, float] | None:
        if self.ours is None or self.peer is None or not all(self.peer.values):
            return None
        ratios = [a / b for a, b in zip(self.ours.values, self.peer.values, strict=False)]
        return min(ratios), max(ratios)

    def verdict(self) -> str:
        if self.must is None or self.ours is None:
            return ""
        value = self.ratio() if self.must.of == "ratio" else self.ours.typical
        return "" if value is None else "PASS" if self.must.met_by(value) else "FAIL"

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"ratio": self.ratio(), "verdict": self.verdict()}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Row:
        def samples(value: Mapping[str, Any] | None) -> Samples | None:
            return None if value is None else Samples(**value)

        return Row(
            data["bar"],
            data["what"],
            samples(data["ours"]),
            samples(data["peer"]),
            data["peer_name"],
            None if data["must"] is None else Must(**data["must"]),
            data["note"],
        )


Measure = Callable[[], float | Mapping[str, float]]


@dataclass
class Rounds:
    """What `interleave` measured: figures by side, and by name where a side gives several at once."""

    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def get(self, side: str, unit: str, name: str = "", mean: bool = False) -> Samples | None:
        """None for a side that was not measured."""
        found = self.values.get(side, {}).get(name)
        return None if found is None else Samples(unit, found, mean)


def interleave(rounds: int, sides: Mapping[str, Measure | None], warm_up: bool = True) -> Rounds:
    """Measure every side once a round, in turn; the order is reversed in every other round."""
    present = {name: measure for name, measure in sides.items() if measure is not None}
    if warm_up:
        for measure in present.values():
            measure()
    result = Rounds()
    for number in range(rounds):
        names = list(present)
        for name in names if number % 2 == 0 else reversed(names):
            gc.collect()
            measured = present[name]()
            figures = measured if isinstance(measured, Mapping) else {"": measured}
            for figure, value in figures.items():
                result.values.setdefault(name, {}).setdefault(figure, []).append(float(value))
    return result


def rate(count: int, work: Callable[[], object], expect: object = None) -> float:
    """Items per second of `work`, whose result has to equal `expect`."""
    begin = time.perf_counter()
    result = work()
    elapsed = time.perf_counter() - begin
    if expect is not None and result != expect:
        raise AssertionError("the results differ from the input")
    return count / elapsed


def elapsed_of(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


@contextlib.contextmanager
def paceline(plan: Plan, cpus: int = SLOTS) -> Iterator[Any]:
    """The connected `paceline` module, or None when only peers are measured."""
    if plan.peers_only:
        yield None
        return
    import paceline as pl

    with pl.connect(cpus=cpus):
        yield pl


@contextlib.contextmanager
def pool(size: int = SLOTS) -> Iterator[Any]:
    with multiprocessing.get_context("spawn").Pool(size) as made:
        yield made


@contextlib.contextmanager
def executor(size: int = SLOTS) -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(size, mp_context=multiprocessing.get_context("spawn")) as made:
        yield made


class Driver:
    """A measuring process of its own, asked over its standard streams; for sides that differ in their environment."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        interpreter: str = sys.executable,
    ) -> None:
        self._process = subprocess.Popen(
            [interpreter, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | dict(environment or {}),
            text=True,
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the measuring process ended: exit code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def cpu_time(processes: Sequence[int]) -> float:
    """Seconds that the threads of these processes have run."""
    nanoseconds = 0
    for process in processes:
        for thread in Path(f"/proc/{process}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                nanoseconds += int(thread.read_text().split()[0])
    return nanoseconds / 1e9


def fresh(script: str, *, prefix: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> str:
    """What a script prints in a fresh interpreter."""
    done = subprocess.run(
        [*prefix, sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | dict(environment or {}),
    )
    if done.returncode:
        raise RuntimeError(f"a fresh interpreter ended with exit code {done.returncode}\n{done.stderr}")
    return done.stdout.strip()


def cpu_times() -> tuple[float, float, float]:
    """Seconds of this machine's CPUs since it started: all, busy, stolen by the host."""
    with open("/proc/stat") as stat:
        user, nice, system, idle, iowait, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    tick = os.sysconf("SC_CLK_TCK")
    busy = user + nice + system + irq + softirq
    return (busy + idle + iowait + steal) / tick, busy / tick, steal / tick


def others_busy(seconds: float = 0.5) -> float:
    """How much of the machine others use while this run waits, 0 to 1."""
    before = cpu_times()
    time.sleep(seconds)
    after = cpu_times()
    return (after[1] - before[1]) / max(after[0] - before[0], 1e-9)


def machine() -> dict[str, Any]:
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }


def number(value: float) -> str:
    if value == int(value) and abs(value) < 1000:
        return str(int(value))
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def figure(samples: Samples | None) -> str:
    if samples is None:
        return "-"
    low, high = min(samples.values), max(samples.values)
    text = f"{number(samples.typical)} {samples.unit}".rstrip()
    return text if low == high else f"{text} ({number(low)}..{number(high)})"


def table(rows: Sequence[Row]) -> str:
    """The rows for people: one line each, ranges over the rounds in brackets."""
    header = ("bar", "what", "paceline", "peer", "", "ratio", "must", "")
    lines = [header]
    for row in rows:
        ratio, spread = row.ratio(), row.ratio_range()
        shown = "" if ratio is None else number(ratio) + " x"
        if spread is not None and spread[0] != spread[1]:
            shown += f" ({number(spread[0])}..{number(spread[1])})"
        lines.append(
            (
                row.bar,
                row.what,
                figure(row.ours),
                figure(row.peer) if row.peer else "",
                row.peer_name,
                shown,
                str(row.must) if row.must else "",
                row.verdict(),
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]

    def laid_out(line: Sequence[str]) -> str:
        return "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()

    out = [laid_out(header), "  ".join("-" * width for width in widths)]
    for line, row in zip(lines[1:], rows, strict=True):
        out.append(laid_out(line))
        if row.note:
            out.append(" " * (widths[0] + 2) + "  " + row.note)
    return "\n".join(out)

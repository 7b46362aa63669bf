"""Tasks that submit tasks: what they get, what they leave to others while they wait, and what ends with them."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

import paceline as pl
from support import assert_nothing_left, run_script, wait_until

FAR_TOO_LONG = 60.0
MOST_BLOCKED = 64


@pl.remote
def double(x: int) -> int:
    return 2 * x


@pl.remote
def call(function: Callable[..., Any], *args: Any) -> Any:
    """Run something inside a task."""
    return function(*args)


@pl.remote
def nap(seconds: float, mark: str = "") -> float:
    if mark:
        Path(mark).write_text(str(os.getpid()))
    time.sleep(seconds)
    return seconds


@pl.remote
def fibonacci(n: int) -> int:
    if n < 2:
        return n
    a, b = fibonacci.submit(n - 1), fibonacci.submit(n - 2)
    return int(a.result()) + int(b.result())


@pl.remote
def chain(length: int) -> int:
    """As deep as it is long."""
    return 1 + int(chain(length - 1)) if length else 0


@pl.remote
def fail(message: str) -> None:
    raise LookupError(message)


@pytest.fixture
def single() -> Iterator[pl.Cluster]:
    """A cluster of one CPU: whoever waits and keeps it waits for ever."""
    with pl.connect(cpus=1) as cluster:
        yield cluster


class Census:
    """The most slots a cluster ever had."""

    def __init__(self, cluster: pl.Cluster) -> None:
        self.most = 0
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._count)

    def _count(self) -> None:
        while not self._stop.wait(0.005):
            slots = self._cluster.nodes[0]["slots"]
            self.most = max(self.most, sum(slot["state"] != "ending" for slot in slots))

    def __enter__(self) -> Census:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def by_call() -> Any:
    return double(4)


def by_result() -> Any:
    return double.submit(4).result()


def by_map() -> Any:
    return double.map(range(5))[4]


def by_imap() -> Any:
    return list(double.imap(range(5)))[4]


def by_wait() -> Any:
    done, _ = pl.wait([double.submit(x) for x in range(5)])
    return max(future.result() for future in done)


def by_as_completed() -> Any:
    return max(future.result() for future in pl.as_completed([double.submit(x) for x in range(5)]))


def by_await() -> Any:
    async def both() -> int:
        first, second = await asyncio.gather(double.submit(1), double.submit(3))
        return int(first) + int(second)

    return asyncio.run(both())


def by_threads() -> Any:
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(double(2))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(found)


def by_callback() -> Any:
    came = threading.Event()
    future = double.submit(4)
    future.add_done_callback(lambda _: came.set())
    assert came.wait(20)
    return future.result()


def by_with() -> Any:
    with pl.connect():
        return double(4)


def by_engine() -> Any:
    return pl.map(double.original, range(5))[4]


WAYS = (
    by_call,
    by_result,
    by_map,
    by_imap,
    by_wait,
    by_as_completed,
    by_await,
    by_threads,
    by_callback,
    by_with,
    by_engine,
)


@pytest.mark.usefixtures("single")
class TestOnOneCpu:
    @pytest.mark.parametrize("way", WAYS)
    def test_every_way_of_waiting_leaves_it_to_what_is_waited_for(self, way: Callable[[], Any]) -> None:
        assert call(way) == 8
        assert call(way) == 8, "once more, in the same slot"

    def test_in_turns(self) -> None:
        assert call.map([by_call] * 20, chunksize=1) == [8] * 20

    def test_many_levels(self) -> None:
        assert chain(20) == 20

    def test_what_waits_behind_goes_elsewhere(self) -> None:
        """A task that waits has given back the calls behind it, or they would wait as long."""
        first = call.submit(lambda: nap(1.0))
        others = [double.submit(x) for x in range(20)]
        began = time.monotonic()
        assert [future.result(timeout=20) for future in others] == [2 * x for x in range(20)]
        assert first.result() == 1.0
        assert time.monotonic() - began < 10


class TestSlots:
    def test_fibonacci_has_few(self, cluster: pl.Cluster) -> None:
        with Census(cluster) as census:
            assert fibonacci(14) == 377
        assert 2 < census.most <= MOST_BLOCKED + 2

    @pytest.mark.slow
    def test_fibonacci_of_18_has_few(self, cluster: pl.Cluster) -> None:
        with Census(cluster) as census:
            assert fibonacci(18) == 2584
        assert 2 < census.most <= MOST_BLOCKED + 2

    @pytest.mark.slow
    def test_too_deep_a_task_runs_the_rest_itself(self, single: pl.Cluster) -> None:
        with Census(single) as census:
            assert chain(MOST_BLOCKED + 20) == MOST_BLOCKED + 20
        assert census.most <= MOST_BLOCKED + 1
        assert double(2) == 4

    @pytest.mark.slow
    def test_what_is_too_large_for_that_says_so(self, cluster: pl.Cluster) -> None:
        @pl.remote
        def deep(length: int) -> Any:
            return deep(length - 1) if length else double.options(cpus=2)(1)

        with pytest.raises(pl.NestingTooDeep, match="2 CPUs") as caught:
            deep(MOST_BLOCKED + 5)
        assert caught.value.code == "nesting-too-deep"
        assert double(2) == 4
        assert cluster.nodes[0]["cpus"] == 2


@pytest.mark.usefixtures("cluster")
class TestEnds:
    def test_an_exception_of_an_inner_task_is_the_outer_ones(self) -> None:
        with pytest.raises(LookupError, match="inside"):
            call(lambda: fail("inside"))

    def test_what_is_not_waited_for_ends_with_its_task(self, tmp_path: Path) -> None:
        mark = tmp_path / "mark"

        def leave() -> None:
            nap.submit(FAR_TOO_LONG, str(mark))
            wait_until(mark.exists, "the inner task runs")

        call(leave)
        process = int(mark.read_text())
        began = time.monotonic()
        # Both slots are free again, far sooner than the nap would be over.
        assert nap.map([0.01] * 4, chunksize=1) == [0.01] * 4
        assert double(process) == 2 * process
        assert time.monotonic() - began < 10

    def test_cancelling_the_outer_task_ends_the_inner_one(self, tmp_path: Path) -> None:
        mark = tmp_path / "mark"
        future = call.submit(lambda: nap(FAR_TOO_LONG, str(mark)))
        wait_until(mark.exists, "the inner task runs")
        assert pl.cancel(future)
        with pytest.raises(CancelledError):
            future.result()
        began = time.monotonic()
        assert nap.map([0.01] * 4, chunksize=1) == [0.01] * 4
        assert time.monotonic() - began < 10

    def test_the_death_of_the_outer_slot_ends_the_inner_task_and_repeats_the_outer_one(self, tmp_path: Path) -> None:
        def outer(place: str) -> int:
            marks = Path(place)
            if not (marks / "outer").exists():
                (marks / "outer").write_text(str(os.getpid()))
                nap(FAR_TOO_LONG, str(marks / "inner"))
            return int(double(21))

        future = call.submit(outer, str(tmp_path))
        wait_until((tmp_path / "inner").exists, "the inner task runs")
        os.kill(int((tmp_path / "outer").read_text()), signal.SIGKILL)
        assert future.result(timeout=20) == 42
        assert nap.map([0.01] * 4, chunksize=1) == [0.01] * 4

    def test_the_death_of_an_inner_slot_repeats_the_inner_task(self, tmp_path: Path) -> None:
        @pl.remote
        def once(path: str) -> str:
            if not Path(path).exists():
                Path(path).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return "again"

        assert call(lambda: once(str(tmp_path / "mark"))) == "again"

    def test_an_inner_task_that_takes_too_long(self) -> None:
        with pytest.raises(pl.TaskTimeout):
            call(lambda: nap.options(timeout=0.2)(FAR_TOO_LONG))
        assert double(2) == 4


@pytest.mark.usefixtures("cluster")
class TestSurroundings:
    def test_an_inner_task_knows_itself(self) -> None:
        def both() -> tuple[Any, Any]:
            inner = call(pl.current)
            return pl.current(), inner

        outer, inner = call(both)
        assert outer is not None
        assert inner is not None
        assert outer.slot != inner.slot

    def test_prints_of_inner_tasks_arrive(self, capfd: pytest.CaptureFixture[str]) -> None:
        call(lambda: call(lambda: print("from within")))
        seen: list[str] = []

        def arrived() -> bool:
            seen.append(capfd.readouterr().out)
            return "from within" in "".join(seen)

        wait_until(arrived, "the line arrives")

    def test_a_module_that_runs_something_as_it_is_imported_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "eager_module.py").write_text(
            "import paceline as pl\n"
            "pl.connect()\n"
            "@pl.remote\n"
            "def f(x):\n"
            "    return x\n"
            "def plain(x):\n"
            "    return x\n"
            "value = f(1)\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))

        def use() -> int:
            import eager_module  # type: ignore[import-not-found]

            return int(eager_module.plain(1))

        with pytest.raises(pl.NotConnected, match="__main__"):
            call(use)
        assert double(2) == 4


KILLED = """
import os, signal, sys, time
import paceline as pl
from pathlib import Path

@pl.remote
def inner(mark):
    Path(mark).touch()
    time.sleep(0 if Path("again").exists() else 60)
    return os.getppid()

@pl.remote
def outer(mark):
    return inner(mark)

pl.connect(cpus=1)
zygote = pl.remote(os.getppid)()
future = outer.submit("mark")
while not Path("mark").exists():
    time.sleep(0.005)
Path("again").touch()
if sys.argv[1] == "client":
    os.kill(os.getpid(), signal.SIGKILL)
os.kill(zygote, signal.SIGKILL)
print("again", future.result() not in (0, zygote))
"""


class TestKilled:
    def test_the_client(self) -> None:
        done = run_script(KILLED, args=("client",))
        assert done.returncode == -signal.SIGKILL
        assert_nothing_left(done)

    def test_the_zygote(self) -> None:
        done = run_script(KILLED, args=("zygote",)).ok()
        assert "again True" in done.stdout, done.transcript()
        assert_nothing_left(done)

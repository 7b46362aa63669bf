"""Rows of docs/parity.md that no other test shows. Each test gives the numbers of its rows."""

import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import paceline as pl
from support import assert_nothing_left, processes, run_script, wait_until

# Remote functions are made inside functions here, and without `assert`, which pytest rewrites: so they travel by value,
# and no slot has to import pytest while a test looks at the clock.


def waits_for() -> Callable[[str], None]:
    """A function that waits until a file is there."""

    def wait(path: str) -> None:
        until = time.monotonic() + 20
        while not os.path.exists(path):
            if time.monotonic() > until:
                raise TimeoutError(path)
            time.sleep(0.001)

    return wait


def meets() -> Callable[[str, int, int], int]:
    """A function that returns its process once as many calls as expected run at the same time."""
    wait = waits_for()

    def meet(directory: str, own: int, expected: int) -> int:
        open(f"{directory}/{own}", "w").close()
        for other in range(expected):
            wait(f"{directory}/{other}")
        return os.getpid()

    return meet


def writes_begin_and_end() -> Callable[[str, str], None]:
    """A function that adds a line to a file when it begins and another when it ends."""

    def record(path: str, text: str) -> None:
        for line in (f"begin {text}\n", f"end {text}\n"):
            with open(path, "a") as log:
                log.write(line)

    return record


def test_a_block_starts_slots_and_ends_them(tmp_path: Path) -> None:
    """15"""
    with pl.connect(cpus=3):
        pids = pl.remote(meets()).starmap([(str(tmp_path), own, 3) for own in range(3)], chunksize=1)
    assert len(set(pids)) == 3
    wait_until(lambda: not any(processes.process(pid) for pid in pids), "all slots to end", 2)


def test_one_slot_runs_calls_of_many_threads_one_by_one(tmp_path: Path) -> None:
    """40, 66"""
    log = tmp_path / "log"
    record = pl.remote(writes_begin_and_end())

    def caller(thread: int) -> None:
        for future in [record.submit(str(log), f"{thread} {call}") for call in range(20)]:
            future.result(timeout=20)

    with pl.connect(cpus=1), ThreadPoolExecutor(8) as threads:
        list(threads.map(caller, range(8)))
    lines = log.read_text().splitlines()
    begun, ended = lines[::2], lines[1::2]
    assert [line.replace("begin", "end") for line in begun] == ended
    calls = [tuple(map(int, line.split()[1:])) for line in begun]
    assert sorted(calls) == [(thread, call) for thread in range(8) for call in range(20)]
    for thread in range(8):
        assert [call for other, call in calls if other == thread] == list(range(20))


@pytest.mark.usefixtures("cluster")
def test_calls_of_several_threads_run_side_by_side(tmp_path: Path) -> None:
    """41"""
    meet = pl.remote(meets())
    with ThreadPoolExecutor(2) as threads:
        # The threads of an executor have a context of their own, where the last connected cluster is current.
        pids = list(threads.map(lambda own: meet(str(tmp_path), own, 2), range(2)))
    assert len({*pids, os.getpid()}) == 3


def test_a_spare_takes_over_from_a_dead_slot(tmp_path: Path) -> None:
    """44"""
    where = pl.remote(lambda: os.getpid())
    with pl.connect(cpus=1) as cluster:

        def spares() -> list[int]:
            return [slot["pid"] for slot in cluster.nodes[0]["slots"] if slot["state"] == "ready"]

        running = tmp_path / "running"
        future, victim = hold(running)
        ready = wait_until(spares, "a spare slot to be ready")
        os.kill(victim, signal.SIGKILL)
        assert isinstance(future.exception(timeout=10), pl.SlotDied)
        assert where() in ready


def test_a_death_is_heard_and_made_good_soon(tmp_path: Path) -> None:
    """44, 232"""
    where = pl.remote(lambda: (os.getpid(), os.getppid()))
    heard, replaced, parents = [], [], set()
    with pl.connect(cpus=1):
        for number in range(5):
            future, victim = hold(tmp_path / str(number))
            killed = time.monotonic()
            os.kill(victim, signal.SIGKILL)
            error = future.exception(timeout=10)
            heard.append(time.monotonic() - killed)
            pid, parent = where()
            replaced.append(time.monotonic() - killed)
            parents.add(parent)
            assert type(error) is pl.SlotDied
            assert error.signal == signal.SIGKILL
            assert pid != victim
    assert max(heard) < 1.0, heard
    # The median: this is about what is done to replace a slot, not about a machine with better things to do.
    assert statistics.median(replaced) < 0.05, replaced
    assert len(parents) == 1, "slots come from one zygote, without the start of an interpreter"


def hold(running: Path) -> tuple[pl.Future[None], int]:
    """A task that never ends by itself, and the slot that runs it."""

    def stay(path: str) -> None:
        with open(f"{path}.new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(f"{path}.new", path)
        time.sleep(60)

    future = pl.remote(retries=0)(stay).submit(str(running))
    wait_until(running.exists, "the task to run")
    return future, int(running.read_text())


@pytest.mark.parametrize("form", ["map", "imap"])
@pytest.mark.usefixtures("cluster")
def test_order_is_kept_though_the_first_ends_last(form: str, tmp_path: Path) -> None:
    """52, 59"""
    wait, last = waits_for(), str(tmp_path / "last")

    def step(x: int) -> int:
        if x == 9:
            open(last, "w").close()
        if x == 0:
            wait(last)
        return x

    function = pl.remote(step)
    values = function.map(range(10), chunksize=1) if form == "map" else list(function.imap(range(10)))
    assert values == list(range(10))


@pytest.mark.usefixtures("cluster")
def test_unordered_values_come_as_they_end(tmp_path: Path) -> None:
    """58"""
    wait, gate = waits_for(), tmp_path / "gate"

    def step(x: int, path: str = str(gate)) -> int:
        if x == 0:
            wait(path)
        return x

    values = pl.remote(step).imap_unordered(range(4))
    assert sorted(next(values) for _ in range(3)) == [1, 2, 3]
    gate.touch()
    assert list(values) == [0]


def test_first_come_first_served(tmp_path: Path) -> None:
    """66, 233"""
    wait, record = pl.remote(waits_for()), pl.remote(writes_begin_and_end())
    gate, log = tmp_path / "gate", tmp_path / "log"
    with pl.connect(cpus=1):
        first = wait.submit(str(gate))
        futures = [record.submit(str(log), str(number)) for number in range(200)]
        assert not any(future.done() for future in futures)
        gate.touch()
        first.result(timeout=20)
        pl.wait(futures, timeout=20)
        assert all(future.done() for future in futures)
    assert log.read_text().split() == [
        word for number in range(200) for word in ("begin", str(number), "end", str(number))
    ]


@pytest.mark.usefixtures("cluster")
def test_none_is_a_result() -> None:
    """76"""
    nothing = pl.remote(lambda *_: None)
    assert nothing() is None
    assert nothing.submit().result(timeout=10) is None
    assert nothing.map(range(3)) == nothing.starmap([(1, 2)] * 3) == [None] * 3
    assert list(nothing.imap(range(3))) == list(nothing.imap_unordered(range(3))) == [None] * 3
    assert [future.result() for future in pl.as_completed([nothing.submit() for _ in range(3)])] == [None] * 3


PROMPT = """\
import paceline as pl
cluster = pl.connect(cpus=1)
class Point:
    def __init__(self, x):
        self.x = x
    def moved(self):
        return Point(self.x + 1)

@pl.remote
def move(point):
    return point.moved()

moved = move(Point(1))
print(type(moved) is Point, moved.x)
class Point:
    def __init__(self, x):
        self.x = 10 * x

made = pl.remote(lambda: Point(2))()
print(type(made) is Point, made.x)
cluster.close()
"""


def test_classes_of_a_prompt(tmp_path: Path) -> None:
    """118"""
    command = [sys.executable, "-i", "-q"]
    done = subprocess.run(command, input=PROMPT, cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert done.stdout.splitlines() == ["True 2", "True 20"], done.stderr


def test_classes_of_notebook_cells() -> None:
    """118"""
    done = run_script(
        """
        import linecache

        def run_cell(number, text):
            # As a notebook does: source that is in no file, in the namespace of the main module.
            name = f"<ipython-input-{number}>"
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
            exec(compile(text, name, "exec"), globals())

        run_cell(1, "import dataclasses\\nimport paceline as pl\\ncluster = pl.connect(cpus=1)")
        run_cell(2, '''
        @dataclasses.dataclass
        class Point:
            x: int

            def moved(self):
                return Point(self.x + step)

        step = 1

        @pl.remote
        def move(point):
            return point.moved()
        ''')
        run_cell(3, "assert move(Point(1)) == Point(2)")
        run_cell(4, "step = 5\\nassert move(Point(1)) == Point(6)")
        run_cell(5, "assert move.map([Point(x) for x in range(3)]) == [Point(5), Point(6), Point(7)]")
        run_cell(6, "cluster.close()")
        """
    ).ok()
    assert_nothing_left(done)


@pytest.mark.usefixtures("cluster")
def test_fifty_threads_send_at_once() -> None:
    """130"""
    barrier = threading.Barrier(50)

    def caller(number: int) -> bool:
        class Local:
            def __init__(self, value: int) -> None:
                self.value = value

        def shifted(local: Any, function: Callable[[int], int]) -> Any:
            return Local(function(local.value) + number)

        remote = pl.remote(shifted)
        barrier.wait(20)
        back = [remote(Local(value), lambda x: x * number) for value in range(5)]
        return all(type(one) is Local and one.value == (x + 1) * number for x, one in enumerate(back))

    with ThreadPoolExecutor(50) as threads:
        assert all(threads.map(caller, range(50)))


FRAMEWORKS = ["torch", "tensorflow", "jax", "flax", "keras", "paddle", "mxnet", "mindspore"]


def test_no_deep_learning_framework_is_imported() -> None:
    """230"""
    run_script(
        f"""
        import os, sys
        import paceline as pl
        with pl.connect(cpus=2):
            assert pl.remote(abs).map(range(100)) == list(range(100))
            assert pl.map(lambda x: -x, [1, 2], engine="processes") == [-1, -2]
            there = pl.remote(lambda: set(sys.modules))()
        assert not set({FRAMEWORKS}) & (there | set(sys.modules))
        assert not [name for name in os.listdir() if name.endswith(".imported")]
        """,
        # First on the path of client and slots alike: an attempt leaves a mark and fails as without the framework.
        files={f"{name}.py": "open(__file__ + '.imported', 'w').close()\nraise ImportError" for name in FRAMEWORKS},
    ).ok()


def test_an_idle_slot_that_dies_is_replaced(cluster: pl.Cluster) -> None:
    """Row 86: whether it had work before or was kept ready, and the books say so."""

    def slots() -> dict[int, int]:
        return {slot["slot"]: slot["pid"] for node in cluster.nodes for slot in node["slots"] if slot["pid"]}

    assert pl.remote(abs)(-1) == 1
    before = wait_until(lambda: len(slots()) == 3 and slots(), "two slots and a spare", state=slots)
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)
    after = wait_until(
        lambda: len(slots()) == 3 and not set(slots()) & set(before) and slots(), "three others", state=slots
    )
    assert not set(after.values()) & set(before.values())
    assert pl.remote(abs).map(range(-100, 0), chunksize=1) == list(range(100, 0, -1))

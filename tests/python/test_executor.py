"""`pl.Executor`: what PEP 3148 says, and what CPython's own tests say by way of private members.

CPython's suite itself runs in `tests/conformance`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import gc
import itertools
import os
import pickle
import signal
import threading
import time
import weakref
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

import paceline as pl
from support import run_script, wait_until

STATE: list[Any] = []


def remember(value: Any) -> None:
    STATE.append(value)


def remembered() -> list[Any]:
    return STATE


def process() -> int:
    return os.getpid()


def hold(path: str) -> int:
    deadline = time.monotonic() + 30
    while not os.path.exists(path) and time.monotonic() < deadline:
        time.sleep(0.005)
    return os.getpid()


def begin_and_hold(path: str) -> int:
    Path(f"{path}.{os.getpid()}").touch()
    return hold(path)


def fail() -> None:
    raise ValueError("no such data")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_it_is_an_executor_and_connects_by_itself() -> None:
    done = run_script(
        """
        import concurrent.futures
        import paceline as pl

        with pl.Executor(max_workers=2) as executor:
            assert isinstance(executor, concurrent.futures.Executor)
            future = executor.submit(pow, 2, exp=5)
            assert isinstance(future, concurrent.futures.Future)
            print(future.result(), list(executor.map(lambda x: x + 1, range(3))))
        """
    )
    assert done.stdout == "32 [1, 2, 3]\n", done
    assert done.stderr == "", done


def test_max_workers_counts_processes_and_not_cpus(cluster: pl.Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with pl.Executor(5) as executor:
        futures = [executor.submit(begin_and_hold, str(gate)) for _ in range(10)]
        wait_until(lambda: len(list(tmp_path.iterdir())) == 5, "five calls run")
        gate.touch()
        assert len({future.result() for future in futures}) == 5


def test_by_default_there_are_as_many_as_cpus(cluster: pl.Cluster) -> None:
    with pl.Executor() as executor:
        assert executor._max_workers == 2


def test_an_idle_slot_is_used_again(cluster: pl.Cluster) -> None:
    with pl.Executor(4) as executor:
        assert len({executor.submit(process).result() for _ in range(5)}) == 1


def test_slots_are_its_own_and_end_with_it(cluster: pl.Cluster) -> None:
    with pl.Executor(2) as executor:
        first = executor.submit(process).result()
        with pl.Executor(2) as other:
            assert other.submit(process).result() != first
        assert pl.remote(process)() != first
    wait_until(lambda: not is_alive(first), "the slot has ended")


def test_the_initializer_comes_first_in_every_slot(cluster: pl.Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def call() -> list[Any]:
        Path(f"{gate}.{os.getpid()}").touch()
        hold(str(gate))
        return remembered()

    with pl.Executor(2, initializer=remember, initargs=("here",)) as executor:
        futures = [executor.submit(call) for _ in range(2)]
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2, "both run")
        gate.touch()
        assert [future.result() for future in futures] == [["here"], ["here"]]


def test_a_failing_initializer_breaks_it(cluster: pl.Cluster) -> None:
    with pl.Executor(2, initializer=fail) as executor:
        future = executor.submit(process)
        with pytest.raises(BrokenProcessPool) as caught:
            future.result(timeout=20)
        assert isinstance(caught.value, pl.PoolBroken)
        assert "no such data" in str(caught.value)
        with pytest.raises(BrokenProcessPool):
            executor.submit(process)
        assert executor._broken


def test_a_killed_slot_breaks_it_in_bounded_time(cluster: pl.Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with pl.Executor(2) as executor:
        first = executor.submit(begin_and_hold, str(gate))
        later = [executor.submit(time.sleep, 30) for _ in range(3)]
        wait_until(lambda: len(list(tmp_path.iterdir())) == 1, "it runs")
        begun = time.monotonic()
        os.kill(int(next(tmp_path.iterdir()).suffix[1:]), signal.SIGKILL)
        for future in (first, *later):
            with pytest.raises(BrokenProcessPool) as caught:
                future.result(timeout=20)
        assert time.monotonic() - begun < 5
        said = str(first.exception())
        assert "SIGKILL" in said
        assert "slot" in said
        assert isinstance(caught.value, pl.PacelineError)
        with pytest.raises(BrokenProcessPool):
            executor.submit(process)
    # The next one is as good as new.
    with pl.Executor(2) as executor:
        assert executor.submit(abs, -1).result() == 1


def test_max_tasks_per_child(cluster: pl.Cluster) -> None:
    with pl.Executor(1, max_tasks_per_child=3) as executor:
        pids = [executor.submit(process).result() for _ in range(7)]
    assert pids[0] == pids[1] == pids[2] != pids[3]
    assert pids[3] == pids[4] == pids[5] != pids[6]


def test_what_cannot_be_pickled_is_the_error_of_its_future(cluster: pl.Cluster) -> None:
    with pl.Executor(1) as executor:
        future = executor.submit(id, threading.Lock())
        with pytest.raises(TypeError, match="cannot pickle") as caught:
            future.result()
        assert any("cannot send" in note for note in caught.value.__notes__)
        executor.shutdown(wait=False)
        with pytest.raises(RuntimeError, match="after shutdown"):
            executor.submit(process)


def test_an_exception_is_what_it_was_and_shows_where_it_came_from(cluster: pl.Cluster) -> None:
    with pl.Executor(1) as executor:
        future = executor.submit(fail)
        with pytest.raises(ValueError, match="no such data") as caught:
            future.result()
        assert future.exception() is caught.value
        assert 'raise ValueError("no such data")' in str(caught.value.__cause__)
        assert executor.submit(process).result()


def test_map_is_lazy_with_a_buffer(cluster: pl.Cluster) -> None:
    pulled = []

    def numbers() -> Any:
        for number in itertools.count():
            pulled.append(number)
            yield number

    with pl.Executor(2) as executor:
        values = executor.map(abs, numbers(), buffersize=3)
        assert pulled == [0, 1, 2]
        assert [next(values) for _ in range(4)] == [0, 1, 2, 3]
        assert len(pulled) == 7
        for wrong, kind in ((0, ValueError), (-1, ValueError), (1.5, TypeError)):
            with pytest.raises(kind):
                executor.map(abs, [1], buffersize=wrong)  # type: ignore[arg-type]
        chunked = executor.map(pow, itertools.count(), itertools.repeat(2), chunksize=5, buffersize=2)
        assert list(itertools.islice(chunked, 12)) == [number**2 for number in range(12)]


def test_map_stops_the_rest_when_one_fails_or_is_late(cluster: pl.Cluster) -> None:
    with pl.Executor(1) as executor:
        values = executor.map(time.sleep, [0, 30, 30], timeout=1)
        assert next(values) is None
        with pytest.raises(TimeoutError):
            next(values)
        executor._kill()


def test_shutdown_without_waiting_finishes_the_work(cluster: pl.Cluster) -> None:
    executor = pl.Executor(2)
    values = executor.map(abs, range(-50, 0))
    executor.shutdown(wait=False)
    assert list(values) == list(range(50, 0, -1))


def test_shutdown_may_cancel_what_has_not_begun(cluster: pl.Cluster) -> None:
    executor = pl.Executor(2)
    futures = [executor.submit(time.sleep, 0.2) for _ in range(20)]
    wait_until(lambda: any(future.running() for future in futures), "one runs")
    executor.shutdown(cancel_futures=True)
    cancelled = [future for future in futures if future.cancelled()]
    assert len(cancelled) >= 10
    assert all(future.done() for future in futures)
    assert all(future.exception() is None for future in futures if future not in cancelled)


def test_a_forgotten_one_finishes_its_work(cluster: pl.Cluster) -> None:
    executor = pl.Executor(2)
    futures = [executor.submit(functools.partial(time.sleep, 0.01)) for _ in range(20)]
    gone = weakref.ref(executor)
    del executor
    gc.collect()
    assert gone() is None
    assert [future.result(timeout=20) for future in futures] == [None] * 20


def test_the_end_of_the_program_finishes_the_work_silently(tmp_path: Path) -> None:
    done = run_script(
        """
        import time
        import paceline as pl

        def late(number):
            time.sleep(0.3)
            print("done", number, flush=True)

        executor = pl.Executor(2)
        for number in range(3):
            executor.submit(late, number)
        """
    )
    assert sorted(done.stdout.split("\n")) == ["", "done 0", "done 1", "done 2"], done
    assert done.stderr == "", done


def test_a_function_that_changes_inside_is_sent_as_it_is(cluster: pl.Cluster) -> None:
    values = [1]
    with pl.Executor(1) as executor:
        total = functools.partial(sum, values)
        assert executor.submit(total).result() == 1
        values.append(2)
        assert executor.submit(total).result() == 3
        assert executor.submit(values.count, 2).result() == 1


def test_nothing_submitted_is_kept_alive(cluster: pl.Cluster) -> None:
    class Thing:
        def method(self) -> int:
            return 1

    with pl.Executor(1) as executor:
        thing = Thing()
        gone = weakref.ref(thing)
        executor.submit(thing.method).result()
        del thing
        gc.collect()
        assert gone() is None
        function = eval("lambda: 3")
        gone = weakref.ref(function)
        assert executor.submit(function).result() == 3
        del function
        gc.collect()
        assert gone() is None


async def test_an_event_loop_can_use_it(cluster: pl.Cluster) -> None:
    loop = asyncio.get_running_loop()
    with pl.Executor(2) as executor:
        values = await asyncio.gather(*(loop.run_in_executor(executor, pow, number, 2) for number in range(20)))
        assert values == [number**2 for number in range(20)]
        with pytest.raises(ValueError, match="no such data"):
            await loop.run_in_executor(executor, fail)


def test_many_threads_can_use_one(cluster: pl.Cluster) -> None:
    with pl.Executor(2) as executor, concurrent.futures.ThreadPoolExecutor(8) as threads:

        def use(number: int) -> list[int]:
            return list(executor.map(abs, range(-number, 0)))

        for number, values in enumerate(threads.map(use, range(50))):
            assert values == list(range(number, 0, -1))


def test_the_functions_of_the_standard_library_take_its_futures(cluster: pl.Cluster) -> None:
    with pl.Executor(2) as executor:
        futures = [executor.submit(abs, -number) for number in range(50)]
        assert concurrent.futures.wait(futures, timeout=20).not_done == set()
        assert {future.result() for future in concurrent.futures.as_completed(futures, timeout=20)} == set(range(50))


def test_a_task_can_use_one(cluster: pl.Cluster) -> None:
    def nested(number: int) -> int:
        with pl.Executor(2) as executor:
            return sum(executor.map(abs, range(-number, 0)))

    assert pl.remote(nested)(10) == 55
    with pl.Executor(2) as executor:
        assert list(executor.map(nested, [3, 4])) == [6, 10]


def test_a_forked_child_can_use_its_parents(cluster: pl.Cluster) -> None:
    with pl.Executor(2) as executor:
        assert executor.submit(abs, -1).result() == 1
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writing, b"%d" % executor.submit(abs, -42).result(timeout=20))
            finally:
                os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        assert os.read(reading, 10) == b"42"
        os.close(reading)
        assert executor.submit(abs, -2).result() == 2


def test_it_cannot_be_sent(cluster: pl.Cluster) -> None:
    with pl.Executor(1) as executor, pytest.raises(TypeError, match="cannot be sent"):
        pickle.dumps(executor)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_workers": 0}, ValueError),
        ({"max_workers": -1}, ValueError),
        ({"initializer": 1}, TypeError),
        ({"max_tasks_per_child": 0}, ValueError),
        ({"max_tasks_per_child": "1"}, TypeError),
    ],
)
def test_wrong_arguments_are_told(cluster: pl.Cluster, options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        pl.Executor(**options)


def test_managers_of_multiprocessing_work_in_calls(cluster: pl.Cluster) -> None:
    import multiprocessing

    with multiprocessing.get_context("spawn").Manager() as manager, pl.Executor(2) as executor:
        shared = manager.list()
        list(executor.map(shared.append, range(5)))
        assert sorted(shared) == list(range(5))

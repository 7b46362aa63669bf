"""`pl.Pool`: the rules of `multiprocessing.Pool`, and what it does where that one hangs.

CPython's suite itself runs in `tests/conformance`.
"""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import multiprocessing.pool
import os
import pickle
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import faulty
import paceline as pl
from support import run_script, wait_until

STATE: list[Any] = []


def remember(value: Any) -> None:
    STATE.append(value)


def remembered(_: Any) -> list[Any]:
    return STATE


def process(_: Any = None) -> int:
    return os.getpid()


def hold(path: str) -> int:
    Path(f"{path}.{os.getpid()}").touch()
    deadline = time.monotonic() + 30
    while not os.path.exists(path) and time.monotonic() < deadline:
        time.sleep(0.005)
    return os.getpid()


def fail(item: Any) -> None:
    raise ValueError(f"no such data: {item}")


def note(path: str, item: int) -> int:
    (Path(path) / str(item)).touch()
    if item == 0:
        raise ValueError("the first one")
    return item


def test_it_connects_by_itself_and_takes_lambdas() -> None:
    done = run_script(
        """
        import paceline as pl

        with pl.Pool(2) as pool:
            print(pool.map(lambda x: x * x, range(4)), pool.apply(pow, (2,), {"exp": 3}))
        """
    )
    assert done.stdout == "[0, 1, 4, 9] 8\n", done
    assert done.stderr == "", done


def test_processes_are_started_at_once_and_may_be_more_than_cpus(cluster: pl.Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with pl.Pool(5) as pool:
        results = [pool.apply_async(hold, (str(gate),)) for _ in range(5)]
        wait_until(lambda: len(list(tmp_path.iterdir())) == 5, "five calls run")
        gate.touch()
        assert len({result.get(20) for result in results}) == 5


def test_every_slot_begins_with_the_initializer(cluster: pl.Cluster) -> None:
    with pl.Pool(2, remember, ("here",)) as pool:
        assert pool.map(remembered, range(6), 1) == [["here"]] * 6


def test_an_initializer_that_fails_ends_the_pool(cluster: pl.Cluster) -> None:
    pool = pl.Pool(2, fail, (1,))
    with pytest.raises(pl.PoolBroken, match="no such data"):
        pool.apply_async(process).get(20)
    pool.terminate()
    pool.join()


def test_slots_are_replaced_after_so_many_calls(cluster: pl.Cluster) -> None:
    with pl.Pool(1, maxtasksperchild=2) as pool:
        pids = [pool.apply(process) for _ in range(6)]
    assert pids[0] == pids[1]
    assert len(set(pids)) == 3
    # A chunk counts as one.
    with pl.Pool(1, maxtasksperchild=2) as pool:
        assert len(set(pool.map(process, range(12), 3))) == 2


@pytest.mark.parametrize("kind", ["apply", "apply_async", "map", "map_async", "imap", "imap_unordered"])
def test_a_killed_slot_ends_its_call_and_nothing_else(cluster: pl.Cluster, kind: str, tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")

    def kill() -> None:
        wait_until(lambda: list(tmp_path.iterdir()), "it runs")
        os.kill(int(next(tmp_path.iterdir()).suffix[1:]), signal.SIGKILL)

    with pl.Pool(2) as pool:
        begun = time.monotonic()
        threading.Thread(target=kill).start()
        with pytest.raises(pl.SlotDied, match="SIGKILL"):
            call(pool, kind, hold, gate)
        assert time.monotonic() - begun < 10
        assert pool.map(abs, range(-20, 0)) == list(range(20, 0, -1))
        pool.close()
        pool.join()


def call(pool: Any, kind: str, function: Any, item: Any) -> Any:
    """One call by any of the ways."""
    if kind == "apply":
        return pool.apply(function, (item,))
    if kind == "apply_async":
        return pool.apply_async(function, (item,)).get(20)
    if kind == "map":
        return pool.map(function, [item])[0]
    if kind == "map_async":
        return pool.map_async(function, [item]).get(20)[0]
    return getattr(pool, kind)(function, [item]).next(20)


WAYS = ["apply", "apply_async", "map", "map_async", "imap", "imap_unordered"]


@pytest.mark.parametrize("kind", WAYS)
def test_odd_exceptions_and_results_are_told(cluster: pl.Cluster, kind: str) -> None:
    with pl.Pool(2) as pool:
        odd = [
            (faulty.raising(lambda: faulty.Odd(3, "there")), faulty.Odd),
            (faulty.raising(lambda: faulty.Base("outside")), faulty.Base),
            (faulty.raising(lambda: SystemExit(3)), SystemExit),
            (faulty.raising(lambda: faulty.Irreducible("x")), faulty.Irreducible),
            (lambda _: threading.Lock(), multiprocessing.pool.MaybeEncodingError),
            (lambda _: faulty.Unreadable(), pl.ResultNotSerializable),
        ]
        for function, error in odd:
            with pytest.raises(error):
                call(pool, kind, function, 1)
        with pytest.raises(TypeError, match="cannot pickle"):
            call(pool, kind, process, threading.Lock())
        assert call(pool, kind, abs, -1) == 1


def test_a_map_waits_for_all_and_raises_the_first_error(cluster: pl.Cluster, tmp_path: Path) -> None:
    with pl.Pool(2) as pool:
        for run in (pool.starmap, lambda *args: pool.starmap_async(*args).get(20)):
            for old in tmp_path.iterdir():
                old.unlink()
            with pytest.raises(ValueError, match="the first one"):
                run(note, [(str(tmp_path), item) for item in range(20)], 1)
            assert len(list(tmp_path.iterdir())) == 20


def test_callbacks_are_called_before_the_result_is_ready(cluster: pl.Cluster) -> None:
    said: list[Any] = []
    called, go_on = threading.Event(), threading.Event()

    def tell(value: Any) -> None:
        called.set()
        assert go_on.wait(20)
        said.append((value, threading.current_thread() is threading.main_thread()))

    with pl.Pool(2) as pool:
        held = pool.apply_async(abs, (-3,), callback=tell)
        assert called.wait(20)
        assert not held.ready()
        go_on.set()
        assert held.get(20) == 3
        assert said == [(3, False)]
        result = pool.map_async(abs, [-1, -2], callback=tell)
        result.wait(20)
        assert result.successful()
        assert said[1:] == [([1, 2], False)]
        failed = pool.map_async(fail, [7], callback=tell, error_callback=tell)
        with pytest.raises(ValueError, match="no such data"):
            failed.get(20)
        assert isinstance(said[2][0], ValueError)
        assert not failed.successful()
        pool.map_async(abs, [], callback=tell).wait(20)
        assert said[3:] == [([], False)]


def test_callbacks_of_what_is_there_at_once_are_called_in_their_thread(cluster: pl.Cluster) -> None:
    threads: list[str] = []

    def tell(value: Any) -> None:
        threads.append(threading.current_thread().name)

    with pl.Pool(2) as pool:
        # Neither goes anywhere: one has no calls, the other an argument that cannot be sent.
        pool.map_async(abs, [], callback=tell).wait(20)
        pool.apply_async(abs, (threading.Lock(),), error_callback=tell).wait(20)
    assert len(threads) == 2
    assert threading.current_thread().name not in threads


def test_results_say_how_they_stand(cluster: pl.Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with pl.Pool(1) as pool:
        result = pool.apply_async(hold, (str(gate),))
        assert not result.ready()
        with pytest.raises(ValueError, match="not ready"):
            result.successful()
        result.wait(0.01)
        for late in (result.get, pool.imap(abs, [1]).next, pool.map_async(abs, [1]).get):
            with pytest.raises(multiprocessing.TimeoutError):
                late(0.01)
        gate.touch()
        assert isinstance(result.get(), int)
        assert result.ready()
        assert result.successful()


def test_imap_reads_ahead_a_bounded_number(cluster: pl.Cluster) -> None:
    pulled = 0

    def endless() -> Any:
        nonlocal pulled
        while True:
            yield pulled
            pulled += 1

    with pl.Pool(2) as pool:
        values = pool.imap(abs, endless())
        assert [next(values) for _ in range(100)] == list(range(100))
        before = -1
        while before != pulled:
            before = pulled
            time.sleep(0.1)
        assert pulled < 2000


def test_imap_takes_items_as_they_come(cluster: pl.Cluster) -> None:
    import queue

    items: queue.Queue[int | None] = queue.Queue()
    with pl.Pool(2) as pool:
        for kind in (pool.imap, pool.imap_unordered):
            values = kind(abs, iter(items.get, None))
            for number in range(3):
                items.put(-number)
                assert values.next(20) == number
            items.put(None)
            with pytest.raises(StopIteration):
                values.next(20)


def test_what_nobody_reads_runs_all_the_same(cluster: pl.Cluster, tmp_path: Path) -> None:
    pool = pl.Pool(2)
    pool.imap_unordered(NoteIn(tmp_path), range(1, 700))
    gc.collect()
    values = pool.imap(abs, range(-1500, 0))
    pool.close()
    pool.join()
    assert len(list(tmp_path.iterdir())) == 699
    assert list(values) == list(range(1500, 0, -1))


class NoteIn:
    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __call__(self, item: int) -> int:
        return note(self.path, item)


def test_states(cluster: pl.Cluster, tmp_path: Path) -> None:
    pool = pl.Pool(1)
    with pytest.raises(ValueError, match="still running"):
        pool.join()
    gate = tmp_path / "gate"
    result = pool.apply_async(hold, (str(gate),))
    pool.close()
    for method in (pool.apply, pool.apply_async):
        with pytest.raises(ValueError, match="Pool not running"):
            method(abs, (1,))
    for each in (pool.map, pool.map_async, pool.starmap, pool.starmap_async, pool.imap, pool.imap_unordered):
        with pytest.raises(ValueError, match="Pool not running"):
            each(abs, [1])
    with pytest.raises(ValueError, match="Pool not running"):
        pool.__enter__()
    assert not result.ready()
    gate.touch()
    pool.join()
    assert result.ready()
    pool.terminate()
    pool.join()
    assert "TERMINATE" in repr(pool)
    with pytest.raises(NotImplementedError, match="cannot be passed"):
        pickle.dumps(pool)


def test_terminate_ends_what_runs(cluster: pl.Cluster, tmp_path: Path) -> None:
    with pl.Pool(2) as pool:
        results = [pool.apply_async(hold, (str(tmp_path / "never"),)) for _ in range(5)]
        lazy = pool.imap(time.sleep, itertools.repeat(30))
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2, "two run")
        begun = time.monotonic()
    pool.join()
    assert time.monotonic() - begun < 5
    for result in results:
        with pytest.raises(BaseException):  # noqa: B017
            result.get(5)
    with pytest.raises(BaseException):  # noqa: B017
        lazy.next(5)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"processes": 0}, ValueError),
        ({"processes": -1}, ValueError),
        ({"initializer": 1}, TypeError),
        ({"maxtasksperchild": 0}, ValueError),
        ({"maxtasksperchild": 0.5}, ValueError),
        ({"maxtasksperchild": "12"}, ValueError),
    ],
)
def test_wrong_arguments_are_told(cluster: pl.Cluster, options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        pl.Pool(**options)


def test_one_that_is_forgotten_while_it_runs_is_warned_of(cluster: pl.Cluster) -> None:
    pool = pl.Pool(1)
    pid = pool.apply(process)
    with pytest.warns(ResourceWarning, match="unclosed running multiprocessing pool"):
        pool = None  # type: ignore[assignment]
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), "its slot has ended")


def test_the_end_of_the_program_terminates_it_silently() -> None:
    done = run_script(
        """
        import time
        import paceline as pl

        pool = pl.Pool(2)
        pool.map_async(time.sleep, [60] * 10)
        print(pool.apply(abs, (-1,)) if False else "begun")
        """,
        timeout=20,
    )
    assert done.stdout == "begun\n", done
    assert done.stderr == "", done


def test_a_task_and_a_forked_child_can_use_one(cluster: pl.Cluster) -> None:
    def nested(number: int) -> int:
        with pl.Pool(2) as pool:
            return sum(pool.map(abs, range(-number, 0)))

    assert pl.remote(nested)(10) == 55
    with pl.Pool(2) as pool:
        assert pool.map(nested, [3, 4]) == [6, 10]
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writing, b"%d" % nested(5))
            finally:
                os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        assert os.read(reading, 10) == b"15"
        os.close(reading)


def test_large_maps_keep_their_order(cluster: pl.Cluster) -> None:
    items = list(range(20_000))
    with pl.Pool(2) as pool:
        assert pool.map(abs, items) == items
        assert pool.map(abs, items, chunksize=1) == items
        assert pool.map_async(abs, items, chunksize=7).get(60) == items
        assert list(pool.imap(abs, items, chunksize=13)) == items
        assert sorted(pool.imap_unordered(abs, items, chunksize=13)) == items
        assert pool.starmap(pow, [(item, 1) for item in items], 3) == items

"""Waiting for many futures, of ours and of others."""

import concurrent.futures
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import paceline as pl


@pytest.fixture(scope="module", autouse=True)
def small_cluster() -> Iterator[pl.Cluster]:
    with pl.connect(cpus=2) as connected:
        # Both slots import this module now, and not while a test looks at the clock.
        slowly.map([0.1, 0.1], chunksize=1)
        yield connected


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


@pl.remote
def slowly(seconds: float, value: int = 0) -> int:
    time.sleep(seconds)
    return value


def test_all_of_them() -> None:
    futures = [slowly.submit(0.01, number) for number in range(6)]
    waited = pl.wait(futures)
    assert waited.done == futures
    assert waited.not_done == []


def test_some_of_them_in_the_order_of_the_input() -> None:
    futures = [slowly.submit(0.5), slowly.submit(0), slowly.submit(0.02), slowly.submit(0.5)]
    done, not_done = pl.wait(futures, n=2)
    assert done == futures[1:3]
    assert not_done == [futures[0], futures[3]]
    pl.wait(not_done)


def test_a_time_out() -> None:
    futures = [slowly.submit(0), slowly.submit(0.5)]
    started = time.monotonic()
    done, not_done = pl.wait(futures, timeout=0.1)
    assert time.monotonic() - started < 0.4
    assert (done, not_done) == (futures[:1], futures[1:])
    pl.wait(not_done)


def test_none_at_all() -> None:
    assert pl.wait([]) == ([], [])
    assert pl.wait([slowly.submit(0)], n=0)
    assert list(pl.as_completed([])) == []


@pytest.mark.parametrize("n", [-1, 2])
def test_a_bad_number(n: int) -> None:
    with pytest.raises(ValueError, match=f"n is {n}, but there are 1 futures"):
        pl.wait([slowly.submit(0)], n=n)


def test_futures_of_others(threads: ThreadPoolExecutor) -> None:
    gate = threading.Event()
    blocked = threads.submit(gate.wait)
    futures: list[concurrent.futures.Future[Any]] = [blocked, slowly.submit(0.01), threads.submit(abs, -1)]
    try:
        assert pl.wait(futures, n=2) == (futures[1:], [blocked])
        assert pl.wait(futures, timeout=0.01).not_done == [blocked]
        completed = pl.as_completed(futures)
        assert {next(completed), next(completed)} == set(futures[1:])
        gate.set()
        assert list(completed) == [blocked]
    finally:
        gate.set()


def test_as_they_end() -> None:
    futures = [slowly.submit(0.3, 1), slowly.submit(0.0, 2), slowly.submit(0.1, 3)]
    assert [future.result() for future in pl.as_completed(futures)] == [2, 3, 1]


def test_each_comes_once() -> None:
    future = slowly.submit(0.01)
    assert list(pl.as_completed([future, future])) == [future]


def test_exceptions_and_cancelled_ones_end_too() -> None:
    futures = [pl.remote(abs).submit("x"), *(slowly.submit(0.05) for _ in range(8))]
    futures[-1].cancel()
    assert set(pl.as_completed(futures)) == set(futures)


def test_as_completed_in_time() -> None:
    futures = [slowly.submit(0), slowly.submit(0.5), slowly.submit(0.5)]
    completed = pl.as_completed(futures, timeout=0.15)
    assert next(completed) is futures[0]
    with pytest.raises(TimeoutError, match="2 of 3 futures have not ended in time"):
        next(completed)
    pl.wait(futures)


def test_ended_ones_come_even_without_time() -> None:
    futures = [slowly.submit(0) for _ in range(3)]
    pl.wait(futures)
    assert len(list(pl.as_completed(futures, timeout=0))) == 3


def test_many() -> None:
    """WA-1"""
    futures = [slowly.submit(0, number) for number in range(10_000)]
    assert sorted(future.result() for future in pl.as_completed(futures)) == list(range(10_000))

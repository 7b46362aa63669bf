"""Futures, as the standard library knows them."""

import asyncio
import concurrent.futures
import pickle
import threading
import time
from collections.abc import Iterator

import pytest

import paceline as pl


@pytest.fixture(scope="module", autouse=True)
def small_cluster() -> Iterator[pl.Cluster]:
    with pl.connect(cpus=2) as connected:
        # Both slots import this module now, and not while a test looks at the clock.
        slowly.map([0.1, 0.1], chunksize=1)
        yield connected


@pl.remote
def slowly(seconds: float, value: int = 0) -> int:
    time.sleep(seconds)
    return value


@pl.remote
def fail() -> None:
    raise KeyError("remote")


def test_it_is_a_future() -> None:
    future = slowly.submit(0, 5)
    assert isinstance(future, pl.Future)
    assert isinstance(future, concurrent.futures.Future)
    assert future.result(timeout=10) == 5
    assert future.result() == 5
    assert future.exception() is None
    assert future.done()
    assert not future.running()
    assert not future.cancelled()
    assert not future.cancel()
    assert pl.Future[int]


def test_a_time_out() -> None:
    future = slowly.submit(0.3)
    with pytest.raises(TimeoutError):
        future.result(timeout=0.01)
    with pytest.raises(TimeoutError):
        future.exception(timeout=0.01)
    assert future.result() == 0


def test_an_exception() -> None:
    future = fail.submit()
    assert type(future.exception()) is KeyError
    with pytest.raises(KeyError):
        future.result()


def test_cancelling_what_waits() -> None:
    futures = [slowly.submit(0.1, number) for number in range(12)]
    last = futures[-1]
    assert last.cancel()
    assert last.cancelled()
    assert last.done()
    with pytest.raises(concurrent.futures.CancelledError):
        last.result()
    assert [future.result() for future in futures[:-1]] == list(range(11))
    assert repr(last) == f"<paceline.Future: task {last.task_id}, cancelled>"


def test_callbacks() -> None:
    called: list[object] = []
    ended = threading.Event()
    future = slowly.submit(0.05, 3)
    future.add_done_callback(called.append)
    future.add_done_callback(lambda _: ended.set())
    assert ended.wait(10)
    future.add_done_callback(called.append)
    assert called == [future, future]


def test_the_standard_library_waits_for_it() -> None:
    futures = [slowly.submit(0.01 * number, number) for number in range(5)]
    assert {future.result() for future in concurrent.futures.as_completed(futures)} == set(range(5))
    done, not_done = concurrent.futures.wait(futures)
    assert done == set(futures)
    assert not not_done


def test_awaiting() -> None:
    async def main() -> list[int]:
        first = await slowly.submit(0.01, 1)
        rest = await asyncio.gather(*(slowly.submit(0.01, number) for number in range(2, 5)))
        with pytest.raises(KeyError):
            await fail.submit()
        return [first, *rest]

    assert asyncio.run(main()) == [1, 2, 3, 4]


def test_its_outcome_cannot_be_set() -> None:
    future = slowly.submit(0)
    for attempt in (
        lambda: future.set_result(1),
        lambda: future.set_exception(ValueError()),
        future.set_running_or_notify_cancel,
    ):
        with pytest.raises(pl.PacelineError, match="comes from the cluster"):
            attempt()
    assert future.result() == 0


def test_it_cannot_be_pickled() -> None:
    with pytest.raises(TypeError, match="send its result"):
        pickle.dumps(slowly.submit(0))


def test_text() -> None:
    future = slowly.submit(0)
    future.result()
    assert repr(future) == f"<paceline.Future: task {future.task_id}, done>"

"""Actors whose methods stream, wait, or overlap."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import paceline as pl
from actor_cases import Async, Counter
from support import wait_until


@pytest.fixture(scope="module")
def cluster() -> Iterator[pl.Cluster]:
    with pl.connect(cpus=2) as cluster:
        yield cluster


def test_generators_stream(cluster: pl.Cluster) -> None:
    actor = Counter()
    assert list(actor.numbers(1000)) == list(range(1000))
    assert list(actor.numbers(0)) == []
    assert actor.count == -1


def test_a_stream_that_is_closed_early_closes_its_generator(cluster: pl.Cluster) -> None:
    actor = Counter(5)
    with actor.numbers(10**9) as numbers:
        assert [next(numbers) for _ in range(5)] == [0, 1, 2, 3, 4]
        assert actor.count == 5, "other calls go on in between"
    assert actor.count == -1
    assert list(numbers) == []
    actor.count = 5
    for number in actor.numbers(10**9):
        if number == 3:
            break
    gc.collect()
    wait_until(lambda: actor.count == -1, "the forgotten one to close")


def test_the_exception_of_a_generator_comes_in_its_place(cluster: pl.Cluster) -> None:
    stream = Counter().failing()
    assert (next(stream), next(stream)) == (1, 2)
    with pytest.raises(LookupError, match="third"):
        next(stream)
    with pytest.raises(StopIteration):
        next(stream)
    with pytest.raises(TypeError, match="generator"):
        Counter().failing.submit()


class Mixed:
    """Streams with a value in the middle that cannot be sent."""

    closed = 0

    def plain(self, before: int) -> Iterator[Any]:
        try:
            yield from range(before)
            yield threading.Lock()
            yield "never"
        finally:
            self.closed += 1


class AsyncMixed(Mixed):
    async def later(self, before: int) -> Any:
        try:
            for number in range(before):
                yield number
            yield threading.Lock()
        finally:
            await asyncio.sleep(0)
            self.closed += 1


@pytest.mark.parametrize("before", [0, 1, 2, 30])
def test_values_come_before_one_that_cannot_be_sent(cluster: pl.Cluster, before: int) -> None:
    first, second = pl.remote(cpus=0)(Mixed)(), pl.remote(cpus=0)(AsyncMixed)()
    for stream, actor in ((first.plain(before), first), (second.later(before), second)):
        for number in range(before):
            assert next(stream) == number
        with pytest.raises(pl.ResultNotSerializable, match="lock"):
            next(stream)
        assert list(stream) == []
        wait_until(lambda actor=actor: actor.closed == 1, "the generator to close")  # type: ignore[misc]


def test_coroutines_overlap(cluster: pl.Cluster) -> None:
    actor = Async()
    waiting = [actor.wait.submit(number) for number in range(100)]
    actor.set()
    assert [future.result(timeout=10) for future in waiting] == list(range(100))
    assert actor.wait.map(range(5)) == [0, 1, 2, 3, 4]


def test_async_generators_stream(cluster: pl.Cluster) -> None:
    actor = Async()

    async def main() -> list[int]:
        some = [number async for number in actor.numbers(100)]
        stream = actor.numbers(10**9)
        async for number in stream:
            if number == 10:
                break
        await stream.aclose()
        return some

    assert asyncio.run(main()) == list(range(100))
    assert actor.closed is True
    assert list(actor.numbers(3)) == [0, 1, 2]


def test_plain_methods_run_on_so_many_threads(cluster: pl.Cluster) -> None:
    actor = Counter.options(concurrency=4)()
    began = time.monotonic()
    futures = [actor.sleep.submit(0.3) for _ in range(8)]
    assert [future.result(timeout=10) for future in futures] == [0.3] * 8
    assert 0.55 < time.monotonic() - began < 1.5, "four at a time"


def test_a_call_with_a_timeout_is_stopped_and_the_actor_goes_on(cluster: pl.Cluster) -> None:
    actor = Counter()
    pid = actor.pid()
    with pytest.raises(pl.TaskTimeout):
        actor.sleep.options(timeout=0.1)(100)
    assert actor.pid() == pid
    slow = Counter.options(timeout=0.1)()
    with pytest.raises(pl.TaskTimeout):
        slow.sleep(100)

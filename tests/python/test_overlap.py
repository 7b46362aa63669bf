"""Objects in a slot whose calls overlap, as the core begins and answers them. The face of it is in test_actors.py."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest

import paceline as pl
from paceline._functions import pack
from paceline._slot import CONSTRUCTOR, METHOD
from support.waiting import wait_until

CALL: dict[str, Any] = {"wait": None, "retries": 0, "retry_on": (), "timeout": None, "priority": 0}


class Lodger:
    """An object in the slot of a group of one."""

    def __init__(self, cluster: pl.Cluster, kind: type, concurrency: int = 1, *args: Any) -> None:
        self.group = pl.group(1, cluster=cluster)
        payload = CONSTRUCTOR + str(concurrency).encode() + b"\0" + pack(kind)[0]
        self.group._native.function(payload, kind.__name__, 0, **CALL).call(args, {})

    def submit(self, name: str, *args: Any, **options: Any) -> Any:
        payload = METHOD + b"Lodger\0" + name.encode()
        return self.group._native.function(payload, name, 0, **{**CALL, **options}).submit(args, {})

    def call(self, name: str, *args: Any) -> Any:
        return self.submit(name, *args).result(timeout=10)


class Waiting:
    """Its coroutines wait for each other."""

    def __init__(self) -> None:
        self.began: list[int] = []
        self.open = asyncio.Event()
        self.thread = threading.get_ident()
        self.closed = 0

    async def wait(self, number: int) -> int:
        self.began.append(number)
        await self.open.wait()
        return number

    async def release(self) -> None:
        self.open.set()

    def plain(self) -> bool:
        return threading.get_ident() == self.thread

    async def fail(self) -> None:
        raise LookupError("odd")

    async def leave(self) -> None:
        raise SystemExit(3)

    async def stubborn(self) -> None:
        while True:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                continue

    async def who(self) -> int:
        await asyncio.sleep(0)
        found = pl.current()
        assert found is not None
        return found.task

    async def numbers(self) -> Any:
        try:
            for number in range(1000):
                yield number
        finally:
            self.closed += 1


class Busy:
    def __init__(self) -> None:
        self.barrier = threading.Barrier(3)

    def meet(self) -> int:
        return self.barrier.wait(10)

    def spin(self) -> None:
        while True:
            time.sleep(0.01)

    def pid(self) -> int:
        return os.getpid()


@pytest.fixture
def cluster() -> Iterator[pl.Cluster]:
    with pl.connect(cpus=1) as cluster:
        yield cluster


def test_coroutines_overlap_and_begin_in_order(cluster: pl.Cluster) -> None:
    lodger = Lodger(cluster, Waiting)
    waiting = [lodger.submit("wait", number) for number in range(700)]
    lodger.submit("release").result(timeout=10)
    assert [future.result(timeout=10) for future in waiting] == list(range(700))
    assert lodger.call(".get", "began") == list(range(700))


def test_everything_of_an_object_with_coroutines_runs_in_its_loop(cluster: pl.Cluster) -> None:
    assert Lodger(cluster, Waiting).call("plain") is True


def test_what_a_coroutine_raises_arrives_and_the_loop_goes_on(cluster: pl.Cluster) -> None:
    lodger = Lodger(cluster, Waiting)
    with pytest.raises(LookupError, match="odd"):
        lodger.call("fail")
    with pytest.raises(SystemExit):
        lodger.call("leave")
    assert lodger.call("plain")


def test_a_coroutine_is_cancelled_and_the_others_go_on(cluster: pl.Cluster) -> None:
    lodger = Lodger(cluster, Waiting)
    first, second = lodger.submit("wait", 1), lodger.submit("wait", 2)
    wait_until(lambda: lodger.call(".get", "began") == [1, 2], "both to begin")
    assert pl.cancel(first)
    with pytest.raises(CancelledError):
        first.result(timeout=10)
    lodger.call("release")
    assert second.result(timeout=10) == 2


def test_a_coroutine_that_takes_too_long_is_stopped(cluster: pl.Cluster) -> None:
    lodger = Lodger(cluster, Waiting)
    with pytest.raises(pl.TaskTimeout):
        lodger.submit("wait", 1, timeout=0.05).result(timeout=10)
    assert lodger.call("plain")


def test_a_coroutine_that_will_not_stop_takes_its_slot_along(cluster: pl.Cluster) -> None:
    lodger = Lodger(cluster, Waiting)
    with pytest.raises((pl.TaskTimeout, pl.GroupLost)):
        lodger.submit("stubborn", timeout=0.05).result(timeout=10)


def test_a_coroutine_knows_its_task(cluster: pl.Cluster) -> None:
    lodger = Lodger(cluster, Waiting)
    futures = [lodger.submit("who") for _ in range(5)]
    assert [future.result(timeout=10) for future in futures] == [future.task_id for future in futures]


def test_threads_overlap(cluster: pl.Cluster) -> None:
    lodger = Lodger(cluster, Busy, 3)
    futures = [lodger.submit("meet") for _ in range(3)]
    assert sorted(future.result(timeout=10) for future in futures) == [0, 1, 2]


def test_a_thread_is_interrupted(cluster: pl.Cluster) -> None:
    lodger = Lodger(cluster, Busy, 2)
    pid = lodger.call("pid")
    spinning = lodger.submit("spin")
    wait_until(spinning.running, "it to run")
    assert pl.cancel(spinning)
    with pytest.raises(CancelledError):
        spinning.result(timeout=10)
    assert lodger.call("pid") == pid


def test_values_of_a_generator_come_in_batches_and_closing_ends_it(cluster: pl.Cluster) -> None:
    lodger = Lodger(cluster, Waiting)
    number, values, ended, error = lodger.call(".stream", "numbers", (), {}, 10)
    assert values == list(range(len(values)))
    assert 0 < len(values) <= 10
    assert (ended, error) == (False, None)
    lodger.call(".close", number)
    assert lodger.call(".get", "closed") == 1
    assert lodger.call(".pull", number, 10)[1:] == ([], True, None)

"""The faults of `test_faults.py` in executors and pools: each ends as documented and in bounded time, and the pool
works afterwards; an executor that is broken by it is followed by one that works."""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

import faulty
import paceline as pl
from test_faults import FAULTS, Fault

# Beside what a fault may take itself: slots of its own have to start.
START = 10.0


def executed(executor: pl.Executor, function: Any, item: Any) -> Any:
    return executor.submit(function, item).result(30)


def applied_later(pool: pl.Pool, function: Any, item: Any) -> Any:
    return pool.apply_async(function, (item,)).get(30)


def mapped(pool: pl.Pool, function: Any, item: Any) -> Any:
    return pool.map(function, [None, item], 1)[1]


def lazily(pool: pl.Pool, function: Any, item: Any) -> Any:
    return pool.imap(function, [item]).next(30)


EXECUTOR: dict[str, Callable[..., Any]] = {"submit": executed}
# The others share what these do.
POOL: dict[str, Callable[..., Any]] = {"apply_async": applied_later, "map": mapped, "imap": lazily}


@pytest.fixture(scope="module")
def shared() -> Iterator[pl.Cluster]:
    with pl.connect(cpus=2) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())


def expected(fault: Fault, dead: type[BaseException], loops: bool) -> type[BaseException] | None:
    """What a fault raises here, where nothing is run again."""
    if fault.deaths or (fault.raises is not None and issubclass(fault.raises, pl.SlotDied) and "died" in fault.says):
        return dead
    if loops and fault.in_loops is not None:
        return fault.in_loops
    return fault.raises


def outcome(run: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return run(), None
    except BaseException as error:
        return None, error


def check(fault: Fault, value: Any, error: BaseException | None, kind: type[BaseException] | None) -> None:
    if kind is None:
        if error is not None:
            raise error
        assert value == fault.value
    elif kind is pl.ArgumentNotSerializable and not isinstance(error, kind):
        # The pickler's own, with ours as a note.
        assert error is not None
        assert any("cannot send" in note for note in error.__notes__), error.__notes__
    else:
        assert isinstance(error, kind), repr(error)


@pytest.mark.parametrize("way", EXECUTOR)
@pytest.mark.parametrize("name", FAULTS)
def test_executor(shared: pl.Cluster, tmp_path: Path, name: str, way: str) -> None:
    fault = FAULTS[name]
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        item = fault.item(tmp_path, stack)
        executor = stack.enter_context(pl.Executor(1))
        value, error = outcome(lambda: EXECUTOR[way](executor, faulty.guarded(fault.function), item))
        broken = executor._broken is not None
        check(fault, value, error, expected(fault, BrokenProcessPool, False))
        if not broken and not fault.harms:
            assert executor.submit(abs, -1).result(20) == 1
    assert time.monotonic() - began < fault.seconds + START
    with pl.Executor(1) as executor:
        assert executor.submit(abs, -1).result(20) == 1


@pytest.mark.parametrize("way", POOL)
@pytest.mark.parametrize("name", FAULTS)
def test_pool(shared: pl.Cluster, tmp_path: Path, name: str, way: str) -> None:
    fault = FAULTS[name]
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        item = fault.item(tmp_path, stack)
        pool = stack.enter_context(pl.Pool(1))
        value, error = outcome(lambda: POOL[way](pool, faulty.guarded(fault.function), item))
        check(fault, value, error, expected(fault, pl.SlotDied, way != "apply_async"))
        if not fault.harms:
            assert pool.map_async(abs, [-1, -2]).get(20) == [1, 2]
    assert time.monotonic() - began < fault.seconds + START

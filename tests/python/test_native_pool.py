"""Pools as the native module has them: slots that run standing calls before anything else."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import paceline as pl
from paceline import _native
from paceline._functions import pack
from support import wait_until

OPTIONS: dict[str, Any] = {"wait": None, "retries": 3, "retry_on": ("slot", "node"), "timeout": None, "priority": 0}
NEEDS: dict[str, Any] = {"cpus": 0, "gpus": 0, "memory": 0, "resources": (), "placement": None}

seen: list[Any] = []


def apply(value: object) -> None:
    seen.append(value)


def look() -> tuple[int, list[Any]]:
    return os.getpid(), seen


def look_after(seconds: float) -> tuple[int, list[Any]]:
    time.sleep(seconds)
    return look()


def fail() -> None:
    raise ValueError("not today")


def end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Opened:
    def __init__(self, cluster: pl.Cluster) -> None:
        self._session = cluster._session

    def __call__(self, size: int, *, eager: bool = True, **options: Any) -> Pool:
        return Pool(self._session.pool(size, eager=eager, **options, **NEEDS))


class Pool:
    """The native one, which takes functions."""

    def __init__(self, native: _native.Pool) -> None:
        self.native = native

    def function(self, function: Callable[..., Any], **options: Any) -> _native.Function:
        return self.native.function(pack(function)[0], function.__name__, **{**OPTIONS, **options})

    def prepare(self, function: Callable[..., Any], *args: object) -> None:
        self.native.prepare(pack(function)[0], function.__name__, args, {})

    def update(self, function: Callable[..., Any], *args: object, **options: Any) -> pl.Future[Any]:
        return self.native.update(pack(function)[0], function.__name__, args, {}, **options)


@pytest.fixture
def pools() -> Iterator[Opened]:
    with pl.connect(cpus=2) as cluster:
        yield Opened(cluster)


def test_every_slot_is_prepared_and_updated_in_order(pools: Opened) -> None:
    pool = pools(3)
    pool.prepare(apply, "first")
    assert pool.native.ready(3, 30)
    found = pool.function(look_after).map([0.05] * 12, False, 1, None)
    assert {tuple(values) for _, values in found} == {("first",)}
    assert len({process for process, _ in found}) == 3
    updates = [pool.update(apply, number) for number in range(5)]
    after = pool.function(look_after).map([0.05] * 12, False, 1, None)
    assert all(update.result() is None for update in updates)
    assert {tuple(values) for _, values in after} == {("first", 0, 1, 2, 3, 4)}
    assert {process for process, _ in after} == {process for process, _ in found}
    assert [prepared for _, _, prepared in pool.native.places()] == [True] * 3


def test_a_slot_that_was_killed_is_replaced_by_one_with_the_same_history(pools: Opened) -> None:
    pool = pools(2)
    pool.prepare(apply, "first")
    pool.update(apply, "second").result()
    for process in {process for process, _ in pool.function(look_after).map([0.1] * 4, False, 1, None)}:
        os.kill(process, signal.SIGKILL)
    after = pool.function(look_after).map([0.1] * 4, False, 1, None)
    assert [values for _, values in after] == [["first", "second"]] * 4


def test_slots_of_a_pool_serve_nobody_else(pools: Opened) -> None:
    pool = pools(2)
    pool.prepare(apply, "mine")
    ours = {pool.function(look).call((), {})[0] for _ in range(5)}
    other = pools(2)
    assert all(values == [] for _, values in other.function(look).map([()] * 8, True, 1, None))
    pool.native.close()
    wait_until(lambda: not any(os.path.exists(f"/proc/{process}") for process in ours), "the slots are gone")
    remote = pl.remote(look)
    assert all(values == [] for _, values in [remote() for _ in range(8)])
    with pytest.raises(Exception) as closed:
        pool.function(look).call((), {})
    assert type(closed.value).__name__ == "CancelledError"


def test_what_prepares_and_fails_breaks_the_pool(pools: Opened) -> None:
    pool = pools(1)
    pool.prepare(fail)
    with pytest.raises(
        pl.PoolBroken, match="fail failed in 3 slots in a row, at last with ValueError: not today"
    ) as why:
        pool.function(look).call((), {})
    assert isinstance(why.value.__cause__, ValueError)
    assert (why.value.call, why.value.tries) == ("fail", 3)
    assert isinstance(pool.native.broken(), pl.PoolBroken)
    deadly = pools(1)
    deadly.prepare(end)
    with pytest.raises(pl.PoolBroken, match=r"end ended its slot in 3 slots in a row; the last one: .*SIGKILL"):
        deadly.native.ready(1, 30)
    update = pools(1)
    update.prepare(apply, 1)
    with pytest.raises(pl.PoolBroken, match="not today"):
        update.update(fail).result(30)
    strict = pools(1, restarts=0)
    with pytest.raises(pl.PoolBroken, match=r"slot \d+ on .* killed by SIGKILL"):
        strict.function(end).call((), {})


def test_an_actor_runs_calls_in_order_and_at_most_once(pools: Opened) -> None:
    actor = pools(1, once=True, restarts=1)
    actor.prepare(apply, "built")
    note, show = actor.function(apply), actor.function(look)
    for number in range(500):
        note.submit((number,), {})
    process, values = show.call((), {})
    assert values == ["built", *range(500)]
    slow = actor.function(look_after)
    began = slow.submit((60,), {})
    waiting = show.submit((), {})
    wait_until(began.running, "the call has begun")
    start = time.monotonic()
    os.kill(process, signal.SIGKILL)
    with pytest.raises(
        pl.ActorDied, match=r"ended with its actor, which died with slot .*SIGKILL.*not run again"
    ) as died:
        began.result(10)
    assert time.monotonic() - start < 1
    assert (died.value.ran, died.value.again, died.value.deaths) == (True, True, 1)
    again, values = waiting.result(10)
    assert (again != process, values) == (True, ["built"])
    os.kill(again, signal.SIGKILL)
    wait_until(lambda: isinstance(actor.native.broken(), pl.ActorDied), "the actor is known to be dead")
    with pytest.raises(pl.ActorDied, match="it had not begun"):
        show.call((), {})


def test_slots_are_used_up_and_replaced(pools: Opened) -> None:
    pool = pools(1, calls_per_slot=2)
    processes = [pool.function(look).call((), {})[0] for _ in range(6)]
    assert len(set(processes)) == 3
    assert processes[0::2] == processes[1::2]


def test_a_finished_pool_gives_its_slots_back(pools: Opened) -> None:
    pool = pools(2, eager=False)
    futures = [pool.function(look_after).submit((0.1,), {}) for _ in range(4)]
    pool.native.finish()
    assert pool.native.join(30)
    assert all(future.done() for future in futures)
    assert pool.native.places() == []


def test_what_has_not_begun_can_be_cancelled(pools: Opened) -> None:
    pool = pools(1)
    first = pool.function(look_after).submit((0.5,), {})
    rest = [pool.function(look).submit((), {}) for _ in range(9)]
    wait_until(first.running, "the call has begun")
    assert pool.native.cancel_waiting() == 9
    assert all(future.cancelled() for future in rest)
    assert first.result(30)[1] == []
    assert pool.native.join(30)


def test_history_is_bounded_and_can_be_cut(pools: Opened) -> None:
    pool = pools(1, history=1000)
    pool.prepare(apply, "first")

    def too_much() -> None:
        for _ in range(100):
            pool.update(apply, "x" * 100)

    with pytest.raises(pl.HistoryFull, match=r"apply does not fit: the updates of the pool take .* of 1000 bytes"):
        too_much()
    for number in range(100):
        pool.update(apply, "y" * 10 + str(number), replaces=b"y").result()
    size = pool.native.history
    assert size < 1000
    state = pool.function(look).submit((), {})
    process, values = state.result()
    pool.native.cut(state.task_id, pack(apply)[0], "apply", ("everything",), {})
    assert pool.native.history < size
    pool.update(apply, "last")
    assert pool.function(look).call((), {}) == (process, [*values, "last"])
    os.kill(process, signal.SIGKILL)
    assert pool.function(look).call((), {})[1] == ["first", "everything", "last"]

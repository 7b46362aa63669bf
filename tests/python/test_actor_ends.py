"""How actors end: by their owner, by themselves, by a signal; and how they begin again."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest

import paceline as pl
from actor_cases import Counter, Saved, is_alive
from support import wait_until


@pytest.fixture(scope="module")
def cluster() -> Iterator[pl.Cluster]:
    with pl.connect(cpus=2) as cluster:
        yield cluster


def test_destroy_ends_the_process_and_later_use_says_so(cluster: pl.Cluster) -> None:
    actor = Counter()
    pid = actor.pid()
    method = actor.add
    running = actor.sleep.submit(100)
    wait_until(running.running, "the call to run")
    pl.destroy(actor)
    pl.destroy(actor)
    wait_until(lambda: not is_alive(pid), "the process to end")
    with pytest.raises(CancelledError):
        running.result(timeout=10)
    for use in (lambda: actor.add(), method, lambda: method.submit(), lambda: actor.count, lambda: actor.numbers(3)):
        with pytest.raises(pl.ActorDied, match="destroyed"):
            use()
    with pytest.raises(TypeError):
        pl.destroy(7)  # type: ignore[arg-type]


def test_the_last_proxy_ends_the_actor_after_its_calls(cluster: pl.Cluster) -> None:
    actor = Counter()
    pid = actor.pid()
    future = actor.sleep.submit(0.3)
    last = actor.add.submit(4)
    del actor
    gc.collect()
    assert (future.result(timeout=10), last.result(timeout=10)) == (0.3, 4)
    wait_until(lambda: not is_alive(pid), "the process to end")


def test_a_method_keeps_its_actor(cluster: pl.Cluster) -> None:
    add = Counter().add
    gc.collect()
    assert (add(1), add(1)) == (1, 2)


def test_more_actors_in_sequence_than_there_is_room_for() -> None:
    with pl.connect(cpus=2):
        kind = Counter.options(cpus=1)
        for _ in range(6):
            pair = [kind(), kind()]
            assert [actor.add() for actor in pair] == [1, 1]
            pl.destroy(pair[0])
            del pair


def test_killing_an_actor_during_a_call_is_told_within_a_second(cluster: pl.Cluster) -> None:
    actor = Counter()
    pid = actor.pid()
    running, waiting = actor.sleep.submit(100), actor.add.submit()
    wait_until(running.running, "the call to run")
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(pl.ActorDied) as died:
        running.result(timeout=10)
    assert time.monotonic() - began < 1
    assert (died.value.ran, died.value.again, died.value.signal) == (True, False, 9)
    assert died.value.slot
    assert "restarts" in str(died.value)
    with pytest.raises(pl.ActorDied) as died:
        waiting.result(timeout=10)
    assert died.value.ran is False
    with pytest.raises(pl.ActorDied):
        actor.add()


def test_with_restarts_the_next_call_works(cluster: pl.Cluster) -> None:
    actor = Counter.options(restarts=2)(5)
    assert actor.add() == 6
    for _ in range(2):
        with pytest.raises(pl.ActorDied) as died:
            actor.die()
        assert died.value.again
        assert actor.add() == 6, "the constructor ran again"
    with pytest.raises(pl.ActorDied):
        actor.die()
    with pytest.raises(pl.ActorDied):
        actor.add()


def test_a_restarted_actor_begins_with_its_checkpoint(cluster: pl.Cluster) -> None:
    actor = Saved.options(restarts=3)()
    for number in range(10):
        actor.add(number)
    assert actor.born == "new"
    wait_until(lambda: actor._pl_home._saving is False, "the checkpoint")
    with pytest.raises(pl.ActorDied):
        actor.die()
    assert (actor.add(0), actor.born) == (45, "again")

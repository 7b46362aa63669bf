"""Actors: objects of the user's classes that live in slots."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

import paceline as pl
from support import wait_until


@pl.remote(cpus=0)
class Counter:
    """It counts."""

    limit = 100

    def __init__(self, start: int = 0, *, name: str = "", restarts: int = 0) -> None:
        self.count = start
        self.name = name
        self.restarts = restarts
        self.order: list[int] = []

    def add(self, step: int = 1) -> int:
        self.count += step
        return self.count

    def note(self, number: int) -> None:
        self.order.append(number)

    def fail(self, message: str) -> None:
        raise LookupError(message)

    def pid(self) -> int:
        return os.getpid()

    def sleep(self, seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def opened(self) -> Any:
        return threading.Lock()

    @property
    def double(self) -> int:
        return 2 * self.count

    @double.setter
    def double(self, value: int) -> None:
        self.count = value // 2

    @staticmethod
    def three() -> int:
        return 3

    @classmethod
    def called(cls) -> str:
        return cls.__name__

    def numbers(self, count: int) -> Iterator[int]:
        try:
            yield from range(count)
        finally:
            self.count = -1

    def failing(self) -> Iterator[int]:
        yield 1
        yield 2
        raise LookupError("third")

    def __len__(self) -> int:
        return 7

    def __call__(self) -> int:
        return 8


@pl.remote(cpus=0)
class Broken:
    def __init__(self, message: str) -> None:
        raise ValueError(message)


@pl.remote(cpus=0)
class Async:
    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.closed = False

    async def wait(self, number: int) -> int:
        await self.event.wait()
        return number

    async def set(self) -> None:
        self.event.set()

    async def numbers(self, count: int) -> AsyncIterator[int]:
        try:
            for number in range(count):
                yield number
        finally:
            self.closed = True


@pl.remote(cpus=0)
class Saved:
    def __init__(self) -> None:
        self.total = 0
        self.born = "new"

    def add(self, number: int) -> int:
        self.total += number
        return self.total

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def __checkpoint__(self) -> int:
        return self.total

    def __restore__(self, state: int) -> None:
        self.total = state
        self.born = "again"


@pytest.fixture(scope="module")
def cluster() -> Iterator[pl.Cluster]:
    with pl.connect(cpus=2) as cluster:
        yield cluster


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_object_lives_in_a_process_of_its_own(cluster: pl.Cluster) -> None:
    first, second = Counter(10), Counter()
    assert first.add(5) == 15
    assert first.add(step=1) == 16
    assert second.add() == 1
    assert len({first.pid(), second.pid(), os.getpid()}) == 3


def test_the_constructors_arguments_are_the_users_alone(cluster: pl.Cluster) -> None:
    actor = Counter(3, name="mine", restarts=9)
    assert (actor.name, actor.restarts) == ("mine", 9)


def test_attributes_are_read_written_created_and_deleted(cluster: pl.Cluster) -> None:
    actor = Counter(1)
    assert (actor.count, actor.limit, actor.double) == (1, 100, 2)
    actor.count = 5
    actor.fresh = {"a": [1]}
    actor.double = 40
    assert (actor.count, actor.fresh, actor.add()) == (20, {"a": [1]}, 21)
    actor.submit, actor.options, actor.original = 1, 2, 3
    assert (actor.submit, actor.options, actor.original) == (1, 2, 3), "no name is the proxy's own"
    del actor.fresh
    with pytest.raises(AttributeError, match="fresh"):
        _ = actor.fresh
    assert not hasattr(actor, "nothing")


def test_reserved_names_are_refused(cluster: pl.Cluster) -> None:
    actor = Counter()
    with pytest.raises(AttributeError, match="_pl_"):
        actor._pl_x = 1
    with pytest.raises(AttributeError, match="two underscores"):
        actor.__dict = 1
    with pytest.raises(AttributeError):
        _ = actor.__missing__
    with pytest.raises(TypeError):
        actor()
    with pytest.raises(TypeError):
        len(actor)
    with pytest.raises(TypeError, match="_pl_"):
        pl.remote(type("Odd", (), {"_pl_home": 1}))


def test_attributes_come_in_order_with_calls(cluster: pl.Cluster) -> None:
    actor = Counter()
    futures = [actor.add.submit() for _ in range(100)]
    assert actor.count == 100
    assert [future.result() for future in futures] == list(range(1, 101))


def test_calls_of_many_threads_run_one_at_a_time_in_order(cluster: pl.Cluster) -> None:
    actor = Counter()

    def work(first: int) -> None:
        for number in range(first, first + 50):
            actor.note(number)

    threads = [threading.Thread(target=work, args=(1000 * index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    order = actor.order
    assert len(order) == 200
    for index in range(4):
        mine = [number for number in order if number // 1000 == index]
        assert mine == sorted(mine)


def test_actors_run_at_the_same_time(cluster: pl.Cluster) -> None:
    actors = [Counter() for _ in range(3)]
    began = time.monotonic()
    for future in [actor.sleep.submit(0.3) for actor in actors]:
        future.result()
    assert time.monotonic() - began < 0.8


def test_an_actor_survives_its_exceptions(cluster: pl.Cluster) -> None:
    actor = Counter(1)
    pid = actor.pid()
    for _ in range(3):
        with pytest.raises(LookupError, match="odd") as raised:
            actor.fail("odd")
        assert isinstance(raised.value.__cause__, pl.RemoteTraceback)
    with pytest.raises(pl.ResultNotSerializable):
        actor.opened()
    with pytest.raises(pl.ArgumentNotSerializable):
        actor.add(threading.Lock())
    with pytest.raises(TypeError):
        actor.add(1, 2, 3)
    assert (actor.pid(), actor.add()) == (pid, 2)


def test_a_failed_future_names_its_method(cluster: pl.Cluster) -> None:
    actor = Counter()
    future = actor.fail.submit("later")
    with pytest.raises(LookupError) as raised:
        future.result()
    assert "in fail" in str(raised.value.__cause__)
    with pytest.raises(LookupError):
        future.result()


def test_a_constructor_that_raises_raises_at_once(cluster: pl.Cluster) -> None:
    began = time.monotonic()
    with pytest.raises(ValueError, match="no good") as raised:
        Broken("no good")
    assert time.monotonic() - began < 5
    assert isinstance(raised.value.__cause__, pl.RemoteTraceback)
    with pytest.raises(ValueError, match="later"):
        Broken.submit("later").result(timeout=10)


def test_a_future_of_an_actor(cluster: pl.Cluster) -> None:
    futures = [Counter.submit(number) for number in range(4)]
    assert [future.result(timeout=10).count for future in futures] == [0, 1, 2, 3]  # type: ignore[attr-defined]

    async def main() -> int:
        actor: Any = await Counter.submit(7)
        value: int = await actor.add.submit(1)
        return value

    assert asyncio.run(main()) == 8


def test_the_class_is_still_there(cluster: pl.Cluster) -> None:
    assert Counter.original(3).add() == 4
    assert (Counter.__name__, Counter.__doc__, Counter.limit) == ("Counter", "It counts.", 100)
    assert isinstance(Counter.original(), Counter)

    class Twice(Counter):  # type: ignore[misc, valid-type]
        def add(self, step: int = 1) -> int:
            return int(super().add(2 * step))

    assert Twice(1).add(2) == 5
    assert pl.remote(cpus=0)(Twice)(1).add(2) == 5
    actor = Counter()
    assert (actor.three(), actor.called()) == (3, "Counter")
    assert repr(Counter).startswith("<paceline.ActorClass")


def test_wrong_options_are_named() -> None:
    with pytest.raises(TypeError, match="unknown option 'tpus'"):
        pl.remote(tpus=1)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="unknown option 'lifetime'"):
        Counter.options(lifetime=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="at most once"):
        pl.remote(retries=3)(Counter.original)
    with pytest.raises(TypeError, match="for classes"):
        pl.remote(restarts=1)(len)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="concurrency"):
        Counter.options(concurrency=0)
    with pytest.raises(ValueError, match="needs a name"):
        Counter.options(detached=True)
    with pytest.raises(TypeError, match="not a int"):
        pl.remote(7)  # type: ignore[call-overload]


def test_repr_says_where(cluster: pl.Cluster) -> None:
    actor = Counter()
    assert "Counter" in repr(actor)
    assert "slot" in repr(actor)
    assert repr(actor.add) == "<paceline.Method add of Counter>"
    pl.destroy(actor)
    assert "destroyed" in repr(actor)


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


def test_maps_of_methods(cluster: pl.Cluster) -> None:
    actor = Counter()
    assert actor.add.map([1, 2, 3]) == [1, 3, 6]
    assert actor.add.starmap([(1,), (1,)]) == [7, 8]
    assert list(actor.add.imap(iter([1, 1]), lookahead=1)) == [9, 10]


def test_broadcast_has_one_answer_each(cluster: pl.Cluster) -> None:
    actors = [Counter(number) for number in range(3)]
    answers = pl.broadcast(actors, "add", 10, timeout=10)
    assert [answer.value for answer in answers] == [10, 11, 12]
    assert [answer.actor for answer in answers] == actors
    assert all(answer.ok for answer in answers)
    actors[1].sleep.submit(1)
    pl.destroy(actors[2])
    answers = pl.broadcast(actors, "add", 1, timeout=0.3)
    assert [answer.timed_out for answer in answers] == [False, True, False]
    assert isinstance(answers[2].error, pl.ActorDied)
    with pytest.raises(TimeoutError):
        answers[1].result()
    assert pl.broadcast([], "add") == []


def test_an_actor_goes_to_tasks_and_to_other_actors(cluster: pl.Cluster) -> None:
    actor = Counter(1)

    def use(other: Any) -> int:
        value: int = other.add(10)
        return value

    assert pl.remote(use)(actor) == 11
    assert actor.count == 11
    assert pickle.loads(pickle.dumps(actor)).add(1) == 12
    assert pickle.loads(pickle.dumps(actor)) == actor


def test_actors_make_actors(cluster: pl.Cluster) -> None:
    class Parent:
        def __init__(self) -> None:
            self.child = Counter(5)

        def ask(self) -> int:
            value: int = self.child.add()
            return value

    parent = pl.remote(cpus=0)(Parent)()
    assert [parent.ask(), parent.ask()] == [6, 7]
    assert pl.remote(lambda: Counter(3).add())() == 4


def test_a_name_finds_its_actor(cluster: pl.Cluster) -> None:
    actor = Counter.options(name="known")(4)
    found = pl.get_actor("known")
    assert (found.add(), actor.add()) == (5, 6)
    with pytest.raises(pl.ActorRefused):
        Counter.options(name="known")()
    with pytest.raises(pl.NoSuchActor, match="unknown"):
        pl.get_actor("unknown")


def test_resources_are_the_actors(cluster: pl.Cluster) -> None:
    with pytest.raises(pl.NoResources):
        Counter.options(cpus=99)()
    first = Counter.options(cpus=2)()
    with pytest.raises(pl.NoResources):
        Counter.options(cpus=2, wait=0.3)()
    assert first.add() == 1


def test_without_a_cluster_it_says_so() -> None:
    script = (
        "import paceline as pl\n@pl.remote\nclass A: ...\ntry:\n    A()\nexcept pl.NotConnected as e:\n    print(e)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert "not connected" in done.stdout, done.stderr


def test_a_future_of_an_actor_call_can_be_asked_again(cluster: pl.Cluster) -> None:
    actor = Counter()
    future = actor.sleep.submit(0.3)
    assert not future.done()
    with pytest.raises(TimeoutError):
        future.result(timeout=0.01)
    assert future.result(timeout=10) == 0.3
    assert future.done()
    assert future.result() == 0.3


MODULE = """
import os
import paceline as pl

pl.connect(cpus=2)

@pl.remote(cpus=0)
class Early:
    def __init__(self):
        self.pid = os.getpid()
    def ask(self):
        return self.pid

early = Early()
"""

PROGRAM = """
import early_actor as module
import paceline as pl
assert module.early.ask() == module.early.pid
assert module.Early().ask() != module.early.ask()
print("fine")
"""


def test_a_module_that_makes_an_actor_as_it_is_loaded_does_not_in_slots(tmp_path: Path) -> None:
    (tmp_path / "early_actor.py").write_text(MODULE)
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "fine\n", done.stderr

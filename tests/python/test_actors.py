"""Actors: objects of the user's classes that live in slots."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import paceline as pl
from actor_cases import Broken, Counter


@pytest.fixture(scope="module")
def cluster() -> Iterator[pl.Cluster]:
    with pl.connect(cpus=2) as cluster:
        yield cluster


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


def test_a_refused_actor_has_run_no_constructor(cluster: pl.Cluster, tmp_path: Path) -> None:
    @pl.remote(cpus=0)
    class Leader:
        def __init__(self, path: Path) -> None:
            with path.open("a") as file:
                file.write("made\n")

        def hello(self) -> str:
            return "hello"

    made = tmp_path / "made"
    leader: Any = Leader.options(name="leader")(made)
    with pytest.raises(pl.ActorRefused, match="leader is there already"):
        Leader.options(name="leader")(made)
    with pytest.raises(pl.ActorRefused, match="leader is there already"):
        Leader.options(name="leader").submit(made)
    assert leader.hello() == "hello", "the one that has the name goes on"
    # What the refused ones had sent would have begun by now.
    assert [Leader(made).hello() for _ in range(2)] == ["hello"] * 2
    assert made.read_text() == "made\n" * 3


def test_a_name_is_free_when_its_actor_was_not_made(cluster: pl.Cluster) -> None:
    @pl.remote(cpus=0)
    class Odd:
        def __init__(self, what: Any) -> None:
            if what is None:
                raise ValueError("nothing")

        def hello(self) -> str:
            return "hello"

    with pytest.raises(ValueError, match="nothing"):
        Odd.options(name="odd")(None)
    with pytest.raises(pl.ArgumentNotSerializable):
        Odd.options(name="odd")(threading.Lock())
    odd: Any = Odd.options(name="odd")(1)
    assert odd.hello() == "hello"


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

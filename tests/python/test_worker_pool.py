"""Worker pools: an object in each slot, jobs for whichever is free, updates for all."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

import paceline as pl
from support import wait_until


class Recorder:
    """Says where it is and what it has got."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.made = (args, kwargs)
        self.updates: list[Any] = []

    def run(self, *args: Any, **kwargs: Any) -> tuple[int, Any, list[Any]]:
        return os.getpid(), (args, kwargs), list(self.updates)

    def handle_update(self, *args: Any, **kwargs: Any) -> None:
        self.updates.append((args, kwargs) if kwargs else args)


class Sleeper(Recorder):
    def run(self, seconds: float, value: Any = None) -> Any:
        time.sleep(seconds)
        return os.getpid(), value, list(self.updates)


class Doubler:
    def run(self, x: int) -> int:
        return 2 * x


@pytest.fixture
def cluster() -> Iterator[pl.Cluster]:
    with pl.connect(cpus=2) as cluster:
        yield cluster


def test_an_object_is_built_once_in_each_slot(cluster: pl.Cluster) -> None:
    with pl.WorkerPool(Sleeper, "data", slots=3, rate=0.5) as pool:
        pool.wait_for_workers(3, timeout=30)
        assert (pool.workers, pool.nodes) == (3, 1)
        found = pool.map([0.05] * 12)
        assert len({process for process, _, _ in found}) == 3
        assert repr(pool) == "<paceline.WorkerPool of Sleeper: 3 workers on 1 nodes>"
    assert repr(pool) == "<paceline.WorkerPool of Sleeper: closed>"
    with pl.WorkerPool(Recorder, pl.call("data", slots=7), slots=1) as pool:
        assert pool.submit().result()[1] == ((), {})


class Built:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.made = (args, kwargs)

    def run(self) -> Any:
        return self.made


def test_constructor_arguments_are_the_users_own(cluster: pl.Cluster) -> None:
    with pl.WorkerPool(Built, 1, "two", three=3) as pool:
        assert pool.map([()]) == [((1, "two"), {"three": 3})]
    with pl.WorkerPool(Built, pl.call(1, slots=5, gpus=2), slots=1) as pool:
        assert pool.submit().result() == ((1,), {"slots": 5, "gpus": 2})


def test_what_an_item_means(cluster: pl.Cluster) -> None:
    items = [(1, 2), [1, 2], {"a": 1}, pl.call(1, b=2), None, "xy"]
    wanted: list[Any] = [
        ((1, 2), {}),
        (([1, 2],), {}),
        (({"a": 1},), {}),
        ((1,), {"b": 2}),
        ((None,), {}),
        (("xy",), {}),
    ]
    with pl.WorkerPool(Recorder) as pool:
        assert [given for _, given, _ in pool.map(items)] == wanted
        assert [given for _, given, _ in pool.imap(items)] == wanted
        assert [given for _, given, _ in pool.map(items, chunksize=2)] == wanted
        unordered = [given for _, given, _ in pool.imap_unordered(items)]
        assert sorted(unordered, key=repr) == sorted(wanted, key=repr)
        assert pool.submit(1, b=2).result()[1] == ((1,), {"b": 2})


def test_values_come_in_order_or_as_they_are_ready(cluster: pl.Cluster) -> None:
    with pl.WorkerPool(Doubler) as pool:
        assert pool.map(range(1000)) == [2 * x for x in range(1000)]
        assert list(pool.imap(range(200))) == [2 * x for x in range(200)]
        assert sorted(pool.imap_unordered(range(200))) == [2 * x for x in range(200)]
        endless = pool.imap(itertools.count(), lookahead=0)
        assert [next(endless) for _ in range(10)] == [2 * x for x in range(10)]
        assert pool.map([]) == []


def test_a_job_that_returns_nothing_has_ended(cluster: pl.Cluster) -> None:
    class Silent:
        def run(self, _: object) -> None:
            return None

    with pl.WorkerPool(Silent) as pool:
        assert pool.map(range(5)) == [None] * 5


def test_an_update_is_for_all_slots_and_the_jobs_after_it(cluster: pl.Cluster) -> None:
    with pl.WorkerPool(Sleeper, slots=3) as pool:
        before = [pool.submit(0.02) for _ in range(30)]
        done = [pool.update(number) for number in range(3)]
        pool.update("named", key="value")
        after = [pool.submit(0.02) for _ in range(30)]
        assert {repr(future.result()[2]) for future in before} == {"[]"}
        got = [(0,), (1,), (2,), (("named",), {"key": "value"})]
        assert [future.result()[2] for future in after] == [got] * 30
        assert [future.result() for future in done] == [None] * 3


def test_two_pools_at_once_keep_apart(cluster: pl.Cluster) -> None:
    with pl.WorkerPool(Recorder, slots=2) as one, pl.WorkerPool(Recorder, slots=2) as other:
        one.update("one")
        other.update("other")
        mine, others = one.map([()] * 20), other.map([()] * 20)
        assert all(updates == [("one",)] for _, _, updates in mine)
        assert all(updates == [("other",)] for _, _, updates in others)
        assert not {process for process, _, _ in mine} & {process for process, _, _ in others}


def test_slots_of_a_pool_end_with_it(cluster: pl.Cluster) -> None:
    with pl.WorkerPool(Recorder, slots=2) as pool:
        processes = {process for process, _, _ in pool.map([()] * 20)}
    wait_until(lambda: not any(os.path.exists(f"/proc/{process}") for process in processes), "the slots are gone")
    with pytest.raises(Exception) as closed:
        pool.submit().result()
    assert type(closed.value).__name__ == "CancelledError"


def test_an_exception_of_a_job_is_the_callers_and_the_worker_lives(cluster: pl.Cluster) -> None:
    class Picky:
        def run(self, x: int) -> int:
            return 1 // x

    with pl.WorkerPool(Picky, slots=1) as pool:
        with pytest.raises(ZeroDivisionError):
            pool.map([1, 0, 1])
        assert pool.map([1, 1]) == [1, 1]


def test_a_constructor_that_raises_breaks_the_pool(cluster: pl.Cluster) -> None:
    class Broken:
        def __init__(self) -> None:
            raise OSError("no dataset here")

        def run(self) -> None: ...

    with pl.WorkerPool(Broken, slots=2) as pool:
        with pytest.raises(pl.PoolBroken, match=r"Broken\(...\) failed in 3 slots in a row.*no dataset here") as why:
            pool.wait_for_workers(1, timeout=30)
        assert isinstance(why.value.__cause__, OSError)
        with pytest.raises(pl.PoolBroken):
            pool.map([()])
    with pl.WorkerPool(Doubler) as pool:
        assert pool.map([1]) == [2]


def test_an_update_that_raises_breaks_the_pool(cluster: pl.Cluster) -> None:
    class Strict(Doubler):
        def handle_update(self, value: object) -> None:
            raise ValueError(f"{value} is wrong")

    with pl.WorkerPool(Strict, slots=2) as pool:
        assert pool.map([1, 2]) == [2, 4]
        with pytest.raises(pl.PoolBroken, match=r"Strict.handle_update failed .*7 is wrong"):
            pool.update(7).result(30)
        with pytest.raises(pl.PoolBroken):
            pool.map([1])


def test_a_slot_that_was_killed_is_built_and_updated_again(cluster: pl.Cluster) -> None:
    with pl.WorkerPool(Sleeper, slots=2) as pool:
        pool.update("early")
        victim = pool.submit(0).result()[0]
        slow = [pool.submit(1.0) for _ in range(2)]
        pool.update("late")
        wait_until(lambda: all(future.running() for future in slow), "both jobs have begun")
        os.kill(victim, signal.SIGKILL)
        assert [future.result()[2][0] for future in slow] == [("early",)] * 2
        found = pool.map([0.05] * 8)
        assert all(updates == [("early",), ("late",)] for _, _, updates in found)
        assert victim not in {process for process, _, _ in found}


def test_a_job_that_takes_too_long_has_its_slot_replaced(cluster: pl.Cluster, tmp_path: Any) -> None:
    class Stuck:
        def run(self, path: str) -> tuple[int, bool]:
            again = os.path.exists(path)
            open(path, "w").close()
            while not again:
                time.sleep(0.01)
            return os.getpid(), again

    with pl.WorkerPool(Stuck, slots=1, job_timeout=0.5) as pool:
        marked = str(tmp_path / "ready")
        open(marked, "w").close()
        first, _ = pool.submit(marked).result()
        process, again = pool.submit(str(tmp_path / "mark")).result(30)
        assert again
        assert process != first
    with pl.WorkerPool(Sleeper, slots=1, job_timeout=0.2, retries=0) as pool:
        with pytest.raises(pl.TaskTimeout):
            pool.submit(60).result(30)
        assert pool.submit(0).result(30)


class Counter:
    def __init__(self) -> None:
        self.total = 0

    def run(self) -> tuple[int, int]:
        return os.getpid(), self.total

    def handle_update(self, blob: bytes) -> None:
        self.total += len(blob)

    def get_state(self) -> int:
        return self.total

    def set_state(self, total: int) -> None:
        self.total = total


class Growing(Doubler):
    def handle_update(self, blob: bytes) -> None: ...


def test_history_is_bounded_by_the_state_of_a_slot(cluster: pl.Cluster) -> None:
    with pl.WorkerPool(Counter, slots=1, update_history=10_000) as pool:
        for _ in range(100):
            pool.update(b"x" * 1000)
        process, total = pool.submit().result()
        assert total == 100_000
        os.kill(process, signal.SIGKILL)
        again, total = pool.submit().result()
        assert (again != process, total) == (True, 100_000)
    with pl.WorkerPool(Growing, slots=1, update_history="10 KB") as pool:
        for _ in range(100):
            pool.update(b"x" * 1000, replaces="all")
        with pytest.raises(pl.HistoryFull, match="give the class get_state"):
            fill(pool)
        assert pool.map([1]) == [2]


def fill(pool: pl.WorkerPool) -> None:
    for _ in range(100):
        pool.update(b"x" * 1000)


def test_a_pool_inside_a_task(cluster: pl.Cluster) -> None:
    def outer(count: int) -> list[int]:
        with pl.WorkerPool(Doubler, slots=2) as pool:
            return pool.map(range(count))

    assert pl.remote(outer)(5) == [0, 2, 4, 6, 8]


def test_wrong_uses_say_so(cluster: pl.Cluster) -> None:
    with pytest.raises(TypeError, match="made of a class, not of a builtin_function"):
        pl.WorkerPool(len)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Counted has no method run"):
        pl.WorkerPool(type("Counted", (), {}))
    with pl.WorkerPool(Doubler, slots=1) as pool:
        with pytest.raises(TypeError, match="Doubler has no method handle_update"):
            pool.update(1)
        with pytest.raises(ValueError, match="has 1 slots at most"):
            pool.wait_for_workers(2)
    big = pl.WorkerPool(Doubler, slots=1, cpus=100)
    with pytest.raises(pl.NoResources):
        big.submit(1).result(30)
    big.terminate()
    late = pl.WorkerPool(Doubler, slots=1, gpus=0, resources=None)
    with pytest.raises(TimeoutError, match="0 of 1 workers are there after 0 seconds"):
        late.wait_for_workers(1, timeout=0)
    late.terminate()


def test_every_job_sees_every_update_before_it_while_slots_die_and_come() -> None:
    """8 slots, 2,000 jobs, 200 updates, and a hand that kills a slot every now and then, for which another comes."""
    chance = random.Random(5)
    killed: set[int] = set()
    with pl.connect(cpus=8) as cluster, pl.WorkerPool(Recorder, slots=8) as pool:
        pool.wait_for_workers(8, timeout=60)

        def strike() -> bool:
            slots = cluster.status()["nodes"][0]["slots"]
            there = {slot["pid"] for slot in slots if slot["state"] == "leased"}
            known = {future.result()[0] for _, future in futures if future.done()} - killed
            if not there & known:
                return False
            process = chance.choice(sorted(there & known))
            os.kill(process, signal.SIGKILL)
            killed.add(process)
            return True

        futures: list[tuple[int, pl.Future[Any]]] = []
        updates = 0
        for job in range(2000):
            while updates < (job + 1) // 10 and chance.random() < 0.5:
                pool.update(updates)
                updates += 1
            futures.append((updates, pool.submit(job)))
            if job % 100 == 50:
                wait_until(strike, "a slot is there that has run something", timeout=30)
        for number in range(updates, 200):
            pool.update(number)
        last = pool.submit("last")
        processes = set()
        for job, (before, future) in enumerate(futures):
            process, (args, _), applied = future.result(120)
            processes.add(process)
            assert args == (job,)
            # In order, each once, and all that came before the job.
            assert applied == [(number,) for number in range(len(applied))]
            assert len(applied) >= before
        assert last.result(120)[2] == [(number,) for number in range(200)]
        assert len(killed) >= 15
        assert len(processes) > 8


def test_workers_come_with_nodes_that_join() -> None:
    with pl.local_cluster(nodes=1, cpus=1) as local, local.connect(), pl.WorkerPool(Sleeper) as pool:
        pool.update("early").result(60)
        assert (pool.workers, pool.nodes) == (1, 1)
        added = local.add_node(cpus=2)
        pool.wait_for_workers(3, timeout=60)
        assert pool.nodes == 2
        found = pool.map([0.1] * 9)
        assert {repr(updates) for _, _, updates in found} == {"[('early',)]"}
        assert len({process for process, _, _ in found}) == 3
        futures = [pool.submit(0.05) for _ in range(40)]
        added.terminate()
        assert len([future.result(60) for future in futures]) == 40, "what it had not begun runs elsewhere"
        assert added.wait(20)
        wait_until(lambda: (pool.workers, pool.nodes) == (1, 1), "the workers of the other node are gone")


def test_slots_are_spread_over_nodes() -> None:
    with pl.local_cluster(nodes=2, cpus=2) as local, local.connect(), pl.WorkerPool(Recorder, slots=4) as pool:
        pool.wait_for_workers(4, timeout=60)
        assert pool.nodes == 2

"""Submitting more than may wait: who waits for room, who is told that there is none, and that nobody waits for ever."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import paceline as pl
from support import assert_nothing_left, run_script, wait_until

LIMIT = 20


def held() -> Callable[[str, int], int]:
    """A function that returns its number once a file is there."""

    def hold(path: str, number: int) -> int:
        until = time.monotonic() + 50
        while not os.path.exists(path) and time.monotonic() < until:
            time.sleep(0.001)
        return number

    return hold


class Held:
    """A cluster whose slots are kept busy, with a queue of `LIMIT` tasks."""

    def __init__(self, cluster: pl.Cluster, path: Path) -> None:
        self.cluster = cluster
        self.path = str(path)
        self.hold = pl.remote(held())
        # Both slots are at work for longer than anything is sent ahead.
        self.running = [self.hold.submit(self.path, -1) for _ in range(2)]
        wait_until(lambda: all(future.running() for future in self.running), "both slots to be busy")

    def queued(self) -> int:
        return int(self.cluster.status()["queued"])

    def fill(self) -> list[pl.Future[int]]:
        """As many tasks as find room."""
        futures = [self.hold.submit(self.path, number) for number in range(LIMIT - self.queued())]
        assert self.queued() == LIMIT
        return futures

    def release(self) -> None:
        Path(self.path).touch()


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Held]:
    with pl.connect(cpus=2, queue_tasks=LIMIT) as cluster:
        busy = Held(cluster, tmp_path / "go")
        yield busy
        busy.release()


def blocked(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """A thread in which the call waits, and what came of it."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(call())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


def test_a_plain_thread_waits_for_room(busy: Held) -> None:
    futures = busy.fill()
    thread, outcome = blocked(lambda: busy.hold.submit(busy.path, 99))
    thread.join(0.3)
    assert thread.is_alive()
    assert busy.queued() == LIMIT
    busy.release()
    thread.join(10)
    (late,) = outcome
    assert isinstance(late, pl.Future)
    assert late.result(timeout=10) == 99
    assert [future.result(timeout=10) for future in futures] == list(range(len(futures)))


def test_the_queue_drains_without_the_help_of_the_one_who_waits(busy: Held) -> None:
    """The main thread waits in `submit` and reads the links itself; another asks for a result meanwhile."""
    first = busy.fill()[0]
    thread, outcome = blocked(lambda: first.result(timeout=20))
    threading.Timer(0.2, busy.release).start()
    many = [busy.hold.submit(busy.path, number) for number in range(20 * LIMIT)]
    assert [future.result(timeout=20) for future in many] == list(range(20 * LIMIT))
    thread.join(10)
    assert outcome == [0]


def test_those_who_wait_are_let_in_as_they_came(busy: Held) -> None:
    futures = busy.fill()
    accepted: list[int] = []
    threads = []
    for number in range(4):
        thread, _ = blocked(lambda number=number: (busy.hold.submit(busy.path, number), accepted.append(number)))
        thread.join(0.1)  # each is behind the one before
        assert thread.is_alive()
        threads.append(thread)
    for number, thread in enumerate(threads):
        assert futures[number].cancel()
        thread.join(5)
        assert accepted == list(range(number + 1))


def test_a_cancelled_task_makes_room(busy: Held) -> None:
    futures = busy.fill()
    thread, outcome = blocked(lambda: busy.hold.submit(busy.path, 99))
    thread.join(0.1)
    assert futures[3].cancel()
    thread.join(5)
    assert not thread.is_alive()
    assert isinstance(outcome[0], pl.Future)
    assert busy.queued() == LIMIT


def test_bytes_count_too_and_one_task_may_have_more_than_all_may(tmp_path: Path) -> None:
    with pl.connect(cpus=2, queue_bytes=1_000_000) as cluster:
        busy = Held(cluster, tmp_path / "go")
        large = pl.remote(len).submit(bytes(5_000_000))
        assert busy.queued() == 1
        thread, outcome = blocked(lambda: pl.remote(len).submit(b"small"))
        thread.join(0.2)
        assert thread.is_alive()
        busy.release()
        thread.join(10)
        assert large.result(timeout=10) == 5_000_000
        assert isinstance(outcome[0], pl.Future)
        assert outcome[0].result(timeout=10) == 5


def test_a_closing_cluster_ends_the_wait(busy: Held) -> None:
    busy.fill()
    thread, outcome = blocked(lambda: busy.hold.submit(busy.path, 99))
    thread.join(0.2)
    began = time.monotonic()
    busy.cluster.close()
    thread.join(5)
    assert isinstance(outcome[0], pl.ClusterClosed)
    assert time.monotonic() - began < 4


def test_ctrl_c_ends_the_wait() -> None:
    script = textwrap.dedent(
        """
        import threading, time, signal
        import paceline as pl

        cluster = pl.connect(cpus=1, queue_tasks=5)
        nap = pl.remote(time.sleep)
        submitted = []
        def kick():
            while cluster.status()["queued"] < 5:
                time.sleep(0.001)
            time.sleep(0.1)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        threading.Thread(target=kick).start()
        began = time.monotonic()
        try:
            while True:
                submitted.append(nap.submit(60))
        except KeyboardInterrupt:
            print("interrupted", len(submitted), cluster.status()["queued"], time.monotonic() - began < 3)
        """
    )
    done = run_script(script).ok()
    words = done.stdout.split()
    assert words[0] == "interrupted"
    # One that runs, at most one ahead, and five that wait: the one that was refused is not among them.
    assert int(words[1]) <= 7
    assert words[2:] == ["5", "True"]
    assert_nothing_left(done)


async def test_an_event_loop_is_never_stopped(busy: Held) -> None:
    beats: list[float] = []

    async def heart() -> None:
        while True:
            beats.append(time.monotonic())
            await asyncio.sleep(0.005)

    heartbeat = asyncio.create_task(heart())
    futures = busy.fill()
    began = time.monotonic()
    with pytest.raises(pl.QueueFull) as caught:
        busy.hold.submit(busy.path, 99)
    assert time.monotonic() - began < 1
    assert caught.value.code == "queue-full"
    assert caught.value.tasks == caught.value.queue_tasks == LIMIT
    assert caught.value.queue_bytes == 256_000_000
    assert f"{LIMIT} of {LIMIT} tasks" in str(caught.value)
    assert "event loop" in str(caught.value)
    assert "submit_async" in str(caught.value)
    waiting = asyncio.create_task(busy.hold.submit_async(busy.path, 99))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    busy.release()
    futures += [await busy.hold.submit_async(busy.path, number) for number in range(50 * LIMIT)]
    assert await (await waiting) == 99
    await asyncio.gather(*futures)
    heartbeat.cancel()
    gaps = [later - earlier for earlier, later in itertools.pairwise(beats)]
    assert len(beats) >= 30
    assert max(gaps) < 0.5, sorted(gaps)[-5:]


async def test_a_wait_on_the_loop_can_be_cancelled(busy: Held) -> None:
    busy.fill()
    waiting = [asyncio.create_task(busy.hold.submit_async(busy.path, number)) for number in range(3)]
    await asyncio.sleep(0.1)
    waiting[1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting[1]
    busy.release()
    assert [await (await waiting[number]) for number in (0, 2)] == [0, 2]


async def test_a_coroutine_that_is_thrown_away_takes_its_task_back(busy: Held) -> None:
    busy.fill()
    coroutine = busy.hold.submit_async(busy.path, 99)
    coroutine.send(None)
    coroutine.close()
    # There is nobody before this one, then.
    waiting = asyncio.create_task(busy.hold.submit_async(busy.path, 100))
    busy.release()
    assert await (await waiting) == 100
    assert int(busy.cluster.status()["queued"]) == 0


async def test_a_closing_cluster_ends_the_wait_on_the_loop(busy: Held) -> None:
    busy.fill()
    waiting = asyncio.create_task(busy.hold.submit_async(busy.path, 1))
    await asyncio.sleep(0.1)
    await asyncio.get_running_loop().run_in_executor(None, busy.cluster.close)
    with pytest.raises(pl.ClusterClosed):
        await asyncio.wait_for(waiting, 5)


async def test_with_room_submit_async_returns_the_future_at_once() -> None:
    class Scale:
        factor = 3

        @pl.remote
        def times(self, value: int) -> int:
            return self.factor * value

    with pl.connect(cpus=1):
        future = await Scale().times.submit_async(14)
        assert isinstance(future, pl.Future)
        assert await future == 42


def test_a_callback_is_never_stopped(busy: Held) -> None:
    seen: list[BaseException] = []
    ended = threading.Event()

    def callback(_: object) -> None:
        try:
            for number in range(10 * LIMIT):
                busy.hold.submit(busy.path + ".never", number)
        except BaseException as error:
            seen.append(error)
        ended.set()

    trigger = pl.remote(abs).submit(-1)
    trigger.add_done_callback(callback)
    busy.release()
    assert ended.wait(20)
    assert isinstance(seen[0], pl.QueueFull)
    assert "callback" in str(seen[0])
    busy.cluster.close()


def test_a_task_is_never_stopped() -> None:
    def inside() -> tuple[int, str, bool]:
        import asyncio

        square = pl.remote(lambda x: x * x)
        futures = []
        try:
            while True:
                futures.append(square.submit(len(futures)))
        except pl.QueueFull as full:
            text = str(full)
        accepted = len(futures)

        async def more() -> None:
            for _ in range(1000):
                futures.append(await square.submit_async(len(futures)))

        asyncio.run(more())
        return accepted, text, all(future.result() == n * n for n, future in enumerate(futures))

    with pl.connect(cpus=1):
        accepted, text, right = pl.remote(inside).submit().result(timeout=50)
    assert accepted >= 100_000
    assert "a task must not wait" in text
    assert right


def test_maps_of_any_size_keep_within_the_limits(tmp_path: Path) -> None:
    with pl.connect(cpus=2, queue_tasks=LIMIT, queue_bytes=1_000_000) as cluster:
        sizes = [100_000] * 300
        most = 0

        def items() -> Iterator[bytes]:
            nonlocal most
            for size in sizes:
                most = max(most, cluster.status()["queued"])
                yield bytes(size)

        assert pl.remote(len).map(items(), chunksize=1) == sizes
        assert most <= LIMIT
        assert list(pl.remote(len).imap(items())) == sizes
        assert pl.remote(abs).map(range(50_000), chunksize=1) == list(range(50_000))


def test_a_map_goes_on_beside_a_full_queue(busy: Held) -> None:
    """Neither has to wait for the other to be emptied first, and both end."""
    futures = busy.fill()
    thread, outcome = blocked(lambda: pl.remote(abs).map(range(1000), chunksize=1))
    call, called = blocked(lambda: pl.remote(abs)(-7))
    more, submitted = blocked(lambda: [busy.hold.submit(busy.path, number) for number in range(200)])
    thread.join(0.2)
    busy.release()
    for one in (thread, call, more):
        one.join(20)
    assert outcome == [list(range(1000))]
    assert called == [7]
    assert isinstance(submitted[0], list)
    assert [future.result(timeout=10) for future in futures] == list(range(len(futures)))
    assert [future.result(timeout=10) for future in submitted[0]] == list(range(200))


def test_many_threads_at_the_limit_all_get_through() -> None:
    with pl.connect(cpus=2, queue_tasks=3):
        square = pl.remote(lambda x: x * x)
        found: list[list[int]] = []

        def run() -> None:
            futures = [square.submit(number) for number in range(2000)]
            found.append([future.result(timeout=50) for future in futures])

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(50)
        assert found == [[number * number for number in range(2000)]] * 4


def test_a_forked_child_has_nothing_to_do_with_those_who_wait() -> None:
    script = textwrap.dedent(
        """
        import os, threading, time
        import paceline as pl

        cluster = pl.connect(cpus=1, queue_tasks=2)
        nap = pl.remote(time.sleep)
        futures = []
        def fill():
            for _ in range(8):
                futures.append(nap.submit(0.2))
        thread = threading.Thread(target=fill)
        thread.start()
        while cluster.status()["queued"] < 2:
            time.sleep(0.001)
        child = os.fork()
        if child == 0:
            print(pl.remote(abs)(-5), flush=True)
            pl.shutdown()
            os._exit(0)
        os.waitpid(child, 0)
        thread.join()
        pl.wait(futures)
        print(len(futures))
        """
    )
    done = run_script(script, interpreter=("-W", "ignore")).ok()
    assert done.stdout.split() == ["5", "8"]
    assert_nothing_left(done)


@pytest.mark.parametrize(
    ("setting", "error"),
    [({"queue_tasks": 0}, ValueError), ({"queue_bytes": -1}, ValueError), ({"result_bytes": "1GB"}, TypeError)],
)
def test_settings_are_checked(setting: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(setting))):
        pl.connect(cpus=1, **setting)  # type: ignore[arg-type]


def test_signals_reach_a_handler_while_submit_waits(busy: Held) -> None:
    busy.fill()
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: (heard.append(number), busy.release()))
    try:
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
        assert busy.hold.submit(busy.path, 5).result(timeout=10) == 5
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard == [signal.SIGUSR1]

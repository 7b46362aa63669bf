"""Who may call: threads, event loops in several threads, forked children, those of `multiprocessing`; all at once."""

from __future__ import annotations

import asyncio
import textwrap
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

import paceline as pl
from support import assert_nothing_left, run_script

LOOPS = 4
TASKS = 200


def double() -> pl.RemoteFunction[[int], int]:
    @pl.remote
    def double(item: int) -> int:
        return item * 2

    return double


async def gather(function: pl.RemoteFunction[[int], int], first: int) -> list[int]:
    """All at once, then one after the other, then as they complete."""
    together = await asyncio.gather(*(function.submit(item) for item in range(first, first + TASKS)))
    single = [await function.submit(item) for item in range(first, first + 20)]
    wrapped = [asyncio.wrap_future(function.submit(item)) for item in range(first, first + 20)]
    completed = sorted([await future for future in asyncio.as_completed(wrapped)])
    assert single == completed == together[:20]
    return list(together)


@pytest.mark.usefixtures("cluster")
class TestLoops:
    def test_several_in_several_threads(self) -> None:
        function = double()
        with ThreadPoolExecutor(LOOPS) as threads:
            firsts = [number * 1000 for number in range(LOOPS)]
            found = list(threads.map(lambda first: asyncio.run(gather(function, first)), firsts))
        assert found == [[2 * item for item in range(first, first + TASKS)] for first in firsts]

    def test_beside_threads_that_block(self) -> None:
        function = double()
        stop = threading.Event()
        blocked = 0

        def block() -> None:
            nonlocal blocked
            while not stop.is_set():
                assert function(blocked) == 2 * blocked
                assert function.map(range(50)) == [2 * item for item in range(50)]
                blocked += 1

        with ThreadPoolExecutor(LOOPS + 1) as threads:
            blocking = threads.submit(block)
            loops = [threads.submit(asyncio.run, gather(function, first)) for first in range(LOOPS)]
            for first, loop in enumerate(loops):
                assert loop.result(timeout=30) == [2 * item for item in range(first, first + TASKS)]
            stop.set()
            blocking.result(timeout=30)
        assert blocked > 0

    def test_a_loop_is_never_held_up(self) -> None:
        """While tasks run, the loop turns: nothing of ours blocks it."""

        async def main() -> float:
            longest, last = 0.0, time.monotonic()
            futures = [asyncio.wrap_future(nap.submit(0.2)) for _ in range(6)]
            while not all(future.done() for future in futures):
                await asyncio.sleep(0.005)
                now = time.monotonic()
                longest, last = max(longest, now - last), now
            return longest

        nap = pl.remote(time.sleep)
        assert asyncio.run(main()) < 0.15

    def test_a_loop_that_ends_before_its_tasks(self) -> None:
        """Nobody is called back in a loop that is closed, and what other loops wait for comes all the same."""

        async def leave() -> None:
            # A bare reference: the loop ends with this coroutine, and the future would have told it later.
            asyncio.wrap_future(nap.submit(0.2))
            await asyncio.sleep(0)

        nap, function = pl.remote(time.sleep), double()
        asyncio.run(leave())
        assert asyncio.run(gather(function, 7))[:2] == [14, 16]

    def test_cancelling_in_one_loop_touches_no_other(self) -> None:
        nap, function = pl.remote(time.sleep), double()

        async def give_up() -> str:
            try:
                async with asyncio.timeout(0.05):
                    await nap.submit(30)
            except TimeoutError:
                return "given up"
            return "slept"

        with ThreadPoolExecutor(2) as threads:
            patient = threads.submit(asyncio.run, gather(function, 0))
            assert threads.submit(asyncio.run, give_up()).result(timeout=10) == "given up"
            assert patient.result(timeout=20) == [2 * item for item in range(TASKS)]


@pytest.mark.usefixtures("cluster")
def test_one_future_for_many_threads_and_loops() -> None:
    future = pl.remote(lambda: time.sleep(0.2) or 7).submit()
    ended: list[int] = []
    future.add_done_callback(lambda done: ended.append(done.result()))

    async def wait() -> int:
        return await asyncio.wrap_future(future)

    with ThreadPoolExecutor(8) as threads:
        waits = [threads.submit(future.result) for _ in range(4)]
        waits += [threads.submit(asyncio.run, wait()) for _ in range(4)]
        assert [one.result(timeout=10) for one in waits] == [7] * 8
    assert ended == [7]


def test_the_end_of_a_cluster_ends_the_waits_of_all_threads() -> None:
    cluster = pl.connect(cpus=1)
    futures = [pl.remote(time.sleep).submit(60) for _ in range(3)]
    with ThreadPoolExecutor(3) as threads:
        waits = [threads.submit(future.result) for future in futures]
        cluster.close()
        for wait in waits:
            with pytest.raises((CancelledError, pl.ClusterClosed)):
                wait.result(timeout=10)


CHILDREN = textwrap.dedent(
    """
    import multiprocessing, os, sys, time
    import paceline as pl

    def square(item):
        return item * item

    def child(how, queue):
        # A cluster of its own, used while the parent uses its own.
        try:
            with pl.connect(cpus=1) as cluster:
                remote = pl.remote(square)
                values = remote.map(range(100), chunksize=1)
                [slot] = {pl.remote(os.getppid)() for _ in range(3)}
            queue.put((how, values == [item * item for item in range(100)], slot))
        except BaseException as error:
            queue.put((how, repr(error), 0))

    if __name__ == "__main__":
        pl.connect(cpus=1)
        mine = pl.remote(os.getppid)()
        for how in ("fork", "spawn", "forkserver"):
            context = multiprocessing.get_context(how)
            queue = context.SimpleQueue()
            process = context.Process(target=child, args=(how, queue))
            process.start()
            busy = pl.remote(square).map(range(100), chunksize=1)
            name, right, zygote = queue.get()
            process.join(10)
            print(name, right, zygote not in (0, mine), process.exitcode, busy[-1], flush=True)
        print("parent goes on", pl.remote(square)(9), pl.remote(os.getppid)() == mine)
    """
)


def test_children_of_multiprocessing_have_clusters_of_their_own() -> None:
    done = run_script(CHILDREN, timeout=40).ok()
    for how in ("fork", "spawn", "forkserver"):
        assert f"{how} True True 0 9801" in done.stdout, done.transcript()
    assert "parent goes on 81 True" in done.stdout
    assert_nothing_left(done)


def test_a_forked_child_connects_while_its_parent_is_at_work() -> None:
    """Forked from a thread, in the middle of a map of another one, and again from the child."""
    done = run_script(
        """
        import os, sys, threading, time
        import paceline as pl

        @pl.remote
        def square(item):
            return item * item

        pl.connect(cpus=2)
        square(1)
        results = []
        thread = threading.Thread(target=lambda: results.append(square.map(range(20_000), chunksize=1)))
        thread.start()

        def generation(left):
            if left == 0:
                return
            pid = os.fork()
            if pid == 0:
                with pl.connect(cpus=1):
                    assert square.map(range(200), chunksize=1) == [item * item for item in range(200)]
                    generation(left - 1)
                sys.stdout.flush()
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0

        generation(2)
        thread.join()
        assert results == [[item * item for item in range(20_000)]]
        print("all there")
        """
    ).ok()
    assert "all there" in done.stdout
    assert_nothing_left(done)


@pytest.mark.parametrize("made", ["class A: pass", "def A(): pass"], ids=["class", "function"])
def test_threads_that_use_it_first_at_the_same_time_all_succeed(made: str) -> None:
    done = run_script(
        f"""
        import threading
        import paceline as pl
        {made}
        together = threading.Barrier(8)
        made = []
        def go():
            together.wait()
            made.append(pl.remote(A))
        threads = [threading.Thread(target=go) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        print(len(made))
        """
    ).ok()
    assert (done.stdout, done.stderr) == ("8\n", "")


def test_a_module_that_another_thread_still_imports_names_no_class_yet() -> None:
    done = run_script(
        """
        import sys, types
        import paceline as pl
        from paceline._named_array import arrays
        from paceline._slot import rebuild
        for name in ("paceline._remote", "paceline._actor_class", "torch", "numpy", "asyncio.events"):
            sys.modules[name] = types.ModuleType(name)
        assert rebuild.plain(len) is len
        assert rebuild.plain_class(str) is str
        assert not arrays.is_tensor(1)
        from paceline import _room
        assert not _room.runs_a_loop()
        """
    ).ok()
    assert (done.stdout, done.stderr) == ("", "")


INHERITED = {
    "a result": "running.result()",
    "a result with a timeout": "running.result(timeout=60)",
    "an exception": "running.exception()",
    "a callback": "running.add_done_callback(print)",
    "wait": "pl.wait([running])",
    "wait of both": "pl.wait([ended, running], n=2)",
    "as_completed": "list(pl.as_completed([running]))",
    "the library's wait": "concurrent.futures.wait([running])",
    "an actor": "actor.echo(4)",
    "an actor with options": "actor.echo.options(timeout=60)(4)",
    "a method that was not called before": "actor.other(4)",
    "a call that is submitted": "actor.echo.submit(4).result()",
    "a map of an actor": "actor.echo.map([4])",
    "the next of an imap": "next(lazy)",
    "a large object": "pl.get(large)",
    "a small object": "pl.get([small])",
}


def test_a_forked_child_that_uses_what_it_inherited_is_told_at_once() -> None:
    done = run_script(
        f"""
        import concurrent.futures, os, select, time
        import paceline as pl

        class Actor:
            def echo(self, item):
                return item
            other = echo

        pl.connect(cpus=2)
        actor = pl.remote(Actor).options(cpus=0)()
        assert actor.echo(1) == 1
        large, small = pl.put(b"y" * 300_000), pl.put(3)
        lazy = pl.remote(abs).imap(iter(range(-10, 0)))
        assert next(lazy) == 10
        ended = pl.remote(abs).submit(-3)
        assert ended.result() == 3
        running = pl.remote(time.sleep).submit(3)
        children = []
        for text in {list(INHERITED.values())!r}:
            pid = os.fork()
            if pid == 0:
                try:
                    eval(text)
                except pl.NotConnected as error:
                    os._exit(7 if "forked" in str(error) and error.hint else 1)
                finally:
                    os._exit(2)
            children.append((text, pid))
        pid = os.fork()
        if pid == 0:
            os._exit(7 if ended.result() == 3 and ended in pl.wait([ended]).done and not running.done() else 1)
        children.append(("what has ended", pid))
        until = time.monotonic() + 10
        for text, pid in children:
            while (ended_child := os.waitpid(pid, os.WNOHANG))[0] == 0 and time.monotonic() < until:
                time.sleep(0.01)
            if ended_child[0] == 0:
                os.kill(pid, 9)
                os.waitpid(pid, 0)
                print(text, "waits for ever")
            elif os.waitstatus_to_exitcode(ended_child[1]) != 7:
                print(text, os.waitstatus_to_exitcode(ended_child[1]))
        running.result()
        assert (actor.echo(5), pl.get(large)[:2], pl.get(small)) == (5, b"yy", 3)
        """,
        interpreter=("-W", "ignore"),
    ).ok()
    assert (done.stdout, done.stderr) == ("", "")
    assert_nothing_left(done)

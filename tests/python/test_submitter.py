"""Jobs with ids of the caller's, and a callback for each."""

from __future__ import annotations

import os
import signal
import textwrap
import threading
import time
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

import paceline as pl
from support import run_script, wait_until

pytestmark = pytest.mark.usefixtures("cluster")


def fail(what: str) -> None:
    raise ValueError(what)


def test_each_job_comes_back_under_its_id() -> None:
    found: dict[Any, int] = {}
    jobs = pl.Submitter(found.__setitem__)
    ids = [("job", number) for number in range(100)]
    for number, id in enumerate(ids):
        jobs.submit(id, pow, number, 2)
    assert jobs.wait()
    assert found == {id: number * number for number, id in enumerate(ids)}
    assert jobs.pending == 0
    jobs.close()


def test_ids_may_be_anything_and_stay_here() -> None:
    """Also what cannot be hashed, compared or sent."""
    found: list[Any] = []
    lock = threading.Lock()
    with pl.Submitter(lambda id, value: found.append((id, value))) as jobs:
        for id in ([1], lock, None, [1]):
            jobs.submit(id, abs, -1)
    assert len(found) == 4
    assert all(value == 1 for _, value in found)
    assert sum(id is lock for id, _ in found) == 1


def test_keywords_closures_classes_and_remote_functions() -> None:
    found: dict[str, Any] = {}
    factor = 3

    @pl.remote(retries=0)
    def triple(x: int) -> int:
        return factor * x

    with pl.Submitter(found.__setitem__) as jobs:
        jobs.submit("keywords", int, "ff", base=16)
        jobs.submit("closure", lambda x: factor * x, 2)
        jobs.submit("remote", triple, 5)
        jobs.submit("own names", lambda id, function: (id, function), id=1, function=2)
    assert found == {"keywords": 255, "closure": 6, "remote": 15, "own names": (1, 2)}


def test_a_method_has_its_object_as_it_is_now() -> None:
    found: dict[int, int] = {}
    box: list[int] = []
    with pl.Submitter(found.__setitem__) as jobs:
        for number in range(4):
            box.append(0)
            jobs.submit(number, box.__len__)
    assert found == {0: 1, 1: 2, 2: 3, 3: 4}


def test_callbacks_come_one_at_a_time_in_one_thread_of_their_own() -> None:
    threads: set[int] = set()
    inside: list[int] = []

    def callback(id: int, value: int) -> None:
        threads.add(threading.get_ident())
        inside.append(id)
        time.sleep(0.0005)
        assert inside == [id]
        inside.pop()

    with pl.Submitter(callback) as jobs:
        for number in range(200):
            jobs.submit(number, abs, number)
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_the_first_failure_is_raised_by_wait_when_all_have_ended() -> None:
    found: dict[int, int] = {}

    def body() -> None:
        with pl.Submitter(found.__setitem__) as jobs:
            jobs.submit(3, fail, "bad 3")
            wait_until(lambda: not jobs.pending, "the first to have failed")
            jobs.submit(4, fail, "bad 4")
            for number in range(10, 20):
                jobs.submit(number, abs, number)

    with pytest.raises(ValueError, match="bad 3") as raised:
        body()
    assert raised.value.__notes__ == ["raised by job 3 of a submitter", "1 more failed after it"]
    assert "in fail" in str(raised.value.__cause__), "where it was raised"
    assert len(found) == 10


def test_a_failure_is_told_once_and_the_submitter_goes_on() -> None:
    found: dict[str, int] = {}
    jobs = pl.Submitter(found.__setitem__)
    jobs.submit("bad", fail, "no")
    with pytest.raises(ValueError):
        jobs.wait()
    assert jobs.wait()
    jobs.submit("good", abs, -1)
    assert jobs.wait()
    assert found == {"good": 1}
    jobs.close()


def test_failures_may_have_a_callback_of_their_own() -> None:
    failed: dict[str, BaseException] = {}
    with pl.Submitter(lambda id, value: None, on_error=failed.__setitem__, retries=0) as jobs:
        jobs.submit("raised", fail, "no")
        jobs.submit("died", os.kill, 0, signal.SIGKILL)
        jobs.submit("unsendable", threading.Lock)
    assert {id: type(error) for id, error in failed.items()} == {
        "raised": ValueError,
        "died": pl.SlotDied,
        "unsendable": pl.ResultNotSerializable,
    }


def test_an_error_of_the_callback_is_raised_by_wait() -> None:
    seen: list[int] = []

    def callback(id: int, value: int) -> None:
        seen.append(id)
        if id == 2:
            raise KeyError("mine")

    jobs = pl.Submitter(callback)
    for number in range(5):
        jobs.submit(number, abs, number)
    with pytest.raises(KeyError) as raised:
        jobs.wait()
    assert raised.value.__notes__ == ["raised by the callback for job 2 of a submitter"]
    assert sorted(seen) == list(range(5)), "the others go on"
    jobs.close()


def test_what_cannot_be_sent_is_raised_by_submit_and_does_not_count() -> None:
    with pl.Submitter(print) as jobs:
        with pytest.raises(pl.ArgumentNotSerializable):
            jobs.submit(1, len, threading.Lock())
        with pytest.raises(TypeError, match="it is no function"):
            jobs.submit(1, 7)  # type: ignore[arg-type]
        assert jobs.pending == 0


def test_a_killed_slot_costs_nothing(tmp_path: Path) -> None:
    found: dict[int, int] = {}

    def once(number: int, folder: str) -> int:
        try:
            os.close(os.open(f"{folder}/{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return number
        if number % 10 == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    with pl.Submitter(found.__setitem__) as jobs:
        for number in range(30):
            jobs.submit(number, once, number, str(tmp_path))
    assert found == {number: number for number in range(30)}


def test_submit_waits_when_too_many_are_under_way(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    most = 0

    def held(path: str) -> None:
        while not os.path.exists(path):
            time.sleep(0.002)

    def submit() -> None:
        nonlocal most
        for number in range(50):
            jobs.submit(number, held, str(gate))
            most = max(most, jobs.pending)

    jobs = pl.Submitter(lambda id, value: None, ahead=8)
    thread = threading.Thread(target=submit)
    thread.start()
    wait_until(lambda: jobs.pending == 8, "eight to be under way")
    thread.join(0.2)
    assert thread.is_alive()
    gate.touch()
    thread.join(30)
    assert jobs.wait()
    assert most == 8
    jobs.close()


def test_a_callback_may_submit_and_never_waits() -> None:
    """A tree of jobs that is wider than `ahead`."""
    count = 0

    def grow(depth: int, value: int) -> None:
        nonlocal count
        count += 1
        for _ in range(4 if depth else 0):
            jobs.submit(depth - 1, abs, 1)

    jobs = pl.Submitter(grow, ahead=2)
    jobs.submit(4, abs, 1)
    assert jobs.wait()
    assert count == 1 + 4 + 16 + 64 + 256
    jobs.close()


def test_waiting_in_a_callback_is_refused() -> None:
    jobs = pl.Submitter(lambda id, value: jobs.wait())
    jobs.submit(1, abs, 1)
    with pytest.raises(pl.PacelineError, match="waits for the jobs of its own submitter"):
        jobs.wait()
    jobs.close()


def test_waiting_has_a_limit_and_jobs_can_be_cancelled() -> None:
    failed: dict[int, BaseException] = {}
    jobs = pl.Submitter(print, on_error=failed.__setitem__)
    for number in range(5):
        jobs.submit(number, time.sleep, 600)
    assert not jobs.wait(timeout=0.1)
    assert jobs.cancel() == 5
    assert jobs.wait(timeout=10)
    assert {type(error) for error in failed.values()} == {CancelledError}
    assert len(failed) == 5
    jobs.close()


def test_an_exception_in_the_block_ends_what_is_under_way() -> None:
    jobs = pl.Submitter(print)

    def body() -> None:
        with jobs:
            jobs.submit(1, time.sleep, 600)
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        body()
    wait_until(lambda: jobs.pending == 0, "the job to be cancelled")
    with pytest.raises(pl.PacelineError, match="closed"):
        jobs.submit(2, abs, 1)


def test_its_thread_ends_when_it_is_forgotten() -> None:
    found: list[int] = []
    jobs = pl.Submitter(lambda id, value: found.append(id))
    jobs.submit(1, abs, 1)
    del jobs
    wait_until(
        lambda: not any(thread.name == "paceline-submitter" for thread in threading.enumerate()), "the thread to end"
    )
    assert found == [1], "what was submitted is still called back"


def test_in_a_task_it_leaves_its_cpu_to_its_jobs() -> None:
    def outer() -> int:
        found: dict[int, int] = {}
        with pl.Submitter(found.__setitem__) as jobs:
            for number in range(20):
                jobs.submit(number, abs, number)
        return sum(found.values())

    assert pl.remote(cpus=2)(outer)() == 190


def test_event_loops_are_never_held_up() -> None:
    import asyncio

    jobs = pl.Submitter(lambda id, value: None, ahead=2)

    async def main() -> None:
        for number in range(3):
            jobs.submit(number, time.sleep, 600)

    with pytest.raises(pl.QueueFull, match="event loop"):
        asyncio.run(main())
    jobs.close()


def test_wrong_uses() -> None:
    with pytest.raises(TypeError, match="callback must be callable"):
        pl.Submitter(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ahead"):
        pl.Submitter(print, ahead=0)
    with pytest.raises(TypeError, match="unknown option"):
        pl.Submitter(print, speed=9)  # type: ignore[call-arg]


def test_without_a_cluster_it_starts_one_and_a_script_may_simply_end() -> None:
    text = """
    import paceline as pl
    def square(x): return x * x
    total = 0
    def add(id, value):
        global total
        total += value
    with pl.Submitter(add) as jobs:
        for number in range(10):
            jobs.submit(number, square, number)
    print(total)
    forgotten = pl.Submitter(print)
    forgotten.submit("bad", int, "x")
    import time
    while forgotten.pending: time.sleep(0.001)
    """
    done = run_script(textwrap.dedent(text)).ok()
    assert done.stdout == "285\n"
    assert "nobody waited" in done.stderr
    assert "ValueError: invalid literal" in done.stderr


def test_a_forked_child_has_its_own_thread() -> None:
    text = """
    import os, sys, paceline as pl
    pl.connect(cpus=1)
    jobs = pl.Submitter(lambda id, value: print(id, value, flush=True))
    jobs.submit("parent", abs, -1)
    jobs.wait()
    if os.fork() == 0:
        jobs.submit("child", abs, -2)
        jobs.wait()
        pl.shutdown()
        os._exit(0)
    assert os.wait()[1] == 0
    jobs.submit("parent again", abs, -3)
    jobs.wait()
    """
    assert run_script(textwrap.dedent(text)).ok().stdout.splitlines() == ["parent 1", "child 2", "parent again 3"]


def test_ctrl_c_while_waiting_ends_the_jobs() -> None:
    text = """
    import os, signal, sys, threading, time, paceline as pl
    # In one piece: two threads say something.
    say = lambda *words: sys.stdout.write(" ".join(map(str, words)) + "\\n")
    with pl.connect(cpus=2):
        jobs = pl.Submitter(print, on_error=lambda id, error: say(id, type(error).__name__))
        jobs.submit("long", time.sleep, 600)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            jobs.wait()
        except KeyboardInterrupt:
            say("interrupted")
        say(jobs.wait(timeout=10))
    """
    lines = run_script(textwrap.dedent(text)).ok().stdout.splitlines()
    assert sorted(lines) == ["True", "interrupted", "long CancelledError"]


MANY = textwrap.dedent(
    f"""
    import sys, time
    sys.path.insert(0, {str(Path(__file__).parent)!r})
    from support import memory
    import paceline as pl

    COUNT = int(sys.argv[1])
    done = wrong = 0

    def square(x):
        return x * x

    def callback(id, value):
        global done, wrong
        done += 1
        wrong += value != id * id

    with pl.connect(cpus=2):
        jobs = pl.Submitter(callback)
        for number in range(1000):
            jobs.submit(number, square, number)
        jobs.wait()
        before, done = memory.peak_resident(), 0
        began = time.perf_counter()
        for number in range(COUNT):
            jobs.submit(number, square, number)
        jobs.wait()
        took = time.perf_counter() - began
        # The most there ever was, not only what is left.
        print(done, wrong, (memory.peak_resident() - before) / 1e6, COUNT / took)
    """
)


def many(count: int, timeout: float) -> tuple[float, float]:
    done, wrong, grown, rate = run_script(MANY, args=[str(count)], timeout=timeout).ok().stdout.split()
    assert (int(done), int(wrong)) == (count, 0)
    print(f"{count} jobs: {float(grown):.1f} MB more at the most, {float(rate):.0f} jobs a second")
    return float(grown), float(rate)


@pytest.mark.slow
def test_memory_stays_flat() -> None:
    grown, _ = many(100_000, 50)
    assert grown < 20, "the jobs under way, whatever goes through"


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_memory_stays_flat_for_a_million_jobs() -> None:
    grown, _ = many(1_000_000, 500)
    assert grown < 100


def test_a_function_is_serialised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from paceline import _functions

    packed: list[object] = []
    real = _functions.pack
    monkeypatch.setattr(_functions, "pack", lambda function: (packed.append(function), real(function))[1])
    count = 0

    def add(id: int, value: int) -> None:
        nonlocal count
        count += value

    with pl.Submitter(add) as jobs:
        for number in range(10_000):
            jobs.submit(number, fail if number < 0 else abs, -1)
    assert count == 10_000
    assert packed == [abs]

"""Results that nobody has asked for yet: within their budget in memory, beyond it on disk, gone with the process."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import paceline as pl
from support import assert_nothing_left, memory, run_script, start_script, wait_until

PRELUDE = textwrap.dedent(
    f"""
    import os, sys, time
    sys.path.insert(0, {str(Path(__file__).parent)!r})
    from support import memory
    import paceline as pl

    MB = 1_000_000

    @pl.remote
    def make(number):
        return number.to_bytes(4, "little") * (MB // 4)

    def check(number, value):
        assert value == number.to_bytes(4, "little") * (MB // 4), number
    """
)

UNREAD = PRELUDE + textwrap.dedent(
    """
    count, budget = map(int, sys.argv[1:])
    pl.connect(cpus=2, result_bytes=budget * MB)
    check(0, make(0))
    before = memory.peak_resident()
    futures = [make.submit(number) for number in range(count)]
    check(count - 1, futures[-1].result())
    pl.wait(futures)
    print("peak", (memory.peak_resident() - before) // MB)
    print("disk", memory.unnamed_files() // MB)
    while futures:
        check(len(futures) - 1, futures.pop().result())
    print("peak", (memory.peak_resident() - before) // MB)
    print("disk", memory.unnamed_files() // MB)
    """
)


def unread(count: int, budget: int, timeout: float) -> tuple[int, int, int]:
    """Peak growth in MB before and after reading all, and what was on disk."""
    done = run_script(UNREAD, args=(str(count), str(budget)), timeout=timeout).ok()
    words = done.stdout.split()
    assert words[::2] == ["peak", "disk", "peak", "disk"], done.transcript()
    peak, disk, later, rest = map(int, words[1::2])
    assert rest == 0, "what was read is given back"
    assert_nothing_left(done)
    return peak, later, disk


@pytest.mark.slow
def test_unread_results_keep_within_their_budget() -> None:
    peak, later, disk = unread(1500, 256, 55)
    # Beyond the budget: what is under way, and the room that buffers leave unused.
    assert peak < 256 * 1.35 + 32
    assert later < 256 * 1.35 + 32
    assert disk >= 1500 - 256 * 1.35


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_ten_thousand_unread_results_of_a_megabyte() -> None:
    peak, later, disk = unread(10_000, 256, 550)
    assert peak < 256 * 1.35 + 32
    assert later < 256 * 1.35 + 32
    assert disk > 9_000


def test_results_come_back_in_every_way(tmp_path: Path) -> None:
    def make(number: int) -> bytes:
        return bytes([number]) * 200_000

    remote = pl.remote(make)
    values = [make(number) for number in range(40)]
    with pl.connect(cpus=2, result_bytes=0):
        futures = [remote.submit(number) for number in range(40)]
        pl.wait(futures)
        wait_until(lambda: memory.unnamed_files() >= 40 * 200_000, "all results to be on disk", 10)
        assert all(future.done() and not future.cancelled() for future in futures)
        assert [future.result() for future in futures] == values
        assert [future.result() for future in futures] == values, "asked for again"
        assert memory.unnamed_files() == 0
        assert remote.map(range(40), chunksize=1) == values
        assert list(remote.imap(range(40))) == values
        assert remote(7) == values[7]
        assert {future.result()[0] for future in pl.as_completed([remote.submit(n) for n in range(40)])} == set(
            range(40)
        )
        assert memory.unnamed_files() == 0
    assert memory.unnamed_files() == 0


def test_large_errors_are_set_aside_too() -> None:
    def fail(number: int) -> None:
        raise ValueError(number, "x" * 200_000)

    with pl.connect(cpus=2, result_bytes=0):
        futures = [pl.remote(fail).submit(number) for number in range(5)]
        pl.wait(futures)
        wait_until(lambda: memory.unnamed_files() >= 5 * 200_000, "all errors to be on disk", 10)
        for number, future in enumerate(futures):
            assert future.exception().args[0] == number


def test_futures_that_are_dropped_give_their_place_back() -> None:
    with pl.connect(cpus=2, result_bytes=0):
        futures = [pl.remote(lambda: bytes(100_000)).submit() for _ in range(20)]
        pl.wait(futures)
        wait_until(lambda: memory.unnamed_files() >= 20 * 100_000, "all results to be on disk", 10)
        del futures[5:]
        wait_until(lambda: memory.unnamed_files() < 6 * 104_000, "the places of those dropped to be free", 10)
        assert [len(future.result()) for future in futures] == [100_000] * 5


def test_a_disk_that_takes_no_more_is_told_of_in_one_line() -> None:
    script = PRELUDE + textwrap.dedent(
        """
        import resource
        pl.connect(cpus=2, result_bytes=10 * MB)
        make(0)
        # As good as a full disk: files of this process may not grow beyond 5 MB.
        resource.setrlimit(resource.RLIMIT_FSIZE, (5 * MB, resource.RLIM_INFINITY))
        futures = [make.submit(number) for number in range(60)]
        pl.wait(futures)
        for number, future in enumerate(futures):
            check(number, future.result())
        """
    )
    done = run_script(script).ok()
    (line,) = done.stderr.splitlines()
    assert line.startswith("paceline: results are kept in memory beyond 10 MB, because "), line
    assert_nothing_left(done)


def test_a_killed_client_leaves_nothing_on_disk() -> None:
    script = PRELUDE + textwrap.dedent(
        """
        pl.connect(cpus=2, result_bytes=MB)
        futures = [make.submit(number) for number in range(50)]
        pl.wait(futures)
        while memory.unnamed_files() < 40 * MB:
            time.sleep(0.001)
        print("ready", flush=True)
        time.sleep(60)
        """
    )
    with start_script(script) as running:
        wait_until(lambda: "ready" in running.output(), "results to be on disk", 20, running.errors)
        assert list(running.run.temporary.iterdir()) == [], "they have no name while they are there, either"
        running.send_signal(signal.SIGKILL)
        running.process.wait(10)
        assert_nothing_left(running)


def test_a_forked_child_leaves_them_alone() -> None:
    script = PRELUDE + textwrap.dedent(
        """
        pl.connect(cpus=2, result_bytes=0)
        futures = [make.submit(number) for number in range(10)]
        pl.wait(futures)
        while memory.unnamed_files() < 10 * MB:
            time.sleep(0.001)
        child = os.fork()
        if child == 0:
            assert memory.unnamed_files() == 0
            try:
                futures[0].result()
            except pl.ResultNotSerializable as error:
                assert "forked child" in str(error), error
                del futures[:]
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        for number, future in enumerate(futures):
            check(number, future.result())
        """
    )
    done = run_script(script, interpreter=("-W", "ignore")).ok()
    assert_nothing_left(done)


def test_it_is_no_use_to_a_program_that_is_started() -> None:
    """The file is closed on exec."""
    with pl.connect(cpus=1, result_bytes=0):
        future = pl.remote(lambda: bytes(100_000)).submit()
        pl.wait([future])
        wait_until(lambda: memory.unnamed_files() > 0, "the result to be on disk", 10)
        program = (
            "import sys; sys.path.insert(0, sys.argv[1]); from support import memory; print(memory.unnamed_files())"
        )
        command = [sys.executable, "-c", program, str(Path(__file__).parent)]
        # Inherited descriptors are not closed by subprocess then, only by exec itself.
        found = subprocess.run(command, capture_output=True, text=True, check=True, close_fds=False, timeout=20)
        assert found.stdout.strip() == "0"
        assert len(future.result()) == 100_000

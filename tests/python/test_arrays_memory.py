"""The memory of large buffers: it comes back, whatever their sizes and whoever dies, and there may be too little."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import assert_nothing_left, run_script

pytest.importorskip("numpy")


def test_memory_comes_back() -> None:
    """What nobody looks at any more is given back, though nothing else is sent. In a process of its own: where arrays
    are mostly overwritten, as by other tests, they arrive as copies and not in segments."""
    run_script(
        """
        import time
        from pathlib import Path
        import numpy as np
        import paceline as pl

        MIB = 1 << 20

        @pl.remote
        def filled(count, value):
            return np.full(count, value, np.uint8)

        def shared():
            # Kilobytes of segments that this process has in memory.
            parts = Path("/proc/self/smaps").read_text().split("memfd:paceline")[1:]
            return sum(int(part.split("Rss:")[1].split()[0]) for part in parts)

        with pl.connect(cpus=2):
            results = [filled(16 * MIB, value) for value in range(4)]
            assert all((array == value).all() for value, array in enumerate(results))
            assert shared() >= 64 * MIB // 1024, shared()
            del results
            until = time.monotonic() + 30
            while shared() >= 1024:
                assert time.monotonic() < until, f"{shared()} kB of segments are still there"
                time.sleep(0.05)
            assert (filled(16 * MIB, 3) == 3).all()
        """,
        timeout=50,
    ).ok()


MIXED = """
import os, random, signal, sys
import numpy as np
import paceline as pl

rounds = int(sys.argv[1])

@pl.remote(retries=20)
def mixed(array, size, value):
    assert array.size == 0 or (array[0] == value and array[-1] == value), (array[:1], value)
    if pl.current().attempt == 1 and random.random() < 0.02:
        os.kill(os.getpid(), signal.SIGKILL)
    array[:] = 0
    return np.full(size, value, np.uint8)

def pss():
    # Kilobytes of all processes of this run.
    total = 0
    mark = b"PACELINE_TEST_RUN=" + os.environ["PACELINE_TEST_RUN"].encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark in open(f"/proc/{pid}/environ", "rb").read():
                total += int(open(f"/proc/{pid}/smaps_rollup").read().split("Pss:")[1].split()[0])
        except (OSError, IndexError):
            pass
    return total

random.seed(7)
sizes = [10, 5000, 100_000, 200_000, 1 << 20, 3 << 20]
with pl.connect(cpus=2):
    flat = None
    pending = []
    for number in range(rounds):
        value = number % 251
        size = random.choice(sizes)
        pending.append((mixed.submit(np.full(size, value, np.uint8), random.choice(sizes), value), value))
        if len(pending) > 8:
            future, value = pending.pop(0)
            came = future.result()
            assert (came == value).all()
        if number == rounds // 3:
            flat = pss()
    for future, value in pending:
        assert (future.result() == value).all()
    del came, future
    last = pss()
    print(flat, last, len(os.listdir("/proc/self/fd")))
    assert last < flat * 1.5 + 150_000, (flat, last)
"""


def mixed_rounds(rounds: int, limit: float) -> None:
    run = run_script(MIXED, args=[str(rounds)], timeout=limit)
    assert run.returncode == 0, run.stderr
    assert_nothing_left(run)


def test_mixed_sizes_with_kills(tmp_path: Path) -> None:
    mixed_rounds(300, 60)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_ten_thousand_rounds_of_mixed_sizes_with_kills() -> None:
    mixed_rounds(10_000, 1100)


MANY = """
import resource, sys
import numpy as np
import paceline as pl

count = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))

@pl.remote
def one(value):
    return np.full(1 << 20, value % 256, np.uint8)

with pl.connect(cpus=2):
    held = [one(value) for value in range(count)]
    assert all(array[0] == value % 256 and array[-1] == value % 256 for value, array in enumerate(held))
    print("held", len(held))
"""


def test_many_results_are_held_at_once() -> None:
    run = run_script(MANY, args=["500"], timeout=60)
    assert run.returncode == 0, run.stderr
    assert "held 500" in run.stdout
    assert not run.stderr


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_ten_thousand_results_are_held_at_once() -> None:
    run = run_script(MANY, args=["10000"], timeout=550)
    assert run.returncode == 0, run.stderr
    assert "held 10000" in run.stdout
    assert not run.stderr


FEW = """
import resource
import time
import numpy as np
import paceline as pl

resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))

@pl.remote
def same(array):
    return array

with pl.connect(cpus=1):
    assert (same(np.ones(10)) == 1).all()
    files = []
    try:
        while True:
            files.append(open("/dev/null"))
    except OSError:
        pass
    for value in range(5):
        assert (same(np.full(1 << 18, value)) == value).all()
    print("done")

    def shared():
        return open("/proc/self/maps").read().count("memfd:paceline (deleted)")

    # There may be one of its own by now, but the slot's could not be mapped.
    assert shared() <= 1, shared()
    del files
    late = time.monotonic() + 30
    while shared() < 2 and time.monotonic() < late:
        assert (same(np.full(1 << 18, 7)) == 7).all()
    print("shared again" if shared() >= 2 else "not shared")
"""


def test_without_descriptors_it_goes_through_sockets() -> None:
    run = run_script(FEW, timeout=60)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "done\nshared again\n"
    assert run.stderr.count("large buffers") == 1, run.stderr

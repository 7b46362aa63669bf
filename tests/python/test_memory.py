"""How much memory things take. Figures of the kernel, in fresh processes; the bars are in each test."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import paceline as pl
from support import memory, run_script, wait_until

BUSY = textwrap.dedent(
    f"""
    import gc, sys, threading, time
    sys.path.insert(0, {str(Path(__file__).parent)!r})
    from support import memory
    import paceline as pl

    COUNT = 1_000_000
    # What each item makes of a process is not what is measured: they are there before.
    items = list(range(COUNT))

    @pl.remote
    def nap(seconds):
        time.sleep(seconds)

    @pl.remote
    def same(value):
        return value
    """
)

SUBMIT = BUSY + textwrap.dedent(
    """
    cluster = pl.connect(cpus=2, queue_tasks=2 * COUNT)
    same.submit(1).result()
    busy = [nap.submit(300) for _ in range(2)]
    while not all(future.running() for future in busy):
        time.sleep(0.001)
    gc.collect()
    before = memory.proportional()
    began = time.perf_counter()
    futures = [same.submit(item) for item in items]
    rate = COUNT / (time.perf_counter() - began)
    grown = memory.proportional() - before
    print(cluster.status()["queued"], grown / COUNT, rate)
    cluster.close()
    """
)

MAP = BUSY + textwrap.dedent(
    """
    chunksize = int(sys.argv[1]) or None
    cluster = pl.connect(cpus=2)
    same.map(items[:1000], chunksize=1)
    busy = [nap.submit(0.5) for _ in range(2)]
    while not all(future.running() for future in busy):
        time.sleep(0.001)
    gc.collect()
    before = memory.proportional()
    peak = before
    ended = threading.Event()

    def watch():
        global peak
        while not ended.is_set():
            peak = max(peak, memory.proportional())
            time.sleep(0.005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    results = same.map(items, chunksize=chunksize)
    peak = max(peak, memory.proportional())
    ended.set()
    watcher.join()
    assert results == items
    print((peak - before) / COUNT)
    """
)


@pytest.mark.slow
def test_a_million_submitted_tasks() -> None:
    """Bar: 700 bytes each, with its future; and 100,000 a second are accepted."""
    queued, each, rate = run_script(SUBMIT, timeout=55).ok().stdout.split()
    assert int(queued) >= 999_990
    assert float(each) <= 700
    assert float(rate) >= 100_000


@pytest.mark.slow
@pytest.mark.parametrize("chunksize", [0, 1], ids=["default chunks", "one by one"])
def test_a_million_tasks_of_a_map(chunksize: int) -> None:
    """Bar: 400 bytes each beyond the input, results included, from slots that are busy at first until all is done."""
    each = run_script(MAP, args=(str(chunksize),), timeout=55).ok().stdout
    assert float(each) <= 400


def test_a_slot_takes_no_more_than_a_bare_python() -> None:
    """Bar: the PSS of a slot that has run something is at most that of an interpreter that waits for its input."""
    program = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1) as bare:
        assert bare.stdout is not None
        assert bare.stdin is not None
        bare.stdout.readline()
        with pl.connect(cpus=2) as cluster:
            assert pl.remote(abs).map(range(-100, 0), chunksize=1) == list(range(100, 0, -1))
            wait_until(lambda: not cluster.status()["queued"], "nothing to be under way")
            slots = [slot["pid"] for node in cluster.nodes for slot in node["slots"] if slot["pid"]]
            assert len(slots) >= 2
            for pid in slots:
                assert memory.proportional(pid) <= memory.proportional(bare.pid)
        bare.stdin.close()

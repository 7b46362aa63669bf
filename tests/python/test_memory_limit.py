"""A task that takes more memory than it asked for is ended, in less than a second, and nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import paceline as pl
from support import run_script, wait_until

MEBIBYTE = 1 << 20
LIMIT = 200 * MEBIBYTE


@pytest.fixture
def two() -> Iterator[pl.Cluster]:
    with pl.connect(cpus=2, memory="1GB") as cluster:
        yield cluster


def take(megabytes: int, crossing: str = "", seconds: float = 0.0, step: int = 10) -> int:
    """Take so much, and write down when that was about to be more than the limit."""
    kept = []
    for taken in range(0, megabytes, step):
        # The interpreter has some megabytes, too.
        if crossing and (taken + 3 * step) * MEBIBYTE > LIMIT:
            Path(crossing).write_text(repr(time.monotonic()))
            crossing = ""
        kept.append(bytearray(b"x") * (step * MEBIBYTE))
    time.sleep(seconds)
    return len(kept)


def pid_after(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def test_it_ends_within_a_second_and_nothing_else_does(two: pl.Cluster, tmp_path: Path) -> None:
    neighbour = pl.remote(pid_after)
    pid = neighbour(0)
    others = neighbour.submit(1.5)
    limited = pl.remote(memory=LIMIT)(take)
    crossing = tmp_path / "crossing"
    with pytest.raises(pl.OutOfMemory) as caught:
        limited(400, str(crossing), 30)
    took = time.monotonic() - float(crossing.read_text())
    assert took < 1, f"known {took:.3f} s after it took too much"
    error = caught.value
    assert error.own_limit
    assert error.out_of_memory == "yes"
    assert error.limit == LIMIT < error.peak
    assert "(take) died with slot" in str(error)
    assert "it took more memory than it may: " in str(error)
    assert " of 200 MiB" in str(error)
    assert "hint: raise its memory=" in str(error)
    assert others.result(timeout=20) == pid, "the neighbour has not noticed"
    assert limited(20) == 2, "the node neither"


def test_what_is_within_the_limit_stays(two: pl.Cluster) -> None:
    """Programs and libraries are not what a task takes, nor is what others have."""
    limited = pl.remote(memory="200MB")(take)
    assert limited(150, "", 0.6) == 15
    assert limited(150, "", 0.3) == 15, "what it has given back is not counted again"


def test_it_is_not_run_again_unless_asked(two: pl.Cluster, tmp_path: Path) -> None:
    def hog(log: str) -> int:
        with open(log, "a") as file:
            file.write("run\n")
        return take(400, "", 30)

    limited = pl.remote(memory=LIMIT)(hog)
    with pytest.raises(pl.OutOfMemory) as caught:
        limited(str(tmp_path / "once"))
    assert caught.value.attempts == 1
    assert (tmp_path / "once").read_text() == "run\n"
    again = limited.options(retries=1, retry_on=("memory",))
    with pytest.raises(pl.OutOfMemory) as caught:
        again(str(tmp_path / "twice"))
    assert caught.value.attempts == 2
    assert (tmp_path / "twice").read_text() == "run\nrun\n"


def test_what_a_task_starts_counts(two: pl.Cluster) -> None:
    def parent() -> int:
        script = "import time; kept = bytearray(b'x') * (300 << 20); time.sleep(30)"
        return subprocess.run([sys.executable, "-c", script], check=False).returncode

    # Often: the task must not return when only the process that it started has ended.
    for _ in range(10):
        began = time.monotonic()
        with pytest.raises(pl.OutOfMemory) as caught:
            pl.remote(memory=LIMIT)(parent)()
        assert time.monotonic() - began < 15
        assert caught.value.own_limit
        assert caught.value.peak > LIMIT


def test_forked_children_share_what_they_share(two: pl.Cluster) -> None:
    """Four processes that have the same pages have them once."""

    def family() -> int:
        kept = bytearray(b"x") * (100 * MEBIBYTE)
        children = []
        for _ in range(3):
            pid = os.fork()
            if pid == 0:
                time.sleep(0.8)
                os._exit(0)
            children.append(pid)
        for pid in children:
            os.waitpid(pid, 0)
        return len(kept) // MEBIBYTE

    assert pl.remote(memory=LIMIT)(family)() == 100


def test_all_at_once_is_as_bad(two: pl.Cluster) -> None:
    with pytest.raises(pl.OutOfMemory) as caught:
        pl.remote(memory="100MB")(take)(600, "", 30, 600)
    assert caught.value.own_limit


def test_tasks_share_the_memory_there_is(two: pl.Cluster, tmp_path: Path) -> None:
    """Two that need more than half of it run one after the other, whatever CPUs there are."""

    def alone(folder: str) -> bool:
        mark = Path(folder) / str(os.getpid())
        mark.touch()
        time.sleep(0.3)
        others = len(os.listdir(folder))
        mark.unlink()
        return others == 1

    assert pl.remote(memory="600MB")(alone).map([str(tmp_path)] * 4) == [True] * 4
    with pytest.raises(pl.NoResources, match="memory"):
        pl.remote(memory="2GB")(os.getpid)()


@pytest.mark.parametrize("memory", [5 << 30, "5GB", "auto", "unlimited", None])
def test_how_much_a_node_has(memory: int | str | None) -> None:
    with pl.connect(cpus=1, memory=memory):
        assert pl.remote(memory="64MB")(pid_after)(0) > 0
        huge = pl.remote(memory="500TB")(pid_after)
        if memory == "unlimited":
            assert huge(0) > 0
        else:
            with pytest.raises(pl.NoResources, match="memory"):
                huge(0)


@pytest.mark.parametrize("memory", ["much", "-5GB", "5 apples"])
def test_what_is_no_amount_of_memory(memory: str) -> None:
    with pytest.raises(pl.PacelineError, match="is no amount of memory"):
        pl.connect(cpus=1, memory=memory)
    with pytest.raises(ValueError, match="memory"):
        pl.remote(memory=memory)(take)


def groups() -> list[str]:
    """The control groups of slots that there are now."""
    found = []
    for root, folders, _ in os.walk("/sys/fs/cgroup"):
        found += [os.path.join(root, name) for name in folders if name.startswith("paceline-slot-")]
    return found


def can_make_groups() -> bool:
    line = next((line for line in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in line), "")
    own = "/sys/fs/cgroup/memory" + line.rpartition(":")[2]
    return bool(line) and os.access(own, os.W_OK)


@pytest.mark.skipif(not can_make_groups(), reason="control groups of memory cannot be written here")
def test_the_kernel_helps_where_it_may(tmp_path: Path) -> None:
    """A slot with a limit is in a group of its own, which is gone with it, even if everything is killed."""
    before = set(groups())
    with pl.connect(cpus=1):
        limited = pl.remote(memory="300MB")(pid_after)
        pid = limited(0)
        [group] = set(groups()) - before
        assert (Path(group) / "cgroup.procs").read_text().split() == [str(pid)]
        assert 300 * MEBIBYTE < int((Path(group) / "memory.limit_in_bytes").read_text()) < 330 * MEBIBYTE
    wait_until(lambda: set(groups()) <= before, "the group is gone")
    script = """
        import os, signal
        import paceline as pl
        pl.connect(cpus=1)
        pl.remote(memory="300MB")(os.getpid)()
        os.kill(os.getpid(), signal.SIGKILL)
    """
    run_script(script)
    wait_until(lambda: set(groups()) <= before, "the group of a program that was killed is gone")


class Hoarder:
    def take(self, megabytes: int) -> int:
        return take(megabytes, "", 30 if megabytes > 200 else 0)


def test_an_actor_has_a_limit_as_long_as_it_lives(two: pl.Cluster) -> None:
    limited = pl.remote(cpus=0, memory=LIMIT)(Hoarder).options(restarts=1)()
    free = pl.remote(cpus=0)(Hoarder)()
    with pytest.raises(pl.ActorDied) as caught:
        limited.take(400)
    assert caught.value.ran
    assert caught.value.out_of_memory == "yes"
    assert limited.take(20) == 2, "and so has the one that is built anew"
    with pytest.raises(pl.ActorDied):
        limited.take(400)
    assert free.take(20) == 2, "others have not noticed"

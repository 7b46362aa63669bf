"""Out of memory: the node ends the largest task in time, and the kernel's own kills are recognised."""

from __future__ import annotations

import contextlib
import os
import textwrap
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import assert_nothing_left, run_script

LIMIT = 400 << 20

SCRIPT = textwrap.dedent(
    """
    import os, signal, sys, time
    import paceline as pl

    pl.connect(cpus=2)

    @pl.remote
    def hog(path=None):
        # Ten megabytes at a time, each page written to. With a path: only at the first time.
        if path is not None:
            if os.path.exists(path):
                return "small"
            open(path, "w").close()
        kept = []
        for _ in range(80):
            kept.append(bytearray(b"x") * (10 << 20))
            time.sleep(PAUSE)
        return "fits"

    @pl.remote
    def modest(seconds):
        kept = bytearray(b"x") * (20 << 20)
        time.sleep(seconds)
        return os.getpid()

    modest(0)
    before = modest.submit(1.0)
    try:
        print("value", hog.options(retries=0)())
    except pl.SlotDied as error:
        named = error.slot > 0 and error.task > 0
        print(type(error).__name__, error.out_of_memory, named, error.peak >> 20, error.limit >> 20)
        print("text:", str(error).replace(chr(10), " | "))
    print("neighbour lives", before.result() > 0, flush=True)
    print("again:", hog(os.path.join(os.getcwd(), "marker")), flush=True)
    print("next", modest(0) > 0)
    """
)


def numbers(text: str) -> tuple[int, int]:
    """Peak and limit, in MiB."""
    words = next(line for line in text.splitlines() if line.startswith(("OutOfMemory", "SlotDied"))).split()
    return int(words[-2]), int(words[-1])


def test_the_largest_task_is_ended_before_memory_is_full() -> None:
    done = run_script(SCRIPT.replace("PAUSE", "0.01"), env={"PACELINE_MEMORY_LIMIT": str(LIMIT)}).ok()
    assert "OutOfMemory yes True" in done.stdout, done.transcript()
    peak, limit = numbers(done.stdout)
    assert limit == 400
    # Slots of 20 and some more megabytes are the rest. It is looked at in time, and not too early.
    assert 300 <= peak <= 500, peak
    assert "(hog) died with slot" in done.stdout
    assert "MiB of 400 MiB | hint: give it less data at a time" in done.stdout
    assert "neighbour lives True" in done.stdout
    assert "again: small" in done.stdout
    assert "next True" in done.stdout
    assert_nothing_left(done)


def test_a_task_that_never_fits_is_poison_and_says_why() -> None:
    script = SCRIPT.replace("PAUSE", "0.002").split("modest(0)\nbefore")[0] + textwrap.dedent(
        """
        try:
            hog()
        except pl.PoisonTask as error:
            print(error.out_of_memory, len(error.slots), str(error).splitlines()[0])
        """
    )
    done = run_script(script, env={"PACELINE_MEMORY_LIMIT": "400M"}).ok()
    assert "yes 3 task" in done.stdout, done.transcript()
    assert "out of memory: it had" in done.stdout


def test_a_kill_from_outside_is_not_taken_for_it() -> None:
    done = run_script(
        """
        import os, signal
        import paceline as pl
        pl.connect(cpus=1)
        try:
            pl.remote(lambda: os.kill(os.getpid(), signal.SIGKILL)).options(retries=0)()
        except pl.SlotDied as error:
            print(type(error).__name__, error.out_of_memory)
        """
    ).ok()
    assert done.stdout == "SlotDied no\n"


@pytest.fixture
def memory_group() -> Iterator[Path]:
    """A control group with a limit of its own. Making one takes root and a hierarchy that can be written to."""
    name = f"paceline-test-{uuid.uuid4().hex[:8]}"
    for mount, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(mount) / name
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text(str(LIMIT))
        except OSError:
            group.rmdir()
            continue
        yield group
        with contextlib.suppress(OSError):
            group.rmdir()
        return
    pytest.skip("no control group of memory can be made here: not root, or none is mounted for writing")


def in_group(group: Path) -> list[str]:
    return ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]


def test_the_kernels_own_kill_is_recognised(memory_group: Path) -> None:
    """The node does not watch, so the kernel ends what has most to answer for: the slot, by its score."""
    done = run_script(
        SCRIPT.replace("PAUSE", "0"), env={"PACELINE_MEMORY_LIMIT": "off"}, prefix=in_group(memory_group)
    ).ok()
    assert "OutOfMemory yes True" in done.stdout, done.transcript()
    peak, limit = numbers(done.stdout)
    assert limit == 400
    assert 200 <= peak <= 410
    assert "neighbour lives True" in done.stdout
    assert "again: small" in done.stdout
    assert_nothing_left(done)


def test_the_limit_of_a_control_group_counts(memory_group: Path) -> None:
    """Here the node watches: it ends the task before the kernel has to."""
    # Slow enough for a group this small: its last twentieth is two steps of the task.
    done = run_script(SCRIPT.replace("PAUSE", "0.04"), prefix=in_group(memory_group)).ok()
    assert "OutOfMemory yes True" in done.stdout, done.transcript()
    assert numbers(done.stdout)[1] == 400
    control = memory_group / "memory.oom_control"
    events = control if control.exists() else memory_group / "memory.events"
    assert "oom_kill 0" in events.read_text(), "the kernel was not needed"
    assert "next True" in done.stdout


def test_slots_go_first_when_the_kernel_chooses() -> None:
    done = run_script(
        """
        from pathlib import Path
        import paceline as pl
        pl.connect(cpus=1)
        print(Path("/proc/self/oom_score_adj").read_text().strip())
        print(pl.remote(lambda: Path("/proc/self/oom_score_adj").read_text().strip())())
        """
    ).ok()
    own, slot = done.stdout.split()
    assert int(slot) == 800 or os.geteuid() != 0
    assert int(slot) >= int(own)

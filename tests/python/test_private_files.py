"""Names in directories that others may write to cannot be guessed, and files that must be whole are."""

from __future__ import annotations

import fcntl
import os
import re
import resource
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from paceline._cli import program
from support.daemons import Commands
from support.programs import built
from support.waiting import wait_until
from test_code import LIMIT, Far

NOBODY = 65534

# A program of another language brings no files, so its slots work in directories of their own.
NAP = """
import sys

import paceline as pl

with pl.connect():
    pl.program(sys.argv[1]).function("nap")("mark", 60_000)
"""


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Far]:
    far = Far(tmp_path)
    yield far
    far.paceline.end()


@contextmanager
def napping(far: Far) -> Iterator[Path]:
    """The mark that a task has left in the directory of its slot."""
    command = [sys.executable, "-c", NAP, built("exports")]
    with subprocess.Popen(command, env=far.environment(), cwd=far.folder) as running:
        try:
            [mark] = wait_until(lambda: list(far.store.glob("paceline-slot-*/mark")), "the task to run", LIMIT)
            yield mark
        finally:
            running.kill()


def occupy(store: Path) -> set[Path]:
    """What others can prepare who may write to the directory for temporary files: every name of a process number."""
    taken = set()
    process = subprocess.Popen(["true"])
    process.wait()
    # Slots that wait for work are there already.
    for pid in range(max(2, process.pid - 3000), process.pid + 3000):
        path = store / f"paceline-slot-{pid}"
        if pid % 2:
            path.symlink_to(store / "trap")
        else:
            path.mkdir(mode=0o777)
            if os.geteuid() == 0:
                os.chown(path, NOBODY, NOBODY)
        taken.add(path)
    return taken


@pytest.mark.slow
def test_slot_directory_is_not_where_another_user_expects_it(far: Far) -> None:
    """Neither can the slot be kept from its directory, nor does it work in one that is not its own."""
    trap = far.store / "trap"
    trap.mkdir()
    far.store.chmod(0o1777)
    taken = occupy(far.store)
    with napping(far) as mark:
        directory = mark.parent
        assert directory not in taken
        assert not directory.is_symlink()
        assert re.fullmatch("paceline-slot-[0-9a-f]{32}", directory.name), "nothing that can be guessed"
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert list(trap.iterdir()) == []
    wait_until(lambda: not directory.exists(), "the directory to go with its slot", LIMIT)
    assert {path for path in taken if path.is_symlink() or path.is_dir()} == taken, "nobody else's are touched"


@pytest.mark.slow
def test_slot_directory_that_a_killed_zygote_has_left_goes_with_the_next_node(far: Far) -> None:
    with napping(far) as mark:
        slot = int(mark.read_text())
        zygote = int(Path(f"/proc/{slot}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(zygote, signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{slot}").exists(), "the slot to end with its zygote")
    assert mark.exists()
    far.paceline("stop").ok()
    far.start()
    wait_until(lambda: not mark.parent.exists(), "what was left to go")


def no_room() -> None:
    """The first byte that is written to a file ends the process, as a loss of power would."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


@pytest.mark.parametrize("given", [False, True])
def test_start_killed_as_it_writes_the_key_leaves_no_half_of_it(tmp_path: Path, given: bool) -> None:
    paceline = Commands(tmp_path / "home")
    key = tmp_path / "key" if given else paceline.home / "clusters/default/key"
    arguments = ["start", "--port", "0", "--no-node", *(["--key-file", str(key)] if given else [])]
    try:
        done = subprocess.run(
            [program(), *arguments],
            env=paceline.environment(),
            preexec_fn=no_room,
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert done.returncode != 0, done
        assert not key.exists(), f"half a key: {key.read_bytes()!r}"
        paceline(*arguments).ok()
        assert len(key.read_text().strip()) == 64
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        paceline("stop").ok()
    finally:
        paceline.end()


def test_clusters_started_at_once_with_one_key_file_share_its_key(tmp_path: Path) -> None:
    """Each finds no key and makes one; all go on with that of the first."""
    homes = [Commands(tmp_path / f"home{number}") for number in range(4)]
    key = tmp_path / "key"
    try:
        running = [
            subprocess.Popen(
                [program(), "start", "--port", "0", "--no-node", "--key-file", str(key)],
                env=paceline.environment(),
                stdout=subprocess.DEVNULL,
            )
            for paceline in homes
        ]
        assert [each.wait(30) for each in running] == [0] * 4
        kept = {(paceline.home / "clusters/default/key").read_text() for paceline in homes}
        assert kept == {key.read_text()}
    finally:
        for paceline in homes:
            paceline.end()


def test_start_succeeds_while_somebody_looks_at_its_lock(tmp_path: Path) -> None:
    """One who looks at a lock, and is stopped in the middle of it, is nobody who has it."""
    paceline = Commands(tmp_path / "home")
    place = paceline.home / "clusters/default"
    place.mkdir(parents=True, mode=0o700)
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            paceline("status")

    looking = [threading.Thread(target=look) for _ in range(2)]
    with (place / "head.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        for thread in looking:
            thread.start()
        try:
            head = paceline.start("--no-node")
            assert not head["already"]
            assert paceline.start("--no-node")["already"], "and who has it is seen to have it"
            paceline("stop").ok()
        finally:
            stop.set()
            for thread in looking:
                thread.join()
            paceline.end()

"""What a run left behind: processes, memory files, sockets, temporary files.

Memory files and abstract sockets have no life without a process, so they are looked for in the processes of the run,
plus sockets of ours that nobody seems to own. `footprint` is the same for the testing process itself, before and after.
"""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from support import processes
from support.processes import Process
from support.scripts import Completed, Run, Running
from support.waiting import wait_until


@dataclass(frozen=True)
class Leftovers:
    """Empty, and so false, when nothing is left."""

    processes: list[Process] = field(default_factory=list)
    memfds: list[str] = field(default_factory=list)
    sockets: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.processes or self.memfds or self.sockets or self.files)

    def __str__(self) -> str:
        if not self:
            return "nothing"
        lines = [f"process {one}" for one in self.processes]
        lines += [f"memory file {one}" for one in self.memfds]
        lines += [f"socket {one}" for one in self.sockets]
        lines += [f"file {one}" for one in self.files]
        return "\n".join(lines)


@dataclass(frozen=True)
class Footprint:
    """What the testing process itself holds: compare the one before with the one after."""

    children: frozenset[int]
    threads: int
    memfds: tuple[str, ...]
    sockets: int
    descriptors: int


def unix_sockets() -> dict[int, str]:
    """Abstract unix sockets of this network namespace, by inode."""
    found = {}
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split(maxsplit=7)
        if len(fields) == 8 and fields[7].startswith("@"):
            found[int(fields[6])] = fields[7]
    return found


def socket_inodes(pid: int) -> set[int]:
    matches = (re.fullmatch(r"socket:\[(\d+)\]", target) for target in processes.descriptors(pid))
    return {int(match[1]) for match in matches if match}


def leftovers(run: Run | Running | Completed) -> Leftovers:
    """What a finished (or ended) run still has on this machine."""
    if not isinstance(run, Run):
        run = run.run
    living = processes.processes_of(run.marker)
    abstract = unix_sockets()
    held = {inode for one in living for inode in socket_inodes(one.pid)}
    sockets = [name for inode, name in abstract.items() if inode in held]
    suspects = {inode: name for inode, name in abstract.items() if "paceline" in name and inode not in held}
    if suspects:
        owned = {inode for pid in processes.pids() for inode in socket_inodes(pid)}
        sockets += [f"{name} (nobody's)" for inode, name in suspects.items() if inode not in owned]
    files = [str(path) for path in sorted(run.temporary.rglob("*"))] if run.temporary.exists() else []
    shared = Path("/dev/shm")
    files += [
        str(path)
        for path in (shared.iterdir() if shared.is_dir() else ())
        if "paceline" in path.name and path.lstat().st_ctime >= run.started
    ]
    return Leftovers(living, [memfd for one in living for memfd in processes.memfds(one.pid)], sockets, files)


def assert_nothing_left(run: Run | Running | Completed, within: float = 2.0) -> None:
    """Wait until nothing of a run is left; say what is if it takes too long, and end it."""
    try:
        wait_until(lambda: not leftovers(run), "the run to leave nothing behind", within, lambda: leftovers(run))
    except AssertionError:
        processes.end_all(run.marker if isinstance(run, Run) else run.run.marker)
        raise


def footprint() -> Footprint:
    """What this process holds now."""
    here = os.getpid()
    descriptors = processes.descriptors(here)
    return Footprint(
        children=frozenset(one.pid for one in processes.children_of(here)),
        threads=len(os.listdir("/proc/self/task")),
        memfds=tuple(sorted(processes.memfds(here))),
        sockets=len(socket_inodes(here)),
        descriptors=len(descriptors),
    )

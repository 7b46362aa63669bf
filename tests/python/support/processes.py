"""What /proc says about processes: enough to find those of one run, and to show what they were doing."""

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Every process of a run carries this variable, with the run's own value, from its start to its end.
MARKER = "PACELINE_TEST_RUN"


def restore_signals() -> None:
    """Let SIGHUP and SIGINT reach the child again, as its `preexec_fn`: who starts the tests by `nohup`, or in the
    background of a script, has them ignored, and children inherit that."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass(frozen=True)
class Process:
    """A living process; zombies do not count."""

    pid: int
    parent: int
    name: str
    state: str
    command: str

    def __str__(self) -> str:
        return f"{self.pid} (parent {self.parent}) {self.state} {self.name}: {self.command}"


def process(pid: int) -> Process | None:
    """None if there is no such process or it is dead already."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    # The name stands in brackets and may itself hold brackets and spaces.
    name = stat[stat.index("(") + 1 : stat.rindex(")")]
    state, parent = stat[stat.rindex(")") + 2 :].split()[:2]
    # The first thread may be gone while others still hold files and locks.
    if state in "ZX" and len(threads_of(pid)) <= 1:
        return None
    return Process(pid, int(parent), name, state, command.strip()[:200])


def threads_of(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def pids() -> Iterator[int]:
    return (int(entry) for entry in os.listdir("/proc") if entry.isdigit())


def marker_of(pid: int) -> str | None:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    for entry in environment.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name == MARKER.encode():
            return value.decode()
    return None


def processes_of(marker: str) -> list[Process]:
    """The living processes of a run, whoever their parents are by now."""
    found = (process(pid) for pid in pids() if pid != os.getpid() and marker_of(pid) == marker)
    return [one for one in found if one is not None]


def children_of(pid: int) -> list[Process]:
    """Children, their children and so on."""
    everyone = [one for one in map(process, pids()) if one is not None]
    found, parents = [], {pid}
    while parents:
        next_ones = [one for one in everyone if one.parent in parents]
        found += next_ones
        parents = {one.pid for one in next_ones}
    return found


def descriptors(pid: int) -> list[str]:
    """What the open descriptors of a process point to."""
    targets = []
    with contextlib.suppress(OSError):
        for entry in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                targets.append(os.readlink(f"/proc/{pid}/fd/{entry}"))
    return targets


def memfds(pid: int) -> list[str]:
    """Memory files that a process has open or mapped."""
    found = [target for target in descriptors(pid) if target.startswith("/memfd:")]
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            fields = line.split(maxsplit=5)
            if len(fields) == 6 and fields[5].startswith("/memfd:"):
                found.append(fields[5])
    return found


def describe(pid: int) -> str:
    """What a process is doing, thread by thread, as far as the kernel tells."""
    one = process(pid)
    if one is None:
        return f"{pid} is gone"
    lines = [str(one)]
    with contextlib.suppress(OSError):
        for thread in sorted(os.listdir(f"/proc/{pid}/task"), key=int):
            facts = []
            for fact in ("comm", "wchan", "syscall"):
                with contextlib.suppress(OSError):
                    facts.append(Path(f"/proc/{pid}/task/{thread}/{fact}").read_text().strip())
            lines.append(f"  thread {thread}: {' | '.join(facts)}")
    return "\n".join(lines)


def end_all(marker: str) -> None:
    """Kill what a run left; only after a test has failed or said what it found."""
    for one in processes_of(marker):
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGKILL)


def is_dead(pid: int) -> bool:
    """Whether nothing of a process runs any more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except FileNotFoundError:
        return True

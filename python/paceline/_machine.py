"""What this machine lets this process use.

Owns: how many CPUs that is. Reads the system and decides nothing else.

* MA-1: the count is the least that any of affinity, cgroup quota and Slurm allows, and never below one.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def usable_cpus(root: str = "/", environment: Mapping[str, str] | None = None) -> int:
    """How many CPUs this process may use.

    `root` and `environment` stand in for the file system and `os.environ` in tests.

    >>> usable_cpus() >= 1
    True
    """
    limits = [_affinity(), *_quotas(root), *_slurm(os.environ if environment is None else environment)]
    return max(1, int(min(limits)))


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _slurm(environment: Mapping[str, str]) -> Iterator[int]:
    for name in ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"):
        value = environment.get(name, "")
        if value.isdecimal() and int(value) > 0:
            yield int(value)


def _quotas(root: str) -> Iterator[float]:
    """The quota of our cgroup and of each one above it, whichever version the kernel mounts."""
    mounts = os.path.join(root, "sys/fs/cgroup")
    for controllers, group in _groups(root):
        if not controllers:
            for mount in (mounts, os.path.join(mounts, "unified")):
                for directory in _upwards(mount, group):
                    yield from _quota_v2(directory)
        elif "cpu" in controllers.split(","):
            for mount in (os.path.join(mounts, controllers), os.path.join(mounts, "cpu")):
                for directory in _upwards(mount, group):
                    yield from _quota_v1(directory)


def _groups(root: str) -> Iterator[tuple[str, str]]:
    """(controllers, path) of each hierarchy we are in. Version 2 names no controllers."""
    for line in _read(os.path.join(root, "proc/self/cgroup")).splitlines():
        _, _, rest = line.partition(":")
        controllers, separator, group = rest.partition(":")
        if separator:
            yield controllers, group


def _upwards(mount: str, group: str) -> Iterator[str]:
    # Inside a container the path may be the host's and not exist here: the loop then ends at the mount
    # itself, which is our own group.
    parts = [part for part in group.split("/") if part and part != ".."]
    for count in range(len(parts), -1, -1):
        yield os.path.join(mount, *parts[:count])


def _quota_v2(directory: str) -> Iterator[float]:
    words = _read(os.path.join(directory, "cpu.max")).split()
    if len(words) == 2 and words[0].isdecimal() and words[1].isdecimal() and int(words[1]) > 0:
        yield int(words[0]) / int(words[1])


def _quota_v1(directory: str) -> Iterator[float]:
    quota = _read(os.path.join(directory, "cpu.cfs_quota_us")).strip()
    period = _read(os.path.join(directory, "cpu.cfs_period_us")).strip()
    if quota.isdecimal() and period.isdecimal() and int(quota) > 0 and int(period) > 0:
        yield int(quota) / int(period)


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""

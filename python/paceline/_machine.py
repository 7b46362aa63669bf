"""What this machine lets this process use.

Owns: how many CPUs that is, as Python asks. The counting itself is the core's, so that nodes everywhere count alike.

* MA-1: the count is the least that any of affinity, cgroup quota and Slurm allows, and never below one.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_SLURM = ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE")


def usable_cpus(root: str = "/", environment: Mapping[str, str] | None = None) -> int:
    """How many CPUs this process may use.

    `root` and `environment` stand in for the file system and `os.environ` in tests.

    >>> usable_cpus() >= 1
    True
    """
    from paceline import _native

    environment = os.environ if environment is None else environment
    slurm = {name: environment[name] for name in _SLURM if name in environment}
    return _native.usable_cpus(_affinity(), root, slurm)


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

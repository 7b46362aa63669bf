"""How much memory a process has, as the kernel counts it. All figures are bytes."""

import os
from pathlib import Path


def _field(pid: int | str, file: str, name: str) -> int:
    for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
        field, _, value = line.partition(":")
        if field == name:
            return int(value.split()[0]) * 1024
    raise LookupError(f"/proc/{pid}/{file} has no {name}")


def proportional(pid: int | str = "self") -> int:
    """PSS: what it alone has, and its share of what it has with others."""
    return _field(pid, "smaps_rollup", "Pss")


def peak_resident(pid: int | str = "self") -> int:
    """The most it ever had in memory."""
    return _field(pid, "status", "VmHWM")


def unnamed_files(pid: int | str = "self") -> int:
    """What files without a name that it has open take on disk."""
    directory = Path(f"/proc/{pid}/fd")
    size = 0
    for entry in os.listdir(directory):
        try:
            target = os.readlink(directory / entry)
            if target.startswith("/") and target.endswith(" (deleted)") and not target.startswith("/memfd:"):
                size += os.stat(directory / entry).st_blocks * 512
        except OSError:
            continue  # closed meanwhile
    return size

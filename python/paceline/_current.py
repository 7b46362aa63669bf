"""What a task can know about itself."""

from __future__ import annotations

import sys
from typing import NamedTuple

from paceline import _native, _slot
from paceline._slot import member


class Current(NamedTuple):
    """The task that runs: its number, which attempt at it this is (from 1), and the slot it runs in. In a group, which
    member that is (from 0), and how many there are."""

    task: int
    attempt: int
    slot: int
    rank: int | None = None
    size: int | None = None


def current() -> Current | None:
    """The task that this code runs in; None outside of tasks.

    >>> import paceline as pl
    >>> with pl.connect(cpus=1):
    ...     pl.remote(lambda: pl.current().attempt)()
    1
    >>> pl.current() is None
    True
    """
    found = _native.current()
    # Without the module, or while another thread still imports it, nothing goes on beside anything.
    running = getattr(sys.modules.get("paceline._slot.overlap"), "running", None)
    beside = running.get(None) if running is not None else None
    if beside is not None:
        found = (*beside, _slot.number or 0)
    return None if found is None else Current(*found, member.rank, member.size)

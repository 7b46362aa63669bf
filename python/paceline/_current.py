"""What a task can know about itself."""

from __future__ import annotations

from typing import NamedTuple

from paceline import _native


class Current(NamedTuple):
    """The task that runs: its number, which attempt at it this is (from 1), and the slot it runs in."""

    task: int
    attempt: int
    slot: int


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
    return None if found is None else Current(*found)

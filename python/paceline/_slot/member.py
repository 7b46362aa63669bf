"""What a slot knows of the group it is a member of.

A slot that was in a group ends with it, so nothing here is ever taken back.
"""

from __future__ import annotations

import os

rank: int | None = None
"""Which member of its group this process is. None if it is in none."""

size: int | None = None


def arrive() -> int:
    """Called in each member when all are there. A port that is free on this machine, for members to meet at."""
    import socket

    with socket.socket() as free:
        free.bind(("", 0))
        port: int = free.getsockname()[1]
        return port


def enter(number: int, variables: dict[str, str]) -> None:
    """From now on this process is that member."""
    global rank, size
    os.environ.update(variables)
    rank, size = number, int(variables["WORLD_SIZE"])

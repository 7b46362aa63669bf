"""Shows what slots print.

Owns: the prefix of each line. The core calls `emit` and `warn` on its callback thread with whole lines.
"""

from __future__ import annotations

import os
import sys

from paceline import _slot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

STDOUT = 1
PLAINLY = _slot.PLAINLY.decode().removesuffix("\n")

# Slots and streams that have asked for lines without a prefix.
_plain: set[tuple[int, int]] = set()


def emit(slot: int, stream: int, text: bytes) -> None:
    """Write lines of a slot to `sys.stdout` (stream 1) or `sys.stderr` (stream 2), each with its prefix.

    The two are looked up at each call, so notebooks and tests that replace them see the lines.

    >>> emit(3, 1, b"hello\\n")
    [slot 3] hello
    """
    try:
        target = sys.stdout if stream == STDOUT else sys.stderr
        if target is None:
            return
        lines = text.decode("utf-8", "replace").removesuffix("\n").split("\n")
        _write(target, "".join(_prefixed(slot, stream, target, lines)))
    except Exception:
        # A closed or broken terminal must not end the thread that also runs everybody's callbacks.
        return


def warn(text: str) -> None:
    """Write a line of Paceline's own to `sys.stderr`."""
    try:
        if sys.stderr is not None:
            _write(sys.stderr, f"paceline: {text}\n")
    except Exception:
        return  # as above


def _prefixed(slot: int, stream: int, target: TextIO, lines: list[str]) -> Iterator[str]:
    prefix = "" if (slot, stream) in _plain else _prefix(slot, target)
    for line in lines:
        if line == PLAINLY:
            _plain.add((slot, stream))
            prefix = ""
        else:
            yield f"{prefix}{line}\n"


def _prefix(slot: int, target: TextIO) -> str:
    prefix = f"[slot {slot}] "
    if target.isatty() and not os.environ.get("NO_COLOR"):
        return f"\x1b[2m{prefix}\x1b[0m"
    return prefix


def _write(target: TextIO, text: str) -> None:
    try:
        target.write(text)
    except UnicodeEncodeError:
        encoding = target.encoding or "ascii"
        target.write(text.encode(encoding, "backslashreplace").decode(encoding))
    target.flush()

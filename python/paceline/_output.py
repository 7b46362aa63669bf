"""Shows what slots print.

Owns: the prefix of each line. The core calls `emit` and `warn` on its callback thread with whole lines.
"""

from __future__ import annotations

import os
import sys

from paceline import _slot

TYPE_CHECKING = False
if TYPE_CHECKING:
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
        if _slot.PLAINLY in text:
            lines = _after_mark(slot, stream, target, lines)
        prefix = "" if (slot, stream) in _plain else _prefix(slot, target)
        _write(target, "".join([f"{prefix}{line}\n" for line in lines]))
    except Exception:
        # A closed or broken terminal must not end the thread that also runs everybody's callbacks.
        return


def forget() -> None:
    """No cluster is open any more: slots of the next one have the same numbers again."""
    _plain.clear()


def warn(text: str) -> None:
    """Write a line of Paceline's own to `sys.stderr`."""
    try:
        if sys.stderr is not None:
            _write(sys.stderr, f"paceline: {text}\n")
    except Exception:
        return  # as above


def _after_mark(slot: int, stream: int, target: TextIO, lines: list[str]) -> list[str]:
    """Write what came before the slot asked for no prefix, and return the rest."""
    at = lines.index(PLAINLY)
    if at:
        _write(target, "".join([f"{_prefix(slot, target)}{line}\n" for line in lines[:at]]))
    _plain.add((slot, stream))
    return [line for line in lines[at:] if line != PLAINLY]


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

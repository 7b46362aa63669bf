"""A progress bar on standard error.

Owns: how progress looks. On a terminal one line is drawn again and again; elsewhere a line is printed at each
tenth.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO

REDRAW_EVERY = 0.1
PARTIAL = " ▏▎▍▌▋▊▉"
LINES = 10


class Bar:
    """Shows how many items are done. Call it with that number as often as you like.

    >>> with Bar("square", 4, sys.stdout) as bar:
    ...     bar(2)
    square: 2/4 (50 %)
    """

    def __init__(self, name: str, total: int | None, stream: TextIO | None = None) -> None:
        self._name = name
        self._total = total
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream is not None and self._stream.isatty()
        self._started = time.monotonic()
        self._drawn = -REDRAW_EVERY
        self._done = 0
        self._lines = 0

    def __call__(self, done: int) -> None:
        self._done = done
        if self._terminal:
            now = time.monotonic() - self._started
            if now - self._drawn >= REDRAW_EVERY:
                self._drawn = now
                self._draw(now)
        else:
            self._line()

    def __enter__(self) -> Bar:
        if self._terminal:
            self(0)
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal:
            self._draw(time.monotonic() - self._started)
            self._write("\n")

    def _line(self) -> None:
        if self._total:
            step = self._done * LINES // self._total
            share = f" ({100 * self._done // self._total} %)"
            text = f"{self._name}: {self._done}/{self._total}{share}"
        else:
            step = len(str(self._done))  # at 1, 10, 100, ...
            text = f"{self._name}: {self._done}"
        if step > self._lines:
            self._lines = step
            self._write(text + "\n")

    def _draw(self, seconds: float) -> None:
        rate = self._done / seconds if seconds > 0 else 0.0
        speed = f"{_clock(seconds)}, {_rate(rate)}"
        if self._total is None:
            self._write(f"\r\x1b[2K{self._name}: {self._done} items, {speed}")
            return
        share = self._done / self._total if self._total else 1.0
        if self._done < self._total and rate > 0:
            speed += f", {_clock((self._total - self._done) / rate)} left"
        before = f"{self._name} {100 * share:3.0f} % "
        after = f" {self._done}/{self._total}, {speed}"
        width = max(8, min(40, _columns(self._stream) - len(before) - len(after) - 3))
        self._write(f"\r\x1b[2K{before}{self._blocks(share, width)}{after}")

    def _blocks(self, share: float, width: int) -> str:
        encoding = (getattr(self._stream, "encoding", None) or "ascii").lower().replace("-", "")
        if not encoding.startswith("utf"):
            return "[" + ("#" * int(share * width)).ljust(width, ".") + "]"
        eighths = int(share * width * 8)
        full = "█" * (eighths // 8)
        return "▕" + (full + PARTIAL[eighths % 8].strip()).ljust(width) + "▏"

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError, AttributeError):
            return  # a terminal that has gone must not end the work


def total_of(items: Iterable[object]) -> int | None:
    """How many items there are, if that can be known without taking them."""
    try:
        return len(items)  # type: ignore[arg-type]
    except TypeError:
        return None


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return 80


def _clock(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _rate(rate: float) -> str:
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if rate >= limit:
            return f"{rate / limit:.1f} {unit}/s"
    return f"{rate:.1f}/s" if rate < 100 else f"{rate:.0f}/s"

"""Waiting for a named condition. A test never sleeps for a guessed time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T],
    what: str,
    timeout: float = 10.0,
    state: Callable[[], object] | None = None,
) -> T:
    """The first true value of `condition`. On a time-out the error names `what` and shows the last `state`.

    >>> wait_until(lambda: 7, "a number")
    7
    """
    deadline = time.monotonic() + timeout
    pause = 0.0005
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            seen = f"last value: {value!r}" if state is None else f"last state: {state()}"
            raise AssertionError(f"waited {timeout:g} s for {what}; {seen}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.02)

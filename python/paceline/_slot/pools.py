"""What executors and pools run in their slots.

Owns: the call that every slot of theirs begins with, and the ways in which a function is applied to what came with it.
`paceline._executor` and `paceline._pool` are the other end.
"""

from __future__ import annotations

import os

from paceline._slot import PLAINLY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def begin(plainly: bool, key: bytes | None) -> None:
    """The first standing call, which makes the output of this slot the client's own, without a prefix.

    With `plainly`, results that plain pickle refuses are refused here too. `key` is what opens the managers of
    `multiprocessing` that the client has, so that their proxies work in calls.
    """
    for stream in (1, 2):
        try:
            os.write(stream, PLAINLY)
        except OSError:
            pass  # it is closed, and nothing will come
    if key is not None:
        from multiprocessing.process import current_process

        current_process().authkey = key
    if plainly:
        from paceline import _pickling

        _pickling.plainly = True


def initialize(initializer: Callable[..., object], args: tuple[Any, ...]) -> None:
    """The initializer of the user's, whose failure is in the log, as the standard library has it."""
    try:
        initializer(*args)
    except BaseException:
        from logging import getLogger

        getLogger("concurrent.futures").critical("Exception in initializer:", exc_info=True)
        raise


def call(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """For functions that are an argument of their call, because they are different each time."""
    return function(*args, **kwargs)


def each(function: Callable[..., Any], items: list[Any]) -> list[Any]:
    """A chunk of items."""
    return [function(item) for item in items]


def each_star(function: Callable[..., Any], items: list[Any]) -> list[Any]:
    """A chunk of items that are all arguments."""
    return [function(*item) for item in items]

"""Futures as arguments: a task that starts when what it needs is there.

Owns: the wait for the futures among a call's arguments, wherever they sit. A future that has ended travels as its
value; of a result that is kept on its node, that is the reference, and so the value does not come by here.

* IN-1: the task is submitted when the last of its inputs has ended, by the callback thread.
* IN-2: an input that fails or is cancelled ends the task in the same way; it never runs.
"""

from __future__ import annotations

import _thread

from paceline import _native
from paceline._slot import references
from paceline.errors import SerializationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from paceline._future import Future
    from paceline._native import Function

_local = _thread._local()


class Unready(BaseException):
    """An argument is a future that has not ended, or that has failed. Met by nobody but the one who looks for it."""

    def __init__(self, future: Future[Any]) -> None:
        self.future = future


def reduced(future: Future[Any]) -> tuple[Any, ...]:
    """How a future is pickled: as its value, in arguments."""
    if _native.travels() != "arguments":
        raise TypeError("a future cannot be sent to another process; send its result()")
    if future.done() and not future.cancelled() and future.exception() is None:
        return references.same, (future.result(),)
    if getattr(_local, "looks", False):
        raise Unready(future)
    raise TypeError("a future that has not ended can be an argument of submit, and not of this call; send its result()")


def later(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], error: SerializationError) -> Future[Any]:
    """The future of a call that could not be sent, if that is because it waits for others. Raises the error if not."""
    waits = _try(function, None, args, kwargs)
    if not isinstance(waits, Unready) and waits is not None:
        raise error
    task: Future[Any] = function.later()
    if waits is None:
        # The last of them has ended meanwhile.
        waits = _try(function, task, args, kwargs)
    if isinstance(waits, Unready):
        _wait(function, task, args, kwargs, waits.future)
    elif waits is not None:
        raise waits
    return task


def _wait(
    function: Function, task: Future[Any], args: tuple[Any, ...], kwargs: dict[str, Any], other: Future[Any]
) -> None:
    def go_on(ended: Any) -> None:
        if ended.cancelled():
            task.cancel()
        elif (failed := ended.exception()) is not None:
            task._fail(failed)
        elif not task.done():
            waits = _try(function, task, args, kwargs)
            if isinstance(waits, Unready):
                _wait(function, task, args, kwargs, waits.future)
            elif waits is not None:
                task._fail(waits)

    other.add_done_callback(go_on)


def _try(
    function: Function, task: Future[Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> BaseException | None:
    """Begin the task, if its arguments are there; without one, only look whether they are."""
    outer = getattr(_local, "looks", False)
    _local.looks = True
    try:
        if task is None:
            function.look(args, kwargs)
        else:
            function.begin(task, args, kwargs)
    except BaseException as error:
        return error
    finally:
        _local.looks = outer
    return None

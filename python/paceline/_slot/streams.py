"""Generators that callers pull from, a batch at a time.

A batch is as many values as the generator gives within a moment, at most as many as the caller asks for: a quick one
travels in large batches, a slow one value by value, and none runs ahead of its caller by more than a batch.

* ST-1: a caller has one request for a stream under way at a time, so nobody pulls from a generator that runs.
* ST-2: an exception of the generator comes behind the values before it, and ends the stream. So does the error for a
  value that cannot be sent, and then the generator is closed.
"""

from __future__ import annotations

from itertools import count
from time import monotonic

from paceline._slot import failure, objects

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    _Batch = tuple[int, list[Any], bool, bytes | None]
else:
    _Batch = tuple


class Batch(_Batch):
    """The number of a stream, values of it, whether that is all, and what ended it. Arrives as a tuple."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)

    def _pl_salvage(self) -> bytes | None:
        """For a batch that cannot be sent: the same up to the value to blame, if it is a value (ST-2)."""
        from paceline._explain import explain
        from paceline._pickling import encode

        number, values, _, _ = self
        for place, value in enumerate(values):
            try:
                encode(value)
            except Exception as error:
                told = explain(value, error, "result")
                told.__cause__ = error
                _abandon(number)
                return encode((number, values[:place], True, failure(told)))
        return None


MOMENT = 0.001

_open: dict[int, Any] = {}
_numbers = count(1)
_closing: set[Any] = set()


def begin(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], most: int) -> Any:
    """Call a generator method. Its number, the first values, whether that is all, and the exception that ended it."""
    objects.called = True
    generator = getattr(objects.instance, name)(*args, **kwargs)
    if not hasattr(generator, "__anext__"):
        generator = iter(generator)
    number = next(_numbers)
    _open[number] = generator
    return pull(number, most)


def pull(number: int, most: int) -> Any:
    """The next values."""
    generator = _open.get(number)
    if generator is None:
        return Batch((number, [], True, None))
    if hasattr(generator, "__anext__"):
        return _pull_async(number, generator, most)
    values: list[Any] = []
    until = monotonic() + MOMENT
    try:
        for value in generator:
            values.append(value)
            if len(values) >= most or monotonic() >= until:
                return Batch((number, values, False, None))
    except BaseException as error:
        return _ended(number, values, error)
    return _ended(number, values, None)


async def _pull_async(number: int, generator: Any, most: int) -> Batch:
    values: list[Any] = []
    until = monotonic() + MOMENT
    try:
        async for value in generator:
            values.append(value)
            if len(values) >= most or monotonic() >= until:
                return Batch((number, values, False, None))
    except BaseException as error:
        return _ended(number, values, error)
    return _ended(number, values, None)


def _ended(number: int, values: list[Any], error: BaseException | None) -> Batch:
    _open.pop(number, None)
    return Batch((number, values, True, None if error is None else failure(error)))


def _abandon(number: int) -> None:
    """Nobody will pull from it any more."""
    closing = close(number)
    if hasattr(closing, "__await__"):
        import asyncio

        # The answer is made in the loop that the object lives in.
        _closing.add(task := asyncio.ensure_future(closing))
        task.add_done_callback(_closing.discard)


def close(number: int) -> Any:
    """The caller wants no more."""
    generator = _open.pop(number, None)
    if hasattr(generator, "aclose"):
        return generator.aclose()
    if hasattr(generator, "close"):
        generator.close()
    return None

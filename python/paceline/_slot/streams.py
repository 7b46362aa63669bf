"""Generators that callers pull from, a batch at a time.

A batch is as many values as the generator gives within a moment, at most as many as the caller asks for: a quick one
travels in large batches, a slow one value by value, and none runs ahead of its caller by more than a batch.

* ST-1: a caller has one request for a stream under way at a time, so nobody pulls from a generator that runs.
* ST-2: an exception of the generator comes behind the values before it, and ends the stream.
"""

from __future__ import annotations

from itertools import count
from time import monotonic

from paceline._slot import failure, objects

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Batch = tuple[int, list[Any], bool, bytes | None]

MOMENT = 0.001

_open: dict[int, Any] = {}
_numbers = count(1)


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
        return number, [], True, None
    if hasattr(generator, "__anext__"):
        return _pull_async(number, generator, most)
    values: list[Any] = []
    until = monotonic() + MOMENT
    try:
        for value in generator:
            values.append(value)
            if len(values) >= most or monotonic() >= until:
                return number, values, False, None
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
                return number, values, False, None
    except BaseException as error:
        return _ended(number, values, error)
    return _ended(number, values, None)


def _ended(number: int, values: list[Any], error: BaseException | None) -> Batch:
    _open.pop(number, None)
    return number, values, True, None if error is None else failure(error)


def close(number: int) -> Any:
    """The caller wants no more."""
    generator = _open.pop(number, None)
    if hasattr(generator, "aclose"):
        return generator.aclose()
    if hasattr(generator, "close"):
        generator.close()
    return None

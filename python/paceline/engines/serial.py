"""Engines that run everything here and now. For debugging, and as the yardstick of the others.

Owns: the ways that Python itself has to go through items: a loop, expressions, generators, `map` and `starmap`. They
give the same values, and differ only in what they cost.
"""

from __future__ import annotations

import builtins
import itertools

from paceline._slot.rebuild import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, TypeAlias

    Call: TypeAlias = Callable[[Any], Any]
    Way: TypeAlias = Callable[[Call, Iterable[Any]], list[Any]]


def _for_loop(call: Call, items: Iterable[Any]) -> list[Any]:
    results = []
    for item in items:
        results.append(call(item))
    return results


def _generator_expression(call: Call, items: Iterable[Any]) -> list[Any]:
    return list(call(item) for item in items)  # noqa: C400


def _generator_function(call: Call, items: Iterable[Any]) -> list[Any]:
    def results() -> Iterator[Any]:
        for item in items:
            yield call(item)

    return list(results())


def _list_comprehension(call: Call, items: Iterable[Any]) -> list[Any]:
    return [call(item) for item in items]


def _map(call: Call, items: Iterable[Any]) -> list[Any]:
    return list(builtins.map(call, items))


def _starmap(call: Call, items: Iterable[Any]) -> list[Any]:
    return list(itertools.starmap(call, ((item,) for item in items)))


def _engine(way: Way) -> Any:
    def run(
        function: Callable[..., Any],
        items: Iterable[Any],
        *,
        star: bool,
        chunksize: int | None,
        progress: Callable[[int], object] | None,
        cpus: int | None = None,
    ) -> list[Any]:
        return way(_call(plain(function), star, progress), items)

    return run


def _call(function: Callable[..., Any], star: bool, progress: Callable[[int], object] | None) -> Call:
    """The function of one item, which says how many there were."""
    call: Call = (lambda item: function(*item)) if star else function
    if progress is None:
        return call
    counted = itertools.count(1)

    def call_and_tell(item: Any) -> Any:
        value = call(item)
        progress(next(counted))
        return value

    return call_and_tell


run = for_loop = _engine(_for_loop)
generator_expression = _engine(_generator_expression)
generator_function = _engine(_generator_function)
list_comprehension = _engine(_list_comprehension)
map = _engine(_map)
starmap = _engine(_starmap)

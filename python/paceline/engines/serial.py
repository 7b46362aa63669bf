"""The engine that runs everything here and now. For debugging, and as the yardstick of the others."""

from __future__ import annotations

from paceline._slot.rebuild import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any


def run(
    function: Callable[..., Any],
    items: Iterable[Any],
    *,
    star: bool,
    chunksize: int | None,
    progress: Callable[[int], object] | None,
) -> list[Any]:
    function = plain(function)
    results = []
    for item in items:
        results.append(function(*item) if star else function(item))
        if progress is not None:
            progress(len(results))
    return results

"""The engine of threads in this process. For functions that wait, or that release the interpreter lock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from paceline._machine import usable_cpus
from paceline._slot.rebuild import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def run(
    function: Callable[..., Any],
    items: Iterable[Any],
    *,
    star: bool,
    chunksize: int | None,
    progress: Callable[[int], object] | None,
    cpus: int | None = None,
) -> list[Any]:
    function = plain(function)
    call = (lambda item: function(*item)) if star else function
    results = []
    with ThreadPoolExecutor(cpus or usable_cpus(), "paceline-map") as executor:
        for result in executor.map(call, items):
            results.append(result)
            if progress is not None:
                progress(len(results))
    return results

"""The engine that is Paceline itself: the current cluster, started if there is none."""

from __future__ import annotations

from paceline import _cluster
from paceline._remote import DEFAULTS, RemoteFunction, RemoteMethod

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
    if isinstance(function, RemoteMethod):
        function = function._shared()
    if not isinstance(function, RemoteFunction):
        function = RemoteFunction(function, DEFAULTS)  # here a class is a function like any other
    if function._cluster is None:
        _cluster.current_or_new()
    return function._handle().map(items, star, chunksize, progress)

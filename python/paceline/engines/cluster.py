"""The engine that is Paceline itself: the current cluster, started if there is none."""

from __future__ import annotations

from paceline import _cluster
from paceline._remote import DEFAULTS, RemoteFunction, RemoteMethod
from paceline.errors import NotConnected

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
    cpus: int | None = None,
) -> list[Any]:
    if isinstance(function, RemoteMethod):
        function = function._shared()
    if not isinstance(function, RemoteFunction):
        function = RemoteFunction(function, DEFAULTS)  # here a class is a function like any other
    if cpus is not None:
        _start(function, cpus)
    elif function._cluster is None:
        _cluster.current_or_new()
    return function._handle().map(items, star, chunksize, progress)


def _start(function: RemoteFunction[..., Any], cpus: int) -> None:
    """Start a cluster of so many CPUs. One that is there has a size of its own, which a map does not change."""
    if function._cluster is None:
        try:
            _cluster.current()
        except NotConnected:
            _cluster.connect(cpus=cpus)
            return
    raise ValueError(
        f"cpus={cpus} is for a cluster that map starts, and there is one already: "
        "leave cpus away, or say it to connect(cpus=...)"
    )

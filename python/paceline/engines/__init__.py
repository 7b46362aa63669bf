"""Where `paceline.map` can run.

Owns: the register of engines. An engine is a function `run(function, items, *, star, chunksize, progress, cpus)`
that returns the values in the order of the items and raises the exception of the first item, in that order,
that has one. `cpus` is passed on only if the caller of `map` has said how many.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Protocol

    class Engine(Protocol):
        """What `register` takes."""

        def __call__(
            self,
            function: Callable[..., Any],
            items: Iterable[Any],
            *,
            star: bool,
            chunksize: int | None,
            progress: Callable[[int], object] | None,
            cpus: int | None = None,
        ) -> list[Any]: ...


__all__ = ["find", "names", "register"]

AUTO = "cluster"

# Those that come with paceline are loaded when they are first asked for: the module, and the name in it.
_BUILTIN = {
    "serial": ("serial", "run"),
    "threads": ("threads", "run"),
    "processes": ("processes", "run"),
    "cluster": ("cluster", "run"),
    "multiprocessing": ("processes", "multiprocessing_pool"),
    "joblib": ("joblib", "run"),
    "dask": ("dask", "run"),
    "for_loop": ("serial", "for_loop"),
    "generator_expression": ("serial", "generator_expression"),
    "generator_function": ("serial", "generator_function"),
    "list_comprehension": ("serial", "list_comprehension"),
    "map": ("serial", "map"),
    "starmap": ("serial", "starmap"),
}
_registered: dict[str, Engine] = {}


def register(name: str, run: Engine) -> None:
    """Add an engine, or replace one.

    >>> def backwards(function, items, *, star, chunksize, progress):
    ...     return [function(item) for item in reversed(list(items))][::-1]
    >>> register("backwards", backwards)
    >>> import paceline as pl
    >>> pl.map(str, [1, 2], engine="backwards")
    ['1', '2']
    """
    _registered[name] = run


def names() -> list[str]:
    """The engines there are.

    >>> "serial" in names()
    True
    """
    return list(dict.fromkeys((*_BUILTIN, *_registered)))


def find(name: str) -> Engine:
    """The engine of this name. `auto` is the cluster.

    >>> find("serial")(abs, [-1], star=False, chunksize=None, progress=None)
    [1]
    """
    name = AUTO if name == "auto" else name
    if name not in _registered:
        if name not in _BUILTIN:
            raise ValueError(f"unknown engine {name!r}: there are auto, {', '.join(names())}")
        module, run = _BUILTIN[name]
        __import__(f"paceline.engines.{module}")
        _registered[name] = getattr(sys.modules[f"paceline.engines.{module}"], run)
    return _registered[name]

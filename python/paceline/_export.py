"""Functions that programs in other languages may call.

Owns: `export`, and the lookup that slots do for such calls.

* EX-1: a name is found in the module that is asked for: defined there, or imported into it.
"""

from __future__ import annotations

import sys

from paceline._slot.rebuild import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

_exported: list[tuple[str, Callable[..., Any]]] = []


def export(name: str, /) -> Callable[[F], F]:
    """Let programs in other languages call this function, by this name.

    The function stays what it is. Arguments and value are what crosses languages: None, bool, int of 64 bits,
    float, str, bytes, lists and dicts of them, and numpy arrays of numbers. From Rust:
    `cluster.python("stats").function::<(Vec<f64>,), f64>("mean")`.

    >>> import paceline as pl
    >>> @pl.export("mean")
    ... def mean(values):
    ...     return sum(values) / len(values)
    >>> mean([1, 2, 6])
    3.0
    """
    if not isinstance(name, str):
        raise TypeError(f'export takes a name, as in @export("name"), not a {type(name).__name__}')
    if not name or "\0" in name:
        raise ValueError(f"not a name to export a function by: {name!r}")

    def decorate(function: F) -> F:
        if not callable(function):
            raise TypeError(f"export takes a function, not a {type(function).__name__}")
        _exported.append((name, plain(function)))
        return function

    return decorate


def find(module: str, name: str) -> Callable[..., Any]:
    """The function that a module exports under this name. Raises `NoSuchFunction` if there is none."""
    __import__(module)
    exports = _exports(module)
    if name not in exports:
        from paceline.errors import NoSuchFunction

        raise NoSuchFunction(function=name, exports=sorted(exports), program=f"module {module}")
    return exports[name]


def _exports(module: str) -> dict[str, Callable[..., Any]]:
    inside = [plain(value) for value in list(vars(sys.modules[module]).values()) if callable(value)]
    found = {}
    for name, function in _exported:
        if getattr(function, "__module__", None) == module or any(function is value for value in inside):
            found[name] = function
    return found

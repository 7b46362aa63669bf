"""What the pickles made by `paceline._pickling` call when they are loaded.

Owns: making functions, cells and namespaces out of parts. The other half, taking them apart, is `_pickling`.

Functions are made in two steps, so that one may refer to itself: `function` gives it code, an empty namespace
and empty cells; `fill` puts in what it refers to.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CellType as CellType
    from types import CodeType, ModuleType
    from types import FunctionType as FunctionType
    from typing import Any
else:
    FunctionType = type(lambda: None)
    CellType = type((lambda value: lambda: value)(None).__closure__[0])


def namespace(name: str, package: str | None, file: str | None) -> dict[str, Any]:
    """The globals of functions that shared one module. What they name is added by `fill`."""
    names: dict[str, Any] = {"__builtins__": sys.modules["builtins"], "__name__": name, "__package__": package}
    if file is not None:
        names["__file__"] = file
    return names


def cell() -> CellType:
    return CellType()


def module(name: str) -> ModuleType:
    __import__(name)
    return sys.modules[name]


def function(code: CodeType, names: dict[str, Any], name: str, cells: tuple[CellType, ...] | None) -> FunctionType:
    return FunctionType(code, names, name, None, cells)


def fill(
    made: FunctionType,
    state: tuple[dict[str, Any], tuple[str, ...], tuple[tuple[CellType, Any], ...], dict[str, Any], dict[str, Any]],
) -> None:
    """`state` is:

    globals to add, submodules to import, cell contents, attributes to set, entries of `__dict__`.
    """
    names, submodules, contents, attributes, entries = state
    made.__globals__.update(names)
    for submodule in submodules:
        __import__(submodule)
    for cell, value in contents:
        cell.cell_contents = value
    for name, value in attributes.items():
        setattr(made, name, value)
    made.__dict__.update(entries)


def cached(wrapped: Callable[..., Any], maximum: int | None, typed: bool) -> Callable[..., Any]:
    """A function under `functools.lru_cache`. Its cache starts empty."""
    from functools import lru_cache

    return lru_cache(maximum, typed)(wrapped)


def found(module_name: str, qualified_name: str) -> Any:
    """What a module holds under this name."""
    value: Any = module(module_name)
    for part in qualified_name.split("."):
        value = getattr(value, part)
    return value


def original(module_name: str, qualified_name: str) -> Any:
    """The plain function of this name, also where the module holds it decorated."""
    return plain(found(module_name, qualified_name))


def plain(value: Any) -> Any:
    """The original of a remote function or class; anything else as it is."""
    value = plain_class(value)
    if _is_a(value, "paceline._remote", "RemoteFunction") or _is_a(value, "paceline._remote", "RemoteMethod"):
        return value.original
    return value


def plain_class(value: Any) -> Any:
    """A remote class's original; anything else as it is."""
    return value.original if _is_a(value, "paceline._actor_class", "ActorClass") else value


def _is_a(value: object, module_name: str, name: str) -> bool:
    """Whether it is of this class. A module that another thread still imports may not have the class yet, and then
    there is nothing of that class."""
    kind = getattr(sys.modules.get(module_name), name, None)
    return kind is not None and isinstance(value, kind)

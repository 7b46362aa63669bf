"""Says which part of a value cannot be pickled.

Owns: the search and the words. Called when pickling has failed already, so it may take its time, within a
limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from paceline import _names, _slot, errors
from paceline._pickling import content, encode
from paceline._slot.rebuild import FunctionType, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

ATOMS = (type(None), bool, int, float, complex, str, bytes, bytearray, range, type)
DEPTH = 12
TRIES = 2000

Error = TypeVar("Error", bound=errors.SerializationError)

HINT = "locks, open files, sockets, generators and the like belong to one process: make it inside the function"


def explain(value: object, error: BaseException, root: str | None) -> errors.SerializationError:
    """The error for an argument or a result. `root` as in `paceline._pickling.dumps`."""
    if root is None:
        root = "value" if _slot.number is None else "result"
    kind = errors.ResultNotSerializable if root == "result" else errors.ArgumentNotSerializable
    name = {"value": "argument"}.get(root, root)
    path, part = _blame(value, name, root == "call")
    return _worded(kind, path, part, error)


def explain_function(function: object, name: str, error: BaseException) -> errors.FunctionNotSerializable:
    """The error for a function that cannot be shipped."""
    path, part = _blame(plain(function), name, False)
    return _worded(errors.FunctionNotSerializable, path, part, error)


def _worded(kind: type[Error], path: str, part: object, error: BaseException) -> Error:
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    try:
        encode(part)
    except Exception as own:
        reason = f"{type(own).__name__}: {own}" if str(own) else type(own).__name__
    what = f"{type(part).__module__}.{type(part).__qualname__}".removeprefix("builtins.")
    return kind(f"cannot send {path}, which is a {what}: {reason}", path=path, hint=HINT)


def _blame(value: object, path: str, call: bool) -> tuple[str, object]:
    """The deepest part that fails by itself, and how to get to it."""
    tries = TRIES
    for depth in range(DEPTH):
        for name, part in _call_parts(value) if call and depth == 0 else _parts(value, path):
            tries -= 1
            if tries < 0:
                return path, value
            if not isinstance(part, ATOMS) and _fails(part):
                path, value = name, part
                break
        else:
            break
    return path, value


def _fails(part: object) -> bool:
    try:
        encode(part)
    except Exception:
        return True
    return False


def _call_parts(call: Any) -> Iterator[tuple[str, object]]:
    args, kwargs = call
    yield "args", args
    yield "kwargs", kwargs


def _parts(value: Any, path: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, part in list(value.items()):
            yield f"a key of {path}", key
            yield f"{path}[{key!r:.60}]", part
    elif isinstance(value, (list, tuple)):
        for index, part in enumerate(value):
            yield f"{path}[{index}]", part
    elif isinstance(value, (set, frozenset)):
        for part in value:
            yield f"a member of {path}", part
    elif isinstance(value, FunctionType):
        yield from _function_parts(value)
    else:
        yield from _object_parts(value, path)


def _function_parts(function: FunctionType) -> Iterator[tuple[str, object]]:
    name = function.__qualname__
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        yield f"{variable} (closed over by {name})", content(cell, None)
    for variable in _names.global_names(function.__code__):
        if variable in function.__globals__:
            yield f"{variable} (a global that {name} uses)", plain(function.__globals__[variable])
    for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield f"a default of {name}", default
    yield from ((f"{name}.{key}", part) for key, part in function.__dict__.items())


def _object_parts(value: Any, path: str) -> Iterator[tuple[str, object]]:
    # Partial objects and bound methods, which keep their parts where `__dict__` does not show them.
    for attribute in ("func", "__self__", "__func__", "args", "keywords"):
        if hasattr(type(value), attribute):
            yield f"{path}.{attribute}", getattr(value, attribute)
    usual: tuple[Any, ...] = (object.__reduce__, BaseException.__reduce__)
    if type(value).__reduce__ not in usual:
        return  # it decides by itself what of it is pickled
    for name, part in list(getattr(value, "__dict__", {}).items()):
        yield f"{path}.{name}", part
    slots = getattr(type(value), "__slots__", ())
    for name in (slots,) if isinstance(slots, str) else slots:
        if hasattr(value, name):
            yield f"{path}.{name}", getattr(value, name)

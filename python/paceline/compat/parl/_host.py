"""What lives in the slot of a remote object: the object, and answers that say which attributes it has by now.

Every answer comes with the names of the object's own attributes, so that the proxy knows without asking whether a name
is an attribute or a method. A slot has one object, and ends with it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Answer = tuple[Any, frozenset[str]]

_object: Any = None
_ended_by: Ended | None = None


class Ended(Exception):
    """The object has ended with an exception before this was asked. `name` is what was called then."""

    def __init__(self, name: str = "", text: str = "") -> None:
        super().__init__(name, text)
        self.name = name

    def __str__(self) -> str:
        return f"{self.args[0]}: {self.args[1]}"


def build(kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Make the object."""
    global _object
    _object = kind(*args, **kwargs)


def look() -> Answer:
    """Nothing but the names of its attributes."""
    return None, frozenset(getattr(_object, "__dict__", ()))


def call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Answer:
    """Call a method."""
    return _answer(name, lambda: getattr(_object, name)(*args, **kwargs))


def read(name: str) -> Answer:
    """The value of an attribute."""
    return _answer(name, lambda: getattr(_object, name))


def write(name: str, value: Any) -> Answer:
    """Set an attribute."""
    return _answer(name, lambda: setattr(_object, name, value))


def _answer(name: str, act: Callable[[], Any]) -> Answer:
    global _ended_by
    if _ended_by is not None:
        raise _ended_by
    try:
        return act(), look()[1]
    except BaseException as error:
        # What was asked meanwhile must not run: for its caller the object is no more.
        _ended_by = Ended(name, f"{type(error).__name__}: {error}")
        raise

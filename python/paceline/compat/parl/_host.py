"""What lives in the slot of a remote object: the object, and answers that say which attributes it has by now."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Ended(Exception):
    """The object has ended with an exception before this was asked."""


class Host:
    """Holds one object of the user's class, until its first exception.

    Every answer comes with the names of the object's own attributes, so that the proxy knows without asking whether a
    name is an attribute or a method.
    """

    def __init__(self, kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.object = kind(*args, **kwargs)
        self.ended = False

    def names(self) -> frozenset[str]:
        """The names of the object's own attributes."""
        return frozenset(getattr(self.object, "__dict__", ()))

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, frozenset[str]]:
        """Call a method."""
        return self._answer(lambda: getattr(self.object, name)(*args, **kwargs))

    def read(self, name: str) -> tuple[Any, frozenset[str]]:
        """The value of an attribute."""
        return self._answer(lambda: getattr(self.object, name))

    def write(self, name: str, value: Any) -> tuple[Any, frozenset[str]]:
        """Set an attribute."""
        return self._answer(lambda: setattr(self.object, name, value))

    def _answer(self, act: Callable[[], Any]) -> tuple[Any, frozenset[str]]:
        if self.ended:
            raise Ended()
        try:
            return act(), self.names()
        except BaseException:
            # What was asked meanwhile must not run: for its caller the object is no more.
            self.ended = True
            raise

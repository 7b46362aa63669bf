"""References as they arrive. Pickles name these functions.

* RF-1: in the arguments of a call a reference arrives as the value it refers to, wherever it sits.
* RF-2: in results and in objects it arrives as a reference, which counts from then on.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from paceline._objects import Ref


def same(value: Any) -> Any:
    """What a future was of."""
    return value


def argument(reference: bytes) -> Any:
    """The value (RF-1)."""
    from paceline._objects import store

    return store().get(reference, None)


def arrived(reference: bytes, pin: int) -> Ref[Any]:
    """A reference in a result (RF-2)."""
    from paceline._objects import Ref, store

    return Ref(store().claim(reference, pin))


def kept(reference: bytes) -> Ref[Any]:
    """A reference that something else keeps, such as an object it is in."""
    from paceline._objects import Ref, store

    return Ref(store().hold(reference))


def value_of(pickled: bytes, buffers: list[bytearray]) -> Any:
    """As `argument`, where no store is in reach of both sides: the value itself has come."""
    import _pickle

    return _pickle.loads(pickled, buffers=buffers)


def with_value(name: bytes, pickled: bytes, buffers: list[bytearray]) -> Ref[Any]:
    """As `arrived`, where no store is in reach of both sides."""
    from paceline._objects import Ref, WithValue

    return Ref(WithValue(name, pickled, buffers))

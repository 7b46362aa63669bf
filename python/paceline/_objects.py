"""Values that are kept on a node and go by reference.

Owns: `put`, `get` and `Ref`. Where values are kept, and for how long, is the core's to say.

* OJ-1: a value stays for as long as anybody has a reference to it, or a call with one is under way, and no longer than
  the program that it belongs to.
* OJ-2: who gets a value may change it: nobody else sees that.
"""

from __future__ import annotations

import _pickle
import os

from paceline import _cluster, _room, _slot
from paceline._slot import references

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Generic, TypeVar, overload

    from paceline._native import Held, Objects

    T = TypeVar("T")

    class _Generic(Generic[T]): ...
else:
    T = None

    class _Generic:
        # As `typing.Generic` would, without the time its import takes.
        __slots__ = ()
        __class_getitem__ = classmethod(type(list[int]))


WAIT = 30.0
"""How long `put` waits for room, in seconds."""


class Ref(_Generic[T]):
    """A reference to a value that is kept on a node. Made by `put`, or by tasks whose results are kept.

    As an argument of a call, also inside of lists and dictionaries, it arrives as the value. `get` gives the value
    here.

    >>> import paceline as pl
    >>> with pl.connect(cpus=1):
    ...     numbers = pl.put([1, 2, 3])
    ...     pl.remote(sum)(numbers), pl.get(numbers)
    (6, [1, 2, 3])
    """

    __slots__ = ("__weakref__", "_held")

    def __init__(self, held: Held | WithValue) -> None:
        self._held = held

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self._held, WithValue):
            return self._held.send()
        how, reference, pin = self._held.send()
        if how is None:
            pickled, buffers = self._held.objects.parts(reference)
            return WithValue(reference, bytes(pickled), buffers).send()
        return getattr(references, how), (reference,) if pin is None else (reference, pin)

    def __repr__(self) -> str:
        return f"<paceline.Ref {self._held.reference[:4].hex()}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ref):
            return NotImplemented
        return self._held.reference == other._held.reference

    def __hash__(self) -> int:
        return hash(self._held.reference)


class WithValue:
    """What a reference has where the receiver may be out of reach of the store: the value, as it was put."""

    def __init__(self, reference: bytes, pickled: bytes, buffers: Sequence[bytearray | memoryview]) -> None:
        self.reference = reference
        self._pickled = pickled
        self._buffers = buffers

    def send(self) -> tuple[Any, ...]:
        from paceline._native import travels

        buffers = [_pickle.PickleBuffer(buffer) for buffer in self._buffers]
        if travels() == "arguments":
            return references.value_of, (self._pickled, buffers)
        return references.with_value, (self.reference, self._pickled, buffers)

    def value(self) -> Any:
        return decoded(memoryview(self._pickled), [memoryview(bytearray(buffer)) for buffer in self._buffers])


def put(value: T, *, wait: float | None = None) -> Ref[T]:
    """Keep a value, and get a reference to it.

    Tasks that are called with the reference get the value. However many do, each node has it once; arrays are not
    copied for any of them, and can be written all the same. The value is kept until the last reference to it is gone.

    If the node has no room, `put` waits for `wait` seconds (30), or not at all in an event loop, and then raises
    `StoreFull`.

    >>> import paceline as pl
    >>> with pl.connect(cpus=1):
    ...     words = pl.put({"a": 1})
    ...     pl.get(words)
    {'a': 1}
    """
    if wait is None:
        wait = 0.0 if _room.runs_a_loop() else WAIT
    held = store().put(value, wait)
    if held is None:
        # This slot's node has no link with the program that the value would belong to.
        pickled, buffers = encoded(value)
        return Ref(WithValue(os.urandom(32), pickled, [bytearray(buffer) for buffer in buffers]))
    return Ref(held)


if TYPE_CHECKING:

    @overload
    def get(ref: Ref[T], *, timeout: float | None = None) -> T: ...
    @overload
    def get(ref: Sequence[Ref[T]], *, timeout: float | None = None) -> list[T]: ...


def get(ref: Any, *, timeout: float | None = None) -> Any:
    """The value of a reference, or a list of the values of several.

    A result that was kept on a node which has ended is made again by running its task again.

    Raises `ObjectLost` if the value is not to be had any more, `OwnerLost` if that is because the program has ended
    that it belonged to, and `TimeoutError` if it does not come within `timeout` seconds.

    >>> import paceline as pl
    >>> with pl.connect(cpus=1):
    ...     pl.get([pl.put(1), pl.put(2)])
    [1, 2]
    """
    if isinstance(ref, Ref):
        held = ref._held
        if isinstance(held, WithValue):
            return held.value()
        return held.objects.get(held.reference, timeout)
    if isinstance(ref, (list, tuple)):
        return [get(one, timeout=timeout) for one in ref]
    raise TypeError(f"get takes a reference, or a list of them, and not {type(ref).__name__}")


def store() -> Objects:
    """The store that this process reaches."""
    from paceline._native import Objects

    if _slot.number is not None:
        found = Objects.of_slot()
        if found is not None:
            return found
    return _cluster.current()._connected().objects()


class _Buffers(list["Any"]):
    """Collects buffers for a pickler."""

    __call__ = list.append


def encoded(value: object) -> tuple[bytes, list[memoryview]]:
    """The pickle of a value, and the buffers that go beside it, each in one piece."""
    buffers = _Buffers()
    try:
        pickled = _pickle.dumps(value, 5, buffer_callback=buffers)
    except Exception:
        pickled = b""
    if not pickled or b"__main__" in pickled:
        from paceline import _pickling

        buffers.clear()
        pickled = _pickling.dumps(value, "value", buffers)  # type: ignore[arg-type]
    return pickled, [buffer.raw() for buffer in buffers]


def decoded(pickled: memoryview, buffers: list[memoryview]) -> Any:
    return _pickle.loads(pickled, buffers=buffers)

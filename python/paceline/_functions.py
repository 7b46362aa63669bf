"""Turns a function into bytes for slots, and knows when those bytes are stale.

Owns: the choice between reference and value, and what to watch. `_slot.load` is the other end.

* FU-1: a function that a slot can import goes as its name, also if the module holds it decorated by `remote`.
* FU-2: a function sent by value is watched together with every function it reaches: rebinding any global or
  closure variable that their code reads makes the bytes stale, and nothing else does.
"""

from __future__ import annotations

from io import BytesIO

from paceline._pickling import Pickler, Reach, function_reference
from paceline._slot import CLOUDPICKLE, KEPT, PICKLE, REFERENCE
from paceline._slot.rebuild import FunctionType, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from paceline._native import Function, Watch

    class Ships(Protocol):
        """What functions are shipped to: a session, or one member of a group."""

        @property
        def closed(self) -> bool: ...
        @property
        def function(self) -> Callable[..., Function]: ...


class Package:
    """One function with its bytes, kept until they are stale, and its handle in each session that knows it."""

    def __init__(self, function: object) -> None:
        self._function = function
        self._packed: _Packed | None = None

    def handle(
        self, session: Ships, options: dict[str, Any], before: Callable[[], object], form: bytes = b""
    ) -> tuple[Function, Callable[[], bool]]:
        """The function as this session ships it, and whether that still holds.

        `before` comes before new bytes. `form` says what slots make of the function.
        """
        packed = self._packed
        if packed is None or not packed.watch.unchanged():
            packed = self._packed = _Packed(*pack(self._function))
        key = (session, form, *options.values())
        function = packed.handles.get(key)
        if function is None:
            before()
            function = session.function(form + packed.payload, name_of(self._function), **options)
            open_ones = {key: handle for key, handle in packed.handles.items() if not key[0].closed}
            packed.handles = {**open_ones, key: function}
        return function, packed.watch.unchanged

    def payload(self) -> bytes:
        """The bytes, as they are now."""
        packed = self._packed
        if packed is None or not packed.watch.unchanged():
            packed = self._packed = _Packed(*pack(self._function))
        return packed.payload


class Kept:
    """As `Package`, of a function whose results stay where they are made."""

    def __init__(self, package: Package) -> None:
        self.package = package

    def handle(
        self, session: Ships, options: dict[str, Any], before: Callable[[], object]
    ) -> tuple[Function, Callable[[], bool]]:
        """See `Package.handle`."""
        return self.package.handle(session, options, before, KEPT)

    def payload(self) -> bytes:
        """The bytes, as they are now."""
        return KEPT + self.package.payload()


class _Packed:
    def __init__(self, payload: bytes, watch: Watch) -> None:
        self.payload = payload
        self.watch = watch
        self.handles: dict[tuple[Any, ...], Function] = {}


def pack(function: object) -> tuple[bytes, Watch]:
    """A function's bytes, and the watch that tells when they must be made anew."""
    from paceline._native import Watch

    reach = Reach(Watch.MISSING)
    payload = encode(function, reach)
    return payload, Watch(reach.globals, reach.cells)


def encode(function: object, reach: Reach) -> bytes:
    """A function's bytes. What they depend on is noted in `reach`."""
    function = plain(function)
    if isinstance(function, (FunctionType, type)):
        reference = function_reference(function)
        if reference is not None:
            return by_name(*reference)
    file = BytesIO()
    try:
        Pickler(file, reach).dump(function)
        return PICKLE + file.getvalue()
    except Exception:
        pass  # a class of the main script, or something odd
    file = BytesIO()
    try:
        from paceline._cloudpickling import FunctionPickler

        FunctionPickler(file, reach).dump(function)
        return CLOUDPICKLE + file.getvalue()
    except Exception as error:
        from paceline._explain import explain_function

        raise explain_function(function, name_of(function), error) from error


def by_name(module: str, name: str) -> bytes:
    """The bytes of a function that every slot can import."""
    return REFERENCE + f"{module}\0{name}".encode()


def name_of(function: object) -> str:
    """What to call a function in messages.

    >>> name_of(len)
    'len'
    """
    function = plain(function)
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    if not isinstance(name, str):
        inner = getattr(function, "func", None)  # functools.partial
        return name_of(inner) if callable(inner) else type(function).__qualname__
    return name.rpartition("<locals>.")[2]

"""The object that lives in a slot of a pool or is an actor, and how calls reach it.

Owns: the one instance, what `b"N"` and `b"M"` payloads load to, reading and writing of attributes, and the generators
that callers pull from. Does not own: which thread a call runs on, which `overlap` says for objects that overlap.

* OB-1: there is at most one object in a process, and it ends with the process.
* OB-2: a name is looked up when it is called, so what the object rebinds counts.
"""

from __future__ import annotations

from paceline._slot import rebuild

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from paceline._slot.overlap import Overlap

# What a method's payload names besides methods. A dot cannot begin a name of the user's.
GET, SET, DELETE = ".get", ".set", ".delete"
STREAM, PULL, CLOSE = ".stream", ".pull", ".close"
CHECKPOINT, RESTORE = ".checkpoint", ".restore"
PING = ".ping"

# Flags of a code object.
COROUTINE = 0x80
ASYNC_GENERATOR = 0x200

instance: Any = None
"""The object, once it is built."""

overlap: Overlap | None = None
"""Where its calls run, if that is not the main thread."""

called = False
"""Whether a method was called since the object was built, or a checkpoint put in."""


def construct(kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Build the object."""
    global instance, called
    instance = rebuild.plain(kind)(*args, **kwargs)
    called = False


def constructor(concurrency: int, kind: Any) -> Callable[..., Any]:
    """What a constructor's payload loads to. The class says whether its calls overlap."""
    global overlap
    if is_asynchronous(kind):
        from paceline._slot.overlap import Loop

        overlap = overlap or Loop(concurrency)
    elif concurrency > 1:
        from paceline._slot.overlap import Threads

        overlap = overlap or Threads(concurrency)

    def build(*args: Any, **kwargs: Any) -> None:
        construct(kind, args, kwargs)

    # A constructor of threads runs on the main one; that of a loop in the loop, where its object will live.
    return overlap.wrap(build) if overlap is not None and overlap.builds else build


def method(name: str) -> Callable[..., Any]:
    """What a method's payload loads to."""
    function = SPECIAL.get(name) or _by_name(name)
    return function if overlap is None else overlap.wrap(function)


def _by_name(name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        global called
        called = True
        return getattr(instance, name)(*args, **kwargs)

    return call


def is_asynchronous(kind: Any) -> bool:
    """Whether the class has methods that are coroutines. Its objects live in an event loop."""
    return any(
        _flags(value) & (COROUTINE | ASYNC_GENERATOR)
        for base in kind.__mro__
        for name, value in vars(base).items()
        if not name.startswith("__")
    )


def _flags(value: Any) -> int:
    function = getattr(value, "__func__", value)  # static and class methods
    code = getattr(function, "__code__", None)
    return 0 if code is None else int(code.co_flags)


def _get(name: str) -> Any:
    return getattr(instance, name)


def _set(name: str, value: Any) -> None:
    global called
    called = True
    setattr(instance, name, value)


def _delete(name: str) -> None:
    global called
    called = True
    delattr(instance, name)


def _checkpoint() -> Any:
    return instance.__checkpoint__()


def _restore(state: Any) -> None:
    """Put a checkpoint in, if this object was just built. One that has gone on is newer than any."""
    if not called:
        instance.__restore__(state)


def _ping() -> None:
    return None


def _stream(*args: Any) -> Any:
    from paceline._slot import streams

    return streams.begin(*args)


def _pull(*args: Any) -> Any:
    from paceline._slot import streams

    return streams.pull(*args)


def _close(*args: Any) -> Any:
    from paceline._slot import streams

    return streams.close(*args)


SPECIAL: dict[str, Callable[..., Any]] = {
    GET: _get,
    SET: _set,
    DELETE: _delete,
    STREAM: _stream,
    PULL: _pull,
    CLOSE: _close,
    CHECKPOINT: _checkpoint,
    RESTORE: _restore,
    PING: _ping,
}

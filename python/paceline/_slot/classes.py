"""Classes that travel by value: which is which, here and elsewhere.

Owns: the register of classes that were sent from here or arrived here. Every such class has a token, the same in all
processes, and a version, which its owner (the process that sent it first) changes when the class has changed.

* KL-1: a class that comes home is the original, untouched: nothing that arrives ever changes a class of our own.
* KL-2: a class that was sent twice in one version is built once. Instances cost little more than plain pickle.
* KL-3: the register is bounded. A class that fell out of it is sent as a new one.
"""

from __future__ import annotations

import _pickle
import _thread
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from paceline._native import Watch

LIMIT = 1000


class Record:
    """What is known of one class."""

    def __init__(self, kind: type, token: bytes, version: int, own: bool) -> None:
        self.kind = kind
        self.token = token
        self.version = version
        self.own = own
        self.data: bytes | None = None
        """The class as a pickle, in this version. Made when an instance is sent."""
        self.state = state_of(kind) if own else ()
        """What was in the class when it got its version."""
        self.reached: list[Record] = []
        """Every class by value that is in `data`."""
        self.watch: Watch | None = None
        """Tells when a global that methods in `data` use was bound to something else."""


lock = _thread.RLock()
os.register_at_fork(after_in_child=lock._at_fork_reinit)  # type: ignore[attr-defined]

_by_class: dict[type, Record] = {}
_by_token: dict[bytes, Record] = {}
_versions = 0


def record_of(kind: type) -> Record:
    """What is known of this class. One that is new becomes our own."""
    with lock:
        record = _by_class.get(kind)
        if record is None:
            record = _add(Record(kind, os.urandom(16), _next_version(), own=True))
        return record


def renew(record: Record) -> None:
    """Give a class of our own a new version."""
    if record.own:
        record.version = _next_version()
        record.state = state_of(record.kind)
        record.data = None


def changed(record: Record) -> bool:
    """Whether something was set in a class of our own since it got its version."""
    now = state_of(record.kind)
    return record.own and (
        len(now) != len(record.state) or any(new is not old for new, old in zip(now, record.state, strict=True))
    )


def state_of(kind: type) -> tuple[object, ...]:
    return tuple(vars(kind).values())


def skeleton(token: bytes, make: Callable[..., type], args: tuple[Any, ...]) -> type:
    """Called by pickles: the class of this token, made without its contents if it is new here."""
    with lock:
        record = _by_token.get(token)
        if record is None:
            record = _add(Record(make(*args), token, 0, own=False))
        return record.kind


def settle(kind: type, contents: tuple[int, Any, Callable[[type, Any], object]]) -> None:
    """Called by pickles: fill a class, unless it is our own or has these contents already."""
    version, state, put = contents
    with lock:
        record = _by_class.get(kind)
        if record is None:
            put(kind, state)  # so many classes came with it that it fell out of the register already
        elif not record.own and record.version != version:
            put(kind, state)
            record.version = version
            record.data = None


def defined(token: bytes, version: int, data: bytes) -> type:
    """Called by pickles: the class of this token. `data` is looked at only if it is not here in this version."""
    record = _by_token.get(token)
    if record is not None and (record.own or record.version == version):
        kind = record.kind
    else:
        # Without the lock, because loading may import modules of the user's.
        kind = _pickle.loads(data)
        record = _by_class.get(kind)
    if record is not None and not record.own and record.data is None:
        record.data = data
    return kind


def _add(record: Record) -> Record:
    while len(_by_class) >= LIMIT:
        oldest = _by_class.pop(next(iter(_by_class)))
        _by_token.pop(oldest.token, None)
    _by_class[record.kind] = record
    _by_token[record.token] = record
    return record


def _next_version() -> int:
    global _versions
    _versions += 1
    return _versions

"""Turns an exception of user code into bytes that its caller can raise.

Owns: how an exception travels. `paceline._outcome` is the other end.

* FA-1: what is sent has been loaded here once, with the same type and arguments; otherwise a description
  goes.
* FA-2: `describe` never raises.
"""

from __future__ import annotations

import _pickle
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from traceback import TracebackException
    from typing import Any

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

# How the exception itself is encoded.
PICKLED = "pickled"
PARTS = "parts"  # its class, arguments and attributes, for a constructor that cannot be called with its own `args`
NOTHING = "nothing"  # only described


def describe(error: BaseException) -> bytes:
    form, data = _encode(error)
    record = (form, data, _type_name(error), _message(error), _text(error), _notes(error))
    return _pickle.dumps(record, 5)


def tell(error: BaseException) -> tuple[str, str, str, list[str] | None]:
    """What a caller in another language hears: type, message, traceback; and what there is if it was not found."""
    from paceline.errors import NoSuchFunction

    known = list(error.exports) if isinstance(error, NoSuchFunction) else None
    return _type_name(error), _message(error), _text(error), known


def assemble(
    kind: type[BaseException], made_of: tuple[Any, ...], args: tuple[Any, ...], attributes: dict[str, Any]
) -> BaseException:
    """An exception out of its parts, without calling a constructor of the user's."""
    error = kind.__new__(kind, *made_of)
    # The nearest class of the standard library keeps fields of its own, such as `errno`.
    builtin = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    try:
        builtin.__init__(error, *made_of)  # type: ignore[misc]
    except TypeError:
        pass  # those arguments are the user's own; the fields stay unset, as they would have been
    error.args = args
    error.__dict__.update(attributes)
    return error


def unreadable(error: BaseException) -> Exception:
    """The error for arguments that arrived here and cannot be read. `error` says why."""
    from paceline import errors
    from paceline.errors import UNREADABLE, ArgumentNotSerializable

    # Nothing is wrong with the pickle: what it refers to is not to be had, or its store is out of reach.
    beside_it = (errors.ObjectLost, errors.OwnerLost, errors.StoreFull, errors.LimitReached)
    if isinstance(error, (*beside_it, errors.ClusterClosed, errors.ConnectionFailed)):
        return error
    reason = f"{_type_name(error)}: {_message(error)}"
    found = ArgumentNotSerializable(f"cannot read an argument in its slot: {reason}", path="argument", hint=UNREADABLE)
    found.__cause__ = error
    return found


def _encode(error: BaseException) -> tuple[str, bytes]:
    # Everything is caught, because code of the user's runs: constructors, reducers, comparisons.
    try:
        data = _dumps(error)
        if _same(_pickle.loads(data), error):
            return PICKLED, data
    except BaseException:
        pass  # the constructor is unlike its arguments, or a part cannot be pickled: the next form tells
    try:
        data = _dumps((type(error), _made_of(error), error.args, error.__dict__))
        if _same(assemble(*_pickle.loads(data)), error):
            return PARTS, data
    except BaseException:
        pass
    return NOTHING, b""


def _made_of(error: BaseException) -> tuple[Any, ...]:
    """Arguments for the class of the standard library. An `OSError` keeps fewer in its `args` than it was given."""
    builtin: Any = next(base for base in type(error).__mro__ if base.__module__ == "builtins")
    reduced = builtin.__reduce__(error)
    made_of: tuple[Any, ...] = reduced[1] if reduced[0] is type(error) else error.args
    return made_of


def _dumps(value: object) -> bytes:
    try:
        data = _pickle.dumps(value, 5)
    except Exception:
        data = b"__main__"
    if b"__main__" in data:
        from paceline._pickling import encode

        return encode(value)
    return data


def _same(copy: object, error: BaseException) -> bool:
    if type(copy) is not type(error):
        return False
    try:
        return bool(copy.args == error.args) or _repr(copy.args) == _repr(error.args)
    except Exception:
        return True  # arguments that cannot be compared, such as arrays


def _repr(args: tuple[Any, ...]) -> list[str]:
    # By type where the text would name an address.
    plain: Any = object.__repr__
    return [str(type(arg)) if type(arg).__repr__ is plain else repr(arg) for arg in args]


def _type_name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "<the exception could not be printed>"


def _notes(error: BaseException) -> list[str]:
    notes = getattr(error, "__notes__", None)
    return [str(note) for note in notes if isinstance(note, str)] if isinstance(notes, list) else []


def _text(error: BaseException) -> str:
    try:
        import traceback

        report = traceback.TracebackException(type(error), error, error.__traceback__)
        _drop_own_frames(report, set())
        return "".join(report.format())
    except Exception as problem:
        return f"{_type_name(error)}: {_message(error)}\n(no traceback: {type(problem).__name__})\n"


def _drop_own_frames(report: TracebackException | None, seen: set[int]) -> None:
    if report is None or id(report) in seen:
        return
    seen.add(id(report))
    report.stack[:] = [frame for frame in report.stack if not frame.filename.startswith(PACKAGE)]
    for inner in (report.__cause__, report.__context__, *(getattr(report, "exceptions", None) or ())):
        _drop_own_frames(inner, seen)

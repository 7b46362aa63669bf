"""Turns what came back instead of a value into the exception to raise.

Owns: decoding on the caller's side. The core calls `remote_error` for an exception of user code, `lost` for a
task that Paceline itself gave up, and `unreadable` for a value that cannot be decoded.

* OU-1: none of them ever raises; what cannot be decoded becomes a `RemoteError` that says so.
"""

from __future__ import annotations

import _pickle

from paceline import errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KINDS: dict[str, type[errors.PacelineError]] = {
    "slot-died": errors.SlotDied,
    "out-of-memory": errors.OutOfMemory,
    "poison": errors.PoisonTask,
    "node-lost": errors.NodeLost,
    "timeout": errors.TaskTimeout,
    "no-resources": errors.NoResources,
    "too-deep": errors.NestingTooDeep,
    "head-lost": errors.HeadLost,
    "group-lost": errors.GroupLost,
    "pool-broken": errors.PoolBroken,
    "actor-died": errors.ActorDied,
    "actor-unavailable": errors.ActorUnavailable,
    "closed": errors.ClusterClosed,
    "stopped": errors.ClusterStopped,
    "limit-reached": errors.LimitReached,
    "not-connected": errors.NotConnected,
    "queue-full": errors.QueueFull,
    "failed": errors.RemoteError,
    "no-such-function": errors.NoSuchFunction,
    "wrong-arguments": errors.WrongArguments,
    "program-not-started": errors.ProgramNotStarted,
    "argument": errors.ArgumentNotSerializable,
    "result": errors.ResultNotSerializable,
    "function": errors.FunctionNotSerializable,
}

UNSENDABLE = {"argument": "an argument", "result": "the result", "function": "the code"}


def remote_error(payload: bytes) -> BaseException:
    """The user's exception out of the bytes that `paceline._slot.failure` made."""
    try:
        form, data, type_name, message, text, notes = _pickle.loads(payload)
    except Exception as problem:
        return errors.RemoteError("unknown", f"the exception could not be decoded: {problem!r}")
    try:
        error = _decode(form, data)
    except BaseException as problem:
        hint = f"the exception itself could not be decoded here: {type(problem).__name__}: {problem}"
        error = errors.RemoteError(type_name, message, hint=hint)
    if error is None:
        error = errors.RemoteError(type_name, message, hint="the exception itself could not be pickled")
    _attach(error, text, notes)
    return error


def unreadable(error: BaseException, function: str) -> BaseException:
    """The error for a result that arrived and cannot be read. `error` says why."""
    from paceline._slot.failing import _message, _type_name

    reason = f"{_type_name(error)}: {_message(error)}"
    found = errors.ResultNotSerializable(
        f"cannot read the result of {function}: {reason}", path="result", hint=errors.UNREADABLE
    )
    found.__cause__ = error
    return found


def lost(kind: str, fields: dict[str, Any]) -> BaseException:
    """The error for a task without an outcome of its own. Of `fields` those count that the error knows."""
    try:
        if kind == "cancelled":
            from concurrent.futures import CancelledError

            return CancelledError()
        if kind in UNSENDABLE:
            function = fields.get("function") or "a task"
            reason = fields.get("reason", "unknown reason")
            return KINDS[kind](f"cannot send {UNSENDABLE[kind]} of {function}: {reason}")
        error = KINDS[kind]
        return error(**{name: value for name, value in fields.items() if name in _known(error)})
    except Exception:
        details = ", ".join(f"{name}: {value}" for name, value in fields.items())
        return errors.PacelineError(f"{kind}: {details}" if details else kind)


def _known(error: type[BaseException]) -> tuple[str, ...]:
    """The names that the constructor of one of our errors takes."""
    code = error.__init__.__code__
    names: tuple[str, ...] = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    return names


def _decode(form: str, data: bytes) -> BaseException | None:
    from paceline._slot.failing import NOTHING, PARTS, assemble

    if form == NOTHING:
        return None
    value = _pickle.loads(data)
    error = assemble(*value) if form == PARTS else value
    if not isinstance(error, BaseException):
        raise TypeError(f"a {type(error).__name__} came instead of an exception")
    return error


def _attach(error: BaseException, text: str, notes: list[str]) -> None:
    try:
        if notes and not getattr(error, "__notes__", None):
            for note in notes:
                error.add_note(note)
        error.__cause__ = errors.RemoteTraceback(text)
    except Exception:
        return  # an exception class that forbids even this still is the user's own

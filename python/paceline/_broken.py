"""The errors of executors and pools, which are those of the standard library too.

Owns: the translation from what Paceline raises to what callers of `concurrent.futures` and `multiprocessing` catch.
Loaded when something has gone wrong: the classes of the standard library cost some time to import.

* BR-1: an error that comes out is still what it was, with all its fields.
"""

from __future__ import annotations

import multiprocessing.pool
from concurrent.futures import process
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

from paceline import errors

if TYPE_CHECKING:

    class _MaybeEncodingError(Exception): ...
else:
    _MaybeEncodingError = multiprocessing.pool.MaybeEncodingError

# Not in the stubs of the standard library, or otherwise.
_ExecutorTraceback: Any = vars(process)["_RemoteTraceback"]
_PoolTraceback: Any = vars(multiprocessing.pool)["RemoteTraceback"]


class ExecutorBroken(errors.PoolBroken, process.BrokenProcessPool):
    """The executor has lost a slot, or its initializer failed: nothing runs in it any more."""


class SlotLost(errors.SlotDied, process.BrokenProcessPool):
    """The slot that ran the call died."""


class SlotOutOfMemory(errors.OutOfMemory, process.BrokenProcessPool):
    """The slot that ran the call was ended for memory."""


class MachineLost(errors.NodeLost, process.BrokenProcessPool):
    """The machine that ran the call is gone."""


class ArgumentUnreadable(errors.ArgumentNotSerializable, process.BrokenProcessPool):
    """An argument was sent, and could not be read in its slot."""


class ResultUnreadable(errors.ResultNotSerializable, process.BrokenProcessPool):
    """A result came, and could not be read here."""


class ResultUnsendable(errors.ResultNotSerializable, PicklingError):
    """A result could not be pickled in its slot."""


class ResultNotEncoded(errors.ResultNotSerializable, _MaybeEncodingError):
    """A result could not be pickled in its slot. `exc` says why, and `value` what it was."""


EXECUTOR: dict[type[BaseException], type[errors.PacelineError]] = {
    errors.PoolBroken: ExecutorBroken,
    errors.SlotDied: SlotLost,
    errors.PoisonTask: SlotLost,
    errors.OutOfMemory: SlotOutOfMemory,
    errors.NodeLost: MachineLost,
    errors.ArgumentNotSerializable: ArgumentUnreadable,
}


def for_executor(error: BaseException) -> BaseException:
    """What a future of an executor raises."""
    remote = type(error.__cause__) is errors.RemoteTraceback
    kind = EXECUTOR.get(type(error))
    if type(error) is errors.ResultNotSerializable:
        kind = ResultUnsendable if remote else ResultUnreadable
    other = error if kind is None else _as(error, kind)
    if remote:
        _explain(other, _ExecutorTraceback(_text(error)))
    return other


def for_pool(error: BaseException) -> BaseException:
    """What a result of a pool raises."""
    if type(error.__cause__) is not errors.RemoteTraceback:
        return error
    other = error
    if type(error) is errors.ResultNotSerializable:
        other = _as(error, ResultNotEncoded)
        other.__dict__.update(exc=repr(error), value=error.path or "result")
    _explain(other, _PoolTraceback(_text(error)))
    return other


def at_pickling(error: errors.SerializationError) -> BaseException:
    """An argument could not be pickled here: the error of the pickler, as the standard library has it, with ours as a
    note that names the argument."""
    cause = error.__cause__
    if cause is None:
        return error
    try:
        cause.add_note(str(error))
    except Exception:
        pass  # an exception class that forbids even this still is the user's own
    return cause


def _as(error: BaseException, kind: type[BaseException]) -> BaseException:
    other = kind.__new__(kind, *error.args)
    other.args = error.args
    other.__dict__.update(error.__dict__)
    other.__cause__ = error.__cause__
    return other


def _text(error: BaseException) -> str:
    cause: Any = error.__cause__
    return f'\n"""\n{cause.text.rstrip()}\n"""'


def _explain(error: BaseException, cause: BaseException) -> None:
    try:
        error.__cause__ = cause
    except Exception:
        return  # as above

"""Exceptions on their way from a slot to the caller."""

import _pickle
import threading
import traceback
from typing import Any

import pytest

from paceline import _outcome, _slot, errors


class Plain(Exception):
    pass


class Odd(Exception):
    """Its constructor cannot be called with its own `args`."""

    def __init__(self, code: int, where: str) -> None:
        super().__init__(f"{code} at {where}")
        self.code, self.where = code, where


class Doubling(Exception):
    """Pickle would build it without complaint, and with another message."""

    def __init__(self, text: str) -> None:
        super().__init__(f"error: {text}")


class OddOs(OSError):
    def __init__(self, path: str) -> None:
        super().__init__(2, "no such thing", path)


class Lockful(Exception):
    def __init__(self) -> None:
        super().__init__("has a lock")
        self.lock = threading.Lock()


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class Bomb(Exception):
    def __reduce__(self) -> Any:
        return _explode, ()


def _explode() -> None:
    raise SystemExit("must not get out")


def travelled(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as raised:
        return _outcome.remote_error(_slot.failure(raised))


@pytest.mark.parametrize(
    "error",
    [
        Plain("a", 1),
        Odd(3, "home"),
        Doubling("x"),
        Bomb("text"),
        OddOs("file"),
        KeyError("key"),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "why"),
        SystemExit(3),
        KeyboardInterrupt(),
        ExceptionGroup("group", [ValueError(1), Plain(2)]),
        StopIteration(5),
        errors.SlotDied(task=1, signal=9),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_users_own_exception(error: BaseException) -> None:
    """FA-1"""
    again = travelled(error)
    assert type(again) is type(error)
    assert repr(again.args) == repr(error.args)
    assert str(again) == str(error)
    assert again.__dict__ == error.__dict__
    assert isinstance(again.__cause__, errors.RemoteTraceback)
    assert "test_outcome.py" in again.__cause__.text
    assert "raise error" in str(again.__cause__)


def test_fields_of_builtin_exceptions() -> None:
    again = travelled(OddOs("file"))
    assert isinstance(again, OddOs)
    assert (again.errno, again.filename) == (2, "file")


def test_local_classes_keep_their_identity() -> None:
    class Local(Exception):
        pass

    assert type(travelled(Local("x"))) is Local


def test_notes_travel() -> None:
    error = Odd(1, "here")
    error.add_note("first")
    error.add_note("second")
    again = travelled(error)
    assert again.__notes__ == ["first", "second"]
    assert isinstance(again.__cause__, errors.RemoteTraceback)
    assert "second" in again.__cause__.text


def test_the_chain_of_causes_is_in_the_text() -> None:
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ValueError("outer") from inner
    except ValueError as error:
        text = str(_outcome.remote_error(_slot.failure(error)).__cause__)
    assert text.index("KeyError: 'inner'") < text.index("direct cause") < text.index("ValueError: outer")


def test_it_looks_right_when_raised() -> None:
    with pytest.raises(Plain) as caught:
        raise travelled(Plain("seen"))
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.index("RemoteTraceback") < shown.index("direct cause") < shown.rindex("Plain: seen")


@pytest.mark.parametrize(
    ("error", "name", "message"),
    [
        (Lockful(), "test_outcome.Lockful", "has a lock"),
    ],
)
def test_what_cannot_travel_is_described(error: Exception, name: str, message: str) -> None:
    again = travelled(error)
    assert isinstance(again, errors.RemoteError)
    assert (again.type_name, again.message) == (name, message)
    assert str(again).startswith(f"{name}: {message}\nhint: ")
    assert isinstance(again.__cause__, errors.RemoteTraceback)


def test_an_exception_that_cannot_be_printed() -> None:
    again = travelled(Unprintable("x"))
    assert type(again) is Unprintable
    assert "Unprintable" in str(again.__cause__)


def test_frames_of_paceline_are_left_out() -> None:
    try:
        _slot.load(_slot.REFERENCE + b"json\0nothing_of_the_kind")
    except AttributeError as error:
        text = str(_outcome.remote_error(_slot.failure(error)).__cause__)
    assert "AttributeError" in text
    assert "rebuild.py" not in text
    assert "_slot/" not in text


@pytest.mark.parametrize("payload", [b"", b"garbage", _pickle.dumps(3), _pickle.dumps((1, 2))])
def test_bad_bytes_are_an_error_and_no_crash(payload: bytes) -> None:
    """OU-1"""
    assert isinstance(_outcome.remote_error(payload), errors.RemoteError)


@pytest.mark.parametrize("data", [b"", b"garbage", _pickle.dumps("text")])
def test_a_bad_exception_is_described(data: bytes) -> None:
    record = ("pickled", data, "mine.Error", "what happened", "Traceback ...", ["note"])
    error = _outcome.remote_error(_pickle.dumps(record))
    assert isinstance(error, errors.RemoteError)
    assert (error.type_name, error.message, error.__notes__) == ("mine.Error", "what happened", ["note"])
    assert isinstance(error.__cause__, errors.RemoteTraceback)
    assert error.__cause__.text == "Traceback ..."


TASK = {"task": 3, "function": "f"}
DEATH = {**TASK, "attempts": 2, "slot": 1, "node": "n", "signal": 9, "exit_code": None, "out_of_memory": "no"}


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        ("slot-died", {**DEATH, "slots": [4, 1]}, errors.SlotDied),
        ("slot-died", {}, errors.SlotDied),
        ("poison", {**DEATH, "slots": [4, 5, 1]}, errors.PoisonTask),
        ("node-lost", {**DEATH, "slots": []}, errors.NodeLost),
        ("timeout", {**TASK, "timeout": 1.0}, errors.TaskTimeout),
        ("no-resources", {**TASK, "needs": "9 cpus", "largest": "2 cpus"}, errors.NoResources),
        ("closed", TASK, errors.ClusterClosed),
        ("stopped", {**TASK, "by": "`paceline stop`"}, errors.ClusterStopped),
        ("limit-reached", {**TASK, "why": "max_slot_links"}, errors.LimitReached),
        ("queue-full", {}, errors.QueueFull),
        ("argument", {**TASK, "reason": "why"}, errors.ArgumentNotSerializable),
        ("result", {**TASK, "reason": "why"}, errors.ResultNotSerializable),
        ("no-resources", {}, errors.PacelineError),
        ("unheard-of", {"field": 1}, errors.PacelineError),
    ],
)
def test_lost(kind: str, fields: dict[str, Any], expected: type) -> None:
    error = _outcome.lost(kind, fields)
    assert type(error) is expected
    for name, value in vars(error).items():
        if name in fields:
            assert value == (tuple(fields[name]) if name == "slots" else fields[name])


def test_what_the_slot_could_not_send() -> None:
    assert str(_outcome.lost("result", {**TASK, "reason": "why"})) == "cannot send the result of f: why"


def test_cancelled() -> None:
    from concurrent.futures import CancelledError

    assert type(_outcome.lost("cancelled", {})) is CancelledError

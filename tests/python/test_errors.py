"""The tree of errors."""

import copy
import pickle
import signal
from typing import Any

import pytest

import paceline as pl
from paceline import errors

EXAMPLES: list[Exception] = [
    errors.PacelineError("message", hint="do this"),
    errors.NotConnected(),
    errors.ClusterClosed(),
    errors.ClusterStopped("`paceline stop`", task=1, function="f"),
    errors.LimitReached("this slot has 64 links (max_slot_links of the node)", task=1, function="f"),
    errors.QueueFull(),
    errors.NoResources(needs="3 cpus", largest="2 cpus", function="f"),
    errors.TaskTimeout(task=1, function="f", timeout=2.5, attempts=2),
    errors.NodeLost(task=1, function="f", node="n", attempts=2),
    errors.SlotDied(task=7, function="f", slot=3, node="n", signal=9, out_of_memory="likely", attempts=4),
    errors.OutOfMemory(task=7, slot=3, signal=9, out_of_memory="yes", peak=3 << 30, limit=4 << 30),
    errors.PoisonTask(slots=(1, 4, 9), slot=9, signal=11, task=7, function="f", attempts=3),
    errors.SerializationError("message", path="args[0]"),
    errors.ArgumentNotSerializable("message", path="args[0]"),
    errors.ResultNotSerializable("message", path="result"),
    errors.FunctionNotSerializable("message", path="f"),
    errors.EncodingError("message", path="a"),
    errors.UnknownEncoding("message", hint="install it"),
    errors.DamagedData("message"),
    errors.PickleRefused(),
    errors.FilesNotDelivered("message", hint="free some room"),
    errors.NoSuchFiles("message"),
    errors.RemoteError("mine.Error", "text", hint="why"),
    errors.RemoteTraceback("text"),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_pickling_keeps_everything(error: Exception) -> None:
    """ER-1"""
    error.add_note("a note")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert (again.args, again.__dict__, str(again)) == (error.args, error.__dict__, str(error))


def test_a_subclass_with_a_constructor_of_its_own() -> None:
    again = pickle.loads(pickle.dumps(Special(1, b=2)))
    assert (type(again), again.a, again.b, str(again)) == (Special, 1, 2, "special 1")


class Special(errors.PacelineError):
    def __init__(self, a: int, *, b: int) -> None:
        super().__init__(f"special {a}")
        self.a, self.b = a, b


def test_every_error_is_public_and_has_its_own_code() -> None:
    kinds = [getattr(errors, name) for name in errors.__all__]
    assert all(getattr(pl, kind.__name__) is kind for kind in kinds)
    tree = [kind for kind in kinds if issubclass(kind, errors.PacelineError)]
    assert len({kind.code for kind in tree}) == len(tree) == len(kinds) - 1


def test_the_kinds_of_relation() -> None:
    assert issubclass(errors.PoisonTask, errors.SlotDied)
    assert issubclass(errors.ArgumentNotSerializable, errors.SerializationError)


@pytest.mark.parametrize("error", EXAMPLES[:-1], ids=lambda error: type(error).__name__)
def test_text_is_lowercase_and_without_a_stop(error: Exception) -> None:
    for line in str(error).splitlines():
        assert line[0].islower(), line
        assert not line.endswith("."), line


@pytest.mark.parametrize(
    ("fields", "message", "hint"),
    [
        (
            {"signal": signal.SIGKILL, "attempts": 4, "node": "box"},
            "task 7 (simulate) died with slot 3 on box: killed by SIGKILL (signal 9), after 4 attempts",
            "something outside killed the process",
        ),
        (
            {"signal": signal.SIGSEGV},
            "task 7 (simulate) died with slot 3: killed by SIGSEGV (signal 11)",
            "native code crashed; run simulate.original(...)",
        ),
        (
            {"signal": 9, "out_of_memory": "likely"},
            "task 7 (simulate) died with slot 3: killed by SIGKILL (signal 9), likely out of memory",
            "give it less data",
        ),
        (
            {"exit_code": 3},
            "task 7 (simulate) died with slot 3: ended with exit code 3",
            "the function called os._exit",
        ),
        ({"signal": 200}, "task 7 (simulate) died with slot 3: killed by signal 200", "something outside"),
    ],
)
def test_a_dead_slot_says_what_happened_and_what_to_do(fields: dict[str, Any], message: str, hint: str) -> None:
    error = errors.SlotDied(task=7, function="simulate", slot=3, **fields)
    assert str(error).splitlines()[0] == message
    assert error.hint is not None
    assert error.hint.startswith(hint)
    assert error.code == "slot-died"


def test_memory_is_told_with_its_numbers() -> None:
    error = errors.OutOfMemory(
        task=7, function="load", slot=3, node="box", signal=9, out_of_memory="yes", peak=3 << 30, limit=4 << 30
    )
    assert str(error).splitlines() == [
        "task 7 (load) died with slot 3 on box: killed by SIGKILL (signal 9), out of memory: it had 3 GiB of 4 GiB",
        "hint: give it less data at a time, or ask for more cpus= so that fewer tasks run side by side; "
        "PACELINE_MEMORY_LIMIT sets how much slots may have",
    ]
    assert (error.code, isinstance(error, errors.SlotDied)) == ("out-of-memory", True)
    assert "it had 1000 bytes of 1.465 KiB" in str(errors.OutOfMemory(out_of_memory="yes", peak=1000, limit=1500))


def test_a_poison_task_names_every_slot() -> None:
    error = errors.PoisonTask(slots=(1, 4, 9), slot=9, node="box", signal=11, task=7, function="simulate")
    assert str(error).splitlines()[0] == (
        "task 7 (simulate) is not run again, it ended slots 1, 4, 9; the last on box was killed by SIGSEGV (signal 11)"
    )

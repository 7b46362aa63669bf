"""The pickler for what plain pickle cannot do."""

import _pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from paceline import _pickling, errors


class Node:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Slotted:
    __slots__ = ("lock",)


def failure(value: object, root: Any = None) -> errors.SerializationError:
    with pytest.raises(errors.SerializationError) as caught:
        _pickling.dumps(value, root)
    return caught.value


def test_lambdas_in_containers() -> None:
    values = _pickle.loads(_pickling.dumps([lambda: 1, {"f": lambda x: x + 1}]))
    assert (values[0](), values[1]["f"](1)) == (1, 2)


def test_text_that_looks_like_the_main_module() -> None:
    value = {"__main__": ["__main__"]}
    assert _pickle.loads(_pickling.dumps(value)) == value


def test_by_reference_where_possible() -> None:
    assert _pickle.loads(_pickling.dumps([Node, failure, threading])) == [Node, failure, threading]


def test_local_classes_keep_their_identity() -> None:
    class Local:
        pass

    copy = _pickle.loads(_pickling.dumps(Local()))
    assert type(copy) is Local


@pytest.mark.parametrize(
    ("value", "root", "path"),
    [
        (({"lock": threading.Lock()},), "args", "args[0]['lock']"),
        (((1,), {"key": [0, threading.Lock()]}), "call", "kwargs['key'][1]"),
        (Node(inner=Node(lock=threading.Lock())), "value", "argument.inner.lock"),
        ((threading.Lock(),), "result", "result[0]"),
        (threading.Lock(), "result", "result"),
        ({1: {2: iter([])}, "x": (i for i in ())}, "value", "argument['x']"),
    ],
)
def test_the_part_to_blame_is_named(value: object, root: str, path: str) -> None:
    error = failure(value, root)
    assert error.path == path
    assert str(error).startswith(f"cannot send {path}, which is a ")
    assert isinstance(error.__cause__, Exception)


def test_slots_and_closures_are_searched() -> None:
    slotted = Slotted()
    slotted.lock = threading.Lock()  # type: ignore[attr-defined]
    assert failure([lambda: slotted]).path.startswith("slotted (closed over by ")
    assert failure([lambda: slotted]).path.endswith(").lock")


def test_kinds_of_error() -> None:
    lock = threading.Lock()
    assert type(failure(lock)) is errors.ArgumentNotSerializable
    assert type(failure((lock,), "args")) is errors.ArgumentNotSerializable
    assert type(failure(lock, "result")) is errors.ResultNotSerializable


def test_without_a_root_a_slot_means_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    from paceline import _slot

    monkeypatch.setattr(_slot, "number", 3)
    assert type(failure(threading.Lock())) is errors.ResultNotSerializable


def test_endless_nesting_is_an_error_and_no_crash() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    try:
        assert isinstance(failure([nested, lambda: 1]), errors.SerializationError)
    finally:
        while nested:  # taken apart by hand: so deep a list is not freed in one go on every version
            nested = nested.pop()


def test_fifty_threads() -> None:
    """PI-3"""
    barrier = threading.Barrier(50)

    def work(number: int) -> bool:
        def function(x: int) -> int:
            return function.__code__.co_argcount + x + number

        class Local:
            value = number

        barrier.wait()
        for _ in range(20):
            copy, kind = _pickle.loads(_pickling.dumps((function, Local)))
            if copy(1) != number + 2 or kind is not Local:
                return False
        return True

    with ThreadPoolExecutor(50) as executor:
        assert all(executor.map(work, range(50)))

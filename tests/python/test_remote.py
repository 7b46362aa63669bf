"""Remote functions: the decorator, the calls, and what is noticed between them."""

import functools
import inspect
import itertools
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import paceline as pl
from paceline import _functions
from support import run_script


@pytest.fixture(scope="module", autouse=True)
def small_cluster() -> Iterator[pl.Cluster]:
    with pl.connect(cpus=2) as connected:
        yield connected


@pl.remote
def add(a: int, b: int = 10) -> int:
    """Adds."""
    return a + b


@pl.remote
def where() -> int:
    return os.getpid()


class Fixed:
    def __init__(self, offset: int) -> None:
        self.offset = offset

    @pl.remote
    def shifted(self, x: int) -> int:
        return self.offset + x

    @staticmethod
    @pl.remote
    def static(x: int) -> int:
        return -x


def test_calls() -> None:
    assert add(1) == 11
    assert add(1, b=2) == 3
    assert add.submit(1, b=3).result() == 4
    assert add.map([1, 2, 3]) == [11, 12, 13]
    assert add.starmap([(1, 2), (3, 4)]) == [3, 7]
    assert list(add.imap(range(100))) == list(range(10, 110))
    assert sorted(add.imap_unordered(range(100), chunksize=7)) == list(range(10, 110))
    assert add.original(1) == 11


def test_it_runs_elsewhere() -> None:
    assert where() != os.getpid()
    assert where.original() == os.getpid()


def test_none_and_odd_values() -> None:
    identity = pl.remote(lambda value: value)
    for value in (None, "", b"", 0, -1, 2**100, 1.5, (), [], {}, {1: (2, [3])}, float("inf"), "grün", "\ud800"):
        assert identity(value) == value
        assert type(identity(value)) is type(value)


def test_it_looks_like_the_function() -> None:
    function: Any = add
    assert (function.__name__, function.__qualname__, function.__doc__, function.__module__) == (
        "add",
        "add",
        "Adds.",
        __name__,
    )
    assert str(inspect.signature(function)) == "(a: int, b: int = 10) -> int"
    assert function.__wrapped__ is function.original
    assert repr(function) == f"<paceline.RemoteFunction {__name__}.add>"
    assert pl.RemoteFunction[[int], str]


def test_callables_without_a_name() -> None:
    assert pl.remote(functools.partial(pow, 2))(5) == 32
    assert pl.remote(functools.partial(pow, 2)).__name__ == "pow"
    assert pl.remote(Fixed(1).shifted.original).map([1, 2]) == [2, 3]


def test_in_a_class_body_it_binds() -> None:
    fixed = Fixed(5)
    assert fixed.shifted(1) == 6
    assert fixed.shifted.submit(2).result() == 7
    assert fixed.shifted.map([1, 2]) == [6, 7]
    assert fixed.shifted.starmap([(1,)]) == [6]
    assert list(fixed.shifted.imap([1, 2])) == [6, 7]
    assert sorted(fixed.shifted.imap_unordered([1, 2])) == [6, 7]
    assert fixed.shifted.options(retries=0)(3) == 8
    assert fixed.shifted.original(4) == 9
    assert Fixed.shifted(fixed, 5) == 10
    assert Fixed.static(3) == fixed.static(3) == -3


def test_options() -> None:
    @pl.remote(cpus=0.5, retries=0, priority=-3)
    def function() -> int:
        return 1

    assert function() == 1
    other = function.options(retries=2)
    assert other() == 1
    expected = {"retry_on": ("slot", "node"), "timeout": None, "cpus": 0.5, "retries": 2, "priority": -3, "gpus": 0.0}
    assert {name: other._options.get(name) for name in expected} == expected
    assert function._options["retries"] == 0


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"tpus": 1}, TypeError, "unknown option 'tpus': there are cpus, gpus, memory, resources, "),
        ({"gpus": 1.5}, ValueError, "gpus must be a whole number, or a fraction of one: 1.5"),
        ({"memory": "much"}, ValueError, "memory must be a number of bytes or a text such as '2GB': 'much'"),
        ({"timeout": "1"}, TypeError, "timeout must be a number of seconds, not str"),
        ({"timeout": -1}, ValueError, "timeout must be more than zero seconds: -1"),
        ({"retry_on": "rain"}, ValueError, "retry_on has an unknown cause 'rain'"),
        ({"cpus": "2"}, TypeError, "cpus must be a number, not str"),
        ({"cpus": True}, TypeError, "cpus must be a number, not bool"),
        ({"cpus": -1}, ValueError, "cpus must be a number from zero up: -1"),
        ({"cpus": float("nan")}, ValueError, "cpus must be a number from zero up"),
        ({"retries": 1.5}, TypeError, "retries must be a whole number, not float"),
        ({"retries": -1}, ValueError, "retries must be at least 0: -1"),
        ({"priority": None}, TypeError, "priority must be a whole number, not NoneType"),
    ],
)
def test_bad_options(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        pl.remote(**options)
    with pytest.raises(error, match=text):
        add.options(**options)


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (3, "remote takes a function, not a int"),
        (staticmethod(abs), "put @remote below @staticmethod"),
    ],
)
def test_bad_targets(target: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        pl.remote(target)
    with pytest.raises(TypeError, match=text):
        pl.remote(retries=1)(target)


@pytest.mark.parametrize("bad", [{"chunksize": 0}, {"lookahead": 0}, {"chunksize": 1.5}])
def test_bad_arguments_of_imap(bad: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match="must be"):
        add.imap([1], **bad)


def test_an_endless_input() -> None:
    taken = []

    def endless() -> Iterator[int]:
        for number in itertools.count():
            taken.append(number)
            yield number

    values = add.imap(endless(), lookahead=20)
    assert [next(values) for _ in range(50)] == list(range(10, 60))
    assert len(taken) <= 50 + 20 + 1


def test_progress(capsys: pytest.CaptureFixture[str]) -> None:
    assert add.map(range(10), progress=True) == list(range(10, 20))
    assert capsys.readouterr().err.endswith("add: 10/10 (100 %)\n")


def test_the_users_exception() -> None:
    class Mine(Exception):
        pass

    def fail(x: int) -> None:
        raise Mine(x) from ValueError("inner")

    for call in (pl.remote(fail), pl.remote(fail).submit(1).result, lambda: pl.remote(fail).map([1])):
        with pytest.raises(Mine) as caught:
            call(1) if isinstance(call, pl.RemoteFunction) else call()
        assert caught.value.args == (1,)
        assert "ValueError: inner" in str(caught.value.__cause__)
    future = pl.remote(fail).submit(2)
    assert type(future.exception()) is Mine


def test_what_cannot_be_sent() -> None:
    identity = pl.remote(lambda value: value)
    with pytest.raises(pl.ArgumentNotSerializable, match=r"_thread.lock"):
        identity({"lock": threading.Lock()})
    with pytest.raises(pl.ResultNotSerializable, match=r"cannot send result\['lock'\]"):
        pl.remote(lambda: {"lock": threading.Lock()})()
    assert identity(add.submit(1)) == 11, "a future goes as its value"
    assert identity(1) == 1


def test_a_function_is_serialised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[object] = []
    encode = _functions.encode

    def counting(function: object, reach: Any) -> bytes:
        counted.append(function)
        return encode(function, reach)

    monkeypatch.setattr(_functions, "encode", counting)
    local = pl.remote(lambda x: x + len(ENTRIES))
    futures = [local.submit(x) for x in range(10_000)]
    assert [future.result() for future in futures] == [x + 2 for x in range(10_000)]
    assert local.map(range(3)) == [2, 3, 4]
    assert [local.options(priority=x)(1) for x in range(3)] == [3, 3, 3]
    assert len(counted) == 1


ENTRIES = ["a", "b"]


def test_rebinding_is_noticed() -> None:
    run_script(
        """
        import paceline as pl
        factor = 2
        def helper(x):
            return x * factor
        class Config:
            value = 1
        def outer():
            closed = 1
            @pl.remote
            def function():
                return closed
            def change(value):
                nonlocal closed
                closed = value
            return function, change
        @pl.remote
        def scaled(x):
            return helper(x)
        @pl.remote
        def late():
            return defined_later
        @pl.remote
        def configured():
            return Config.value
        function, change = outer()
        with pl.connect(cpus=2):
            assert scaled(3) == 6
            factor = 5
            assert scaled(3) == 15
            def helper(x):
                return -x
            assert scaled(3) == -3
            assert scaled.submit(4).result() == -4 and scaled.map([5]) == [-5]
            assert function() == 1
            change(2)
            assert function() == 2
            try:
                late()
            except NameError:
                defined_later = "now"
            assert late() == "now"
            del defined_later
            try:
                late()
                raise AssertionError
            except NameError:
                pass
            assert configured() == 1
            class Config:
                value = 2
            assert configured() == 2
            len = lambda x: "shadowed"
            measured = pl.remote(lambda x: len(x))
            assert measured("abc") == "shadowed"
            del len
            assert measured("abc") == 3
        """
    ).ok()


def test_remote_functions_as_arguments_and_globals() -> None:
    run_script(
        """
        import paceline as pl
        @pl.remote
        def double(x):
            return 2 * x
        @pl.remote
        def apply(function, x):
            return function.original(x) + double.original(x)
        with pl.connect(cpus=1):
            assert apply(double, 4) == 16
            assert pl.remote(lambda: double(1))() == 2
        """
    ).ok()


def test_a_module_that_uses_the_cluster_while_it_is_imported() -> None:
    """Its functions go by value then: a slot that imported it would run the same lines again."""
    done = run_script(
        "import job\nprint(job.result, job.double.map([1, 2]))",
        files={
            "job.py": """
            import paceline as pl
            cluster = pl.connect(cpus=1)
            @pl.remote
            def double(x):
                return 2 * x
            result = double(21)
            """
        },
    ).ok()
    assert done.stdout == "42 [2, 4]\n"


def test_a_module_that_connects_when_a_slot_imports_it() -> None:
    """CL-3"""
    done = run_script(
        "import job\nprint(job.double(21))",
        files={
            "job.py": """
            import paceline as pl
            cluster = pl.connect(cpus=1)
            @pl.remote
            def double(x):
                return 2 * x
            """
        },
    ).ok()
    assert done.stdout == "42\n"


def test_from_many_threads() -> None:
    results: list[int] = []
    threads = [threading.Thread(target=lambda n=n: results.append(add(n))) for n in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == list(range(10, 40))

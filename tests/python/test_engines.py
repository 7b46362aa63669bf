"""One map, many engines: the same results, the same order, the same exceptions."""

import importlib.util
import os
import threading
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import pytest

import paceline as pl
from paceline import engines
from support import assert_nothing_left, run_script

SERIAL = ["serial", "for_loop", "generator_expression", "generator_function", "list_comprehension", "map", "starmap"]
ELSEWHERE = ["processes", "multiprocessing", "joblib", "cluster"]
if importlib.util.find_spec("dask"):
    ELSEWHERE.append("dask")
ENGINES = [*SERIAL, "threads", *ELSEWHERE]


class Mine(Exception):
    pass


def fussy(x: int) -> int:
    if x % 10 == 7:
        raise Mine(x)
    return x


@pytest.fixture(scope="module", autouse=True)
def small_cluster() -> Iterator[None]:
    with pl.connect(cpus=2):
        yield


@pytest.mark.parametrize("engine", ENGINES)
def test_order_is_kept(engine: str) -> None:
    factor = 3
    assert pl.map(lambda x: x * factor, range(50), engine=engine) == [x * 3 for x in range(50)]


@pytest.mark.parametrize("engine", ENGINES)
def test_star_generators_and_chunks(engine: str) -> None:
    pairs = ((x, 2) for x in range(7))
    assert pl.map(pow, pairs, engine=engine, star=True, chunksize=3) == [x * x for x in range(7)]


@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_to_do(engine: str) -> None:
    assert pl.map(abs, [], engine=engine) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_the_first_exception_in_order(engine: str) -> None:
    with pytest.raises(Mine) as caught:
        pl.map(fussy, [1, 17, 2, 7], engine=engine, chunksize=1)
    assert caught.value.args == (17,)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_class_is_a_function_too(engine: str) -> None:
    assert pl.map(int, ["1", "2"], engine=engine) == [1, 2]


@pytest.mark.parametrize("engine", ENGINES)
def test_remote_functions(engine: str) -> None:
    assert pl.map(pl.remote(abs), [-1, -2], engine=engine) == [1, 2]


@pytest.mark.parametrize("engine", ENGINES)
def test_progress(engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert pl.map(abs, range(20), engine=engine, progress=True) == list(range(20))
    assert capsys.readouterr().err.endswith("abs: 20/20 (100 %)\n")


@pytest.mark.parametrize("engine", ELSEWHERE)
def test_what_cannot_be_sent(engine: str) -> None:
    with pytest.raises(pl.ArgumentNotSerializable):
        pl.map(id, [threading.Lock()], engine=engine)
    with pytest.raises(pl.ResultNotSerializable):
        pl.map(lambda _: threading.Lock(), [1], engine=engine)
    lock = threading.Lock()
    with pytest.raises(pl.FunctionNotSerializable):
        pl.map(lambda _: lock, [1], engine=engine)


def test_the_same_call_runs_anywhere_by_name_only() -> None:
    """Serially in this very process, on several cores, and on the cluster."""

    def where(x: int) -> tuple[int, int]:
        return x * x, os.getpid()

    for engine in ENGINES:
        found = pl.map(where, range(8), engine=engine, chunksize=1)
        assert [value for value, _ in found] == [0, 1, 4, 9, 16, 25, 36, 49]
        assert (os.getpid() in {process for _, process in found}) == (engine in (*SERIAL, "threads"))


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "cluster"])
def test_a_number_of_cpus(engine: str) -> None:
    def where(_: int) -> tuple[int, int]:
        return os.getpid(), threading.get_ident()

    found = pl.map(where, range(12), engine=engine, chunksize=1, cpus=3)
    assert 1 <= len(set(found)) <= 3
    assert len(set(pl.map(where, range(12), engine=engine, chunksize=1, cpus=1))) == 1


def test_a_number_of_cpus_for_the_cluster() -> None:
    with pytest.raises(ValueError, match=r"there is one already: leave cpus away, or say it to connect\(cpus=...\)"):
        pl.map(abs, [1], cpus=3)
    run_script(
        """
        import paceline as pl
        from paceline import _cluster

        assert pl.map(abs, [-1], cpus=3) == [1]
        assert _cluster.current().cpus == 3
        """
    ).ok()
    for wrong, error in ((0, ValueError), (1.5, TypeError)):
        with pytest.raises(error, match="cpus must be"):
            pl.map(abs, [1], engine="serial", cpus=wrong)  # type: ignore[arg-type]


def test_a_process_of_multiprocessing_that_dies_is_an_error() -> None:
    with pytest.raises(BrokenProcessPool, match="ended with exit code 3"):
        pl.map(lambda x: os._exit(3), range(4), engine="multiprocessing", cpus=2)


@pytest.mark.skipif("dask" in ENGINES, reason="it is")
def test_an_engine_that_is_not_installed() -> None:
    with pytest.raises(ImportError, match="dask"):
        pl.map(abs, [1], engine="dask")


def test_auto_is_the_cluster() -> None:
    assert pl.map(lambda _: os.getppid(), [1]) != [os.getppid()]


def test_an_unknown_engine() -> None:
    with pytest.raises(ValueError, match="unknown engine 'steam': there are auto, serial, threads, processes, cluster"):
        pl.map(abs, [], engine="steam")


@pytest.mark.parametrize("chunksize", [0, -1])
def test_a_bad_chunksize(chunksize: int) -> None:
    with pytest.raises(ValueError, match="chunksize must be at least 1"):
        pl.map(abs, [1], engine="serial", chunksize=chunksize)


def test_not_a_function() -> None:
    nothing: Any = 3
    with pytest.raises(TypeError, match="map takes a function, not a int"):
        pl.map(nothing, [])


def test_an_engine_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_registered", {})

    def constant(function: Any, items: Any, *, star: bool, chunksize: int | None, progress: Any) -> list[Any]:
        return [star, chunksize, progress]

    engines.register("constant", constant)
    assert pl.map(abs, [1], engine="constant", chunksize=4, star=True) == [True, 4, None]
    assert "constant" in engines.names()


@pytest.mark.parametrize("engine", ["serial", "threads", *ELSEWHERE])
def test_a_script_without_a_guard_runs_once(engine: str) -> None:
    done = run_script(
        f"""
        print("once")
        import dataclasses
        import paceline as pl

        @dataclasses.dataclass
        class Point:
            x: int

        def move(point):
            return Point(point.x + step)

        step = 10
        moved = pl.map(move, [Point(x) for x in range(5)], engine={engine!r})
        assert moved == [Point(x + 10) for x in range(5)], moved
        assert all(type(point) is Point for point in moved)
        """
    ).ok()
    assert done.stdout == "once\n"
    assert done.stderr == ""
    assert_nothing_left(done)

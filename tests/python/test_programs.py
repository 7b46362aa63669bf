"""Functions of a Rust program, called from Python: values, failures, deaths, and nothing left behind."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paceline as pl
from support import assert_nothing_left, run_script, start_script, wait_until
from support.programs import built

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture
def exports() -> pl.Program:
    return pl.program(built("exports"))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -1,
        127,
        -(2**63),
        2**63 - 1,
        2**64 - 1,
        0.5,
        float("inf"),
        "",
        "grüße \U0001f600",
        "x" * 70_000,
        b"",
        b"\x00\xff" * 40_000,
        [],
        [1, [2.5, ["x", None]], {}],
        {"a": 1, "b": {"c": [True, b"y"]}},
        list(range(100_000)),
        {str(number): number for number in range(20_000)},
    ],
    ids=lambda value: repr(value)[:20],
)
def test_values_come_back(exports: pl.Program, value: Any) -> None:
    echoed = exports.function("echo")(value)
    assert echoed == value
    assert type(echoed) is type(value)


def test_what_is_converted(exports: pl.Program) -> None:
    echo = exports.function("echo")
    assert echo((1, (2, 3))) == [1, [2, 3]], "a tuple arrives as a list"
    assert echo(np.int64(7)) == 7
    assert echo(np.float32(0.5)) == 0.5
    assert echo(np.bool_(True)) is True
    assert echo(bytearray(b"abc")) == b"abc"
    assert exports.function("area")(2, True + 2) == 6.0, "an int will do for a float"
    assert exports.function("birthday")({"name": "Ada", "age": 36}, 1) == {"name": "Ada", "age": 37}
    assert exports.function("birthday")({"name": "Ada"}, 1) == {"name": "Ada", "age": None}


@pytest.mark.parametrize("kind", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"])
def test_arrays_of_every_type(exports: pl.Program, kind: str) -> None:
    array = np.array([[0, 1, 2], [3, 4, 5]]).astype(kind)
    same = exports.function(f"same/{kind}")(array)
    assert same.dtype == array.dtype
    np.testing.assert_array_equal(same, array)


def test_arrays_of_every_form(exports: pl.Program) -> None:
    double = exports.function("double")
    table = np.arange(24.0).reshape(2, 3, 4)
    forms = [
        table,
        table.T,
        table[:, ::2, 1:],
        np.asfortranarray(table),
        table.astype(">f8"),
        np.array(3.0),
        np.zeros((0, 3)),
        np.zeros((3, 0)),
        np.ones(300_000),
    ]
    for array in forms:
        doubled = double(array)
        assert doubled.shape == array.shape
        np.testing.assert_array_equal(doubled, 2 * array)
        assert doubled.flags.writeable
        assert doubled.flags.c_contiguous
    np.testing.assert_array_equal(exports.function("not")(np.array([True, False])), [False, True])


def test_it_is_a_remote_function(exports: pl.Program, cluster: pl.Cluster) -> None:
    area = exports.function("area")
    assert area.submit(2.0, 3.0).result() == 6.0
    assert area.starmap([(n, 2) for n in range(1000)]) == [2.0 * n for n in range(1000)]
    assert area.starmap([(1, 2), (3, 4)], chunksize=1) == [2.0, 12.0]
    echo = exports.function("echo")
    assert echo.map(range(1000)) == list(range(1000))
    assert echo.map(iter("abc")) == ["a", "b", "c"]
    assert list(echo.imap(range(1000))) == list(range(1000))
    assert list(echo.imap(range(1000), chunksize=7)) == list(range(1000))
    assert sorted(echo.imap_unordered(range(100))) == list(range(100))
    assert area.options(retries=0, cpus=2, priority=3, cluster=cluster)(1.0, 1.0) == 1.0
    assert exports.function("echo", timeout=30)(5) == 5
    assert repr(area) == "<paceline.RemoteFunction paceline.area>"
    with pytest.raises(TypeError, match="no original to call here"):
        area.original(1.0, 2.0)
    with pytest.raises(TypeError, match="by position"):
        area(width=1.0, height=2.0)
    with pytest.raises(TypeError, match="unknown option"):
        exports.function("area", colour="red")  # type: ignore[call-arg]


def test_it_can_be_pickled_and_mapped(exports: pl.Program) -> None:
    area = pickle.loads(pickle.dumps(exports.function("area", retries=1)))
    assert area(2.0, 4.0) == 8.0
    assert pl.map(exports.function("echo"), range(10)) == list(range(10))
    assert pl.map(area, [(1, 2), (3, 4)], star=True) == [2.0, 12.0]


def test_both_languages_share_the_cpus(exports: pl.Program, cluster: pl.Cluster) -> None:
    here = pl.remote(lambda: os.getpid())
    there = exports.function("pid")
    futures = [function.submit() for _ in range(200) for function in (here, there)]
    pids = {future.result() for future in futures}
    assert len(pids) >= 2
    assert os.getpid() not in pids
    with pl.connect(cpus=1):
        futures = [function.submit() for _ in range(5) for function in (here, there)]
        assert len({future.result(20) for future in futures}) >= 2


def test_the_task_knows_itself(exports: pl.Program) -> None:
    future = exports.function("current").submit()
    task, attempt, slot = future.result()
    assert (task, attempt) == (future.task_id, 1)
    assert slot > 0


@pytest.mark.parametrize(
    ("args", "path", "what"),
    [
        (({1, 2},), "args[0]", "a set"),
        ((1, {"x": [0, object()]}), "args[1]['x'][1]", "a object"),
        (({(1, 2): 3},), "args[0][(1, 2)]", "key"),
        ((2**64,), "args[0]", "64 bits"),
        ((-(2**63) - 1,), "args[0]", "64 bits"),
        ((1j,), "args[0]", "a complex"),
        (("\ud800",), "args[0]", "Unicode"),
        ((np.array(["a"]),), "args[0]", "an array of <U1"),
        ((np.array([None]),), "args[0]", "an array of object"),
        ((np.ma.masked_array([1], [True]),), "args[0]", "MaskedArray"),
        ((print,), "args[0]", "builtin_function_or_method"),
    ],
)
def test_what_cannot_be_sent_is_named(exports: pl.Program, args: tuple[Any, ...], path: str, what: str) -> None:
    echo = exports.function("echo")
    for attempt in (echo, echo.submit):
        with pytest.raises(pl.ArgumentNotSerializable) as caught:
            attempt(*args)
        assert caught.value.path == path
        assert what in str(caught.value)
        assert "numpy arrays of numbers" in str(caught.value.hint)


def test_a_list_that_contains_itself(exports: pl.Program) -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(pl.ArgumentNotSerializable, match="nested too deeply"):
        exports.function("echo")(endless)


@pytest.mark.parametrize(
    ("name", "args", "reason"),
    [
        ("area", ("x", 2.0), "width: it is a string"),
        ("area", (1.0, None), "height: invalid type: None, expected f64"),
        ("area", (1.0,), "it takes 2 arguments (width, height), not 1"),
        ("area", (), "it takes 2 arguments (width, height), not 0"),
        ("pid", (1,), "it takes 0 arguments, not 1"),
        ("birthday", ({"name": 7}, 1), "person.name: "),
        ("birthday", ({}, 1), "person: missing field `name`"),
        ("birthday", ({"name": "x"}, 300), "years: "),
        ("third", ([1, "x"],), "values[1]: "),
        ("double", (np.zeros(2, "f4"),), "values: an array of numbers of type f4, expected f8"),
        ("double", ([1.0],), "values: "),
    ],
)
def test_wrong_arguments_are_named(exports: pl.Program, name: str, args: tuple[Any, ...], reason: str) -> None:
    with pytest.raises(pl.WrongArguments) as caught:
        exports.function(name)(*args)
    assert caught.value.reason.startswith(reason), caught.value.reason
    assert isinstance(caught.value, TypeError)


def test_errors_and_panics_arrive(exports: pl.Program) -> None:
    with pytest.raises(pl.RemoteError) as caught:
        exports.function("fail")("no such luck")
    assert caught.value.message == "no such luck"
    assert caught.value.type_name == "std::io::error::Error"
    with pytest.raises(pl.RemoteError) as caught:
        exports.function("third")([1, 2])
    assert caught.value.type_name == "panic"
    assert "index out of bounds" in caught.value.message
    assert "exports.rs:" in caught.value.location
    with pytest.raises(pl.RemoteError, match="index out of bounds"):
        exports.function("third").map([[1, 2, 3]] * 50 + [[]] + [[1, 2, 3]] * 50)


def test_an_unknown_name_lists_what_there_is(exports: pl.Program) -> None:
    with pytest.raises(pl.NoSuchFunction) as caught:
        exports.function("aera")(1.0, 2.0)
    assert "area" in caught.value.exports
    assert "area" in str(caught.value)


def test_a_killed_slot_is_replaced_and_its_call_runs_again(exports: pl.Program, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    future = exports.function("nap").submit(str(mark), 1_000)
    wait_until(mark.exists, "the call to begin")
    first = int(mark.read_text())
    os.kill(first, signal.SIGKILL)
    assert future.result(20) not in (first, os.getpid())


def test_a_death_without_retries_is_told(exports: pl.Program, tmp_path: Path) -> None:
    with pytest.raises(pl.SlotDied) as caught:
        exports.function("abort", retries=0)()
    assert caught.value.signal == signal.SIGABRT
    with pytest.raises(pl.PoisonTask):
        exports.function("abort", retries=10)()
    assert exports.function("area")(2.0, 2.0) == 4.0


def test_the_zygote_of_the_program_is_replaced(exports: pl.Program) -> None:
    pid = exports.function("pid")
    status = Path(f"/proc/{pid()}/status").read_text()
    zygote = int(next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:")))
    here = pl.remote(os.getpid)()
    os.kill(zygote, signal.SIGKILL)
    assert pid.submit().result(20) != os.getpid()
    assert exports.function("area").submit(1.0, 2.0).result(20) == 2.0
    assert Path(f"/proc/{here}").exists(), "slots of the other program live on"


def test_a_call_that_takes_too_long_or_is_cancelled(exports: pl.Program, tmp_path: Path) -> None:
    with pytest.raises(pl.TaskTimeout):
        exports.function("nap", timeout=0.1, retries=0)(str(tmp_path / "a"), 60_000)
    mark = tmp_path / "b"
    future = exports.function("nap").submit(str(mark), 60_000)
    wait_until(mark.exists, "the call to begin")
    assert pl.cancel(future)
    assert future.cancelled()
    pid = int(mark.read_text())
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the slot that does not listen to end", timeout=20)


@pytest.mark.parametrize(
    ("path", "kind", "code", "says"),
    [
        ("/nowhere/shapes", "not-run", None, "No such file"),
        ("/etc/passwd", "not-run", None, "ermission denied"),
        ("/bin/false", "ended", 1, "exit code 1"),
        ("/bin/ls", "ended", 2, "paceline-zygote"),
    ],
)
def test_a_program_that_cannot_be_started(path: str, kind: str, code: int | None, says: str) -> None:
    began = time.monotonic()
    function = pl.program(path).function("anything")
    for attempt in (lambda: function(1), lambda: function.submit(1).result(20), lambda: function.map([1, 2, 3])):
        with pytest.raises(pl.ProgramNotStarted) as caught:
            attempt()
        error = caught.value
        assert (error.program, error.kind, error.exit_code) == (os.path.abspath(path), kind, code)
        assert says in str(error)
        assert error.hint
    assert time.monotonic() - began < 10
    assert pl.remote(abs)(-1) == 1, "everything else goes on"


def executable(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_a_program_that_says_why(tmp_path: Path) -> None:
    script = executable(tmp_path / "talks", "#!/bin/sh\nfor n in $(seq 100); do echo line $n >&2; done\nexit 3\n")
    with pytest.raises(pl.ProgramNotStarted) as caught:
        pl.program(script).function("x")()
    assert caught.value.exit_code == 3
    assert caught.value.stderr.splitlines() == [f"line {n}" for n in range(81, 101)]


def test_a_program_of_another_version(tmp_path: Path) -> None:
    # What a zygote of version 99 would say first: a frame of its own, over standard input.
    frame = b"PL" + bytes([99, 71]) + b"\0" * 12
    text = f"#!{sys.executable}\nimport os, time\nos.write(0, {frame!r})\ntime.sleep(60)\n"
    with pytest.raises(pl.ProgramNotStarted) as caught:
        pl.program(executable(tmp_path / "other", text)).function("x")()
    assert caught.value.kind == "foreign"
    assert "version 99" in str(caught.value)
    assert "same version" in str(caught.value.hint)


@pytest.mark.slow
def test_a_program_that_is_no_worker(tmp_path: Path) -> None:
    script = executable(tmp_path / "sits", "#!/bin/sh\necho waiting for nothing >&2\nsleep 600\n")
    began = time.monotonic()
    with pytest.raises(pl.ProgramNotStarted) as caught:
        pl.program(script).function("x")()
    assert (caught.value.kind, caught.value.stderr) == ("silent", "waiting for nothing")
    assert time.monotonic() - began < 20


def test_a_program_that_is_there_later(tmp_path: Path) -> None:
    path = tmp_path / "exports"
    area = pl.program(path).function("area")
    with pytest.raises(pl.ProgramNotStarted):
        area(1.0, 2.0)
    path.symlink_to(built("exports"))
    assert area(1.0, 2.0) == 2.0


def test_programs_by_name_and_by_relative_path(monkeypatch: pytest.MonkeyPatch) -> None:
    folder, name = os.path.split(built("exports"))
    monkeypatch.setenv("PATH", folder)
    assert pl.program(name).path == built("exports")
    monkeypatch.chdir(folder)
    there = pl.program(f"./{name}")
    monkeypatch.chdir("/")
    assert there.path == built("exports")
    assert there == pl.program(built("exports"))
    with pytest.raises(TypeError):
        pl.program(b"/bin/true")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        there.function(3)  # type: ignore[arg-type]


SCRIPT = textwrap.dedent(
    f"""
    import sys
    import paceline as pl

    pl.connect(cpus=2)
    exports = pl.program({built("exports")!r})
    exports.function("talk")("from Rust")
    print(exports.function("area")(2.0, 3.0))
    assert "numpy" not in sys.modules, "nobody has met an array"
    """
)


def test_output_is_shown_and_nothing_is_left() -> None:
    done = run_script(SCRIPT).ok()
    assert "6.0" in done.stdout
    assert "from Rust" in done.stdout
    assert "slot" in done.stdout
    assert_nothing_left(done)


def test_nothing_outlives_a_killed_client(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = SCRIPT + f"exports.function('nap')({str(mark)!r}, 60_000)\n"
    with start_script(script) as running:
        wait_until(mark.exists, "the call to begin")
        running.send_signal(signal.SIGKILL)
        done = running.wait(20)
        assert done.returncode == -signal.SIGKILL
        assert_nothing_left(done)

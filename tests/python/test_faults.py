"""Everything that can go wrong in a task, by every way to run one.

One table of faults, one of ways, and a test for each pair: it ends as documented, in time, and leaves a cluster that
works, with as many slots as before. All pairs use one cluster, one after the other.

Where an exception could be taken for something else it is replaced. A `StopIteration` would end the caller's own loop
in silence, so it arrives as itself only from a call or `result()`; from maps and `await` it is the cause of a
`RuntimeError`, as it is when it leaves a generator.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import faulty
import paceline as pl
from support import wait_until

CPUS = 2
SPARES = 1
SECONDS = 5.0


STOPPED_LIMIT = "100ms"


@pytest.fixture(scope="module")
def shared() -> Iterator[pl.Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PACELINE_STOPPED_LIMIT", STOPPED_LIMIT)
        cluster = pl.connect(cpus=CPUS)
    with cluster:
        wait_until(lambda: len(slots(cluster)) == CPUS + SPARES, "all slots")
        yield cluster


# Ways to run. Each takes the remote function, the item that goes wrong, and a list for the values it gets.


def by_call(function: Any, item: Any, values: list[Any]) -> None:
    values.append(function(item))


def by_submit(function: Any, item: Any, values: list[Any]) -> None:
    values.append(function.submit(item).result(timeout=SECONDS))


def by_map(function: Any, item: Any, values: list[Any]) -> None:
    values += function.map(among(item, 3), chunksize=1)


def by_chunked_map(function: Any, item: Any, values: list[Any]) -> None:
    values += function.map(among(item, 12))


def by_imap(function: Any, item: Any, values: list[Any]) -> None:
    values.extend(function.imap(among(item, 3)))


def by_chunked_imap(function: Any, item: Any, values: list[Any]) -> None:
    values.extend(function.imap(among(item, 3), chunksize=3))


def by_imap_unordered(function: Any, item: Any, values: list[Any]) -> None:
    values.extend(function.imap_unordered(among(item, 3)))


def by_starmap(function: Any, item: Any, values: list[Any]) -> None:
    values += function.starmap([(one,) for one in among(item, 3)], chunksize=1)


def by_chunked_starmap(function: Any, item: Any, values: list[Any]) -> None:
    values += function.starmap([(one,) for one in among(item, 12)])


def by_await(function: Any, item: Any, values: list[Any]) -> None:
    async def main() -> BaseException | None:
        # Caught inside, because asyncio lets KeyboardInterrupt and SystemExit out of its loop.
        try:
            async with asyncio.timeout(SECONDS):
                values.append(await function.submit(item))
        except BaseException as error:
            return error
        return None

    error = asyncio.run(main())
    if error is not None:
        raise error


def by_callback(function: Any, item: Any, values: list[Any]) -> None:
    ended: dict[int, Any] = {}
    try:
        with pl.Submitter(ended.__setitem__) as jobs:
            for id, one in enumerate(among(item, 3)):
                jobs.submit(id, function, one)
    except BaseException as error:
        notes: list[str] = getattr(error, "__notes__", [])
        error.__notes__ = [note for note in notes if note != "raised by job 3 of a submitter"]
        raise
    finally:
        values += [ended[id] for id in sorted(ended)]


def among(item: Any, neighbours: int) -> list[Any]:
    return [None] * neighbours + [item] + [None] * neighbours


WAYS: dict[str, Callable[[Any, Any, list[Any]], None]] = {
    "call": by_call,
    "submit": by_submit,
    "map": by_map,
    "map in chunks": by_chunked_map,
    "imap": by_imap,
    "imap in chunks": by_chunked_imap,
    "imap_unordered": by_imap_unordered,
    "starmap": by_starmap,
    "starmap in chunks": by_chunked_starmap,
    "await": by_await,
    "callback": by_callback,
}
NEIGHBOURS = {"call": 0, "submit": 0, "await": 0, "map in chunks": 12, "starmap in chunks": 12}


# Faults.


@dataclass(frozen=True)
class Fault:
    """A function, what it is called with, and how that ends: with `value`, or with an exception of type `raises`.

    `attributes` are those of the exception, `says` parts of its text, `traceback` parts of the remote traceback.
    """

    function: Callable[[Any], Any]
    raises: type[BaseException] | None = None
    value: Any = None
    attributes: dict[str, Any] = field(default_factory=dict)
    says: tuple[str, ...] = ()
    traceback: tuple[str, ...] = ()
    item: Callable[[Path, contextlib.ExitStack], Any] = lambda _directory, _stack: "go"
    in_loops: type[BaseException] | None = None
    """What it is where iteration or asyncio would misunderstand it; the exception itself is then the cause."""
    retries: int | None = None
    deaths: int = 0
    harms: bool = False
    """Leaves a slot that the next test should not have."""
    prints: str = ""
    seconds: float = SECONDS


def in_main(source: str, name: str) -> Any:
    """A function of the main script, as far as pickling can tell."""
    exec(source, vars(sys.modules["__main__"]))
    return vars(sys.modules["__main__"])[name]


MAIN = """
class FaultOfMain(Exception):
    def __init__(self, code):
        super().__init__(f"code {code}")
        self.code = code

def raise_fault_of_main(item):
    raise FaultOfMain(4)
"""


def generator() -> Iterator[int]:
    yield 1


def opened(directory: Path, stack: contextlib.ExitStack) -> Any:
    return stack.enter_context(open(directory / "file", "w"))


def raised(error: Callable[[], BaseException], **expected: Any) -> Fault:
    kind = expected.pop("raises", None) or type(error())
    return Fault(faulty.raising(error), raises=kind, **expected)


def killed(function: Callable[[Any], Any], **attributes: Any) -> dict[str, Fault]:
    return {
        "once": Fault(
            function,
            raises=pl.SlotDied,
            retries=0,
            deaths=1,
            attributes={"code": "slot-died", "attempts": 1, **attributes},
        ),
        "always": Fault(
            function,
            raises=pl.PoisonTask,
            deaths=3,
            attributes={"code": "poison-task", "attempts": 3, **attributes},
        ),
    }


def deaths() -> dict[str, Fault]:
    found = {
        "os._exit": killed(faulty.hard_exit, exit_code=5, signal=None),
        "kill of the group": killed(faulty.kill_group, exit_code=None, signal=signal.SIGKILL),
    }
    # One that only stops it is ended when it has stood still for too long.
    for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM, signal.SIGSTOP):
        found[number.name] = killed(faulty.kill_by(number), exit_code=None, signal=number)
    return {f"{name}, {how}": fault for name, both in found.items() for how, fault in both.items()}


NOT_SENT = {"code": "argument-not-serializable"}
NOT_RETURNED = {"code": "result-not-serializable"}

FAULTS: dict[str, Fault] = {
    # The user's own exceptions.
    "ValueError": raised(lambda: ValueError("text", 7), attributes={"args": ("text", 7)}, traceback=("raise make()",)),
    "exception of a module": raised(faulty.custom, attributes={"args": ("text", 7)}),
    "exception of the main script": Fault(
        in_main(MAIN, "raise_fault_of_main"),
        raises=in_main(MAIN, "FaultOfMain"),
        attributes={"code": 4},
        says=("code 4",),
    ),
    "exception with an odd constructor": raised(faulty.odd, attributes={"code": 3, "where": "home", "args": ()}),
    "exception with a cause and a note": Fault(
        faulty.raise_chained,
        raises=ValueError,
        attributes={"__notes__": ["a note"]},
        says=("outer",),
        traceback=("KeyError: 'inner'", "direct cause", "ValueError: outer", "a note"),
    ),
    "exception with a lock": raised(
        faulty.holding,
        raises=pl.RemoteError,
        attributes={"type_name": "faulty.Holding", "message": "has a lock", "code": "remote-error"},
        says=("hint: ",),
    ),
    "exception that cannot be reduced": raised(faulty.irreducible, attributes={"args": ("text",)}),
    "exception that cannot be printed": raised(faulty.unprintable, attributes={"args": ("text",)}),
    "exception that cannot be read": raised(
        faulty.unreadable_error, raises=faulty.UnreadableError, attributes={"args": ("text",)}
    ),
    "BaseException": raised(faulty.base, attributes={"args": ("not an Exception",)}),
    "KeyboardInterrupt": raised(KeyboardInterrupt),
    "SystemExit": Fault(faulty.exit_with_3, raises=SystemExit, attributes={"code": 3}),
    "GeneratorExit": raised(GeneratorExit),
    "StopIteration": Fault(faulty.end_of_iterator, raises=StopIteration, in_loops=RuntimeError),
    "StopAsyncIteration": raised(lambda: StopAsyncIteration(5), attributes={"args": (5,)}),
    "MemoryError": Fault(faulty.too_much_memory, raises=MemoryError),
    "RecursionError": Fault(faulty.recurse, raises=RecursionError, traceback=("recurse(item)",)),
    "exception group": raised(
        lambda: ExceptionGroup("two", [ValueError(1), faulty.Custom(2)]), attributes={"message": "two"}
    ),
    "error of paceline": raised(lambda: pl.SlotDied(task=1, signal=9), attributes={"signal": 9, "code": "slot-died"}),
    # What cannot travel.
    "argument: lock": Fault(
        faulty.take,
        raises=pl.ArgumentNotSerializable,
        attributes=NOT_SENT,
        says=("lock", "hint: "),
        item=lambda *_: threading.Lock(),
    ),
    "argument: generator": Fault(
        faulty.take,
        raises=pl.ArgumentNotSerializable,
        attributes=NOT_SENT,
        says=("generator", "hint: "),
        item=lambda *_: generator(),
    ),
    "argument: open file": Fault(
        faulty.take,
        raises=pl.ArgumentNotSerializable,
        attributes=NOT_SENT,
        says=("TextIOWrapper", "hint: "),
        item=opened,
    ),
    "argument that cannot be written": Fault(
        faulty.take,
        raises=pl.ArgumentNotSerializable,
        attributes=NOT_SENT,
        says=("no way to write this", "faulty.Unwritable"),
        item=lambda *_: faulty.Unwritable(),
    ),
    "argument that cannot be read": Fault(
        faulty.take,
        raises=pl.ArgumentNotSerializable,
        attributes=NOT_SENT,
        says=("ValueError: cannot read the value here", "hint: "),
        traceback=("only_in", "cannot read the value here"),
        item=lambda *_: faulty.Unreadable(),
    ),
    "argument that ends the reading": Fault(
        faulty.take,
        raises=pl.ArgumentNotSerializable,
        attributes=NOT_SENT,
        says=("StopIteration",),
        item=lambda *_: faulty.StopsReading(),
    ),
    "argument: nested too deep": Fault(
        faulty.take,
        raises=pl.ArgumentNotSerializable,
        attributes=NOT_SENT,
        says=("recursion",),
        item=lambda *_: faulty.nested(),
    ),
    "result: lock": Fault(
        faulty.return_lock, raises=pl.ResultNotSerializable, attributes=NOT_RETURNED, says=("lock", "hint: ")
    ),
    "result that cannot be written": Fault(
        faulty.return_unwritable,
        raises=pl.ResultNotSerializable,
        attributes=NOT_RETURNED,
        says=("no way to write this",),
    ),
    "result that cannot be read": Fault(
        faulty.return_unreadable,
        raises=pl.ResultNotSerializable,
        attributes=NOT_RETURNED,
        says=("ValueError: cannot read the value here", "hint: "),
    ),
    "result: nested too deep": Fault(
        faulty.nested, raises=pl.ResultNotSerializable, attributes=NOT_RETURNED, says=("recursion",)
    ),
    # Deaths of the slot.
    **deaths(),
    "a death at the first time only": Fault(
        faulty.die_once, value="second time", deaths=1, item=lambda directory, _: str(directory / "died")
    ),
    # What a task does to its process.
    "flood of output": Fault(faulty.flood, value="said it all", prints="end of the flood\n"),
    "closing standard streams": Fault(faulty.close_stdout, value="closed", harms=True),
    "closing standard descriptors": Fault(faulty.close_descriptors, value="closed", harms=True),
    "losing directory and path": Fault(
        faulty.lose_surroundings, value="lost", harms=True, item=lambda directory, _: str(directory / "gone")
    ),
    "fork, child exits": Fault(faulty.fork, value="parent", item=lambda *_: "exit"),
    "fork, child returns": Fault(faulty.fork, value="parent", item=lambda *_: "return"),
    "fork, child raises": Fault(faulty.fork, value="parent", item=lambda *_: "raise"),
    "fork, child stays": Fault(faulty.fork, value="parent", item=lambda *_: "stay", harms=True),
    "threads that go on": Fault(faulty.leave_threads, value="left", harms=True),
    "a thread that fails": Fault(faulty.failing_thread, value="joined"),
    "ignoring signals": Fault(faulty.ignore_signals, value="ignored", harms=True),
    "default signals": Fault(faulty.default_signals, value="default", harms=True),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FAULTS)
def test_fault(shared: pl.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, way: str) -> None:
    fault = FAULTS[name]
    output = io.StringIO()
    monkeypatch.setattr(sys, "stdout", output)
    before = slots(shared)
    function = pl.remote(faulty.guarded(fault.function))
    if fault.retries is not None:
        function = function.options(retries=fault.retries)
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        values, error = outcome(way, function, fault.item(tmp_path, stack))
    seconds = time.monotonic() - began
    assert_ends_as_documented(fault, way, values, error)
    assert seconds < fault.seconds
    assert_works(shared, tmp_path / "after")
    if not fault.harms and not fault.deaths:
        assert before <= slots(shared), "a slot died of it"
    if fault.prints:
        wait_until(lambda: fault.prints in output.getvalue(), "what the task printed", SECONDS)
    if fault.harms:
        end_slots(tmp_path / "ending")
        assert_works(shared, tmp_path / "anew")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("way", ["call", "submit", "await"])
def test_closing_all_descriptors(cluster: pl.Cluster, tmp_path: Path, way: str) -> None:
    """The slot cannot answer any more, and ends. On a cluster of its own, which is slow to fill its place again."""
    values, error = outcome(way, pl.remote(retries=0)(faulty.close_everything), "go")
    assert values == []
    assert isinstance(error, pl.SlotDied)
    assert (error.exit_code, error.attempts) == (70, 1)
    assert_works(cluster, tmp_path / "after")


def outcome(way: str, function: Any, item: Any) -> tuple[list[Any], BaseException | None]:
    """The values that came, and the exception that ended it if there was one."""
    values: list[Any] = []
    try:
        WAYS[way](function, item, values)
    except pytest.fail.Exception:
        raise  # the time is over
    except BaseException as error:
        return values, error
    return values, None


def assert_ends_as_documented(fault: Fault, way: str, values: list[Any], error: BaseException | None) -> None:
    around = ["fine"] * NEIGHBOURS.get(way, 3)
    if fault.raises is None:
        assert error is None
        if way == "imap_unordered":
            assert sorted(values) == sorted([*around, fault.value, *around])
        else:
            assert values == [*around, fault.value, *around]
        return
    assert error is not None, f"nothing was raised, and the values are {values}"
    if way in ("imap", "imap in chunks"):
        assert values == around
    else:
        assert set(values) <= {"fine"}
    if fault.in_loops is not None and way not in ("call", "submit", "callback"):
        assert type(error) is fault.in_loops
        assert "StopIteration" in str(error)
        error = error.__cause__
    assert type(error) is fault.raises
    for name, value in fault.attributes.items():
        assert getattr(error, name) == value, name
    if fault.says:
        assert [part for part in fault.says if part not in str(error)] == [], str(error)
    if isinstance(error, pl.SlotDied) and fault.deaths:
        assert len(set(error.slots)) == fault.deaths
        assert error.slots[-1] == error.slot
        assert "(run)" in str(error)
    elif not isinstance(error, pl.SerializationError):
        assert isinstance(error.__cause__, pl.RemoteTraceback)
    if fault.traceback:
        text = str(error.__cause__)
        assert [part for part in fault.traceback if part not in text] == [], text
        assert "paceline/" not in text


def assert_works(cluster: pl.Cluster, directory: Path) -> None:
    """The next call is right, as many calls run side by side as before, and exceptions are what they were."""
    assert pl.remote(abs)(-7) == 7
    directory.mkdir()
    pids = pl.remote(faulty.meet).starmap([(str(directory), own) for own in range(CPUS)], chunksize=1)
    assert len(set(pids)) == CPUS
    known = slots(cluster)
    assert set(pids) <= known
    assert len(known) <= CPUS + SPARES
    with pytest.raises(faulty.Custom, match="text"):
        pl.remote(faulty.raising(faulty.custom))("go")


def end_slots(directory: Path) -> None:
    """End all slots that run calls, from inside: a death by another hand would make the node wary of new ones."""
    directory.mkdir()
    die = pl.remote(retries=0)(faulty.meet_and_die)
    for future in [die.submit(str(directory), own) for own in range(CPUS)]:
        assert isinstance(future.exception(SECONDS), pl.SlotDied)


def slots(cluster: pl.Cluster) -> set[int]:
    return {slot["pid"] for node in cluster.nodes for slot in node["slots"] if slot["pid"]}

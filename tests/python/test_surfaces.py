"""Everything that can go wrong, by every surface that keeps slots of its own: executors, pools, actors, worker pools.

The faults are those of test_faults.py, which has functions and callbacks. Here each is met by an object that was opened
for it. It ends as documented, in time; the surface works afterwards, as far as it promises to, and so does the cluster.

Executors and pools raise what those of the standard library do when something cannot be sent: pickle's own error for an
argument, and for a result one that is `ResultNotSerializable`, too. Otherwise what differs is a death: an executor
breaks by it, as `ProcessPoolExecutor` does, a pool's call ends with `SlotDied`, an actor's with `ActorDied`, and a
worker pool runs the job again until that has ended three slots.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import io
import itertools
import pickle
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import faulty
import paceline as pl
from support import wait_until
from test_faults import FAULTS, STOPPED_LIMIT, Fault

SECONDS = 10.0


@pytest.fixture(scope="module")
def shared() -> Iterator[pl.Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PACELINE_STOPPED_LIMIT", STOPPED_LIMIT)
        cluster = pl.connect(cpus=2)
    with cluster:
        yield cluster


class Surface(ABC):
    """One way to run a function in a slot that is kept."""

    death: type[BaseException]
    """What a call ends with whose slot dies."""
    again: type[BaseException] | None = None
    """What it ends with if it is run again and ends every slot, if it is."""
    survives = True
    """Whether it goes on after a death."""
    pickles = False
    """Whether arguments that cannot be sent end with what pickle has raised."""

    @abstractmethod
    def __init__(self, function: Callable[[Any], Any], retries: int | None) -> None:
        """Open it. `retries` is for those that run calls again."""

    @abstractmethod
    def run(self, item: Any) -> Any: ...

    @abstractmethod
    def close(self) -> None: ...


class Submits(Surface):
    death = concurrent.futures.BrokenExecutor
    survives = False
    pickles = True

    def __init__(self, function: Callable[[Any], Any], retries: int | None) -> None:
        self.function = function
        self.executor = pl.Executor(max_workers=1)

    def run(self, item: Any) -> Any:
        return self.executor.submit(self.function, item).result(SECONDS)

    def close(self) -> None:
        self.executor.shutdown()


class ExecutorMaps(Submits):
    def run(self, item: Any) -> Any:
        return one_of(self.executor.map(self.function, [None, item, None], timeout=SECONDS))


class InExecutor(Submits):
    def run(self, item: Any) -> Any:
        async def main() -> tuple[Any, BaseException | None]:
            # Caught inside, because asyncio lets KeyboardInterrupt and SystemExit out of its loop.
            try:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self.executor, self.function, item), None
            except BaseException as error:
                return None, error

        value, error = asyncio.run(main())
        if error is not None:
            raise error
        return value


class Applies(Surface):
    death = pl.SlotDied
    pickles = True

    def __init__(self, function: Callable[[Any], Any], retries: int | None) -> None:
        self.function = function
        self.pool = pl.Pool(1)

    def run(self, item: Any) -> Any:
        return self.pool.apply_async(self.function, (item,)).get(SECONDS)

    def close(self) -> None:
        self.pool.terminate()
        self.pool.join()


class PoolMaps(Applies):
    def run(self, item: Any) -> Any:
        return one_of(self.pool.map_async(self.function, [None, item, None], 1).get(SECONDS))


class PoolStarmaps(Applies):
    def run(self, item: Any) -> Any:
        return one_of(self.pool.starmap_async(self.function, [(None,), (item,), (None,)], 1).get(SECONDS))


class PoolImaps(Applies):
    def run(self, item: Any) -> Any:
        return one_of(self.pool.imap(self.function, [None, item, None]))


class PoolImapsUnordered(Applies):
    def run(self, item: Any) -> Any:
        found = list(self.pool.imap_unordered(self.function, [None, item, None]))
        found.remove("fine")
        found.remove("fine")
        return found[0]


class Holder:
    """What the actors of these tests are."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def run(self, item: Any) -> Any:
        return self.function(item)


class AsyncHolder(Holder):
    async def run(self, item: Any) -> Any:  # type: ignore[override]
        await asyncio.sleep(0)
        return self.function(item)


class Calls(Surface):
    death = pl.ActorDied
    kind: Any = Holder

    def __init__(self, function: Callable[[Any], Any], retries: int | None) -> None:
        self.actor: Any = pl.remote(self.kind).options(restarts=1)(function)

    def run(self, item: Any) -> Any:
        return self.actor.run(item)

    def close(self) -> None:
        pl.destroy(self.actor)


class CallsLater(Calls):
    def run(self, item: Any) -> Any:
        return self.actor.run.submit(item).result(SECONDS)


class CallsAsync(Calls):
    kind = AsyncHolder


class Works(Surface):
    death = pl.SlotDied
    again = pl.PoisonTask

    def __init__(self, function: Callable[[Any], Any], retries: int | None) -> None:
        self.pool = pl.WorkerPool(Holder, function, slots=1, retries=3 if retries is None else retries)

    def run(self, item: Any) -> Any:
        return one_of(self.pool.map([None, item, None]))

    def close(self) -> None:
        self.pool.terminate()


class WorksAsTheyCome(Works):
    def run(self, item: Any) -> Any:
        return one_of(self.pool.imap([None, item, None]))


def one_of(values: Any) -> Any:
    """What came between two that went well."""
    before, value, after = values
    assert (before, after) == ("fine", "fine")
    return value


SURFACES: dict[str, type[Surface]] = {
    "executor": Submits,
    "executor map": ExecutorMaps,
    "run_in_executor": InExecutor,
    "apply_async": Applies,
    "pool map": PoolMaps,
    "pool starmap": PoolStarmaps,
    "pool imap": PoolImaps,
    "pool imap_unordered": PoolImapsUnordered,
    "actor": Calls,
    "actor submit": CallsLater,
    "async actor": CallsAsync,
    "worker pool": Works,
    "worker pool imap": WorksAsTheyCome,
}

# What pickle raises itself, or lets through.
PICKLES = (TypeError, ValueError, RecursionError, pickle.PicklingError)

HUGE = 40_000_000
MORE = {
    "result: huge": Fault(faulty.huge, value=HUGE),
    "result: an endless generator": Fault(faulty.endless, raises=pl.ResultNotSerializable, says=("generator",)),
}


# Objects with coroutines live in an event loop on a thread of its own, where Python sets no signal handlers.
NO_SIGNALS: dict[str, Any] = {"raises": ValueError, "value": None, "says": ("signal only works in main thread",)}
OTHERWISE = {(name, "async actor"): NO_SIGNALS for name in ("ignoring signals", "default signals")}


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("name", "way"), list(itertools.product([*FAULTS, *MORE], SURFACES)))
def test_fault(shared: pl.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, way: str) -> None:
    fault = dataclasses.replace({**FAULTS, **MORE}[name], **OTHERWISE.get((name, way), {}))
    output = io.StringIO()
    monkeypatch.setattr(sys, "stdout", output)
    surface = SURFACES[way](faulty.guarded(fault.function), fault.retries)
    began = time.monotonic()
    try:
        with contextlib.ExitStack() as stack:
            value, error = outcome(surface, fault.item(tmp_path, stack))
        assert time.monotonic() - began < SECONDS
        assert_ends_as_documented(fault, surface, value, error)
        if fault.deaths == 0 or surface.survives:
            assert surface.run(None) == "fine", "the surface works afterwards"
        if fault.prints:
            wait_until(lambda: fault.prints in output.getvalue(), "what the task printed", SECONDS)
    finally:
        surface.close()
    assert pl.remote(abs)(-7) == 7


def outcome(surface: Surface, item: Any) -> tuple[Any, BaseException | None]:
    try:
        return surface.run(item), None
    except pytest.fail.Exception:
        raise  # the time is over
    except BaseException as error:
        return None, error


def assert_ends_as_documented(fault: Fault, surface: Surface, value: Any, error: BaseException | None) -> None:
    if fault.deaths and (surface.again is None or fault.raises is not None):
        assert error is not None
        assert isinstance(error, surface.death)
        if surface.again is not None and fault.retries is None:
            assert isinstance(error, surface.again)
        return
    if fault.raises is None:
        assert error is None, repr(error)
        assert (len(value) if isinstance(value, bytes) else value) == fault.value
        return
    assert error is not None, f"nothing was raised, and the value is {value!r}"
    if fault.in_loops is not None and type(error) is fault.in_loops:
        assert "StopIteration" in str(error)
        return
    if surface.pickles and fault.raises in (pl.ArgumentNotSerializable, pl.ResultNotSerializable):
        if fault.raises is pl.ArgumentNotSerializable and type(error) in PICKLES:
            # The pickler's own, with ours as a note.
            assert any("cannot send" in note for note in error.__notes__), error.__notes__
        else:
            assert isinstance(error, fault.raises), repr(error)
        return
    if isinstance(error, surface.death) and issubclass(fault.raises, pl.SlotDied):
        return  # user code that raises our own error for a death is taken at its word
    assert type(error) is fault.raises
    for name, attribute in fault.attributes.items():
        assert getattr(error, name) == attribute, name
    if fault.says:
        assert [part for part in fault.says if part not in str(error)] == [], str(error)

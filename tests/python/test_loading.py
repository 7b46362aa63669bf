"""Calls that are stopped while their slot imports modules for them: nothing is left half imported."""

from __future__ import annotations

import importlib
import itertools
import os
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

import paceline as pl
from support import wait_until

_names = itertools.count()

# How often it was begun is kept where a second import finds it. Its first part is there when it is stopped, and what
# was imported is not imported again: an attribute of the package would be missing.
PACKAGE = """
import builtins, os, time

builtins.{name} = loads = getattr(builtins, "{name}", 0) + 1
import {name}.part

def answer(*_):
    return os.getpid(), loads, {name}.part.VALUE

class Thing:
    answer = answer

if os.path.exists({slow!r}):
    open({begun!r}, "w").close()
    time.sleep({seconds})
"""


class Slow:
    """A package that slots take a while to import, and this process has already."""

    def __init__(self, directory: Path, seconds: float) -> None:
        self.name = f"slow_to_import_{next(_names)}"
        self.begun = directory / "begun"
        slow = directory / "slow"
        package = directory / self.name
        package.mkdir()
        (package / "part.py").write_text("VALUE = 7\n")
        text = PACKAGE.format(name=self.name, slow=str(slow), begun=str(self.begun), seconds=seconds)
        (package / "__init__.py").write_text(text)
        self.module: Any = importlib.import_module(self.name)
        slow.touch()

    def wait(self) -> None:
        wait_until(self.begun.exists, "a slot to import the package")


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slow:
    monkeypatch.syspath_prepend(str(tmp_path))
    return Slow(tmp_path, 1.0)


def of_argument(thing: Any) -> Any:
    return thing.answer()


def inside(name: str) -> Any:
    return importlib.import_module(name).answer()


class Importer:
    def inside(self, name: str) -> Any:
        return inside(name)


def warm() -> None:
    """Have this module in the slot, so that a call takes no time for that."""


def from_function(slow: Slow) -> tuple[Any, tuple[Any, ...]]:
    return pl.remote(slow.module.answer), ()


def from_argument(slow: Slow) -> tuple[Any, tuple[Any, ...]]:
    return pl.remote(of_argument), (slow.module.Thing(),)


def from_code(slow: Slow) -> tuple[Any, tuple[Any, ...]]:
    return pl.remote(inside), (slow.name,)


PLACES = [from_function, from_argument, from_code]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
class TestAPlainCall:
    def test_that_is_cancelled(self, place: Callable[[Slow], Any], slow: Slow) -> None:
        with pl.connect(cpus=1):
            pl.remote(warm)()
            function, args = place(slow)
            future = function.submit(*args)
            slow.wait()
            pl.cancel(future)
            with pytest.raises(CancelledError):
                future.result(timeout=10)
            process, loads, value = function(*args)
            assert (loads, value) == (1, 7)
            assert function(*args)[0] == process

    def test_that_has_had_its_time(self, place: Callable[[Slow], Any], slow: Slow) -> None:
        with pl.connect(cpus=1):
            pl.remote(warm)()
            function, args = place(slow)
            with pytest.raises(pl.TaskTimeout):
                function.options(timeout=0.4)(*args)
            assert slow.begun.exists()
            assert function(*args)[1:] == (1, 7)


def test_the_slot_stays(slow: Slow) -> None:
    with pl.connect(cpus=1):
        before = pl.remote(os.getpid)()
        function, _ = from_function(slow)
        future = function.submit()
        slow.wait()
        pl.cancel(future)
        with pytest.raises(CancelledError):
            future.result(timeout=10)
        assert function() == (before, 1, 7)


def test_what_takes_too_long_to_import_ends_with_its_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    slow = Slow(tmp_path, 60)
    with pl.connect(cpus=1):
        before = pl.remote(os.getpid)()
        function, _ = from_function(slow)
        future = function.submit()
        slow.wait()
        (tmp_path / "slow").unlink()
        began = time.monotonic()
        pl.cancel(future)
        with pytest.raises(CancelledError):
            future.result(timeout=10)
        assert time.monotonic() - began < 5
        process, *rest = function()
        assert (process != before, rest) == (True, [1, 7])


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_call_of_an_actor(slow: Slow, concurrency: int) -> None:
    with pl.connect(cpus=1):
        actor = pl.remote(Importer).options(concurrency=concurrency)()
        future = actor.inside.submit(slow.name)
        slow.wait()
        pl.cancel(future)
        with pytest.raises(CancelledError):
            future.result(timeout=10)
        assert actor.inside(slow.name)[1:] == (1, 7)


@pytest.mark.parametrize("concurrency", [1, 2])
def test_an_argument_of_an_actors_call(slow: Slow, concurrency: int) -> None:
    with pl.connect(cpus=1):
        actor = pl.remote(Holder).options(concurrency=concurrency)()
        thing = slow.module.Thing()
        with pytest.raises(pl.TaskTimeout):
            actor.ask.options(timeout=0.4)(thing)
        assert slow.begun.exists()
        assert actor.ask(thing)[1:] == (1, 7)


class Holder:
    def ask(self, thing: Any) -> Any:
        return of_argument(thing)

"""What runs in slots: functions, actors and pool workers that write down what they do.

* WL-1: whatever runs writes `begin` before it does anything and `end` last, under the id its caller gave it.
* WL-2: values are functions of the arguments, so a caller knows which value is right.
* WL-3: an object that must exist once writes `alive` all the time, so that two copies of it show.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import threading
import time
from typing import Any

import paceline as pl
from chaos import history

# How often a copy says that it lives: two copies that overlap for longer than this are seen.
BEAT_INTERVAL = 0.05


# Numbers the calls that tasks of this process make to actors.
_sequence = itertools.count()


class Expected(Exception):
    """What tasks raise that are told to fail."""


def begin(call: str, **fields: Any) -> str:
    """Writes the begin of one run and returns the name of the run."""
    run = os.urandom(4).hex()
    history.write("begin", id=call, run=run, **fields)
    return run


def value_of(number: int) -> int:
    return number * number + 1


def square(call: str, number: int, seconds: float) -> dict[str, Any]:
    """A task that takes some time."""
    run = begin(call)
    time.sleep(seconds)
    history.write("end", id=call, run=run)
    return {"run": run, "value": value_of(number)}


def fail(call: str, number: int) -> None:
    """A task whose own exception is its outcome."""
    run = begin(call)
    history.write("end", id=call, run=run)
    raise Expected(number)


def item(work: tuple[str, int]) -> dict[str, Any]:
    """One item of a map."""
    return square(work[0], work[1], 0.01)


def parent(call: str, number: int, wait: bool) -> dict[str, Any]:
    """A task that submits a child and waits for it, or returns without waiting."""
    run = begin(call)
    child = pl.remote(square).submit(f"{call}/{run}", number, 0.05)
    value = child.result()["value"] if wait else value_of(number)
    history.write("end", id=call, run=run)
    return {"run": run, "value": value}


def relay(call: str, number: int, actor: Any) -> dict[str, Any]:
    """A task that calls an actor of its root client."""
    run = begin(call)
    try:
        actor.add(f"{call}/{run}", history.process(), next(_sequence), 0.0)
    except pl.PacelineError:
        pass  # the actor may be gone; what counts is that its call ran once at most
    history.write("end", id=call, run=run)
    return {"run": run, "value": value_of(number)}


def bytes_of(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


def digest_of(value: bytes | bytearray | memoryview) -> str:
    return hashlib.sha256(value).hexdigest()


def digest(call: str, value: Any) -> dict[str, Any]:
    """A task that is given an object by reference."""
    run = begin(call)
    found = digest_of(value)
    history.write("end", id=call, run=run)
    return {"run": run, "value": found}


def make(call: str, seed: int, size: int) -> bytes:
    """A task whose result stays on its node."""
    run = begin(call)
    value = bytes_of(seed, size)
    history.write("end", id=call, run=run)
    return value


def meet(call: str, seconds: float) -> dict[str, Any]:
    """What each member of a group runs."""
    me = pl.current()
    assert me is not None
    run = begin(call, rank=me.rank, size=me.size)
    time.sleep(seconds)
    history.write("end", id=call, run=run, rank=me.rank)
    return {"run": run, "value": me.rank}


class Copy:
    """One copy of something that must exist once: writes down its birth, and that it lives."""

    def __init__(self, whole: str, kind: str) -> None:
        self.whole = whole
        self.name = os.urandom(4).hex()
        history.write("born", whole=whole, copy=self.name, kind=kind)
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        while True:
            history.write("alive", whole=self.whole, copy=self.name)
            time.sleep(BEAT_INTERVAL)


class Counter:
    """An actor: counts its calls."""

    def __init__(self, whole: str, kind: str) -> None:
        self.copy = Copy(whole, kind)
        self.count = 0

    def add(self, call: str, caller: str, sequence: int, seconds: float) -> dict[str, Any]:
        self.count += 1
        count = self.count
        order = {"caller": caller, "sequence": sequence, "count": count}
        run = begin(call, whole=self.copy.whole, copy=self.copy.name, **order)
        time.sleep(seconds)
        history.write("end", id=call, run=run)
        return {"run": run, "value": count, "copy": self.copy.name}


class Worker:
    """A worker of a pool: remembers which updates it has got."""

    def __init__(self, pool: str) -> None:
        self.pool = pool
        self.updates: list[int] = []

    def run(self, call: str, number: int, seconds: float) -> dict[str, Any]:
        updates = list(self.updates)
        run = begin(call, pool=self.pool, updates=updates)
        time.sleep(seconds)
        changed = updates != self.updates
        history.write("end", id=call, run=run, changed=changed)
        return {"run": run, "value": value_of(number)}

    def handle_update(self, number: int) -> None:
        self.updates.append(number)
        history.write("updated", pool=self.pool, number=number)

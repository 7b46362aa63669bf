"""Classes whose objects the tests of actors use. A module of its own, so that slots can import them."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import paceline as pl


@pl.remote(cpus=0)
class Counter:
    """It counts."""

    limit = 100

    def __init__(self, start: int = 0, *, name: str = "", restarts: int = 0) -> None:
        self.count = start
        self.name = name
        self.restarts = restarts
        self.order: list[int] = []

    def add(self, step: int = 1) -> int:
        self.count += step
        return self.count

    def note(self, number: int) -> None:
        self.order.append(number)

    def fail(self, message: str) -> None:
        raise LookupError(message)

    def pid(self) -> int:
        return os.getpid()

    def sleep(self, seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def opened(self) -> Any:
        return threading.Lock()

    @property
    def double(self) -> int:
        return 2 * self.count

    @double.setter
    def double(self, value: int) -> None:
        self.count = value // 2

    @staticmethod
    def three() -> int:
        return 3

    @classmethod
    def called(cls) -> str:
        return cls.__name__

    def numbers(self, count: int) -> Iterator[int]:
        try:
            yield from range(count)
        finally:
            self.count = -1

    def failing(self) -> Iterator[int]:
        yield 1
        yield 2
        raise LookupError("third")

    def __len__(self) -> int:
        return 7

    def __call__(self) -> int:
        return 8


@pl.remote(cpus=0)
class Broken:
    def __init__(self, message: str) -> None:
        raise ValueError(message)


@pl.remote(cpus=0)
class Async:
    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.closed = False

    async def wait(self, number: int) -> int:
        await self.event.wait()
        return number

    async def set(self) -> None:
        self.event.set()

    async def numbers(self, count: int) -> AsyncIterator[int]:
        try:
            for number in range(count):
                yield number
        finally:
            self.closed = True


@pl.remote(cpus=0)
class Saved:
    def __init__(self) -> None:
        self.total = 0
        self.born = "new"

    def add(self, number: int) -> int:
        self.total += number
        return self.total

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def __checkpoint__(self) -> int:
        return self.total

    def __restore__(self, state: int) -> None:
        self.total = state
        self.born = "again"


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

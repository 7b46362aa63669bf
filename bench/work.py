"""What the workers of every side run. A module of its own, so that spawned workers import nothing else."""

import os
import time
from typing import Any, TypeVar

T = TypeVar("T")


def same(value: T) -> T:
    return value


def burn(seconds: float) -> float:
    """Use this much CPU time of the running thread: waiting for a CPU does not count."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    return seconds


def burn_until(seconds: float) -> float:
    """As `burn`, but says when it ended, on the clock that all processes of a machine share."""
    burn(seconds)
    return time.monotonic()


def count_to(limit: int) -> int:
    """One C call that neither lets go of the GIL nor looks at signals while it runs."""
    return sum(range(limit))


def ends(array: Any) -> int:
    """A receiver that looks at both ends of an array."""
    return int(array[0]) + int(array[-1])


def overwrite(array: Any) -> None:
    array[:] = 1


_made: dict[int, Any] = {}


def made(size: int) -> Any:
    """An array of so many bytes. It is there already, so that only its way back is measured."""
    import numpy

    if size not in _made:
        _made[size] = numpy.ones(size, numpy.uint8)
    return _made[size]


def echo(connection: Any) -> None:
    """The far end of the Pipe echo: the floor of what a round trip between two Python processes costs."""
    try:
        while True:
            connection.send(connection.recv())
    except EOFError:
        pass


def spin(counter: Any) -> None:
    """A busy neighbour of normal priority, which counts how far it gets."""
    done = 0
    while True:
        for _ in range(1000):
            pass
        done += 1
        counter.value = done


class Echo:
    """An object in a process of its own."""

    def same(self, value: T) -> T:
        return value

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def pid(self) -> int:
        return os.getpid()

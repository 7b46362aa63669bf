"""Functions that go wrong in a slot, and what they raise: the material of test_faults.py.

A module of its own, so that slots import it and nothing of pytest.
"""

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn


class Custom(Exception):
    pass


class Odd(Exception):
    """Its constructor cannot be called with its own `args`."""

    def __init__(self, code: int, where: str) -> None:
        super().__init__()
        self.code, self.where = code, where


class Base(BaseException):
    pass


class Holding(Exception):
    """Has something that belongs to one process."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class Irreducible(Exception):
    def __reduce__(self) -> NoReturn:
        raise RuntimeError("no way to pickle this")


class Unprintable(Exception):
    def __str__(self) -> NoReturn:
        raise RuntimeError("no way to print this")


class UnreadableError(Exception):
    """Can be pickled, but not read outside of a slot."""

    def __reduce__(self) -> Any:
        return only_in, (os.getpid(), "the exception")


class Unreadable:
    """Can be pickled, and read only in the process that pickled it."""

    def __reduce__(self) -> Any:
        return only_in, (os.getpid(), "the value")


class Unwritable:
    def __reduce__(self) -> NoReturn:
        raise ValueError("no way to write this")


class StopsReading:
    def __reduce__(self) -> Any:
        return next, (iter(()),)


def only_in(process: int, what: str) -> Any:
    if os.getpid() != process:
        raise ValueError(f"cannot read {what} here")
    return Unreadable() if what == "the value" else UnreadableError()


def raising(make: Callable[[], BaseException]) -> Callable[[Any], NoReturn]:
    """A function that raises what `make` makes."""

    def fault(_item: Any) -> NoReturn:
        raise make()

    return fault


def custom() -> BaseException:
    return Custom("text", 7)


def odd() -> BaseException:
    return Odd(3, "home")


def base() -> BaseException:
    return Base("not an Exception")


def holding() -> BaseException:
    return Holding("has a lock")


def irreducible() -> BaseException:
    return Irreducible("text")


def unprintable() -> BaseException:
    return Unprintable("text")


def unreadable_error() -> BaseException:
    return UnreadableError("text")


def raise_chained(_item: Any) -> NoReturn:
    try:
        raise KeyError("inner")
    except KeyError as inner:
        error = ValueError("outer")
        error.add_note("a note")
        raise error from inner


def take(item: Any) -> str:
    return type(item).__name__


def exit_with_3(_item: Any) -> NoReturn:
    sys.exit(3)


def end_of_iterator(_item: Any) -> Any:
    return next(iter(()))


def recurse(item: Any) -> Any:
    return recurse(item)


def nested(_item: Any = None) -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


def return_lock(_item: Any) -> Any:
    return threading.Lock()


def return_unwritable(_item: Any) -> Any:
    return Unwritable()


def return_unreadable(_item: Any) -> Any:
    return Unreadable()


def too_much_memory(_item: Any) -> Any:
    return bytearray(1 << 62)


def hard_exit(_item: Any) -> NoReturn:
    os._exit(5)


def kill_by(number: int) -> Callable[[Any], None]:
    def fault(_item: Any) -> None:
        os.kill(os.getpid(), number)
        time.sleep(60)

    return fault


def kill_group(_item: Any) -> None:
    os.killpg(0, signal.SIGKILL)


def die_once(path: str) -> str:
    if not os.path.exists(path):
        open(path, "x").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return "second time"


def flood(_item: Any) -> str:
    for _ in range(10_000):
        print("x" * 1023)
    print("end of the flood")
    return "said it all"


def close_stdout(_item: Any) -> str:
    sys.stdout.close()
    sys.stderr.close()
    return "closed"


def close_descriptors(_item: Any) -> str:
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    return "closed"


def close_everything(_item: Any) -> str:
    os.closerange(0, 1024)
    return "closed"


def lose_surroundings(path: str) -> str:
    os.mkdir(path)
    os.chdir(path)
    os.rmdir(path)
    sys.path.clear()
    return "lost"


def fork(how: str) -> str:
    """In the child: end at once, return like the parent, raise, or live on for long."""
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        if how == "exit":
            os._exit(0)
        if how == "raise":
            raise ValueError("in the child")
        if how == "stay":
            time.sleep(60)
            os._exit(0)
    elif how != "stay":
        os.waitpid(child, 0)
    return "parent" if os.getpid() == parent else "child"


def leave_threads(_item: Any) -> str:
    for daemon in (False, True):
        threading.Thread(target=time.sleep, args=(60,), daemon=daemon).start()
    return "left"


def failing_thread(_item: Any) -> str:
    thread = threading.Thread(target=recurse, args=(1,))
    with contextlib.suppress(RuntimeError):
        thread.start()
        thread.join()
    return "joined"


def ignore_signals(_item: Any) -> str:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    return "ignored"


def default_signals(_item: Any) -> str:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    return "default"


def guarded(fault: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The fault for every item but None, so that a map can have neighbours that go well."""

    def run(item: Any) -> Any:
        return "fine" if item is None else fault(item)

    return run


def meet(directory: str, own: int) -> int:
    """This process, once the other of two calls runs as well."""
    open(f"{directory}/{own}", "w").close()
    until = time.monotonic() + 10
    while not os.path.exists(f"{directory}/{1 - own}"):
        if time.monotonic() > until:
            raise TimeoutError("the other call does not run")
        time.sleep(0.0005)
    return os.getpid()


def meet_and_die(directory: str, own: int) -> None:
    meet(directory, own)
    os.kill(os.getpid(), signal.SIGKILL)


def huge(_item: Any) -> bytes:
    return bytes(40_000_000)


def endless(_item: Any) -> Any:
    return (number for number in iter(int, 1))


def stop_here(directory: str) -> str:
    new = os.path.join(directory, "new")
    with open(new, "w") as file:
        file.write(str(os.getpid()))
    os.rename(new, os.path.join(directory, "pid"))
    os.kill(os.getpid(), signal.SIGSTOP)
    return "went on"


class Stopping:
    """An actor that stops its process."""

    def stop(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(60)

    def fine(self) -> str:
        return "fine"


class StoppingLater(Stopping):
    async def stop(self) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGSTOP)
        await asyncio.sleep(60)

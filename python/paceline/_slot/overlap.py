"""Calls of an object that go on beside each other: in an event loop, or on threads.

Owns: the threads, and how a call of theirs is stopped. The main thread begins each call here in the order in which it
came, and the core takes the answer from whichever thread has it.

* OV-1: calls start in the order in which they came.
* OV-2: every call that was begun is answered once, whatever its code raises.
* OV-3: an object with coroutines lives in the event loop's thread with all it has: its constructor, its plain methods
  and its attributes run there, too, so that nothing else runs between one `await` and the next.
* OV-4: what a call forks never answers for it, and does not take the loop or the threads over: it leaves with the call.
"""

from __future__ import annotations

import os
import threading
from contextvars import ContextVar

from paceline import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from typing import Any, Protocol

    from paceline._native import Beside

    class Overlap(Protocol):
        builds: bool

        def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]: ...


# How many coroutines of one object may go on at a time, unless it says otherwise.
COROUTINES = 1000

running: ContextVar[tuple[int, int]] = ContextVar("running")
"""Task and attempt of the call that this code belongs to."""


class Wrapped:
    """A function whose calls go on elsewhere. The core sees `_pl_begin` and calls that instead."""

    def __init__(self, function: Callable[..., Any], begin: Callable[[Beside], None]) -> None:
        self._function = function
        self._pl_begin = begin

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


class Loop:
    """An event loop with a thread of its own."""

    builds = True

    def __init__(self, concurrency: int) -> None:
        import asyncio

        _native.allow_overlap(concurrency if concurrency > 1 else COROUTINES)
        self._loop = asyncio.new_event_loop()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._process = os.getpid()
        _start("paceline-loop", self._run)
        _start("paceline-stops", _watch, self._stop)

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return Wrapped(function, self._begin)

    def _begin(self, call: Beside) -> None:
        self._loop.call_soon_threadsafe(self._add, call)

    def _run(self) -> None:
        import asyncio

        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _add(self, call: Beside) -> None:
        task = self._loop.create_task(self._work(call))
        self._tasks[call.number] = task
        task.add_done_callback(lambda task: self._ended(call, task))

    async def _work(self, call: Beside) -> None:
        running.set((call.task, call.attempt))
        try:
            value = call.apply()
            if hasattr(value, "__await__"):
                value = await value
            _leave_if_forked(self._process)
            call.answer(value)
        except BaseException as error:
            _leave_if_forked(self._process)
            # Whatever it is: the caller hears of it, and the loop goes on.
            call.fail(error)

    def _ended(self, call: Beside, task: asyncio.Task[None]) -> None:
        self._tasks.pop(call.number, None)
        if task.cancelled():
            # Before its first step: none of its code has run.
            from asyncio import CancelledError

            call.fail(CancelledError())

    def _stop(self, number: int) -> None:
        self._loop.call_soon_threadsafe(self._cancel, number)

    def _cancel(self, number: int) -> None:
        task = self._tasks.get(number)
        if task is None:
            _native.stop_later(number)  # not begun yet, or just answered
        else:
            task.cancel()


class Threads:
    """So many threads, started as they are needed."""

    builds = False

    def __init__(self, count: int) -> None:
        from queue import SimpleQueue

        _native.allow_overlap(count)
        self._count = count
        self._threads = 0
        self._calls: SimpleQueue[Beside] = SimpleQueue()
        self._lock = threading.Lock()
        self._at_work: dict[int, tuple[Beside, int]] = {}
        self._process = os.getpid()
        _start("paceline-stops", _watch, self._stop)

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return Wrapped(function, self._begin)

    def _begin(self, call: Beside) -> None:
        self._calls.put(call)
        with self._lock:
            needed = self._threads < self._count and self._calls.qsize() > 0
            self._threads += needed
        if needed:
            _start(f"paceline-call-{self._threads}", self._run)

    def _run(self) -> None:
        while True:
            call = self._calls.get()
            try:
                self._work(call)
            except KeyboardInterrupt as error:
                self._leave(call)
                call.fail(error)  # it came when the call was about to be answered, or had been

    def _work(self, call: Beside) -> None:
        thread = threading.get_ident()
        running.set((call.task, call.attempt))
        try:
            with self._lock:
                self._at_work[call.number] = (call, thread)
            value = call.apply()
            _leave_if_forked(self._process)
            self._leave(call)
            call.answer(value)
        except BaseException as error:
            _leave_if_forked(self._process)
            self._leave(call)
            call.fail(error)

    def _leave(self, call: Beside) -> None:
        with self._lock:
            self._at_work.pop(call.number, None)

    def _stop(self, number: int) -> None:
        with self._lock:
            found = self._at_work.get(number)
            if found is None:
                _native.stop_later(number)  # not begun yet, or just answered
            else:
                call, thread = found
                call.interrupt(thread)


def _leave_if_forked(process: int) -> None:
    """OV-4. The call forked, and has come back in the child, too: the child ends as an interpreter would."""
    if os.getpid() != process:
        from paceline._slot import finish

        finish()
        os._exit(0)


def _watch(stop: Callable[[int], None]) -> None:
    while True:
        stop(_native.next_stop())


def _start(name: str, target: Callable[..., None], *args: Any) -> None:
    threading.Thread(name=name, target=target, args=args, daemon=True).start()

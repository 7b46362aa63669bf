"""The future of one task.

Owns the marriage of two classes: the core's `FutureBase`, which comes first and holds the state, and the
standard library's `Future`, so that `concurrent.futures.wait`, `asyncio.wrap_future` and every `isinstance`
work.
"""

from __future__ import annotations

import concurrent.futures

from paceline._native import FutureBase
from paceline.errors import PacelineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Generator
    from typing import Any, NoReturn, TypeVar

    T = TypeVar("T")
else:
    T = object  # the subscript below is for type checkers; `typing` stays out of programs that do not need it


class Future(FutureBase, concurrent.futures.Future[T]):
    """The outcome of a task that may not have ended yet. It is a `concurrent.futures.Future` and can be
    awaited.

    >>> import paceline as pl
    >>> with pl.connect(cpus=1):
    ...     pl.remote(pow).submit(2, 10).result()
    1024
    """

    __slots__ = ()

    def explain(self) -> str:
        """Where the task is, in words: in which slot it runs and for how long, or what it waits for; and what became
        of earlier attempts.

        >>> import paceline as pl
        >>> with pl.connect(cpus=1):
        ...     future = pl.remote(abs).submit(-1)
        ...     _ = future.result()
        ...     future.explain()
        'task 1 (abs) has ended'
        """
        return FutureBase.explain(self)

    if TYPE_CHECKING:  # the core's class comes first, and does not know the type of the value

        def result(self, timeout: float | None = None) -> T: ...

    def __await__(self) -> Generator[Any, None, T]:
        # Not by `asyncio.wrap_future`, which never ends if the task raised a StopIteration (until Python 3.12). Here it
        # is raised in a generator, and so becomes a RuntimeError.
        import asyncio

        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self.add_done_callback(lambda _: wake(loop, done))
        try:
            yield from done
        except asyncio.CancelledError:
            self.cancel()
            raise
        if self.cancelled():
            raise asyncio.CancelledError()
        return self.result()

    def set_running_or_notify_cancel(self) -> NoReturn:
        raise _read_only()

    def set_result(self, result: T) -> NoReturn:
        raise _read_only()

    def set_exception(self, exception: BaseException | None) -> NoReturn:
        raise _read_only()

    def __repr__(self) -> str:
        if self.cancelled():
            state = "cancelled"
        elif self.done():
            state = "done"
        else:
            state = "running" if self.running() else "waiting"
        return f"<paceline.Future: task {self.task_id}, {state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        from paceline._inputs import reduced

        return reduced(self)


def wake(loop: asyncio.AbstractEventLoop, done: asyncio.Future[None]) -> None:
    """Let the one who awaits go on, from whatever thread."""

    def set_done() -> None:
        if not done.done():
            done.set_result(None)

    try:
        loop.call_soon_threadsafe(set_done)
    except RuntimeError:
        return  # the loop was closed, and nobody awaits any more


def _read_only() -> PacelineError:
    return PacelineError("the outcome of a task comes from the cluster and cannot be set")

"""Waiting for many futures.

Owns `wait` and `as_completed`. Both also take futures of other executors, mixed with ours.

* WA-1: the work of `as_completed` is proportional to the number of futures, however they trickle in.
"""

from __future__ import annotations

import concurrent.futures
import time
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, cast

from paceline import _native
from paceline._future import Future

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    # What callers may pass: `Future` of ours is one too.
    AnyFuture = concurrent.futures.Future[Any]

F = TypeVar("F", bound="concurrent.futures.Future[Any]")

# Looking at all pending futures is the quickest way while each look finds one of so many, within so many
# seconds. After that they come one by one, and each is told by a callback of its own.
SHARE = 32
PATIENCE = 0.001


class Waited(NamedTuple, Generic[F]):
    """What `wait` returns: two lists, each in the order of the input."""

    done: list[F]
    not_done: list[F]


def wait(futures: Iterable[F], n: int | None = None, timeout: float | None = None) -> Waited[F]:
    """Wait until `n` of the futures are done (all of them by default) or `timeout` seconds have passed.

    >>> import paceline as pl
    >>> with pl.connect(cpus=1):
    ...     futures = [pl.remote(abs).submit(x) for x in (-1, -2)]
    ...     done, not_done = pl.wait(futures)
    ...     [future.result() for future in done]
    [1, 2]
    """
    futures = list(futures)
    if n is None:
        n = len(futures)
    elif not 0 <= n <= len(futures):
        raise ValueError(f"n is {n}, but there are {len(futures)} futures")
    if _all_ours(futures):
        _native.wait(cast("list[Future[Any]]", futures), n, timeout)
    else:
        _wait_for_any_kind(futures, n, timeout)
    done: list[F] = []
    not_done: list[F] = []
    for future in futures:
        (done if future.done() else not_done).append(future)
    return Waited(done, not_done)


def as_completed(futures: Iterable[F], timeout: float | None = None) -> Iterator[F]:
    """Yield the futures as they end, each once. Raises `TimeoutError` if they have not all ended in time.

    >>> import paceline as pl
    >>> with pl.connect(cpus=1):
    ...     futures = [pl.remote(abs).submit(x) for x in (-1, -2)]
    ...     sorted(future.result() for future in pl.as_completed(futures))
    [1, 2]
    """
    # Not a generator itself, so that the clock starts and bad input raises now.
    pending = list(dict.fromkeys(futures))
    deadline = None if timeout is None else time.monotonic() + timeout
    return _completed(pending, deadline)


def _completed(pending: list[F], deadline: float | None) -> Iterator[F]:
    total = len(pending)
    while pending and _all_ours(pending):
        share = len(pending) // SHARE + 1
        left = _left(deadline)
        patience = PATIENCE if left is None else min(left, PATIENCE)
        _native.wait(cast("list[Future[Any]]", pending), share, patience)
        done: list[F] = []
        rest: list[F] = []
        for future in pending:
            (done if future.done() else rest).append(future)
        pending = rest
        yield from done
        if len(done) < share:
            break
    yield from _by_callback(pending, deadline, total)


def _by_callback(pending: list[F], deadline: float | None, total: int) -> Iterator[F]:
    from _queue import Empty, SimpleQueue

    ended: SimpleQueue[Any] = SimpleQueue()
    for future in pending:
        future.add_done_callback(ended.put)
    for count in range(len(pending), 0, -1):
        try:
            yield ended.get(timeout=_left(deadline))
        except Empty:
            raise TimeoutError(f"{count} of {total} futures have not ended in time") from None


def _all_ours(futures: Sequence[AnyFuture]) -> bool:
    return all(isinstance(future, Future) for future in futures)


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _wait_for_any_kind(futures: Sequence[AnyFuture], n: int, timeout: float | None) -> None:
    deadline = None if timeout is None else time.monotonic() + timeout
    pending = {future for future in futures if not future.done()}
    when = concurrent.futures.ALL_COMPLETED if n == len(futures) else concurrent.futures.FIRST_COMPLETED
    while sum(future not in pending for future in futures) < n:
        left = _left(deadline)
        if left == 0:
            return
        pending = concurrent.futures.wait(pending, left, when).not_done

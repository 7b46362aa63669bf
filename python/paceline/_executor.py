"""An executor of the standard library's kind.

Owns: `Executor`, the futures it returns, and what becomes of executors at a fork and at the end of the program. Does
not own: its slots, which are a pool of the core.

* EX-1: `submit` never raises for what the call is: what cannot be pickled is the future's error, as PEP 3148 has it.
* EX-2: the program does not end before what was submitted has.
* EX-3: a slot that dies, or an initializer that fails, breaks the executor: whatever has not ended then raises
  `BrokenProcessPool`, and so does `submit`.
* EX-5: Ctrl-C ends what was submitted: where a value of `map` or the end of `shutdown` is waited for, or if it leaves
  the `with` block or the program. What runs is told to stop, and has two seconds for that; a second Ctrl-C ends it at
  once.
* EX-4: an executor that is forgotten finishes what was submitted, as if by `shutdown(wait=False)`.
"""

from __future__ import annotations

import concurrent.futures
import os
import sys
import threading
import time
import weakref
from collections import deque
from itertools import islice

from paceline import _cluster, _remote
from paceline._checks import whole_number
from paceline._future import Future
from paceline._native import FutureBase
from paceline._shipping import Shipper, prepare
from paceline.errors import PacelineError, SerializationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import TracebackType
    from typing import Any, NoReturn, ParamSpec, TypeVar

    from paceline import _native
    from paceline._cluster import Cluster
    from paceline._placement import Placement

    P = ParamSpec("P")
    R = TypeVar("R")
    T = TypeVar("T")
else:
    T = object  # as in `_future`


class ExecutorFuture(Future[T]):
    """A future whose errors are those that callers of an executor catch."""

    __slots__ = ()

    def result(self, timeout: float | None = None) -> T:
        try:
            value: T = FutureBase.result(self, timeout)
            return value
        except BaseException as error:
            other = _translated(error)
            if other is error:
                raise
            raise other from other.__cause__

    def exception(self, timeout: float | None = None) -> BaseException | None:
        error = FutureBase.exception(self, timeout)
        if isinstance(error, StopIteration):
            # asyncio asks here, cannot take one (until Python 3.12), and would wait for ever.
            other = RuntimeError("a call raised StopIteration")
            other.__cause__ = error
            return other
        return None if error is None else _translated(error)


class Executor(concurrent.futures.Executor):
    """Runs calls in at most `max_workers` slots of the current cluster, which is started if there is none: what
    `concurrent.futures.ProcessPoolExecutor` does, with its rules, and takes lambdas and closures too.

    `initializer(*initargs)` is called first in every slot. A slot is replaced after `max_tasks_per_child` calls.
    `max_workers` counts processes, not CPUs: there may be more of them; by default there are as many as the cluster has
    CPUs. `gpus`, `memory`, `resources`, `placement`, `min_gpu_memory` and `env` are what each slot has, as in
    `remote`, and `cluster` where they are. `mp_context` is taken for the sake of programs that give it, without effect.

    >>> import paceline as pl
    >>> with pl.connect(cpus=2), pl.Executor(max_workers=2) as executor:
    ...     future = executor.submit(pow, 2, 10)
    ...     future.result(), list(executor.map(lambda x: x * x, range(4)))
    (1024, [0, 1, 4, 9])
    """

    def __init__(
        self,
        max_workers: int | None = None,
        mp_context: object = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        max_tasks_per_child: int | None = None,
        cpus: float = 0.0,
        gpus: float = 0.0,
        memory: int | str | None = None,
        resources: Mapping[str, float] | None = None,
        placement: str | Placement | None = None,
        min_gpu_memory: int | str | None = None,
        env: Mapping[str, str] | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if max_tasks_per_child is not None:
            if not isinstance(max_tasks_per_child, int):
                raise TypeError("max_tasks_per_child must be an integer")
            if max_tasks_per_child <= 0:
                raise ValueError("max_tasks_per_child must be >= 1")
        self._cluster = cluster or _cluster.current_or_new()
        _watch_end()
        self._max_workers = whole_number("max_workers", max_workers or self._cluster.cpus, least=1)
        self._first = (initializer, tuple(initargs))
        self._options = {
            **needs(cpus, gpus, memory, resources, placement, min_gpu_memory, env),
            "eager": False,
            "restarts": 0,
            "calls_per_slot": max_tasks_per_child,
        }
        self._lock = threading.Lock()
        self._shut = False
        self._shipper: Shipper | None = None
        self._known: dict[int, Any] = {}
        _executors.add(self)

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> concurrent.futures.Future[R]:
        """Start a call, and return its future.

        >>> import paceline as pl
        >>> with pl.connect(cpus=1), pl.Executor(1) as executor:
        ...     executor.submit(divmod, 7, 2).result()
        (3, 1)
        """
        known = self._known.get(id(fn))
        if known is None or known[0]() is not fn or not known[1]():
            return self._submit(self._shipped().handle, fn, args, kwargs)
        try:
            future = known[2].submit(args, kwargs)
        except Exception as error:
            return self._refused(error)
        if future.done():
            self._check()
        future.__class__ = ExecutorFuture
        ready: concurrent.futures.Future[R] = future
        return ready

    def map(
        self,
        fn: Callable[..., R],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[R]:
        """Call the function with the items of the iterables, one of each at a time, and iterate over the values in
        order.

        All calls are submitted at once; with `buffersize` only so many beyond those whose values were taken, so that
        the iterables may be without end. `chunksize` calls travel together. A value that is not there `timeout`
        seconds after the call of `map` is a `TimeoutError`.

        >>> import itertools, paceline as pl
        >>> with pl.connect(cpus=1), pl.Executor(1) as executor:
        ...     values = executor.map(pow, itertools.count(), itertools.repeat(2), buffersize=4)
        ...     [next(values) for _ in range(4)]
        [0, 1, 4, 9]
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if buffersize is not None and not isinstance(buffersize, int):
            raise TypeError("buffersize must be an integer or None")
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize must be None or > 0")
        deadline = None if timeout is None else time.monotonic() + timeout
        calls = zip(*iterables, strict=False)
        if chunksize == 1:
            started = (self.submit(fn, *args) for args in calls)
        else:
            chunks = iter(lambda: list(islice(calls, chunksize)), [])
            shipper = self._shipped()
            started = (self._submit(lambda fn: shipper.chunks(fn, True), fn, (chunk,), {}) for chunk in chunks)
        # As long as nothing is read, only the buffer is filled.
        futures: deque[concurrent.futures.Future[Any]] = deque()
        try:
            futures.extend(started if buffersize is None else islice(started, buffersize))
        except KeyboardInterrupt:
            _interrupt(futures)
            raise
        results = _results(futures, started if buffersize else iter(()), deadline)
        return results if chunksize == 1 else _flat(results)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take nothing more, and with `wait` come back when everything that was submitted has ended. With
        `cancel_futures` what has not begun is cancelled.

        >>> import paceline as pl
        >>> with pl.connect(cpus=1):
        ...     executor = pl.Executor(1)
        ...     future = executor.submit(abs, -1)
        ...     executor.shutdown()
        ...     future.done()
        True
        """
        with self._lock:
            self._shut = True
            shipper = self._shipper
            self._known = {}
        if shipper is None:
            return
        shipper.forget()
        if cancel_futures:
            # As many as may run count as begun, and one more: so it is with the standard library's.
            shipper.native.cancel_waiting(self._max_workers + 1)
        shipper.native.finish()
        if wait:
            try:
                _join(shipper.native)
            except KeyboardInterrupt:
                shipper.native.interrupt()
                raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        shipper = self._shipper
        if shipper is not None and isinstance(error, KeyboardInterrupt):
            shipper.native.interrupt()
        self.shutdown(wait=True)

    def _kill(self) -> None:
        """End the executor with all that runs in it."""
        with self._lock:
            self._shut = True
            shipper = self._shipper
            self._known = {}
        if shipper is not None:
            shipper.forget()
            shipper.native.close()

    def __repr__(self) -> str:
        state = "broken" if self._broken else "shut down" if self._shut else "open"
        return f"<paceline.Executor of {self._max_workers}: {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an executor cannot be sent to another process")

    def __del__(self) -> None:
        shipper = getattr(self, "_shipper", None)
        if shipper is not None:
            shipper.native.finish()
            _left.append(shipper.native)
            _forget_idle()

    @property
    def _broken(self) -> BaseException | None:
        return None if self._shipper is None else self._shipper.native.broken()

    def _check(self) -> None:
        """A call that was done at once: it was not taken if the executor is broken or shut down."""
        broken = self._broken
        if broken is not None:
            other = _translated(broken)
            raise other from other.__cause__
        if self._shut:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def _submit(
        self, how: Callable[[Any], tuple[Any, tuple[Any, ...]]], fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> concurrent.futures.Future[Any]:
        try:
            handle, before = how(fn)
            future = handle.submit((*before, *args), kwargs)
        except Exception as error:
            return self._refused(error)
        if future.done():
            self._check()
        future.__class__ = ExecutorFuture
        ready: concurrent.futures.Future[Any] = future
        return ready

    def _shipped(self) -> Shipper:
        """The pool of this executor, opened when it is first used."""
        with self._lock:
            if self._shut or _ended:
                why = "interpreter shutdown" if _ended else "shutdown"
                raise RuntimeError(f"cannot schedule new futures after {why}")
            if self._shipper is None:
                self._shipper = self._open()
                self._known = self._shipper.known
            return self._shipper

    def _open(self) -> Shipper:
        native = open_pool(self._cluster, self._max_workers, self._options)
        prepare(native, self._first, plainly=False)
        return Shipper(native, self._cluster._refresh)

    def _refused(self, error: Exception) -> concurrent.futures.Future[Any]:
        """What `submit` does about a call that could not be submitted: the error is its future's, or raised if it
        concerns all calls."""
        if isinstance(error, SerializationError):
            from paceline._broken import at_pickling

            failed: concurrent.futures.Future[Any] = concurrent.futures.Future()
            failed.set_exception(at_pickling(error))
            return failed
        if self._shut:
            raise RuntimeError("cannot schedule new futures after shutdown") from None
        other = _translated(error)
        raise other from other.__cause__


def needs(
    cpus: float,
    gpus: float,
    memory: int | str | None,
    resources: Mapping[str, float] | None,
    placement: str | Placement | None,
    min_gpu_memory: int | str | None,
    env: Mapping[str, str] | None,
) -> dict[str, Any]:
    """What each slot of a pool has, as the core takes it."""
    given: Any = {
        "cpus": cpus,
        "gpus": gpus,
        "memory": memory,
        "resources": resources,
        "placement": placement,
        "min_gpu_memory": min_gpu_memory,
        "env": env,
    }
    return _remote.slot_needs(_remote.shipped(_remote._checked({**_remote.DEFAULTS, **given})))


def open_pool(cluster: Cluster, size: int, options: dict[str, Any]) -> _native.Pool:
    """Slots of a pool's own."""
    return cluster._connected().pool(size, **options)


def _translated(error: BaseException) -> BaseException:
    # Our own errors, and those of user code in a slot, which have a cause.
    if error.__cause__ is None and not isinstance(error, PacelineError):
        return error
    from paceline._broken import for_executor

    return for_executor(error)


def _results(
    futures: deque[concurrent.futures.Future[R]],
    more: Iterator[concurrent.futures.Future[R]],
    deadline: float | None,
) -> Iterator[R]:
    try:
        while futures:
            left = None if deadline is None else deadline - time.monotonic()
            try:
                # No reference to the value is kept here while the caller has it, nor to its future.
                result = [futures[0].result(left)]
            except KeyboardInterrupt:
                _interrupt(futures)
                raise
            finally:
                futures.popleft().cancel()
            futures.extend(islice(more, 1))
            yield result.pop()
    finally:
        for future in futures:
            future.cancel()


def _interrupt(futures: Iterable[concurrent.futures.Future[Any]]) -> None:
    """End these calls, also those that run (EX-5)."""
    for future in futures:
        if isinstance(future, FutureBase):
            future._interrupt()
        else:
            future.cancel()


def _flat(results: Iterator[Any]) -> Iterator[Any]:
    for chunk in results:
        chunk.reverse()
        while chunk:
            yield chunk.pop()


_executors: weakref.WeakSet[Executor] = weakref.WeakSet()
_left: list[_native.Pool] = []
"""Pools of executors that were forgotten, and may have work left (EX-4)."""
_parents: list[Any] = []
"""In a forked child, what its parent's executors had."""
_ended = False
_watching = False


def _watch_end() -> None:
    """Ask, once, to be told of the end of the program, before its threads are waited for, and of forks."""
    global _watching
    if not _watching:
        _watching = True
        register: Any = threading._register_atexit  # type: ignore[attr-defined]
        register(_at_end)
        os.register_at_fork(after_in_child=_after_fork)


def _at_end() -> None:
    global _ended
    _ended = True
    working = _left[:]
    for executor in list(_executors):
        executor._known = {}
        if executor._shipper is not None:
            working.append(executor._shipper.native)
    for native in working:
        try:
            if _is_interrupted():
                native.interrupt()
            native.finish()
            _join(native)
        except KeyboardInterrupt:
            native.close()
    _left.clear()


def _is_interrupted() -> bool:
    """Whether the program ends by Ctrl-C, which nobody has caught."""
    if hasattr(sys, "ps1") or sys.flags.interactive:
        return False  # it went on after that
    last = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return isinstance(last, KeyboardInterrupt)


def _after_fork() -> None:
    # Pools are their parent's. An executor that is used here opens one of its own.
    _parents.extend(_left)
    _left.clear()
    for executor in list(_executors):
        executor._lock = threading.Lock()
        if executor._shipper is not None:
            _parents.append(executor._shipper)  # not to be touched, not even to be given back
            executor._shipper = None
        executor._known = {}


def _join(native: _native.Pool) -> None:
    """Wait until everything has ended. That the executor is broken, its futures say."""
    try:
        if not native.closed:
            native.join(None)
    except PacelineError:
        return


def _forget_idle() -> None:
    for native in _left[:]:
        try:
            if native.closed or native.join(0):
                _left.remove(native)
        except (PacelineError, ValueError):
            continue  # it is broken and ends with the program, or another thread was quicker

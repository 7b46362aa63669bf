"""A pool of the standard library's kind.

Owns: `Pool`, its states, and its end with the program. `_pool_results` has what its methods return. Does not own: its
slots, which are a pool of the core.

* PO-1: a pool takes work only while it runs; `close` lets what was submitted end, `terminate` does not, and so does the
  end of a `with` block, and of the program.
* PO-2: every result ends: with a value, the function's exception, or an error that says what became of its slot. A slot
  that dies takes the one call with it that it ran, and another takes its place.
* PO-3: an initializer that fails three times ends the pool with `PoolBroken`, for `multiprocessing.Pool` would try for
  ever.
"""

from __future__ import annotations

import os
import warnings
import weakref

from paceline import _cluster
from paceline._checks import whole_number
from paceline._executor import needs, open_pool
from paceline._pool_results import AsyncResult, Chunks, IMapIterator, IMapUnorderedIterator, MapResult, translated
from paceline._shipping import Shipper, prepare

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, NoReturn, TypeVar

    from paceline._cluster import Cluster
    from paceline._native import Function
    from paceline._placement import Placement

    R = TypeVar("R")

RUN = "RUN"
CLOSE = "CLOSE"
TERMINATE = "TERMINATE"

# How many chunks a process gets of a map, if the user does not say.
CHUNKS_EACH = 4
# How long a pool that is closed before it was used waits for its slots, which have yet to run the initializer.
START = 30.0


class Pool:
    """Runs calls in `processes` slots of the current cluster, which is started if there is none: what
    `multiprocessing.Pool` does, with its rules, and takes lambdas and closures too.

    `initializer(*initargs)` is called first in every slot. A slot is replaced after `maxtasksperchild` calls.
    `processes` counts processes, not CPUs: there may be more of them; by default there are as many as the cluster has
    CPUs. `gpus`, `memory`, `resources`, `placement`, `min_gpu_memory` and `env` are what each slot has, as in
    `remote`, and `cluster` where they are. `context` is taken for the sake of programs that give it, and has no effect.

    >>> import paceline as pl
    >>> with pl.connect(cpus=2), pl.Pool(2) as pool:
    ...     pool.map(lambda x: x * x, range(4)), pool.apply(pow, (2, 10))
    ([0, 1, 4, 9], 1024)
    """

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
        context: object = None,
        *,
        cpus: float = 0.0,
        gpus: float = 0.0,
        memory: int | str | None = None,
        resources: Mapping[str, float] | None = None,
        placement: str | Placement | None = None,
        min_gpu_memory: int | str | None = None,
        env: Mapping[str, str] | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        self._state = TERMINATE  # until all is well
        if processes is not None and processes < 1:
            raise ValueError("Number of processes must be at least 1")
        if maxtasksperchild is not None and (not isinstance(maxtasksperchild, int) or maxtasksperchild <= 0):
            raise ValueError("maxtasksperchild must be a positive int or None")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        self._cluster = cluster or _cluster.current_or_new()
        self._processes = whole_number("processes", processes or self._cluster.cpus, least=1)
        self._first = (initializer, tuple(initargs))
        self._options = {
            **needs(cpus, gpus, memory, resources, placement, min_gpu_memory, env),
            "eager": True,
            "restarts": None,
            "calls_per_slot": maxtasksperchild,
        }
        self._lazy: weakref.WeakSet[Chunks] = weakref.WeakSet()
        self._shipper = self._open()
        self._state = RUN
        _watch_end()
        _pools.add(self)

    def apply(self, func: Callable[..., R], args: Iterable[Any] = (), kwds: Mapping[str, Any] = {}) -> R:
        """Call the function in a slot, and return its value.

        >>> import paceline as pl
        >>> with pl.connect(cpus=1), pl.Pool(1) as pool:
        ...     pool.apply(int, ("11",), {"base": 2})
        3
        """
        handle, before = self._running().handle(func)
        try:
            value: R = handle.call((*before, *args), dict(kwds))
            return value
        except BaseException as error:
            other = translated(error)
            raise other from other.__cause__

    def map(self, func: Callable[[Any], R], iterable: Iterable[Any], chunksize: int | None = None) -> list[R]:
        """Call the function with each item, and return the values in the order of the items.

        `chunksize` items travel together; by default each process gets about four chunks. If calls fail, the error of
        the first item that has one is raised, when all have ended.

        >>> import paceline as pl
        >>> with pl.connect(cpus=1), pl.Pool(1) as pool:
        ...     pool.map(abs, [-1, 2, -3])
        [1, 2, 3]
        """
        return self._map(func, iterable, False, chunksize)

    def starmap(
        self, func: Callable[..., R], iterable: Iterable[Iterable[Any]], chunksize: int | None = None
    ) -> list[R]:
        """As `map`, where each item is all arguments.

        >>> import paceline as pl
        >>> with pl.connect(cpus=1), pl.Pool(1) as pool:
        ...     pool.starmap(pow, [(2, 3), (3, 2)])
        [8, 9]
        """
        return self._map(func, iterable, True, chunksize)

    def apply_async(
        self,
        func: Callable[..., R],
        args: Iterable[Any] = (),
        kwds: Mapping[str, Any] = {},
        callback: Callable[[R], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> AsyncResult[R]:
        """Start a call, and return its result to be. `callback` is called with the value, or `error_callback` with
        the exception, in a thread for callbacks, before the result is ready.

        >>> import paceline as pl
        >>> with pl.connect(cpus=1), pl.Pool(1) as pool:
        ...     pool.apply_async(divmod, (7, 2)).get(timeout=10)
        (3, 1)
        """
        handle, before = self._running().handle(func)
        return AsyncResult(handle, (*before, *args), dict(kwds), callback, error_callback)

    def map_async(
        self,
        func: Callable[[Any], R],
        iterable: Iterable[Any],
        chunksize: int | None = None,
        callback: Callable[[list[R]], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> MapResult[R]:
        """As `map`, but returns the result to be.

        >>> import paceline as pl
        >>> with pl.connect(cpus=1), pl.Pool(1) as pool:
        ...     pool.map_async(abs, [-1, 2]).get()
        [1, 2]
        """
        return self._map_async(func, iterable, False, chunksize, callback, error_callback)

    def starmap_async(
        self,
        func: Callable[..., R],
        iterable: Iterable[Iterable[Any]],
        chunksize: int | None = None,
        callback: Callable[[list[R]], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> MapResult[R]:
        """As `starmap`, but returns the result to be.

        >>> import paceline as pl
        >>> with pl.connect(cpus=1), pl.Pool(1) as pool:
        ...     pool.starmap_async(pow, [(2, 3)]).get()
        [8]
        """
        return self._map_async(func, iterable, True, chunksize, callback, error_callback)

    def imap(self, func: Callable[[Any], R], iterable: Iterable[Any], chunksize: int = 1) -> IMapIterator[R]:
        """As `map`, but returns an iterator over the values. Items are taken from the iterable in a thread, some
        hundreds beyond the values that were read; `next(timeout)` waits no longer than that.

        >>> import paceline as pl
        >>> with pl.connect(cpus=1), pl.Pool(1) as pool:
        ...     list(pool.imap(abs, [-1, 2, -3]))
        [1, 2, 3]
        """
        return IMapIterator(self._chunks(func, iterable, chunksize))

    def imap_unordered(
        self, func: Callable[[Any], R], iterable: Iterable[Any], chunksize: int = 1
    ) -> IMapUnorderedIterator[R]:
        """As `imap`, but each value comes as soon as it is there, in any order.

        >>> import paceline as pl
        >>> with pl.connect(cpus=1), pl.Pool(1) as pool:
        ...     sorted(pool.imap_unordered(abs, [-1, 2, -3]))
        [1, 2, 3]
        """
        return IMapUnorderedIterator(self._chunks(func, iterable, chunksize))

    def close(self) -> None:
        """Take nothing more. What was submitted goes on.

        >>> import paceline as pl
        >>> with pl.connect(cpus=1):
        ...     pool = pl.Pool(1)
        ...     result = pool.apply_async(abs, (-1,))
        ...     pool.close()
        ...     pool.join()
        ...     result.get()
        1
        """
        if self._state == RUN:
            self._state = CLOSE

    def terminate(self) -> None:
        """End everything now: what waits is cancelled, and what runs ends with its slot."""
        self._state = TERMINATE
        for lazy in list(self._lazy):
            lazy.stop()
        self._shipper.forget()
        self._shipper.native.close()

    def join(self) -> None:
        """Wait until everything has ended. Only after `close` or `terminate`."""
        if self._state == RUN:
            raise ValueError("Pool is still running")
        if self._state not in (CLOSE, TERMINATE):
            raise ValueError("In unknown state")
        native = self._shipper.native
        if self._state == TERMINATE or native.closed:
            return  # what ran has ended with its slot
        for lazy in list(self._lazy):
            lazy.submit_all()
        if self._first[0] is not None:
            native.ready(self._processes, START)
        native.finish()
        native.join(None)

    def __enter__(self) -> Pool:
        self._running()
        return self

    def __exit__(self, *_: object) -> None:
        self.terminate()

    def __del__(self, _warn: Any = warnings.warn, RUN: str = RUN) -> None:
        if getattr(self, "_state", None) == RUN:
            _warn(f"unclosed running multiprocessing pool {self!r}", ResourceWarning, source=self)

    def __repr__(self) -> str:
        return f"<paceline.Pool state={self._state} pool_size={self._processes}>"

    def __reduce__(self) -> NoReturn:
        raise NotImplementedError("pool objects cannot be passed between processes or pickled")

    def _open(self) -> Shipper:
        native = open_pool(self._cluster, self._processes, self._options)
        prepare(native, self._first, plainly=True)
        return Shipper(native, self._cluster._refresh)

    def _running(self) -> Shipper:
        if self._state != RUN:
            raise ValueError("Pool not running")
        return self._shipper

    def _map(self, func: Callable[..., R], iterable: Iterable[Any], star: bool, chunksize: int | None) -> list[R]:
        handle, before = self._running().handle(func)
        items, chunksize = self._sized(iterable, chunksize)
        if before:
            # The function goes with every chunk, and so not by the core's own way for chunks.
            return self._map_async(func, items, star, chunksize, None, None).get()
        try:
            return handle.map(items, star, chunksize, None, True)
        except BaseException as error:
            other = translated(error)
            raise other from other.__cause__

    def _map_async(
        self,
        func: Callable[..., R],
        iterable: Iterable[Any],
        star: bool,
        chunksize: int | None,
        callback: Callable[[list[R]], object] | None,
        error_callback: Callable[[BaseException], object] | None,
    ) -> MapResult[R]:
        handle, before = self._running().chunks(func, star)
        items, chunksize = self._sized(iterable, chunksize)
        return MapResult(handle, before, items, chunksize, callback, error_callback)

    def _sized(self, iterable: Iterable[Any], chunksize: int | None) -> tuple[Any, int]:
        """The items as something with a length, and how many go together."""
        items: Any = iterable if hasattr(iterable, "__len__") else list(iterable)
        if chunksize is None:
            chunksize = -(-len(items) // (self._processes * CHUNKS_EACH))
        return items, max(1, chunksize)

    def _chunks(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int) -> Chunks:
        if chunksize < 1:
            raise ValueError(f"Chunksize must be 1+, not {chunksize:n}")
        shipper = self._running()
        handle: tuple[Function, tuple[Any, ...]]
        handle = shipper.handle(func) if chunksize == 1 else shipper.chunks(func, False)
        chunks = Chunks(*handle, iterable, chunksize)
        self._lazy.add(chunks)
        return chunks


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
_watching = False


def _watch_end() -> None:
    """Ask, once, to be told of the end of the program and of forks. The cluster has before, and so comes after at the
    end."""
    global _watching
    if not _watching:
        _watching = True
        import atexit

        atexit.register(_at_end)
        os.register_at_fork(after_in_child=_after_fork)


def _at_end() -> None:
    for pool in list(_pools):
        if pool._state != TERMINATE:
            try:
                pool.terminate()
            except Exception:
                pass  # its cluster ends next, and the pool with it


def _after_fork() -> None:
    # A pool is its parent's. Here it is as `multiprocessing` leaves it: not to be used, and nothing to warn of.
    for pool in list(_pools):
        pool._state = TERMINATE
        pool._lazy = weakref.WeakSet()

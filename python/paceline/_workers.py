"""Worker pools: an object of the user's class in each slot, jobs for whichever is free, updates for all.

Owns: `WorkerPool` and `call`. Does not own: which slot gets what, nor the order of updates and jobs, which the core
keeps; nor the object, which is in `_slot.work`.

* WP-1: every job runs in a slot that was constructed and has applied all updates that were accepted before the job.
* WP-2: updates take at most `update_history` bytes; beyond, the state of one slot stands for all that came before.
"""

from __future__ import annotations

import threading

from paceline import _cluster, _remote
from paceline._checks import whole_number
from paceline._functions import by_name, name_of
from paceline._slot import work
from paceline._slot.work import Call
from paceline.errors import HistoryFull

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from paceline import _native
    from paceline._cluster import Cluster
    from paceline._future import Future
    from paceline._placement import Placement

# As many as there may be, where the cluster sets the limit.
ALL = 2000

HISTORY = 256_000_000


def call(*args: Any, **kwargs: Any) -> Call:
    """The arguments of one call, where a single value has to say them all: an item of `WorkerPool.map`, or what the
    class of a `WorkerPool` is built with.

    >>> import paceline as pl
    >>> pl.call(1, scale=2)
    call(1, scale=2)
    """
    return Call(args, kwargs)


class WorkerPool:
    """Slots that each hold an object of your class, built once with these arguments.

    Jobs call its `run`: an item of `map`, `imap` and `imap_unordered` that is a `tuple` is all arguments, `call(...)`
    is all arguments with keywords, and anything else is the one argument. `update` calls `handle_update` in every
    slot, between jobs, and in order with them: a job runs in a slot that has got every update before it. Slots that
    come later, because a node has joined or a process has died, are built and updated first.

    There are `slots` of them, which need no CPUs unless `cpus` says so; without, there are as many as the cluster has
    room for, one CPU each or what you ask for by `cpus`, `gpus`, `memory` and `resources`, on nodes that join later,
    too. The pool keeps them until it is closed. Variables of the environment come with the class:
    `WorkerPool(pl.remote(env={...})(Worker))`.

    A job that takes longer than `job_timeout` seconds is stopped, its slot is replaced, and it runs again, at most
    `retries` times. Updates that late slots must run take at most `update_history` bytes. Should they become more, a
    class that has `get_state` and `set_state` has all of them replaced by its state; else `HistoryFull` is raised.

    >>> import paceline as pl
    >>> class Adder:
    ...     def __init__(self, base):
    ...         self.base = base
    ...     def run(self, x):
    ...         return self.base + x
    ...     def handle_update(self, base):
    ...         self.base = base
    >>> with pl.connect(cpus=2), pl.WorkerPool(Adder, 10) as pool:
    ...     before = pool.map([1, 2, 3])
    ...     _ = pool.update(100)
    ...     before, pool.map([1, 2, 3])
    ([11, 12, 13], [101, 102, 103])
    """

    def __init__(
        self,
        worker: type,
        /,
        *args: Any,
        slots: int | None = None,
        job_timeout: float | None = None,
        retries: int = 3,
        retry_on: str | tuple[str, ...] | None = None,
        update_history: int | str = HISTORY,
        cpus: float | None = None,
        gpus: float = 0.0,
        memory: int | str | None = None,
        resources: Mapping[str, float] | None = None,
        placement: str | Placement | None = None,
        min_gpu_memory: int | str | None = None,
        cluster: Cluster | None = None,
        **kwargs: Any,
    ) -> None:
        kind: Any = getattr(worker, "original", worker)
        if not isinstance(kind, type):
            raise TypeError(f"a WorkerPool is made of a class, not of a {type(worker).__name__}")
        if not callable(getattr(kind, "run", None)):
            raise TypeError(f"{kind.__qualname__} has no method run, which is what jobs call")
        if len(args) == 1 and type(args[0]) is Call:
            args, kwargs = args[0].args, {**args[0].kwargs, **kwargs}
        if cpus is None:
            cpus = 1.0 if slots is None and not gpus and not resources else 0.0
        if retry_on is None:
            retry_on = ("slot", "node") if job_timeout is None else ("slot", "node", "timeout")
        options: Any = {
            "cpus": cpus,
            "gpus": gpus,
            "memory": memory,
            "resources": resources,
            "placement": placement,
            "min_gpu_memory": min_gpu_memory,
            "retries": retries,
            "retry_on": retry_on,
            "timeout": job_timeout,
            # An argument of this name would be taken from the constructor's.
            "env": getattr(worker, "_options", {}).get("env"),
        }
        shipped = _remote.shipped(_remote._checked({**_remote.DEFAULTS, **options}))
        self._size = ALL if slots is None else whole_number("slots", slots, least=1)
        self._kind = kind
        self._name = name_of(kind)
        self._lock = threading.Lock()
        self._updates = 0
        self._cluster = cluster or _cluster.current_or_new()
        session = self._cluster._connected()
        self._cluster._refresh()
        self._native: _native.Pool = session.pool(
            self._size, eager=True, history=_bytes(update_history), **_remote.slot_needs(shipped)
        )
        try:
            self._native.prepare(_payload("construct"), f"{self._name}(...)", (kind, args, kwargs), {})
        except BaseException:
            self._native.close()
            raise
        limits = {name: shipped[name] for name in ("wait", "retries", "retry_on", "timeout", "priority")}
        self._run = self._native.function(_payload("run"), f"{self._name}.run", **limits)

    @property
    def workers(self) -> int:
        """How many slots are there, and have got all updates."""
        return sum(prepared for _, _, prepared in self._native.places())

    @property
    def nodes(self) -> int:
        """How many nodes they are on."""
        return len({node for node, _, prepared in self._native.places() if prepared})

    def wait_for_workers(self, count: int = 1, timeout: float | None = None) -> None:
        """Wait until so many slots are there and built. Raises `TimeoutError` after `timeout` seconds.

        >>> import paceline as pl
        >>> class Idle:
        ...     def run(self):
        ...         pass
        >>> with pl.connect(cpus=2), pl.WorkerPool(Idle, slots=2) as pool:
        ...     pool.wait_for_workers(2, timeout=60)
        ...     pool.workers, pool.nodes
        (2, 1)
        """
        count = whole_number("count", count, least=1)
        if count > self._size:
            raise ValueError(f"the pool has {self._size} slots at most, and never {count}")
        if not self._native.ready(count, timeout):
            raise TimeoutError(f"{self.workers} of {count} workers are there after {timeout:g} seconds")

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have `run` called with these arguments in a slot that is free, and return its future.

        >>> import paceline as pl
        >>> class Power:
        ...     def run(self, base, *, exponent):
        ...         return base**exponent
        >>> with pl.connect(cpus=1), pl.WorkerPool(Power) as pool:
        ...     pool.submit(2, exponent=10).result()
        1024
        """
        return self._run.submit((Call(args, kwargs),) if kwargs else args, {})

    def map(self, items: Iterable[Any], *, chunksize: int = 1, progress: bool = False) -> list[Any]:
        """Call `run` for each item, and return the values in the order of the items."""
        chunksize = whole_number("chunksize", chunksize, least=1)
        if not progress:
            return self._run.map(_arguments(items), True, chunksize, None)
        from paceline._progress import Bar, total_of

        with Bar(self._name, total_of(items)) as bar:
            return self._run.map(_arguments(items), True, chunksize, bar)

    def imap(self, items: Iterable[Any], *, chunksize: int = 1, lookahead: int | None = None) -> Iterator[Any]:
        """As `map`, but lazily: each value in its turn, and items are taken when there is use for them.

        At most `lookahead` items are taken beyond the values that were read: by default twice as many as there are
        slots, and with 0 only as many as there are slots. An item is submitted when it is taken: an update that comes
        after that is for later ones.
        """
        return self._imap(items, True, chunksize, lookahead)

    def imap_unordered(
        self, items: Iterable[Any], *, chunksize: int = 1, lookahead: int | None = None
    ) -> Iterator[Any]:
        """As `imap`, but each value comes as soon as it is there, in any order.

        >>> import paceline as pl
        >>> class Best:
        ...     best = 0
        ...     def run(self, x):
        ...         return max(self.best, x)
        ...     def handle_update(self, best):
        ...         self.best = best
        >>> with pl.connect(cpus=2), pl.WorkerPool(Best) as pool:
        ...     for value in pool.imap_unordered(range(50)):
        ...         _ = pool.update(value)
        """
        return self._imap(items, False, chunksize, lookahead)

    def update(self, *args: Any, replaces: str | None = None, **kwargs: Any) -> Future[None]:
        """Call `handle_update` with these arguments in every slot, before any job that is submitted from now on.

        The future ends when all slots that are there have got it; nobody has to wait for it. With `replaces`, slots
        that come later are spared earlier updates of the same key.
        """
        if not callable(getattr(self._kind, "handle_update", None)):
            raise TypeError(f"{self._name} has no method handle_update, which is what update calls")
        key = None if replaces is None else replaces.encode()
        name, what = f"{self._name}.handle_update", (args, kwargs)
        with self._lock:
            try:
                future = self._native.update(_payload("update"), name, what, {}, replaces=key)
            except HistoryFull:
                if not self._cut():
                    raise
                future = self._native.update(_payload("update"), name, what, {}, replaces=key)
            self._updates += 1
        return future

    def close(self) -> None:
        """Wait for what was submitted, and give the slots back. Harmless when repeated."""
        try:
            self._native.finish()
            self._native.join()
        finally:
            self._native.close()

    def terminate(self) -> None:
        """Give the slots back now: what waits is cancelled, and what runs ends with its slot."""
        self._native.close()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.terminate()

    def __repr__(self) -> str:
        state = "closed" if self._native.closed else f"{self.workers} workers on {self.nodes} nodes"
        return f"<paceline.WorkerPool of {self._name}: {state}>"

    def __reduce__(self) -> Any:
        raise TypeError("a worker pool cannot be sent to another process")

    def _imap(self, items: Iterable[Any], ordered: bool, chunksize: int, lookahead: int | None) -> Iterator[Any]:
        chunksize = whole_number("chunksize", chunksize, least=1)
        slots = max(1, len(self._native.places()) or min(self._size, self._cluster.cpus))
        ahead = 2 * slots if lookahead is None else whole_number("lookahead", lookahead, least=0) or slots
        return self._run.imap(_arguments(items), True, chunksize, ordered, max(ahead, chunksize))

    def _cut(self) -> bool:
        """Let the state of one slot stand for all updates so far (WP-2). Nothing is updated meanwhile."""
        if not (hasattr(self._kind, "get_state") and hasattr(self._kind, "set_state")):
            return False
        # Should it run again, it finds the same: there is no other update meanwhile.
        causes = ("slot", "node")
        options: dict[str, Any] = {"wait": None, "retries": 3, "retry_on": causes, "timeout": None, "priority": 0}
        ask = self._native.function(_payload("get_state"), f"{self._name}.get_state", **options)
        future = ask.submit((), {})
        count, state = future.result()
        name = f"{self._name}.set_state"
        self._native.cut(future.task_id, _payload("set_state"), name, (count, state), {})
        return True


def _payload(name: str) -> bytes:
    return by_name(work.__name__, name)


def _arguments(items: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Each item as the tuple of all arguments."""
    return (item if type(item) is tuple else (item,) for item in items)


def _bytes(size: int | str) -> int:
    if isinstance(size, int):
        return size
    from paceline._placement import amount_of_bytes

    return amount_of_bytes("update_history", size)

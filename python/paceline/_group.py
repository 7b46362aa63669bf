"""Groups: slots that a program has together or not at all.

Owns: `group` and `Group`. Does not own: who gets slots and when, which the head decides, nor what becomes of a group
that loses a member, which the core does.

* GP-1: a group that is open has all its members; one that cannot be had is never open.
* GP-2: whatever is submitted to a rank runs in the same process, in the order in which it was submitted.
* GP-3: the slots of a group end with it, so nothing that a member left in its process meets other tasks.
"""

from __future__ import annotations

from paceline import _cluster, _remote
from paceline._checks import whole_number
from paceline._functions import Package
from paceline._slot import member
from paceline._waiting import as_completed, wait
from paceline.errors import GroupClosed, NoResources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, ParamSpec, TypeVar

    from paceline import _native
    from paceline._cluster import Cluster
    from paceline._future import Future
    from paceline._native import Function
    from paceline._placement import Placement
    from paceline._remote import Options, RemoteFunction

    P = ParamSpec("P")
    R = TypeVar("R")

# How many items of a map each member has at a time: one that runs, and the next.
AHEAD = 2


def group(
    size: int,
    *,
    cpus: float = 1.0,
    gpus: float = 0.0,
    memory: int | str | None = None,
    resources: Mapping[str, float] | None = None,
    placement: str | Placement | None = None,
    min_gpu_memory: int | str | None = None,
    wait: float | None = None,
    env: Mapping[str, str] | None = None,
    cluster: Cluster | None = None,
) -> Group:
    """Get `size` slots together or not at all, each with what is asked for here, and keep them until the end of the
    `with` block: for work whose parts must run at the same time, such as distributed training.

    The other arguments are those of `remote`, among them `env`, variables of the environment that are set before
    anything of yours is imported; `placement="one_per_node"` puts each member on a node of its own. It
    waits until there is room for all, at most `wait` seconds if that is given; what can never be had fails at once.
    Both are `NoResources`. While it waits, what becomes free is kept for it.

    In the members, `pl.current()` has `rank` and `size`, and so has the environment, by the names that
    `torch.distributed` looks for: `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE`, `MASTER_ADDR` and
    `MASTER_PORT`.

    >>> import paceline as pl
    >>> def where():
    ...     return pl.current().rank, pl.current().size
    >>> with pl.connect(cpus=2), pl.group(2) as group:
    ...     group.run(where)
    [(0, 2), (1, 2)]
    """
    size = whole_number("size", size, least=1)
    options: Any = {
        "cpus": cpus,
        "gpus": gpus,
        "memory": memory,
        "resources": resources,
        "placement": placement,
        "min_gpu_memory": min_gpu_memory,
        "wait": wait,
        "env": env,
    }
    checked = _remote._checked({**_remote.DEFAULTS, **options})
    return Group(cluster or _cluster.current(), size, checked)


class Group:
    """Slots that are there together. Made by `group`; each is a rank, from 0.

    If the process of a member ends, or its node is lost, the group is lost: everything that was to run in it ends with
    `GroupLost`, and nothing of it runs again by itself.

    >>> import paceline as pl
    >>> with pl.connect(cpus=2), pl.group(2) as group:
    ...     future = group.submit(1, max, 3, 5)
    ...     future.result(), group.map(abs, [-1, -2, -3]), len(group.nodes)
    (5, [1, 2, 3], 2)
    """

    nodes: list[str]
    """The names of the nodes that the members are on, by rank."""

    def __init__(self, cluster: Cluster, size: int, options: Options) -> None:
        shipped = _remote.shipped(options)
        self.size = size
        self.nodes = []
        self._cluster = cluster
        self._closed = False
        self._functions: dict[Any, RemoteFunction[..., Any]] = {}
        self._pending: list[Future[Any]] = []
        self._native = cluster._connected().group(size, **_remote.slot_needs(shipped))
        self._seats = [_Seat(self, self._native, rank) for rank in range(size)]
        try:
            self._gather(options)
        except BaseException:
            self._release()
            raise

    def submit(self, rank: int, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Start the function in the member of this rank, behind what was submitted to it before, and return its future.

        >>> import paceline as pl
        >>> with pl.connect(cpus=2), pl.group(2) as group:
        ...     group.submit(0, sum, [1, 2]).result()
        3
        """
        if not 0 <= whole_number("rank", rank) < self.size:
            raise ValueError(f"the ranks of this group are 0 to {self.size - 1}: {rank}")
        future: Future[R] = self._handle(rank, function).submit(args, kwargs)
        self._remember([future])
        return future

    def run(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> list[R]:
        """Call the function once in each member, at the same time, and return the values by rank.

        If it fails in one, that error is raised, and the others are told to stop: they may be waiting for it.

        >>> import paceline as pl
        >>> with pl.connect(cpus=2), pl.group(2) as group:
        ...     group.run(lambda base: base + pl.current().rank, 10)
        [10, 11]
        """
        return self._all([self._handle(rank, function).submit(args, kwargs) for rank in range(self.size)])

    def map(self, function: Callable[[Any], R], items: Iterable[Any], /) -> list[R]:
        """Call the function with each item, in whichever member is free, and return the values in the order of the
        items.

        >>> import paceline as pl
        >>> with pl.connect(cpus=2), pl.group(2) as group:
        ...     group.map(abs, [-1, 2, -3])
        [1, 2, 3]
        """
        futures: list[Future[R]] = []
        running: dict[Future[R], int] = {}
        free = [rank for _ in range(AHEAD) for rank in range(self.size)]
        try:
            for item in items:
                while not free:
                    for future in wait(running, n=1).done:
                        free.append(running.pop(future))
                        future.result()
                rank = free.pop(0)
                future = self._handle(rank, function).submit((item,), {})
                futures.append(future)
                running[future] = rank
            return self._all(futures)
        except BaseException:
            _stop(running)
            raise

    def close(self) -> None:
        """Wait for what was submitted, and give the slots back. Harmless when repeated."""
        if not self._closed:
            try:
                wait(self._pending)
            finally:
                self._release()

    def __enter__(self) -> Group:
        if self._closed:
            raise GroupClosed()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._release()

    def __repr__(self) -> str:
        where = "closed" if self._closed else f"on {', '.join(dict.fromkeys(self.nodes))}"
        return f"<paceline.Group of {self.size}: {where}>"

    def __reduce__(self) -> Any:
        raise TypeError("a group cannot be sent to another process")

    def _gather(self, options: Options) -> None:
        """Wait until all members are there, and tell each which one it is (GP-1)."""
        patient = {**_plain(_remote.DEFAULTS), "wait": options["wait"]}
        places = None
        while places is None:
            # A member that has answered may be lost before it is looked for: then this raises `GroupLost`.
            try:
                ports = self._each(member.arrive, patient, lambda _: ())
            except NoResources as refused:
                raise NoResources(
                    needs=refused.needs,
                    largest=refused.largest,
                    why=refused.why,
                    waited=refused.waited,
                    group=self.size,
                ) from None
            places = self._native.places()
        self.nodes = [node for node, _, _ in places]
        host = "127.0.0.1" if len(set(self.nodes)) == 1 else places[0][2] or self.nodes[0]
        self._each(member.enter, patient, lambda rank: (rank, self._variables(rank, host, ports[0])))

    def _each(
        self, function: Callable[..., R], options: dict[str, Any], args: Callable[[int], tuple[Any, ...]]
    ) -> list[R]:
        package = Package(function)
        handles = [package.handle(seat, options, self._before)[0] for seat in self._seats]
        return self._all([handle.submit(args(rank), {}) for rank, handle in enumerate(handles)])

    def _variables(self, rank: int, host: str, port: int) -> dict[str, str]:
        here = [other for other, node in enumerate(self.nodes) if node == self.nodes[rank]]
        return {
            "RANK": str(rank),
            "WORLD_SIZE": str(self.size),
            "LOCAL_RANK": str(here.index(rank)),
            "LOCAL_WORLD_SIZE": str(len(here)),
            "MASTER_ADDR": host,
            "MASTER_PORT": str(port),
        }

    def _handle(self, rank: int, function: Callable[..., Any]) -> Function:
        if self._closed:
            raise GroupClosed()
        known = self._remote(function)
        if not isinstance(known._package, Package):
            raise TypeError(f"{known.__qualname__} is a function of another program, which cannot run in a group")
        handle, _ = known._package.handle(self._seats[rank], _plain(known._options), self._before)
        return handle

    def _remote(self, function: Callable[..., Any]) -> RemoteFunction[..., Any]:
        if isinstance(function, _remote.RemoteFunction):
            return function
        try:
            known = self._functions.get(function)
        except TypeError:
            return _remote.remote(function)  # it cannot be looked up, and is packed anew
        if known is None:
            known = self._functions[function] = _remote.remote(function)
        return known

    def _before(self) -> None:
        self._cluster._refresh()

    def _remember(self, futures: list[Future[Any]]) -> None:
        if len(self._pending) > 1000:
            self._pending = [future for future in self._pending if not future.done()]
        self._pending += futures

    def _all(self, futures: list[Future[R]]) -> list[R]:
        """All values; with the first error the rest is stopped."""
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            _stop(futures)
            raise
        return [future.result() for future in futures]

    def _release(self) -> None:
        self._closed = True
        self._native.close()


class _Seat:
    """One member, as `Package` wants it: what functions are shipped to."""

    def __init__(self, whose: Group, native: _native.Group, rank: int) -> None:
        self._whose = whose
        self._native = native
        self.rank = rank

    @property
    def closed(self) -> bool:
        return self._whose._closed

    def function(self, payload: bytes, name: str, **options: Any) -> Function:
        return self._native.function(payload, name, self.rank, **options)


def _plain(options: Options) -> dict[str, Any]:
    """Of the options of a function those that count in a group: what it needs, the group has."""
    shipped = _remote.shipped(options)
    return {name: shipped[name] for name in ("wait", "retries", "retry_on", "timeout", "priority")} | {"wait": None}


def _stop(futures: Iterable[Future[Any]]) -> None:
    for future in futures:
        future._interrupt()

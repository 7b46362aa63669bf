"""Remote functions.

Owns: the `remote` decorator and `RemoteFunction`. What a call costs before the core takes over is spent here,
so `__call__` and `submit` only ask whether the function was shipped to the current cluster as it is now.
"""

from __future__ import annotations

from paceline import _cluster, _names, _room
from paceline._checks import whole_number
from paceline._functions import Kept, Package, name_of
from paceline._slot import rebuild
from paceline.errors import ArgumentNotSerializable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, overload

    from paceline._actor_class import ActorClass, ActorOptions
    from paceline._cluster import Cluster
    from paceline._future import Future
    from paceline._native import Function, Session
    from paceline._objects import Ref
    from paceline._placement import Placement
    from paceline._program import ExportedPackage

    P = ParamSpec("P")
    Q = ParamSpec("Q")
    R = TypeVar("R")
    S = TypeVar("S")

    class _Generic(Generic[P, R]): ...

    class Options(TypedDict, total=False):
        """What `remote` takes."""

        cpus: float
        gpus: float
        memory: int | str | None
        resources: Mapping[str, float] | None
        placement: str | Placement | None
        min_gpu_memory: int | str | None
        wait: float | None
        retries: int
        retry_on: tuple[str, ...]
        timeout: float | None
        priority: int
        env: Mapping[str, str] | None

    class Decorator(Protocol):
        """What `remote` with options is."""

        @overload
        def __call__(self, kind: type[S], /) -> ActorClass[S]: ...  # type: ignore[overload-overlap]
        @overload
        def __call__(self, function: Callable[P, R], /) -> RemoteFunction[P, R]: ...

    class ClassDecorator(Protocol):
        """What `remote` with options of actors is."""

        def __call__(self, kind: type[S], /) -> ActorClass[S]: ...

    class CallOptions(Options, total=False):
        """What `options` takes."""

        cluster: Cluster | None
else:
    P = R = None

    class _Generic:
        # As `typing.Generic` would, without the time its import takes.
        __class_getitem__ = classmethod(type(list[int]))

    def overload(function):
        return function


DEFAULTS: Options = {
    "cpus": 1.0,
    "gpus": 0.0,
    "memory": None,
    "resources": None,
    "placement": None,
    "min_gpu_memory": None,
    "wait": None,
    "retries": 3,
    "retry_on": ("slot", "node"),
    "timeout": None,
    "priority": 0,
    "env": None,
}
FOR_CLASSES = {"name", "detached", "restarts", "concurrency", "cluster"}
CAUSES = ("slot", "node", "timeout", "error", "memory")
LOOKAHEAD = 256
WRAPPED = ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__")


class RemoteFunction(_Generic[P, R]):
    """A function whose calls run on the current cluster. Made by `remote`.

    >>> import paceline as pl
    >>> @pl.remote
    ... def double(x):
    ...     return 2 * x
    >>> with pl.connect(cpus=1):
    ...     double(21), double.submit(4).result(), double.map(range(3)), double.original(1)
    (42, 8, [0, 2, 4], 2)
    """

    __name__: str
    __qualname__: str
    __wrapped__: Callable[P, R]

    original: Callable[P, R]
    """The plain function: calling it runs it here."""

    def __init__(
        self,
        original: Callable[P, R],
        options: Options,
        *,
        package: Package | ExportedPackage | Kept | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        self.original = self.__wrapped__ = original
        self.__name__ = self.__qualname__ = name_of(original)
        for name in WRAPPED:
            try:
                setattr(self, name, getattr(original, name))
            except Exception:
                continue  # not every callable has them, and annotations may fail to evaluate
        self._options = options
        self._package = _package(original) if package is None else package
        self._cluster = cluster
        self._current = _cluster.context.get if cluster is None else cluster._itself
        # One tuple, so that another thread never sees half of a change.
        self._shipped: tuple[Session | None, Callable[[], bool], Function] = _NOT_SHIPPED

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function on the cluster and return its value."""
        session, unchanged, function = self._shipped
        if session is not self._current()._session or not unchanged():
            function = self._ship()
        try:
            value: R = function.call(args, kwargs)
        except ArgumentNotSerializable as error:
            value = _later(function, args, kwargs, error).result()
        return value

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Start the function on the cluster and return its future.

        While more tasks wait to be sent than may (`connect(queue_tasks=, queue_bytes=)`), it waits for room; in a
        thread that must not wait, such as that of an event loop, it raises `QueueFull`: see `submit_async`.

        Futures among the arguments, wherever they sit, arrive as their results: the task starts when they are there.

        >>> import paceline as pl
        >>> with pl.connect(cpus=1):
        ...     pl.remote(max).submit(3, 5).result()
        5
        """
        session, unchanged, function = self._shipped
        if session is not self._current()._session or not unchanged():
            function = self._ship()
        try:
            return function.submit(args, kwargs)
        except ArgumentNotSerializable as error:
            return _later(function, args, kwargs, error)

    async def submit_async(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """As `submit`, for coroutines: while the queue is full, it waits without stopping the event loop.

        >>> import asyncio, paceline as pl
        >>> async def main():
        ...     future = await pl.remote(max).submit_async(3, 5)
        ...     return await future
        >>> with pl.connect(cpus=1):
        ...     asyncio.run(main())
        5
        """
        function = self._handle()
        try:
            future, gate = function.offer(args, kwargs)
        except ArgumentNotSerializable as error:
            return _later(function, args, kwargs, error)
        if gate is None:
            await _room.turn()
        else:
            await _room.passed(gate)
        return future

    def map(self, items: Iterable[Any], *, chunksize: int | None = None, progress: bool = False) -> list[R]:
        """Call the function with each item, and return the values in the order of the items.

        `chunksize` items travel together; by default as many as keep all slots busy. `progress` shows a bar.

        >>> import paceline as pl
        >>> with pl.connect(cpus=1):
        ...     pl.remote(abs).map([-1, 2, -3])
        [1, 2, 3]
        """
        return self._map(items, False, chunksize, progress)

    def starmap(
        self, items: Iterable[Iterable[Any]], *, chunksize: int | None = None, progress: bool = False
    ) -> list[R]:
        """As `map`, where each item is the tuple of all arguments.

        >>> import paceline as pl
        >>> with pl.connect(cpus=1):
        ...     pl.remote(pow).starmap([(2, 3), (3, 2)])
        [8, 9]
        """
        return self._map(items, True, chunksize, progress)

    def imap(self, items: Iterable[Any], chunksize: int = 1, lookahead: int | None = None) -> Iterator[R]:
        """As `map`, but lazily: items are taken when there is use for them, so they may be without end.

        At most `lookahead` items are taken beyond the values that were read.

        >>> import itertools, paceline as pl
        >>> with pl.connect(cpus=1):
        ...     values = pl.remote(abs).imap(itertools.count(-2))
        ...     [next(values) for _ in range(4)]
        [2, 1, 0, 1]
        """
        return self._imap(items, True, chunksize, lookahead)

    def imap_unordered(self, items: Iterable[Any], chunksize: int = 1, lookahead: int | None = None) -> Iterator[R]:
        """As `imap`, but each value comes as soon as it is there, in any order.

        >>> import paceline as pl
        >>> with pl.connect(cpus=1):
        ...     sorted(pl.remote(abs).imap_unordered([-1, -2, 3]))
        [1, 2, 3]
        """
        return self._imap(items, False, chunksize, lookahead)

    if TYPE_CHECKING:

        @overload
        def options(self, *, keep: Literal[True], **options: Unpack[CallOptions]) -> RemoteFunction[P, Ref[R]]: ...
        @overload
        def options(self, *, keep: None = None, **options: Unpack[CallOptions]) -> RemoteFunction[P, R]: ...  # noqa: F811

    def options(self, *, keep: bool | None = None, **options: Unpack[CallOptions]) -> RemoteFunction[P, Any]:
        """The same function with other options: those of `remote`, and `cluster` to run it on.

        With `keep=True` its results stay on the node where they are made: what comes back is a `Ref`, to be passed on
        to other tasks, or to be asked for with `get`.

        >>> import paceline as pl
        >>> with pl.connect(cpus=1):
        ...     pl.remote(abs).options(retries=0, priority=5)(-1)
        ...     numbers = pl.remote(sorted).options(keep=True).submit([7, 3])
        ...     pl.remote(sum)(numbers)
        1
        10
        """
        changed = dict(options)
        cluster: Any = changed.pop("cluster", self._cluster)
        if cluster is not None and not isinstance(cluster, _cluster.Cluster):
            raise TypeError(f"cluster must be a Cluster, not {type(cluster).__name__}")
        checked = _checked({**self._options, **changed})
        package = self._package
        if keep and isinstance(package, Package):
            package = Kept(package)
        elif keep and not isinstance(package, Kept):
            raise TypeError(f"keep=True is for functions of Python, and {self.__name__} is none")
        elif keep is False and isinstance(package, Kept):
            package = package.package
        return RemoteFunction(self.original, checked, package=package, cluster=cluster)

    def _ship(self) -> Function:
        """Hand the function, as it is now, to the cluster of this context."""
        cluster = self._cluster or _cluster.current()
        session = cluster._connected()
        function, unchanged = self._package.handle(session, shipped(self._options), cluster._refresh)
        self._shipped = (session, unchanged, function)
        return function

    def _handle(self) -> Function:
        session, unchanged, function = self._shipped
        if session is not self._current()._session or not unchanged():
            return self._ship()
        return function

    def _map(self, items: Iterable[Any], star: bool, chunksize: int | None, progress: bool) -> list[R]:
        if chunksize is not None:
            chunksize = whole_number("chunksize", chunksize, least=1)
        if not progress:
            return self._handle().map(items, star, chunksize, None)
        from paceline._progress import Bar, total_of

        with Bar(self.__name__, total_of(items)) as bar:
            return self._handle().map(items, star, chunksize, bar)

    def _imap(self, items: Iterable[Any], ordered: bool, chunksize: int, lookahead: int | None) -> Iterator[R]:
        chunksize = whole_number("chunksize", chunksize, least=1)
        if lookahead is None:
            lookahead = max(LOOKAHEAD, 4 * chunksize)
        lookahead = whole_number("lookahead", lookahead, least=1)
        return self._handle().imap(items, False, chunksize, ordered, lookahead)

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type | None = None) -> RemoteFunction[P, R]: ...
        @overload
        def __get__(  # noqa: F811
            self: RemoteFunction[Concatenate[S, Q], R], instance: S, owner: type | None = None
        ) -> RemoteMethod[Q, R]: ...

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        # In a class body a remote function binds like any other.
        return self if instance is None else RemoteMethod(self, instance)

    def __repr__(self) -> str:
        return f"<paceline.RemoteFunction {self.__module__}.{self.__qualname__}>"

    def __reduce__(self) -> tuple[Any, ...]:
        reference = (self.__module__, self.__qualname__)
        if _names.lookup(*reference) is self and _names.importable(self.__module__):
            return rebuild.found, reference
        # In two steps, because the original may well name this very object.
        return object.__new__, (RemoteFunction,), (self.original, self._options, isinstance(self._package, Kept))

    def __setstate__(self, state: tuple[Callable[P, R], Options, bool]) -> None:
        original, options, keep = state
        RemoteFunction.__init__(self, original, options)
        if keep and isinstance(self._package, Package):
            self._package = Kept(self._package)


class RemoteMethod(_Generic[P, R]):
    """A remote function taken from an instance, which becomes its first argument and so travels with each call."""

    def __init__(self, function: RemoteFunction[..., R], instance: object) -> None:
        self._function = function
        self._instance = instance

    @property
    def original(self) -> Callable[P, R]:
        """The plain bound method."""
        from types import MethodType

        return MethodType(self._function.original, self._instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(self._instance, *args, **kwargs)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """See `RemoteFunction.submit`."""
        return self._function.submit(self._instance, *args, **kwargs)

    async def submit_async(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """See `RemoteFunction.submit_async`."""
        return await self._function.submit_async(self._instance, *args, **kwargs)

    def map(self, items: Iterable[Any], *, chunksize: int | None = None, progress: bool = False) -> list[R]:
        """See `RemoteFunction.map`."""
        return self._shared().map(items, chunksize=chunksize, progress=progress)

    def starmap(
        self, items: Iterable[Iterable[Any]], *, chunksize: int | None = None, progress: bool = False
    ) -> list[R]:
        """See `RemoteFunction.starmap`."""
        return self._shared().starmap(items, chunksize=chunksize, progress=progress)

    def imap(self, items: Iterable[Any], chunksize: int = 1, lookahead: int | None = None) -> Iterator[R]:
        """See `RemoteFunction.imap`."""
        return self._shared().imap(items, chunksize, lookahead)

    def imap_unordered(self, items: Iterable[Any], chunksize: int = 1, lookahead: int | None = None) -> Iterator[R]:
        """See `RemoteFunction.imap_unordered`."""
        return self._shared().imap_unordered(items, chunksize, lookahead)

    def options(self, **options: Unpack[CallOptions]) -> RemoteMethod[P, R]:
        """See `RemoteFunction.options`."""
        return RemoteMethod(self._function.options(**options), self._instance)

    def _shared(self) -> RemoteFunction[..., R]:
        """A function with the instance inside, so that a map sends the instance once and not with each item."""
        function = self._function
        return RemoteFunction(self.original, function._options, cluster=function._cluster)

    def __repr__(self) -> str:
        return f"<paceline.RemoteMethod {self._function.__qualname__} of {self._instance!r}>"


@overload
def remote(kind: type[S], /) -> ActorClass[S]: ...  # type: ignore[overload-overlap]
@overload
def remote(function: Callable[P, R], /) -> RemoteFunction[P, R]: ...  # noqa: F811
@overload
def remote(**options: Unpack[Options]) -> Decorator: ...  # noqa: F811
@overload
def remote(**options: Unpack[ActorOptions]) -> ClassDecorator: ...  # noqa: F811
def remote(function: Any = None, /, **options: Any) -> Any:  # noqa: F811
    """Make a function remote: calling it runs it in a slot of the current cluster. Of a class it makes actors: its
    objects live in slots (see `ActorClass`).

    `cpus` is how much of a node it takes; `gpus` (a fraction of one, or whole ones), `memory` (bytes, or "2GB") and
    `resources`, a dict of what users have given nodes by name, likewise. `placement` says which nodes ("pack",
    "spread" or a `Placement`), `min_gpu_memory` which GPUs. What fits nowhere fails at once with `NoResources`; what
    finds no room waits, at most `wait` seconds if that is given.

    A task that takes more than its `memory`, with all it has started, is ended (`OutOfMemory`). `retries` is how often
    it runs again for the causes in `retry_on`: `"slot"` and `"node"` (the process or machine was lost; these two by
    default), `"timeout"`, `"error"` for its own exceptions, and `"memory"` for having taken too much. `timeout` is how
    many seconds one run may take. `priority` puts it before others (higher goes first). `env` are variables of the
    environment, set before anything of yours is imported: tasks with other variables run in processes of their own.
    For a class there are `name`, `detached`, `restarts` and `concurrency` instead of the options about running again
    (see `ActorClass.options`).

    >>> import paceline as pl
    >>> @pl.remote(retries=0)
    ... def hypotenuse(a, b):
    ...     return (a * a + b * b) ** 0.5
    >>> with pl.connect(cpus=1):
    ...     hypotenuse(3, 4)
    5.0
    """
    if function is None:
        if FOR_CLASSES.isdisjoint(options):
            _checked({**DEFAULTS, **options})  # here, where the mistake is, and not where it is used
        return lambda function: _decorated(function, options)
    return _decorated(function, options)


def _decorated(function: Any, given: dict[str, Any]) -> Any:
    function = rebuild.plain_class(function)
    if isinstance(function, type):
        from paceline._actor_class import decorated

        return decorated(function, given)
    for name in FOR_CLASSES.intersection(given):
        raise TypeError(f"{name} is for classes, whose objects are actors; {name_of(function)} is none")
    options = _checked({**DEFAULTS, **given})
    if isinstance(function, RemoteFunction):
        return RemoteFunction(function.original, options, package=function._package)
    if isinstance(function, (staticmethod, classmethod)):
        raise TypeError(f"put @remote below @{type(function).__name__}, directly on the function")
    if not callable(function):
        raise TypeError(f"remote takes a function, not a {type(function).__name__}")
    return RemoteFunction(function, options)


def _later(
    function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], error: ArgumentNotSerializable
) -> Future[Any]:
    """Arguments that cannot be sent may wait for other tasks."""
    from paceline._inputs import later

    return later(function, args, kwargs, error)


def _package(original: Any) -> Package | ExportedPackage:
    # What stands for a function of another program knows how to ship it.
    made: Package | ExportedPackage = getattr(type(original), "package", Package)(original)
    return made


def _checked(options: dict[str, Any]) -> Options:
    """The options as the core wants them. Raises `TypeError` or `ValueError` naming the one that is wrong."""
    for name in options:
        if name not in DEFAULTS:
            known = ", ".join(DEFAULTS)
            raise TypeError(f"unknown option {name!r}: there are {known}")
    cpus = options["cpus"]
    if isinstance(cpus, bool) or not hasattr(cpus, "__float__"):
        raise TypeError(f"cpus must be a number, not {type(cpus).__name__}")
    if not 0 <= cpus < float("inf"):
        raise ValueError(f"cpus must be a number from zero up: {cpus}")
    gpus, memory, resources, placement = _needs(options)
    return {
        "cpus": float(cpus),
        "gpus": gpus,
        "memory": memory,
        "resources": resources,
        "placement": placement,
        "min_gpu_memory": options["min_gpu_memory"],
        "wait": _seconds(options["wait"], "wait"),
        "retries": whole_number("retries", options["retries"], least=0),
        "retry_on": _causes(options["retry_on"]),
        "timeout": _seconds(options["timeout"]),
        "priority": whole_number("priority", options["priority"]),
        "env": _cluster.checked_variables(options["env"]) or None,
    }


def _causes(causes: Any) -> tuple[str, ...]:
    if isinstance(causes, str):
        causes = (causes,)
    checked: tuple[str, ...] = tuple(causes)
    for cause in checked:
        if cause not in CAUSES:
            raise ValueError(f"retry_on has an unknown cause {cause!r}: there are {', '.join(CAUSES)}")
    return checked


def _seconds(seconds: Any, name: str = "timeout") -> float | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not hasattr(seconds, "__float__"):
        raise TypeError(f"{name} must be a number of seconds, not {type(seconds).__name__}")
    if not 0 < seconds < float("inf"):
        raise ValueError(f"{name} must be more than zero seconds: {seconds}")
    return float(seconds)


def _needs(options: dict[str, Any]) -> tuple[float, Any, Any, Any]:
    """GPUs, memory, custom resources and placement, checked. Whoever asks for CPUs only does not wait for an import."""
    names = ("gpus", "memory", "resources", "placement", "min_gpu_memory")
    if not any(options[name] for name in names):
        return 0.0, None, None, None
    from paceline._placement import amount_of_bytes, custom_resources, number_of_gpus, rule_of

    rule_of(options["placement"], amount_of_bytes("min_gpu_memory", options["min_gpu_memory"]))
    memory = amount_of_bytes("memory", options["memory"])
    resources = dict(custom_resources(options["resources"]))
    return number_of_gpus(options["gpus"]), memory or None, resources or None, options["placement"]


def shipped(options: Options) -> dict[str, Any]:
    """The options as the core takes them, all hashable."""
    plain: dict[str, Any] = dict(options)
    gpu_memory, placement = plain.pop("min_gpu_memory"), plain["placement"]
    variables = plain.pop("env")
    if variables:
        plain["env"] = tuple(sorted(variables.items()))
    plain["memory"] = plain["memory"] or 0
    plain["resources"] = tuple((plain["resources"] or {}).items())
    if placement is not None or gpu_memory is not None:
        from paceline._placement import amount_of_bytes, rule_of

        plain["placement"] = rule_of(placement, amount_of_bytes("min_gpu_memory", gpu_memory))
    return plain


def slot_needs(shipped: dict[str, Any]) -> dict[str, Any]:
    """What each slot has, of options as the core takes them: all that a pool or a group has to know."""
    names = ("cpus", "gpus", "memory", "resources", "placement", "env")
    return {name: shipped[name] for name in names if name in shipped}


def _never() -> bool:
    return False


_NOT_SHIPPED: Any = (None, _never, None)

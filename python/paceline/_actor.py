"""Actors: objects that live in slots, and what stands for them here.

Owns: `Actor`, its methods, `destroy` and `get_actor`. Does not own: where the object lives (`_actor_home`) and how
one is made (`_actor_class`).

* AC-1: what the class defines as callable is a method; any other name is read from the object, in order with the
  caller's calls.
* AC-2: names that begin with two underscores never go to the object, and `_pl_` is the proxy's own; every other name
  is the user's.
"""

from __future__ import annotations

from collections import deque

from paceline import _room
from paceline._actor_home import STREAM
from paceline._checks import whole_number
from paceline._remote import LOOKAHEAD, _Generic
from paceline._slot import objects

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, NoReturn, ParamSpec, TypeVar

    from paceline._actor_home import Home
    from paceline._cluster import Cluster
    from paceline._future import Future
    from paceline._native import Function
    from paceline._stream import Stream

    P = ParamSpec("P")
    R = TypeVar("R")
    T = TypeVar("T")

    class _Typed(_Generic[..., T]): ...
else:
    P = R = T = None
    _Typed = _Generic


class Actor(_Typed[T]):
    """Stands for an object that lives in a slot. Made by calling a class that `remote` decorates.

    Its methods are those of the class: calling one runs it there and returns its value; `submit` returns a future, and
    many may be under way. Other attributes are read and written there, too. When the last proxy of its maker is gone,
    the object ends with its last call.

    >>> import paceline as pl
    >>> @pl.remote
    ... class Counter:
    ...     def __init__(self, start=0):
    ...         self.count = start
    ...     def add(self, step):
    ...         self.count += step
    ...         return self.count
    >>> with pl.connect(cpus=1):
    ...     counter = Counter(start=10)
    ...     counter.add(1), counter.add.submit(5).result(), counter.count
    (11, 16, 16)
    """

    _pl_home: Home

    def __init__(self, home: Home) -> None:
        object.__setattr__(self, "_pl_home", home)

    def __getattr__(self, name: str) -> Any:
        # Only names that are not here yet: methods stay in `__dict__` once they were used.
        if name.startswith(("__", "_pl_")):
            raise AttributeError(f"{name!r} does not go to the object: it begins with {name[:2]!r}")
        home = self._pl_home
        kind = home.about.methods.get(name)
        if kind is not None:
            method = home.method(name, kind)
            self.__dict__[name] = method
            return method
        if name.startswith(("_repr_", "_ipython_")) and name.endswith("_"):
            raise AttributeError(name)  # a notebook asks everything it shows, and the object may be busy
        return home.call(objects.GET, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._pl_home.call(objects.SET, _settable(name), value)

    def __delattr__(self, name: str) -> None:
        self._pl_home.call(objects.DELETE, _settable(name))

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self._pl_home.about.methods})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Actor) and other._pl_home.identity == self._pl_home.identity

    def __hash__(self) -> int:
        return hash(self._pl_home.identity)

    def __repr__(self) -> str:
        home = self._pl_home
        return f"<paceline.Actor {home.about.name}: {home.where()}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _found, self._pl_home.share()


def _settable(name: str) -> str:
    if name.startswith("_pl_"):
        raise AttributeError(f"{name!r} cannot be set: names that begin with _pl_ are reserved")
    if name.startswith("__"):
        raise AttributeError(f"{name!r} cannot be set: names that begin with two underscores do not go to the object")
    return name


def _found(*shared: Any) -> Actor[Any]:
    from paceline._actor_home import visit

    return Actor(visit(*shared))


class Method(_Generic[P, R]):
    """A method of an actor."""

    def __init__(self, home: Home, name: str, function: Function) -> None:
        self._home = home
        self._name = name
        self._function = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the method in the actor's slot and return its value."""
        if self._home.ended is not None:
            raise self._home.gone()
        value: R = self._function.call(args, kwargs)
        return value

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Start the method and return its future. Calls begin in the order in which they were submitted."""
        if self._home.ended is not None:
            raise self._home.gone()
        return self._function.submit(args, kwargs)

    async def submit_async(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """As `submit`, for coroutines: while the queue is full, it waits without stopping the event loop."""
        if self._home.ended is not None:
            raise self._home.gone()
        future, gate = self._function.offer(args, kwargs)
        if gate is None:
            await _room.turn()
        else:
            await _room.passed(gate)
        return future

    def map(self, items: Iterable[Any], *, chunksize: int | None = None) -> list[R]:
        """Call the method with each item, and return the values in the order of the items."""
        return self._map(items, False, chunksize)

    def starmap(self, items: Iterable[Iterable[Any]], *, chunksize: int | None = None) -> list[R]:
        """As `map`, where each item is the tuple of all arguments."""
        return self._map(items, True, chunksize)

    def imap(self, items: Iterable[Any], lookahead: int = LOOKAHEAD) -> Iterator[R]:
        """As `map`, but lazily: at most `lookahead` items are taken beyond the values that were read."""
        lookahead = whole_number("lookahead", lookahead, least=1)
        return self._each(((item,) for item in items), lookahead)

    def options(self, *, timeout: float | None = None, priority: int = 0) -> Method[P, R]:
        """The same method with a limit to how long one call may take, or another priority among calls that wait."""
        home = self._home
        return type(self)(home, self._name, home.function(self._name, timeout=timeout, priority=priority))

    def _map(self, items: Iterable[Any], star: bool, chunksize: int | None) -> list[R]:
        if chunksize is not None:
            chunksize = whole_number("chunksize", chunksize, least=1)
        if self._home.ended is not None:
            raise self._home.gone()
        if not self._home.about.overlaps:
            return self._function.map(items, star, chunksize, None)
        # Each call is one of its own there, so that they overlap.
        return list(self._each((tuple(item) if star else (item,) for item in items), LOOKAHEAD))

    def _each(self, calls: Iterator[tuple[Any, ...]], lookahead: int) -> Iterator[R]:
        under_way: deque[Future[R]] = deque()
        for args in calls:
            if len(under_way) >= lookahead:
                yield under_way.popleft().result()
            under_way.append(self.submit(*args))  # type: ignore[call-arg]
        while under_way:
            yield under_way.popleft().result()

    def __repr__(self) -> str:
        return f"<paceline.Method {self._name} of {self._home.about.name}>"


class SavedMethod(Method[P, R]):
    """A method of an actor whose state is saved after calls."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        value = super().__call__(*args, **kwargs)
        self._home.changed()
        return value

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        future = super().submit(*args, **kwargs)
        self._home.changed()
        return future


class StreamMethod:
    """A method of an actor that is a generator: calling it gives an iterator over its values, as they come.

    >>> import paceline as pl
    >>> @pl.remote
    ... class Source:
    ...     def numbers(self, count):
    ...         yield from range(count)
    >>> with pl.connect(cpus=1):
    ...     list(Source().numbers(3))
    [0, 1, 2]
    """

    def __init__(self, home: Home, name: str) -> None:
        self._home = home
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Stream[Any]:
        from paceline._stream import Stream

        if self._home.ended is not None:
            raise self._home.gone()
        return Stream(self._home, self._name, args, kwargs)

    def submit(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            f"{self._name} is a generator: call it, and the values come as it yields them; it has no single result"
        )

    def __repr__(self) -> str:
        return f"<paceline.StreamMethod {self._name} of {self._home.about.name}>"


def made(home: Home, name: str, kind: str) -> Any:
    """The method of this name."""
    if kind == STREAM:
        return StreamMethod(home, name)
    made_as: Callable[..., Any] = SavedMethod if home.saves else Method
    return made_as(home, name, home.function(name))


def destroy(actor: Actor[Any]) -> None:
    """End an actor now: its process ends, and what waited for it is cancelled. Harmless when repeated.

    >>> import paceline as pl
    >>> @pl.remote
    ... class Empty: ...
    >>> with pl.connect(cpus=1):
    ...     pl.destroy(Empty())
    """
    if not isinstance(actor, Actor):
        raise TypeError(f"destroy takes an actor, not a {type(actor).__name__}")
    actor._pl_home.destroy()


def get_actor(name: str, *, cluster: Cluster | None = None) -> Actor[Any]:
    """The actor of this name, which this or another program of the cluster has made. Raises `NoSuchActor`.

    >>> import paceline as pl
    >>> @pl.remote
    ... class Box:
    ...     def put(self, value):
    ...         self.value = value
    >>> with pl.connect(cpus=1):
    ...     box = Box.options(name="box")()
    ...     box.put(7)
    ...     pl.get_actor("box").value
    7
    """
    from paceline._actor_home import find

    if not isinstance(name, str):
        raise TypeError(f"the name of an actor is text, not {type(name).__name__}")
    return Actor(find(name, cluster))

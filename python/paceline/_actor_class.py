"""Classes whose objects are actors.

Owns: `ActorClass`, what its options mean, and how an actor is made. `_actor` is what comes out of it.

* AK-1: the constructor's arguments are the user's alone: options only come by `remote` and `options`.
* AK-2: making an actor waits for its constructor, and raises what that raises; one that is interrupted made none.
* AK-3: a name is had before the constructor is sent: an actor that is refused for its name has run nothing.
"""

from __future__ import annotations

import concurrent.futures
import os

from paceline import _cluster, _remote
from paceline._actor import Actor
from paceline._actor_home import CALL, NoHome, OwnHome, SavedHome, about, told
from paceline._checks import whole_number
from paceline._functions import Package, name_of
from paceline._remote import _Generic
from paceline._slot import CONSTRUCTOR, objects, rebuild
from paceline.errors import ActorDied, ActorRefused, NoResources, PoolBroken

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from typing import Any, TypedDict, TypeVar, Unpack

    from paceline._actor_home import Home
    from paceline._cluster import Cluster
    from paceline._future import Future
    from paceline._native import Session
    from paceline._placement import Placement

    T = TypeVar("T")

    class _Typed(_Generic[..., T]): ...

    class ActorOptions(TypedDict, total=False):
        """What `remote` takes for a class, and `options`."""

        cpus: float
        gpus: float
        memory: int | str | None
        resources: Mapping[str, float] | None
        placement: str | Placement | None
        min_gpu_memory: int | str | None
        wait: float | None
        timeout: float | None
        env: Mapping[str, str] | None
        name: str | None
        detached: bool
        restarts: int
        concurrency: int
        cluster: Cluster | None
else:
    T = None
    _Typed = _Generic

OWN: dict[str, Any] = {"name": None, "detached": False, "restarts": 0, "concurrency": 1, "cluster": None}
COMMON = ("cpus", "gpus", "memory", "resources", "placement", "min_gpu_memory", "wait", "timeout", "env")


class ActorClass(_Typed[T]):
    """A class whose objects live in slots. Made by `remote`; calling it makes an object, and gives its `Actor`.

    >>> import paceline as pl
    >>> @pl.remote
    ... class Greeter:
    ...     def __init__(self, greeting):
    ...         self.greeting = greeting
    ...     def greet(self, name):
    ...         return f"{self.greeting}, {name}"
    >>> with pl.connect(cpus=1):
    ...     Greeter("hello").greet("world"), Greeter.original("hi").greet("here")
    ('hello, world', 'hi, here')
    """

    original: type[T]
    """The plain class: calling it makes an object here."""

    def __init__(self, original: type[T], options: dict[str, Any], package: Package | None = None) -> None:
        self.original = original
        self.__name__, self.__qualname__ = original.__name__, original.__qualname__
        self.__module__, self.__doc__ = original.__module__, original.__doc__
        self._options = options
        self._about = about(original, options["concurrency"])
        self._package = package or Package(original)

    def __call__(self, *args: Any, **kwargs: Any) -> Actor[T]:
        """Make an object in a slot. Waits for its constructor, and raises what that raises."""
        if _cluster._importing():
            return Actor(NoHome(self._about))
        home = self._begin(args, kwargs)
        try:
            self._awaited(home).call((), {})
            return Actor(home)
        except (PoolBroken, ActorDied) as broken:
            error = _cause(broken)
        except BaseException as stopped:
            # Nobody here has it then; a detached one would come all the same, and keep its name.
            if self._options["detached"] and (isinstance(stopped, NoResources) or not isinstance(stopped, Exception)):
                home.destroy()
            raise
        raise error

    def submit(self, *args: Any, **kwargs: Any) -> ActorFuture[T]:
        """As a call, without waiting: a future of the actor.

        >>> import paceline as pl
        >>> @pl.remote
        ... class Slow: ...
        >>> with pl.connect(cpus=1):
        ...     Slow.submit().result()  # doctest: +ELLIPSIS
        <paceline.Actor Slow: ...>
        """
        home = self._begin(args, kwargs)
        return ActorFuture(Actor(home), self._awaited(home).submit((), {}))

    def options(self, **options: Unpack[ActorOptions]) -> ActorClass[T]:
        """The same class with other options for its objects.

        Besides those of `remote`: `name`, by which other programs of the cluster find it (`get_actor`); `detached`, so
        that it outlives this program; `restarts`, how often it is built anew after its process died; `concurrency`,
        how many of its calls may run at the same time; and `cluster`.

        >>> import paceline as pl
        >>> @pl.remote
        ... class Light: ...
        >>> with pl.connect(cpus=1):
        ...     actors = [Light.options(cpus=0)() for _ in range(3)]
        """
        return ActorClass(self.original, checked({**self._options, **options}), self._package)

    def _begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Home:
        options = self._options
        cluster = options["cluster"] or _cluster.current()
        session = cluster._connected()
        cluster._refresh()
        name = name_of(self.original)
        payload = CONSTRUCTOR + str(options["concurrency"]).encode() + b"\0" + self._package.payload()
        if options["detached"]:
            return self._detached(session, payload, name, args, kwargs)
        shipped = _remote.shipped(_remote._checked({**_remote.DEFAULTS, **_common(options)}))
        needs = _remote.slot_needs(shipped)
        identity = os.urandom(16)
        named = options["name"] is not None
        try:
            if named:
                card = told(self._about, options["timeout"])
                session.claim_actor(identity, name=options["name"], about=card)
            pool = session.pool(1, eager=True, once=True, identity=identity, restarts=options["restarts"], **needs)
            pool.prepare(payload, name, args, kwargs)
            kind = SavedHome if self._about.saves and options["restarts"] else OwnHome
            return kind(session, pool, self._about, identity, options["timeout"], named)
        except ActorRefused:
            raise  # it has no name, or has been ended
        except BaseException:
            if named:
                session.actor_gone(identity, "it was not made")
            raise

    def _detached(
        self, session: Session, payload: bytes, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Home:
        from paceline import _detached
        from paceline._actor_home import visit

        options = self._options
        identity = _detached.create(
            session, payload, name, args, kwargs, options, told(self._about, options["timeout"])
        )
        return visit(identity, tuple(self._about), options["timeout"])

    def _awaited(self, home: Home) -> Any:
        """A call that ends as soon as the object is there."""
        return home.function(objects.PING, **{**CALL, "wait": self._options["wait"]})

    def __getattr__(self, name: str) -> Any:
        # Constants and class methods of the class, here.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.original, name)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (self.original,)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self.original)

    def __repr__(self) -> str:
        return f"<paceline.ActorClass {self.__module__}.{self.__qualname__}>"

    def __reduce__(self) -> tuple[Any, ...]:
        from paceline import _names

        reference = (self.__module__, self.__qualname__)
        if _names.lookup(*reference) is self and _names.importable(self.__module__):
            return rebuild.found, reference
        # In two steps, because methods of the class may well name this very object.
        return object.__new__, (ActorClass,), (self.original, {**self._options, "cluster": None})

    def __setstate__(self, state: tuple[type[T], dict[str, Any]]) -> None:
        ActorClass.__init__(self, *state)


class ActorFuture(concurrent.futures.Future[T]):
    """An actor that is being made. A `concurrent.futures.Future` of the `Actor`, and can be awaited."""

    def __init__(self, actor: Actor[Any], made: Future[Any]) -> None:
        super().__init__()
        self._made = made
        made.add_done_callback(lambda made: self._settle(actor, made))

    def _settle(self, actor: Actor[Any], made: Any) -> None:
        try:
            made.result()
        except (PoolBroken, ActorDied) as broken:
            self.set_exception(_cause(broken))
        except BaseException as error:
            self.set_exception(error)
        else:
            self.set_result(actor)  # type: ignore[arg-type]

    def __await__(self) -> Generator[Any, None, T]:
        import asyncio

        return asyncio.wrap_future(self).__await__()


def _cause(broken: PoolBroken | ActorDied) -> BaseException:
    """What the constructor raised, if that is what broke it; of a detached actor it is the cause."""
    error = broken.error if isinstance(broken, PoolBroken) else broken.__cause__
    return error if error is not None else broken


def decorated(kind: type, options: dict[str, Any]) -> ActorClass[Any]:
    """What `remote` makes of a class."""
    return ActorClass(kind, checked({**{name: _remote.DEFAULTS[name] for name in COMMON}, **OWN, **options}))  # type: ignore[literal-required]


def _common(options: dict[str, Any]) -> dict[str, Any]:
    return {name: options[name] for name in COMMON}


def checked(options: dict[str, Any]) -> dict[str, Any]:
    """The options, or a `TypeError` or `ValueError` that names the one that is wrong."""
    for name in options:
        if name in ("retries", "retry_on", "priority"):
            raise TypeError(
                f"{name} is for functions: a call of an actor runs at most once and in order; restarts= has the object "
                "built anew after its process died"
            )
        if name not in OWN and name not in COMMON:
            raise TypeError(f"unknown option {name!r}: there are {', '.join((*COMMON, *OWN))}")
    common = _remote._checked({**_remote.DEFAULTS, **_common(options)})
    name, cluster = options["name"], options["cluster"]
    if name is not None and (not isinstance(name, str) or not name):
        raise TypeError(f"the name of an actor is text, not {name!r}")
    if options["detached"] and name is None:
        raise ValueError("a detached actor needs a name, or nobody could find it: options(name=..., detached=True)")
    if cluster is not None and not isinstance(cluster, _cluster.Cluster):
        raise TypeError(f"cluster must be a Cluster, not {type(cluster).__name__}")
    return {
        **_common(dict(common)),
        "name": name,
        "detached": bool(options["detached"]),
        "restarts": whole_number("restarts", options["restarts"], least=0),
        "concurrency": whole_number("concurrency", options["concurrency"], least=1),
        "cluster": cluster,
    }

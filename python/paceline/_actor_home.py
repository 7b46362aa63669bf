"""Where an actor lives, as this process knows it.

Owns: the pool of one slot that an actor of our own is, or our visit to one of somebody else's; what its class has;
its end; and the checkpoints that a restarted one begins with. `_actor` puts the user's face on it.

* AH-1: an actor of our own ends when nothing here refers to its home any more, after the calls that were submitted.
* AH-2: at most one checkpoint is under way, however many calls there are, and a restarted object begins with the last
  one that arrived.
"""

from __future__ import annotations

import _thread
from _weakref import ref

from paceline import _cluster, errors
from paceline._slot import METHOD, objects

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NamedTuple, TypeVar

    from paceline._cluster import Cluster
    from paceline._future import Future
    from paceline._native import Function, Pool, Session

    T = TypeVar("T")
else:
    from collections import namedtuple

# Kinds of methods.
PLAIN, STREAM = "plain", "stream"
GENERATOR = 0x20
ASYNC_GENERATOR = 0x200

CALL: dict[str, Any] = {"wait": None, "retries": 0, "retry_on": (), "timeout": None, "priority": 0}
CHECKPOINT = b"checkpoint"

# How long an actor that is about to come back is waited for, in seconds.
COMES_WITHIN = 10.0

# What the card of an actor begins with whose owner is a Rust program.
OF_RUST = b"R"

if TYPE_CHECKING:

    class About(NamedTuple):
        """What a proxy must know of a class, also where the class is not."""

        name: str
        methods: dict[str, str]
        overlaps: bool
        saves: bool

else:
    About = namedtuple("About", ("name", "methods", "overlaps", "saves"))


def about(kind: type, concurrency: int) -> About:
    """What a class has."""
    methods: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        for name, value in vars(base).items():
            if name.startswith("_pl_"):
                raise TypeError(f"{kind.__qualname__}.{name} cannot be remote: names that begin with _pl_ are reserved")
            methods.pop(name, None)  # what a subclass defines as something else is no method
            function = getattr(value, "__func__", value)  # static and class methods
            if not name.startswith("__") and callable(function):
                methods[name] = _kind(function)
    saves = hasattr(kind, "__checkpoint__")
    if saves != hasattr(kind, "__restore__"):
        raise TypeError(f"{kind.__qualname__} has one of __checkpoint__ and __restore__, and needs both or none")
    return About(kind.__qualname__, methods, concurrency > 1 or objects.is_asynchronous(kind), saves)


def _kind(function: Any) -> str:
    code = getattr(function, "__code__", None)
    return STREAM if code is not None and code.co_flags & (GENERATOR | ASYNC_GENERATOR) else PLAIN


class Home:
    """An actor's slot. `source` makes functions that run there: a pool of our own, or a visit."""

    ended: str | None = None
    """Why no more calls can be made, if so."""

    saves = False

    def __init__(self, session: Session, source: Any, about: About, identity: bytes, timeout: float | None) -> None:
        self.session = session
        self.source = source
        self.about = about
        self.identity = identity
        self.timeout = timeout
        self._functions: dict[str, Function] = {}

    def function(self, name: str, **options: Any) -> Function:
        """A method, or one of the special names of `_slot.objects`, to call."""
        if options:
            return self._made(name, options)
        found = self._functions.get(name)
        if found is None:
            found = self._functions[name] = self._made(name, {"timeout": self.timeout} if name[0] != "." else {})
        return found

    def _made(self, name: str, options: dict[str, Any]) -> Function:
        payload = METHOD + f"{self.about.name}\0{name}".encode()
        shown = f"{self.about.name}.{name.removeprefix('.')}"
        function: Function = self.source.function(payload, shown, **{**CALL, **options})
        return function

    def method(self, name: str, kind: str) -> Any:
        from paceline._actor import made

        return made(self, name, kind)

    def call(self, name: str, *args: Any) -> Any:
        if self.ended is not None:
            raise self.gone()
        return self.function(name).call(args, {})

    def submit(self, name: str, *args: Any) -> Future[Any]:
        if self.ended is not None:
            raise self.gone()
        return self.function(name).submit(args, {})

    def changed(self) -> None:
        """A call may have changed the object."""

    def gone(self) -> errors.PacelineError:
        """The error for calls after the end."""
        return errors.ActorDied(function=self.about.name, why=self.ended or "it has ended", ran=False)

    def where(self) -> str:
        return self.ended or "elsewhere"

    def share(self) -> tuple[Any, ...]:
        """What another process needs to visit the actor."""
        return self.identity, tuple(self.about), self.timeout

    def destroy(self) -> None:
        if self.ended is None:
            self.session.actor_gone(self.identity, "it was destroyed")
            self.ended = "it was destroyed"


class OwnHome(Home):
    """An actor that this process has made: a pool of one slot."""

    source: Pool

    def __init__(
        self, session: Session, pool: Pool, about: About, identity: bytes, timeout: float | None, named: bool
    ) -> None:
        super().__init__(session, pool, about, identity, timeout)
        _own[identity] = ref(self)
        self._shared = False
        self._lock = _thread.allocate_lock()
        self._saving = self._dirty = False
        if named:
            pool.host(identity)
            self._shared = True

    def _tell(self) -> None:
        """Let the cluster know where the actor is, so that others can visit it."""
        self.source.host(self.identity, about=told(self.about, self.timeout))
        self._shared = True

    def share(self) -> tuple[Any, ...]:
        if not self._shared:
            self._tell()
        return super().share()

    def where(self) -> str:
        if self.ended is not None:
            return self.ended
        if self.source.closed:
            return "it has ended"
        for node, slot, _ in self.source.places():
            return f"slot {slot} of {node}"
        return "starting"

    def destroy(self) -> None:
        self.ended = self.ended or "it was destroyed"
        self.source.close()

    def __del__(self) -> None:
        # Nobody can call it any more: what was submitted still runs (AH-1).
        _own.pop(self.identity, None)
        if self.ended is None:
            self.source.finish()


class SavedHome(OwnHome):
    """As `OwnHome`, for an object that is rebuilt from checkpoints."""

    saves = True

    def changed(self) -> None:
        with self._lock:
            self._dirty = self._saving
            if self._saving:
                return
            self._saving = True
        self._save()

    def _save(self) -> None:
        try:
            future = self.function(objects.CHECKPOINT).submit((), {})
        except errors.PacelineError:
            # No room for it now: the next call tries again.
            with self._lock:
                self._saving = False
            return
        future.add_done_callback(self._saved)

    def _saved(self, future: Any) -> None:
        try:
            state = future.result()
            payload = METHOD + f"{self.about.name}\0{objects.RESTORE}".encode()
            self.source.update(payload, f"{self.about.name}.__restore__", (state,), {}, replaces=CHECKPOINT)
        except BaseException as error:
            if not isinstance(error, (errors.ActorDied, errors.ClusterClosed)) and self.ended is None:
                _complain(self.about.name, error)
        with self._lock:
            again, self._dirty = self._dirty, False
            self._saving = again
        if again:
            self._save()


def _complain(name: str, error: BaseException) -> None:
    import sys

    print(f"paceline: no checkpoint of {name}: {type(error).__name__}: {error}", file=sys.stderr)


class NoHome(Home):
    """An actor that a module made while a slot imported it. Every slot would make one, so none is there."""

    def __init__(self, about: About) -> None:
        self.about = about
        self.identity = b""
        self.ended = "it was made by a module while a slot imported it, where nothing remote happens"

    def share(self) -> tuple[Any, ...]:
        raise self.gone()

    def destroy(self) -> None:
        pass


# Actors that this process has made: who gets one back calls it as before, in order with its other calls.
_own: dict[bytes, ref[OwnHome]] = {}


def visit(identity: bytes, about: tuple[Any, ...], timeout: float | None, session: Session | None = None) -> Home:
    """An actor that another process has made, or this one."""
    known = _own.get(identity)
    home = known() if known is not None else None
    if home is not None and not home.session.closed:
        return home
    session = session or _cluster.current()._connected()
    return Home(session, session.visit(identity), About(*about), identity, timeout)


def told(about: About, timeout: float | None) -> bytes:
    """What others are told of an actor that has a name."""
    import _pickle

    return _pickle.dumps((tuple(about), timeout))


def look_for(session: Session, name: str, within: float, must: bool = False) -> tuple[bytes, bytes] | None:
    """The actor of this name, as the head knows it. One that is about to come is waited for, for so long; `must` raises
    `ActorUnavailable` if it has not come then."""
    found = asked(session, name, session.find_actor, within)
    if found is None and must:
        if asked(session, name, session.actor_comes):
            why = "it is being started, or its owner has not come back yet"
            raise errors.ActorUnavailable(function=f"get_actor({name!r})", why=why)
        # It may have come between the two questions.
        found = asked(session, name, session.find_actor, 0.0)
    return found


def asked(session: Session, name: str, question: Callable[..., T], *more: Any) -> T:
    """What the head answers about the actor of this name."""
    from paceline._native import Unreached

    try:
        return question(name, *more)
    except Unreached as error:
        if session.closed:
            raise errors.ClusterClosed() from None
        address = _cluster.address_of(session)
        where = f"{address}: " if address else ""
        raise errors.ConnectionFailed(
            f"{where}the actor {name} cannot be looked for: {error.args[0]}",
            address=address,
            hint="is the head running and reachable? see paceline status; then try again",
        ) from None


def find(name: str, cluster: Cluster | None) -> Home:
    """The actor of this name."""
    import _pickle

    session = (cluster or _cluster.current())._connected()
    found = look_for(session, name, COMES_WITHIN, must=True)
    if found is None:
        raise errors.NoSuchActor(name, asked(session, name, session.why_actor_gone) or "")
    identity, card = found
    if card[:1] == OF_RUST:
        raise errors.ActorRefused(f"{name!r} is an actor of a Rust program, and only Rust programs can call it")
    known, timeout = _pickle.loads(card)
    return visit(identity, known, timeout, session)

"""One remote object as its proxy knows it. On what an actor is: a pool of one slot whose calls run once and in order.

Owns: that pool, the words in which its errors are told, and how long an object may wait for room.

* PL-1: an object ends with its first exception: its pool is closed, so that its slot is free, and whatever was
  asked after it fails without having run.
* PL-2: an argument that cannot be sent is no failure of the object.
"""

from __future__ import annotations

import os
import time
import weakref
from concurrent.futures import CancelledError

from paceline._functions import by_name, name_of
from paceline._remote import DEFAULTS, _checked, shipped
from paceline.compat.parl import _host
from paceline.compat.parl.remote.client import Client, get_global_client
from paceline.compat.parl.remote.exceptions import (
    DISCONNECTED,
    FutureFunctionError,
    FutureGetRepeatedlyError,
    FutureObjectEmpty,
    RemoteAttributeError,
    RemoteDeserializeError,
    RemoteError,
    RemoteSerializeError,
    ResourceError,
)
from paceline.compat.parl.utils import SerializeError, logger
from paceline.errors import (
    ArgumentNotSerializable,
    FunctionNotSerializable,
    NoResources,
    PacelineError,
    PoolBroken,
    RemoteTraceback,
    ResultNotSerializable,
    SerializationError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from paceline._cluster import Cluster
    from paceline._future import Future
    from paceline._native import Function, Pool

# How long an object may wait for room, how often that is said, and in how many tries it is counted.
PATIENCE = 300.0
EVERY = 30.0
MAX_N_GPU = 8
# How calls of a pool are made: as often as they say, and for as long as they take.
CALLS: dict[str, Any] = {"wait": None, "retries": 0, "retry_on": (), "timeout": None, "priority": 0}
# What an empty slot has: `max_memory` is counted from there.
START_MEMORY = 64_000_000


class Link:
    """The way from a proxy to its object."""

    def __init__(self, kind: type, options: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        client = get_global_client()
        n_gpu, memory = options["n_gpu"], options["max_memory"]
        _check_devices(client, n_gpu)
        needs: dict[str, Any] = {"cpus": 0 if n_gpu else 1, "gpus": n_gpu}
        if memory is not None:
            needs["memory"] = START_MEMORY + int(memory * 1_000_000)
        self._name = name_of(kind)
        self._attributes: frozenset[str] = frozenset()
        self._latest: Future[Any] | None = None
        self._failure: FutureFunctionError | None = None
        self._ended = False
        self._functions: dict[tuple[str, str], Function] = {}
        self._pool = _opened(client.cluster, needs)
        try:
            self._pool.prepare(_payload("build"), f"{self._name}.__init__", (kind, args, kwargs), {})
        except (ArgumentNotSerializable, FunctionNotSerializable) as error:
            self._pool.close()
            raise RemoteSerializeError("__init__", str(error)) from error
        with client.actor_num.get_lock():
            client.actor_num.value += 1
        self._finalizer = weakref.finalize(self, _let_go, self._pool, client, os.getpid())

    def wait_for_object(self) -> None:
        """Wait until the object is there. Raises what its constructor raised, or `ResourceError`."""
        future = self._submit("look", "__init__")
        until = time.monotonic() + PATIENCE
        while not _is_done(future, max(0.0, min(EVERY, until - time.monotonic()))):
            left = until - time.monotonic()
            if self._pool.places():
                until = time.monotonic() + PATIENCE  # it has its room, and its constructor may take its time
                continue
            if left <= 0:
                self.end()
                raise ResourceError()
            logger.warning("No vacant cpu/gpu resources at the moment, will try %d times later.", left)
        try:
            _, self._attributes = future.result()
        except NoResources as error:
            self.end()
            raise ResourceError() from error
        except BaseException as error:
            self._fail("__init__", error)

    def watch_object(self) -> None:
        """As `wait_for_object`, without waiting: whoever uses the object later is told."""
        look = self._pool.function(_payload("look"), f"{self._name}.__init__", **{**CALLS, "wait": PATIENCE})
        watch = weakref.ref(self)
        look.submit((), {}).add_done_callback(lambda future: _notice_object(watch(), future))

    def has(self, name: str) -> bool:
        """Whether the object is known to have an attribute of its own of this name."""
        return name in self._attributes

    def ask(self, what: str, *rest: Any) -> Future[Any]:
        """Let the host do something."""
        name = rest[0]
        if self._ended:
            raise RemoteError(name, DISCONNECTED)
        try:
            future = self._submit(what, *rest)
        except ArgumentNotSerializable as error:
            raise SerializeError(str(error)) from error
        except PacelineError as error:
            self._fail(name, error)
        self._latest = future
        return future

    def answer(self, name: str, future: Future[Any]) -> Any:
        """The value that was asked for. If it is an error, the object has ended."""
        try:
            value, self._attributes = future.result()
        except BaseException as error:
            if not future.done():
                raise  # Ctrl-C here, and not there
            self._fail(name, error)
        return value

    def catch_up(self, name: str) -> None:
        """Know the attributes that the object has after all that it was asked."""
        future = self._latest or self._submit("look", name)
        try:
            _, self._attributes = future.result()
        except BaseException as error:
            if not future.done():
                raise
            self.fail_later(name, error)
            self.raise_failure()

    def raise_failure(self) -> None:
        """Raise what an earlier call has failed with, for those who do not wait."""
        if self._failure is not None:
            raise self._failure
        if self._ended:
            raise RemoteError("destroy", DISCONNECTED)

    def fail_later(self, name: str, error: BaseException) -> FutureFunctionError:
        """Note a failure that nobody has waited for, once, and say it."""
        if self._failure is None:
            # Something before it has failed, and nobody has heard of that yet.
            if isinstance(error, _host.Ended):
                name = error.name
            elif isinstance(error, PoolBroken):
                name = "__init__"
            self._failure = FutureFunctionError(name)
            self._failure.__cause__ = error
            logger.error("%s", _told(name, error))
            self.end()
        return self._failure

    def end(self) -> None:
        """End the object and leave its slot. Harmless when repeated."""
        self._ended = True
        self._finalizer()

    def _submit(self, what: str, name: str, *rest: Any) -> Future[Any]:
        function = self._functions.get((what, name))
        if function is None:
            function = self._pool.function(_payload(what), f"{self._name}.{name}", **CALLS)
            self._functions[what, name] = function
        return function.submit(() if what == "look" else (name, *rest), {})

    def _fail(self, name: str, error: BaseException) -> NoReturn:
        self.end()
        raise _told(name, error) from error


class FutureObject:
    """The value of a call that may not have ended yet. It can be taken once."""

    def __init__(self, link: Link, name: str, future: Future[Any]) -> None:
        self._link = link
        self._name = name
        self._future = future
        self._is_taken = False
        # The object ends with the first failure, whether anybody asks for it or not. Not by a reference: a proxy that
        # is forgotten lets go of its object when no future is left.
        watch = weakref.ref(link)
        future.add_done_callback(lambda future: _notice(watch(), name, future))

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The value, once. Raises `FutureObjectEmpty` if it is not there (in time), and can then be asked again."""
        if timeout is not None:
            assert timeout > 0, "`timeout` must be larger than 0."
        if self._is_taken:
            raise FutureGetRepeatedlyError()
        if not _is_done(self._future, timeout if block else 0):
            raise FutureObjectEmpty()
        self._is_taken = True
        future, self._future = self._future, None  # type: ignore[assignment]
        try:
            value, self._link._attributes = future.result()
        except BaseException as error:
            failure = self._link.fail_later(self._name, error)
            raise FutureFunctionError(failure.func_name) from failure.__cause__
        return value

    def get_nowait(self) -> Any:
        """As `get(block=False)`."""
        return self.get(block=False)

    def empty(self) -> bool:
        """Whether the value is not there, or was taken."""
        return self._is_taken or not self._future.done()


def _notice(link: Link | None, name: str, future: Future[Any]) -> None:
    if link is not None and not link._ended:
        error = CancelledError() if future.cancelled() else future.exception()
        if error is not None:
            link.fail_later(name, error)


def _notice_object(link: Link | None, future: Future[Any]) -> None:
    # An object that has found its slot may take its time there.
    if link is None or future.cancelled():
        return
    if not (isinstance(future.exception(), NoResources) and link._pool.places()):
        _notice(link, "__init__", future)


def _is_done(future: Future[Any], timeout: float | None) -> bool:
    from paceline._waiting import wait

    return not wait([future], timeout=timeout).not_done


def _check_devices(client: Client, n_gpu: int) -> None:
    """Refuse at once what the cluster will never have. It may still grow, so one without workers refuses nothing."""
    if n_gpu > MAX_N_GPU:
        raise Exception(f"[Client] request {n_gpu} GPUs, but rejected.")
    cpus, gpus = client.devices()
    if n_gpu and cpus and not gpus:
        raise Exception("[Client] Request fails. It is not allowed to request GPU resource from a CPU cluster.")
    if not n_gpu and gpus and not cpus:
        raise Exception("[Client] Request fails. It is not allowed to request CPU resource from a GPU cluster.")


def _told(name: str, error: BaseException) -> RemoteError:
    """An error of a remote object, in PARL's words."""
    if isinstance(error, PoolBroken) and error.error is not None:
        return _told(name, error.error)
    if isinstance(error, NoResources):
        return RemoteError(name, f"{ResourceError()}\n{error}")
    if isinstance(error, ResultNotSerializable):
        return RemoteSerializeError(name, str(error))
    if isinstance(error, SerializationError):
        return RemoteDeserializeError(name, str(error))
    if isinstance(error, (PacelineError, CancelledError, _host.Ended)):
        return RemoteError(name, f"{DISCONNECTED}\n{error}" if str(error) else DISCONNECTED)
    if isinstance(error, AttributeError):
        return RemoteAttributeError(name, str(error))
    cause = error.__cause__
    trace = f"\ntraceback:\n{cause.text}" if isinstance(cause, RemoteTraceback) else ""
    return RemoteError(name, f"{error}{trace}")


def _let_go(pool: Pool, client: Client, process: int) -> None:
    if process != os.getpid():
        return  # a forked child has a copy of the proxy, and no say in what becomes of the object
    with client.actor_num.get_lock():
        client.actor_num.value -= 1
    pool.close()


def _opened(cluster: Cluster, needs: dict[str, Any]) -> Pool:
    needed = shipped(_checked({**DEFAULTS, **needs}))
    session = cluster._connected()
    cluster._refresh()
    parts = {name: needed[name] for name in ("cpus", "gpus", "memory", "resources", "placement")}
    return session.pool(1, eager=True, once=True, restarts=0, **parts)


def _payload(name: str) -> bytes:
    return by_name(_host.__name__, name)

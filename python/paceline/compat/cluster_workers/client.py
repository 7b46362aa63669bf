"""Clients of a master: jobs with ids, callbacks, and futures. On `Submitter` and plain tasks.

What a program observes is that of cluster-workers: `wait` raises `RemoteException` at the first failure, whose text is
the traceback of the job. What hung there does not here: a worker that is killed (its jobs run again), arguments that
cannot be sent (raised by `submit`, and the job does not count), a second `wait` after a failure.
"""

from __future__ import annotations

import concurrent.futures
import random
import threading
from typing import TYPE_CHECKING, Any

from paceline._cluster import connect
from paceline._remote import DEFAULTS
from paceline._submitter import Functions, Submitter
from paceline.compat._addresses import joined, key_here
from paceline.compat.cluster_workers.mp import NAME, PORT
from paceline.errors import PacelineError, RemoteTraceback

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import ParamSpec, Self, TypeVar

    from paceline._cluster import Cluster

    P = ParamSpec("P")
    R = TypeVar("R")


class RemoteException(Exception):
    """A job has failed. The text is its traceback, as it was printed where it ran; `error` is what it raised."""

    def __init__(self, text: str, error: BaseException | None = None) -> None:
        super().__init__(text)
        self.error = error

    def __str__(self) -> str:
        return str(self.args[0])


def randid() -> int:
    """An id that nobody else has: 128 random bits.

    >>> randid() != randid()
    True
    """
    return random.SystemRandom().getrandbits(128)


class BaseClientThread:
    """Calls `callback(jobid, success, result)` for each job that `start_job` has sent. If `success` is false, `result`
    is the traceback of the job."""

    def __init__(
        self, callback: Callable[[Any, bool, Any], object], host: str | None = None, port: int = PORT, **way_in: Any
    ) -> None:
        self.callback = callback
        self._where = (host, port, way_in)
        self._cluster: Cluster | None = None
        self._submitter: Submitter | None = None

    def start(self) -> None:
        """Connect to the master. Raises `paceline.ConnectionFailed` if there is none."""
        if self._submitter is None:
            host, port, way_in = self._where
            self._cluster = _connect(host, port, way_in)
            # All in flight are the callers' own to bound: nothing of theirs is kept here.
            self._submitter = Submitter(self._succeeded, on_error=self._failed, cluster=self._cluster)

    def start_job(self, jobid: Any, func: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Send one job."""
        self._started().submit(jobid, func, *args, **kwargs)

    def stop(self) -> None:
        """Leave the master. Jobs that have not ended are given up. Harmless when repeated."""
        if self._submitter is not None and self._cluster is not None:
            self._submitter.close()
            self._cluster.close()

    def join(self, timeout: float | None = None) -> None:
        """There is nothing to wait for after `stop`; here because threads have it."""

    def _started(self) -> Submitter:
        if self._submitter is None:
            raise PacelineError("the client has not been started", hint="call start(), or use it in a with statement")
        return self._submitter

    def _succeeded(self, jobid: Any, value: Any) -> None:
        self.callback(jobid, True, value)

    def _failed(self, jobid: Any, error: BaseException) -> None:
        self.callback(jobid, False, text_of(error))


class ClientThread(BaseClientThread):
    """Calls `callback(jobid, result)` for each job that `submit` has sent, in a thread of its own.

    Without a host, the master is on this machine. In a `with` statement it is started, and waits for all jobs at the
    end.

    >>> import paceline.compat.cluster_workers as cw
    >>> found = {}
    >>> with cw.mp.allocate(1, port=0) as master:
    ...     with cw.ClientThread(found.__setitem__, *master) as client:
    ...         for number in range(3):
    ...             client.submit(number, pow, number, 2)
    >>> sorted(found.items())
    [(0, 0), (1, 1), (2, 4)]
    """

    def __init__(
        self, callback: Callable[[Any, Any], object], host: str | None = None, port: int = PORT, **way_in: Any
    ) -> None:
        super().__init__(self._completed, host, port, **way_in)
        self.app_callback = callback

    def submit(self, jobid: Any, func: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Send one job under an id of the caller's."""
        self.start_job(jobid, func, *args, **kwargs)

    def wait(self) -> None:
        """Wait for all jobs. Raises `RemoteException` as soon as one has failed, or what the callback has raised."""
        self._started()._wait(None, True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.wait()
        finally:
            self.stop()

    def _completed(self, jobid: Any, success: bool, result: Any) -> None:
        self.app_callback(jobid, result)

    def _failed(self, jobid: Any, error: BaseException) -> None:
        # What this raises is what `wait` raises.
        raise RemoteException(text_of(error), error)


class ClusterExecutor(concurrent.futures.Executor):
    """Runs jobs of a master's workers as futures. One that fails raises `RemoteException`.

    >>> import paceline.compat.cluster_workers as cw
    >>> with cw.mp.allocate(1, port=0) as master, cw.ClusterExecutor(*master) as executor:
    ...     list(executor.map(abs, [-1, 2, -3]))
    [1, 2, 3]
    """

    def __init__(self, host: str | None = None, port: int = PORT, **way_in: Any) -> None:
        self._cluster = _connect(host, port, way_in)
        self._lock = threading.Lock()
        self._pending: set[_Future] = set()
        self._is_shut = False
        self._functions = Functions(DEFAULTS, self._cluster)

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> concurrent.futures.Future[R]:
        """Send one job."""
        with self._lock:
            if self._is_shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            future = _Future(self._functions.remote(fn).submit(*args, **kwargs))
            self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        future.follow()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more jobs. Leaves the master when those that were sent have ended."""
        with self._lock:
            self._is_shut = True
            pending = list(self._pending)
        if cancel_futures:
            for future in pending:
                future.cancel()
        if wait:
            concurrent.futures.wait(pending)
            self._cluster.close()
        else:
            leave = threading.Thread(target=self._leave, args=(pending,), name="paceline-cw-shutdown")
            leave.start()

    def _leave(self, pending: list[_Future]) -> None:
        concurrent.futures.wait(pending)
        self._cluster.close()


class _Future(concurrent.futures.Future[Any]):
    """The future of a job whose failure is a `RemoteException`."""

    def __init__(self, inner: concurrent.futures.Future[Any]) -> None:
        super().__init__()
        self._inner = inner

    def follow(self) -> None:
        self._inner.add_done_callback(self._ended)

    def cancel(self) -> bool:
        if not self._inner.cancel():
            return False
        return super().cancel()

    def running(self) -> bool:
        return not self.done() and self._inner.running()

    def _ended(self, inner: concurrent.futures.Future[Any]) -> None:
        if inner.cancelled():
            super().cancel()
            self.set_running_or_notify_cancel()
            return
        error = inner.exception()
        if error is None:
            self.set_result(inner.result())
        else:
            self.set_exception(RemoteException(text_of(error), error))


def text_of(error: BaseException) -> str:
    """The traceback of a job that has failed."""
    cause = error.__cause__
    if isinstance(cause, RemoteTraceback):
        return cause.text
    return f"{type(error).__name__}: {error}"


def _connect(host: str | None, port: int, way_in: dict[str, Any]) -> Cluster:
    address = joined(host or "localhost", port)
    return connect(address, **way_in or {"key_file": key_here(address, NAME)})

"""Jobs whose outcomes are brought to a callback, for programs that keep nothing of what they have submitted.

Owns: `Submitter`, its thread, and which jobs are under way. Does not own: the tasks, which are those of any remote
function, nor their futures, which it forgets one by one.

* SU-1: what a submitter holds is bounded by `ahead`, however many jobs go through it.
* SU-2: the callback runs for one job at a time, always in the submitter's own thread, so that a slow one holds up
  nobody else's callbacks.
* SU-3: each job that `submit` has accepted ends in one call of `callback` or of `on_error`, or in one failure that
  `wait` counts.
* SU-4: the thread never waits for room: it is the one that makes it.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from _queue import SimpleQueue
from threading import Condition, Thread, get_ident
from types import BuiltinFunctionType, FunctionType

from paceline import _cluster, _native, _room, _slot
from paceline._cancelling import cancel
from paceline._checks import whole_number
from paceline._remote import DEFAULTS, RemoteFunction, RemoteMethod, _checked
from paceline.errors import PacelineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, Unpack

    from paceline._cluster import Cluster
    from paceline._future import Future
    from paceline._remote import Options

    Job = Future[Any]

# How many jobs may be under way. Enough for thousands of slots; about 10 MB of futures and small values.
AHEAD = 10_000
# How many functions are kept as they were shipped.
FUNCTIONS = 128


class Submitter:
    """Runs jobs under ids of your own, and calls back with the id and the value of each as it ends.

    Nothing of a job is kept once it has ended, so a program may submit millions. `callback(id, value)` is called in
    a thread of the submitter, for one job at a time. At most `ahead` jobs are under way: beyond that `submit` waits,
    and in a thread that must not (that of an event loop, or a task) raises `QueueFull`. Callbacks may submit more.

    When a job fails, `on_error(id, error)` is called instead of `callback`. Without `on_error`, `wait` raises the
    first failure when all jobs have ended. So it does with what `callback` itself raises; the other jobs go on. All
    other options are those of `remote`, for every job.

    >>> import paceline as pl
    >>> found = {}
    >>> with pl.connect(cpus=1), pl.Submitter(found.__setitem__) as jobs:
    ...     for name in ("a", "bb", "ccc"):
    ...         jobs.submit(name, len, name)
    ...     jobs.wait()
    ...     sorted(found.items())
    True
    [('a', 1), ('bb', 2), ('ccc', 3)]
    """

    def __init__(
        self,
        callback: Callable[[Any, Any], object],
        *,
        on_error: Callable[[Any, BaseException], object] | None = None,
        ahead: int = AHEAD,
        cluster: Cluster | None = None,
        **options: Unpack[Options],
    ) -> None:
        if not callable(callback):
            raise TypeError(f"callback must be callable, not {type(callback).__name__}")
        if on_error is not None and not callable(on_error):
            raise TypeError(f"on_error must be callable, not {type(on_error).__name__}")
        self._callback = callback
        self._on_error = on_error
        self._ahead = whole_number("ahead", ahead, least=1)
        self._functions = Functions(_checked({**DEFAULTS, **options}), cluster)
        self._closed = False
        self._desk = self._open()

    def submit(self, id: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        """Submit `function(*args, **kwargs)` under this id, which may be any object and stays in this process.

        A function that is remote already runs with its own options.

        >>> import paceline as pl
        >>> with pl.connect(cpus=1), pl.Submitter(print) as jobs:
        ...     jobs.submit("seven", abs, -7)
        seven 7
        """
        desk = self._desk
        if desk.process != os.getpid():
            # A forked child has neither the thread nor the jobs of its parent.
            desk = self._desk = self._open()
        if self._closed:
            raise PacelineError("the submitter is closed", hint="make another one with pl.Submitter(callback)")
        if len(desk.jobs) >= self._ahead and get_ident() != desk.thread:
            desk.wait_for_room(self._ahead)
        future = self._functions.remote(function).submit(*args, **kwargs)
        # Whoever hears of its end looks here, so it is here before anybody does.
        desk.jobs[future] = id
        future.add_done_callback(desk.ended.put)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every job has ended and was called back. False if they have not within `timeout` seconds.

        Then raises what the first job that failed has raised, unless there is an `on_error`, or the first error of a
        callback, with a note that names the job. It is told once: the submitter goes on as if nothing had happened.
        Ctrl-C ends the jobs that are under way.

        >>> import paceline as pl
        >>> with pl.connect(cpus=1):
        ...     jobs = pl.Submitter(print)
        ...     jobs.submit("bad", int, "x")
        ...     try:
        ...         jobs.wait()
        ...     except ValueError as error:
        ...         print(error.__notes__[-1])
        raised by job 'bad' of a submitter
        """
        return self._wait(timeout, False)

    def cancel(self) -> int:
        """End every job that is under way, also those that run. They fail with `CancelledError`. Returns how many."""
        return sum(cancel(future) for future in list(self._desk.jobs))

    def close(self) -> None:
        """Submit nothing more. What is under way is cancelled. Harmless when repeated."""
        if not self._closed:
            self._closed = True
            self.cancel()
            self._finalizer()

    @property
    def pending(self) -> int:
        """How many jobs were submitted and not yet called back."""
        return len(self._desk.jobs)

    def __enter__(self) -> Submitter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Wait for all jobs; after an exception in the block, cancel them."""
        try:
            if kind is None:
                self.wait()
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"<paceline.Submitter: {'closed' if self._closed else f'{self.pending} jobs under way'}>"

    def _open(self) -> _Desk:
        """A desk with its thread, which ends when the submitter is closed or forgotten and all its jobs are done."""
        desk = _Desk()
        thread = Thread(
            target=desk.serve, args=(self._callback, self._on_error), name="paceline-submitter", daemon=True
        )
        self._finalizer = weakref.finalize(self, desk.finish)
        desk.start(thread)
        return desk

    def _wait(self, timeout: float | None, first: bool) -> bool:
        """Wait for all jobs, or only until the `first` failure."""
        desk = self._desk
        if get_ident() == desk.thread:
            raise PacelineError(
                "a callback waits for the jobs of its own submitter, which wait for the callback to return",
                hint="call wait() in the thread that submits",
            )
        try:
            ended = desk.wait_for_all(timeout, first)
        except KeyboardInterrupt:
            self.cancel()
            raise
        desk.raise_failure()
        return ended


class Functions:
    """Functions as remote ones with the same options.

    Plain functions are kept, so that their bytes are made once: when what they refer to is rebound, that is noticed.
    What may change in between, such as a method with its object inside, is made anew each time.
    """

    def __init__(self, options: Options, cluster: Cluster | None) -> None:
        self._options = options
        self._cluster = cluster
        self._kept: dict[object, RemoteFunction[..., Any]] = {}

    def remote(self, function: Callable[..., Any]) -> RemoteFunction[..., Any] | RemoteMethod[..., Any]:
        """The function, to be submitted."""
        keeps = type(function) in _KEPT
        found = self._kept.get(function) if keeps else None
        if found is not None:
            return found
        if isinstance(function, (RemoteFunction, RemoteMethod)):
            return function
        if not callable(function):
            raise TypeError(f"{function!r} cannot be submitted: it is no function")
        if self._cluster is None:
            _cluster.current_or_new()
        made: RemoteFunction[..., Any] = RemoteFunction(function, self._options, cluster=self._cluster)
        if keeps:
            if len(self._kept) >= FUNCTIONS:
                self._kept = {}
            self._kept[function] = made
        return made


_KEPT = (FunctionType, BuiltinFunctionType)


class _Desk:
    """What a submitter shares with its thread. Knows nothing of the submitter, so that this may be forgotten."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.thread = 0
        self.jobs: dict[Job, Any] = {}
        self.ended: SimpleQueue[Job | None] = SimpleQueue()
        self.changed = Condition()
        self.waiting = 0
        self.enough = 0
        self.failure: BaseException | None = None
        self.failures = 0

    def start(self, thread: Thread) -> None:
        thread.start()
        self.thread = thread.ident or 0

    def finish(self) -> None:
        """Nothing more will be submitted."""
        self.ended.put(None)
        if not self.jobs:
            self.lament()  # at the end of a program its thread would not get to it

    def serve(
        self, callback: Callable[[Any, Any], object], on_error: Callable[[Any, BaseException], object] | None
    ) -> None:
        """The thread. Ends when it was told to and no job is left."""
        open = True
        jobs, next_one = self.jobs, self.ended.get
        while open or jobs:
            future = next_one()
            if future is None:
                open = False
                continue
            id = jobs[future]
            try:
                value = future.result()
            except BaseException as error:  # whatever the job has raised
                self._failed(id, error, on_error)
            else:
                try:
                    callback(id, value)
                except BaseException as error:
                    self._note(error, f"raised by the callback for job {id!r} of a submitter")
            # Only now: `wait` waits for callbacks, too (SU-3). And nothing is kept until the next one comes (SU-1).
            del jobs[future]
            future = id = value = None
            if self.waiting and len(jobs) <= self.enough:
                self._tell()
        self.lament()

    def wait_for_room(self, ahead: int) -> None:
        """Wait until a good part of the jobs has ended: one wake-up for many jobs."""
        _room.check(False, (len(self.jobs), 0, ahead, 0))
        self._wait_until(lambda: len(self.jobs) < ahead, ahead - ahead // 4 - 1, None)

    def wait_for_all(self, timeout: float | None, first: bool) -> bool:
        until = None if timeout is None else time.monotonic() + timeout
        if _slot.number is not None:
            # A task that waits leaves its CPUs to its children, and only the core can arrange that.
            while self.jobs and not (first and self.failure is not None):
                futures = list(self.jobs)
                left = None if until is None else max(0.0, until - time.monotonic())
                _native.wait(futures, 1 if first else len(futures), left)
                if left == 0 or all(future.done() for future in futures):
                    break
        left = None if until is None else max(0.0, until - time.monotonic())
        return self._wait_until(lambda: not self.jobs or (first and self.failure is not None), 0, left)

    def _wait_until(self, reached: Callable[[], bool], enough: int, timeout: float | None) -> bool:
        with self.changed:
            self.waiting += 1
            self.enough = max(self.enough, enough)
            try:
                return self.changed.wait_for(reached, timeout)
            finally:
                self.waiting -= 1
                if not self.waiting:
                    self.enough = 0

    def raise_failure(self) -> None:
        """Raise the first failure there was, once."""
        with self.changed:
            failure, count = self.failure, self.failures
            self.failure, self.failures = None, 0
        if failure is None:
            return
        if count > 1:
            failure.add_note(f"{count - 1} more failed after it")
        try:
            raise failure
        finally:
            del failure

    def _failed(self, id: Any, error: BaseException, on_error: Callable[[Any, BaseException], object] | None) -> None:
        if on_error is None:
            self._note(error, f"raised by job {id!r} of a submitter")
            return
        try:
            on_error(id, error)
        except BaseException as another:
            self._note(another, f"raised by on_error for job {id!r} of a submitter")

    def _note(self, error: BaseException, words: str) -> None:
        with self.changed:
            self.failures += 1
            if self.failure is None:
                error.add_note(words)
                self.failure = error
            self.changed.notify_all()

    def _tell(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def lament(self) -> None:
        """A failure that nobody waits for any more is not lost without a word."""
        failure, self.failure = self.failure, None
        if failure is not None and not _is_cancelled(failure) and sys.stderr is not None:
            words = f"{failure.__notes__[-1]}: {type(failure).__name__}: {failure}"
            print(f"paceline: nobody waited for a submitter in which {self.failures} failed; {words}", file=sys.stderr)


def _is_cancelled(error: BaseException) -> bool:
    from concurrent.futures import CancelledError

    return isinstance(error, CancelledError)

"""What the methods of `Pool` return: results to be, and iterators.

Owns: `AsyncResult`, `MapResult`, the iterators of `imap`, and how their input is submitted.

* RE-1: a callback has been called before its result is ready, by the callback thread, also if all was there at once.
* RE-2: an `imap` takes its items in a thread of its own, at most `LOOKAHEAD` chunks beyond those that were read, unless
  nobody will read them: then all are submitted.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from itertools import islice
from multiprocessing.context import TimeoutError as LateError

from paceline import _native
from paceline.errors import RemoteTraceback, ResultNotSerializable, SerializationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, Generic, TypeVar

    from paceline._native import Function

    R = TypeVar("R")

    class _Generic(Generic[R]): ...
else:
    R = None

    class _Generic:
        # As `typing.Generic` would, without the time its import takes.
        __class_getitem__ = classmethod(type(list[int]))


LOOKAHEAD = 512


def translated(error: BaseException) -> BaseException:
    """What a pool raises, for what a task of it did."""
    if error.__cause__ is None:
        return error
    from paceline._broken import at_pickling, for_pool

    at_home = not isinstance(error.__cause__, RemoteTraceback)
    if at_home and isinstance(error, SerializationError) and not isinstance(error, ResultNotSerializable):
        return at_pickling(error)
    return for_pool(error)


class _Failed:
    """Stands where a future would, for a call that could not be submitted."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def done(self) -> bool:
        return True

    def result(self, timeout: float | None = None) -> Any:
        raise self.error

    def add_done_callback(self, function: Callable[[Any], object]) -> None:
        function(self)

    def cancel(self) -> bool:
        return False


def _submit(handle: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return handle.submit(args, kwargs)
    except SerializationError as error:
        return _Failed(error)


class _Result(_Generic[R]):
    """What results to be have in common."""

    _futures: list[Any]
    _value: R
    _error: BaseException | None

    def __init__(self, handle: Function, callback: Any, error_callback: Any) -> None:
        self._handle = handle
        self._callback = callback
        self._error_callback = error_callback
        self._told: threading.Event | None = None
        self._lock = threading.Lock()
        self._is_read = False

    def _watch(self) -> None:
        """Have the callbacks called (RE-1)."""
        if self._callback is None and self._error_callback is None:
            return
        self._told = threading.Event()
        self._left = len(self._futures)
        self._watcher = threading.get_ident()
        if not self._futures:
            self._handle.call_back(self._tell)
        for future in list(self._futures):
            future.add_done_callback(self._count)
        self._watcher = 0

    def _count(self, _: object) -> None:
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last and threading.get_ident() == self._watcher:
            # It was there before anybody asked: a future calls back at once then.
            self._handle.call_back(self._tell)
        elif last:
            self._tell()

    def _tell(self) -> None:
        assert self._told is not None
        try:
            self._read()
            if self._error is None:
                if self._callback is not None:
                    self._callback(self._value)
            elif self._error_callback is not None:
                self._error_callback(self._error)
        finally:
            self._told.set()

    def _read(self) -> None:
        """Take the outcomes, all of which are there."""
        with self._lock:
            if self._is_read:
                return
            try:
                self._value = self._collect()
                self._error = None
            except BaseException as error:
                self._error = translated(error)
            self._is_read = True
            self._futures = []

    def _collect(self) -> R:
        raise NotImplementedError

    def ready(self) -> bool:
        """Whether the outcome is there."""
        if self._told is not None:
            return self._told.is_set()
        return self._is_read or all(future.done() for future in self._futures)

    def successful(self) -> bool:
        """Whether there was no exception. Raises `ValueError` if the outcome is not there."""
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        self._read()
        return self._error is None

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the outcome is there, or the time is over."""
        if self._told is not None:
            self._told.wait(timeout)
        elif not self._is_read:
            ours = [future for future in self._futures if not isinstance(future, _Failed)]
            _native.wait(ours, len(ours), None if timeout is None else max(0.0, timeout))

    def get(self, timeout: float | None = None) -> R:
        """The value. Raises the function's exception, or `multiprocessing.TimeoutError` if the time is over."""
        self.wait(timeout)
        if not self.ready():
            raise LateError
        self._read()
        if self._error is not None:
            raise self._error from self._error.__cause__
        return self._value


class AsyncResult(_Result[R]):
    """The result to be of one call. Made by `Pool.apply_async`."""

    def __init__(
        self, handle: Function, args: tuple[Any, ...], kwargs: dict[str, Any], callback: Any, error_callback: Any
    ) -> None:
        super().__init__(handle, callback, error_callback)
        self._futures = [_submit(handle, args, kwargs)]
        self._watch()

    def _collect(self) -> R:
        value: R = self._futures[0].result()
        return value


class MapResult(_Result["list[R]"]):
    """The result to be of a map. Made by `Pool.map_async` and `Pool.starmap_async`."""

    def __init__(
        self,
        handle: Function,
        before: tuple[Any, ...],
        items: Iterable[Any],
        chunksize: int,
        callback: Any,
        error_callback: Any,
    ) -> None:
        super().__init__(handle, callback, error_callback)
        self._futures = []
        try:
            left = iter(items)
            while chunk := list(islice(left, chunksize)):
                self._futures.append(_submit(handle, (*before, chunk), {}))
        except Exception as error:
            # The input failed: what was submitted runs, and the map has the input's exception.
            self._futures.append(_Failed(error))
        self._watch()

    def _collect(self) -> list[R]:
        values: list[R] = []
        failed: BaseException | None = None
        for future in self._futures:
            try:
                values += future.result()
            except BaseException as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return values


class Chunks:
    """The input of an `imap`, and the thread that submits it (RE-2)."""

    def __init__(self, handle: Function, before: tuple[Any, ...], items: Iterable[Any], chunksize: int) -> None:
        self.chunksize = chunksize
        self.changed = threading.Condition()
        self.submitted: deque[Any] = deque()
        self.under_way = 0
        self.exhausted = False
        self.stopped = False
        self._room = LOOKAHEAD
        self._bounded = True
        self._handle = handle
        self._before = before
        self._items = iter(items)
        self._thread = threading.Thread(target=self._run, name="paceline-imap", daemon=True)

    def start(self, ordered: bool) -> None:
        self._ordered = ordered
        self._thread.start()

    def taken(self) -> None:
        """The values of a chunk were read: there is room for another."""
        with self.changed:
            self._room += 1
            self.changed.notify_all()

    def unbound(self) -> None:
        """Nobody will read what is to come: submit it all."""
        with self.changed:
            self._bounded = False
            self.changed.notify_all()

    def submit_all(self) -> None:
        """Come back when everything is submitted."""
        self.unbound()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def stop(self) -> None:
        """Submit nothing more."""
        with self.changed:
            self.stopped = self.exhausted = True
            self.changed.notify_all()

    def _run(self) -> None:
        left = self._items
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self._room > 0 or not self._bounded or self.stopped)
                if self.stopped:
                    return
                self._room -= 1
            future = self._next(left)
            with self.changed:
                if future is not None:
                    self.under_way += 1
                    self._offer(future)
                if future is None or isinstance(future, _Failed):
                    self.exhausted = True
                self.changed.notify_all()
                if self.exhausted:
                    return

    def _offer(self, future: Any) -> None:
        """Put a call where it is looked for: in its place, or when it has ended."""
        if self._ordered:
            self.submitted.append(future)
        else:
            future.add_done_callback(self._ended)

    def _ended(self, future: Any) -> None:
        with self.changed:
            self.submitted.append(future)
            self.changed.notify_all()

    def _next(self, left: Iterator[Any]) -> Any:
        try:
            chunk = list(islice(left, self.chunksize))
            if not chunk:
                return None
            argument = chunk[0] if self.chunksize == 1 else chunk
            return _submit(self._handle, (*self._before, argument), {})
        except BaseException as error:
            return _Failed(error)


class IMapIterator(_Generic[R]):
    """Values of an `imap`, in order."""

    _ordered = True

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks
        self._values: deque[Any] = deque()
        chunks.start(self._ordered)

    def __iter__(self) -> IMapIterator[R]:
        return self

    def next(self, timeout: float | None = None) -> R:
        """The next value. Raises `multiprocessing.TimeoutError` if it is not there in time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._values:
            future = self._ended(deadline)
            if future is None:
                continue
            try:
                found = future.result()
            except StopIteration as error:
                # As it is, it would end the loop that asks for the next value.
                raise RuntimeError("the function raised StopIteration") from error
            except BaseException as error:
                other = translated(error)
                if isinstance(other, StopIteration):
                    # It would end the loop of whoever asks, as if there were no more values.
                    raise RuntimeError("a call raised StopIteration") from other
                raise other from other.__cause__
            if self._chunks.chunksize == 1:
                value: R = found
                return value
            self._values.extend(found)
        value = self._values.popleft()
        return value

    __next__ = next

    def _ended(self, deadline: float | None) -> Any:
        """The next call that has ended; None if another thread has taken it."""
        chunks = self._chunks
        with chunks.changed:
            if not chunks.changed.wait_for(lambda: chunks.submitted or self._is_over(), _left(deadline)):
                raise LateError
            if not chunks.submitted:
                if chunks.stopped:
                    from concurrent.futures import CancelledError

                    raise CancelledError("the pool was terminated")
                raise StopIteration
            future = chunks.submitted[0]
        if not future.done():
            _native.wait([future], 1, _left(deadline))
            if not future.done():
                raise LateError
        with chunks.changed:
            if not chunks.submitted or chunks.submitted[0] is not future:
                return None
            chunks.submitted.popleft()
            chunks.under_way -= 1
        chunks.taken()
        return future

    def _is_over(self) -> bool:
        chunks = self._chunks
        return chunks.stopped or (chunks.exhausted and chunks.under_way == 0)

    def __del__(self) -> None:
        chunks = getattr(self, "_chunks", None)
        if chunks is not None:
            chunks.unbound()


class IMapUnorderedIterator(IMapIterator[R]):
    """Values of an `imap_unordered`, as they come."""

    _ordered = False


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())

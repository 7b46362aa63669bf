"""Values of a generator that runs in an actor, as they come.

* SM-1: one request for more is under way at a time, and it is made before the values of the last one are read: a
  stream is at most two batches ahead of who reads it.
* SM-2: whoever stops reading closes the generator, by `close` or by forgetting the stream.
"""

from __future__ import annotations

from collections import deque

from paceline._outcome import remote_error
from paceline._remote import _Generic
from paceline._slot import objects

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self, TypeVar

    from paceline._actor_home import Home
    from paceline._future import Future

    T = TypeVar("T")

    class _Typed(_Generic[..., T]): ...
else:
    T = None
    _Typed = _Generic

# The first batches are small, so that the first values come soon and large ones do not pile up.
FIRST, LARGEST = 1, 64


class Stream(_Typed[T]):
    """An iterator, for `for` and `async for`, over what a generator yields in its actor.

    >>> import itertools, paceline as pl
    >>> @pl.remote
    ... class Source:
    ...     def count(self):
    ...         yield from itertools.count()
    >>> with pl.connect(cpus=1):
    ...     with Source().count() as numbers:
    ...         [next(numbers) for _ in range(3)]
    [0, 1, 2]
    """

    def __init__(self, home: Home, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._home = home
        self._values: deque[T] = deque()
        self._most = FIRST
        self._number = 0
        self._error: BaseException | None = None
        self._ended = False
        self._request: Future[Any] | None = home.submit(objects.STREAM, name, args, kwargs, FIRST)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        while not self._values:
            if self._request is None:
                self._finish(StopIteration)
            assert self._request is not None
            self._take(self._request)
        return self._values.popleft()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while not self._values:
            if self._request is None:
                self._finish(StopAsyncIteration)
            assert self._request is not None
            request = self._request
            try:
                await request
            except Exception:
                pass  # said below, in its place
            self._take(request)
        return self._values.popleft()

    def _take(self, request: Future[Any]) -> None:
        try:
            self._number, values, self._ended, failed = request.result()
        except Exception:
            # The call itself failed: the arguments were wrong, the actor died, a value cannot travel.
            self._request, self._ended = None, True
            raise
        self._request = None
        self._values.extend(values)
        if failed is not None:
            self._error = remote_error(failed)
        if not self._ended:
            self._most = min(2 * self._most, LARGEST)
            self._request = self._home.submit(objects.PULL, self._number, self._most)

    def _finish(self, end: type[Exception]) -> None:
        error, self._error = self._error, None
        raise error or end

    def close(self) -> None:
        """Take no more values. The generator is closed in the actor, which runs its `finally` blocks."""
        self._values.clear()
        self._error = None
        request, self._request = self._request, None
        if self._ended:
            return
        self._ended = True
        if self._number:
            self._home.submit(objects.CLOSE, self._number)
        elif request is not None and not request.cancel():
            # It has begun, and its number is still on its way.
            request.add_done_callback(self._close_begun)

    def _close_begun(self, request: Future[Any]) -> None:
        try:
            number, _, ended, _ = request.result()
            if not ended:
                self._home.submit(objects.CLOSE, number)
        except BaseException:
            return  # it never began, or the actor is gone

    async def aclose(self) -> None:
        """As `close`."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:
            return  # the actor is gone, and the generator with it

"""One call to many actors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from paceline._actor import Actor
    from paceline._future import Future


class Answer(NamedTuple):
    """What one actor answered to a `broadcast`: a value, an error, or nothing in time."""

    actor: Actor[Any]
    value: Any = None
    error: BaseException | None = None
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        """Whether there is a value."""
        return self.error is None and not self.timed_out

    def result(self) -> Any:
        """The value, or raise what came instead."""
        if self.timed_out:
            raise TimeoutError(f"{self.actor!r} has not answered in time")
        if self.error is not None:
            raise self.error
        return self.value


def broadcast(
    actors: Iterable[Actor[Any]], method: str, *args: Any, timeout: float | None = None, **kwargs: Any
) -> list[Answer]:
    """Call a method of many actors at the same time, and return one answer each, in the order of the actors.

    None raises: an answer has the value, the error, or says that it timed out. Calls that have not begun when the time
    is over are cancelled; one that has goes on, and nobody hears of its value.

    >>> import paceline as pl
    >>> @pl.remote
    ... class Worker:
    ...     def double(self, x):
    ...         return 2 * x
    >>> with pl.connect(cpus=2):
    ...     [answer.value for answer in pl.broadcast([Worker(), Worker()], "double", 21, timeout=10)]
    [42, 42]
    """
    from paceline._waiting import wait

    actors = list(actors)
    sent: list[Future[Any] | BaseException] = [_submit(actor, method, args, kwargs) for actor in actors]
    wait([future for future in sent if not isinstance(future, BaseException)], timeout=timeout)
    return [_answer(actor, future) for actor, future in zip(actors, sent, strict=True)]


def _submit(
    actor: Actor[Any], method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Future[Any] | BaseException:
    try:
        future: Future[Any] = getattr(actor, method).submit(*args, **kwargs)
    except Exception as error:
        return error
    return future


def _answer(actor: Actor[Any], future: Future[Any] | BaseException) -> Answer:
    if isinstance(future, BaseException):
        return Answer(actor, error=future)
    if not future.done():
        future.cancel()
        return Answer(actor, timed_out=True)
    try:
        return Answer(actor, future.result())
    except BaseException as error:
        return Answer(actor, error=error)

"""What the engines that use the processes of somebody else have in common.

Owns: how a function and items travel, as slots get them, so that lambdas, closures and what the main script defines do
as well; that the script is not imported again; and that the exception is that of the first item that has one. An
engine only brings chunks to processes and their outcomes back, in order.
"""

from __future__ import annotations

import _pickle

from paceline import _slot
from paceline._functions import encode
from paceline._machine import usable_cpus
from paceline._outcome import remote_error
from paceline._pickling import Reach, dumps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from typing import Any, TypeAlias

    Outcome: TypeAlias = tuple[bytes, bytes | None]
    # Called with the number of processes, what each needs, and the chunks; gives the outcome of every chunk.
    Start: TypeAlias = Callable[[int, "Job", list[bytes]], Generator[Outcome, None, None]]
    Job: TypeAlias = tuple[bytes, bool]

# A process gets about this many chunks, so that a slow one does not hold up the end for long.
CHUNKS_EACH = 4


def engine(start: Start) -> Any:
    """The engine whose processes `start` knows how to reach."""

    def run(
        function: Callable[..., Any],
        items: Iterable[Any],
        *,
        star: bool,
        chunksize: int | None,
        progress: Callable[[int], object] | None,
        cpus: int | None = None,
    ) -> list[Any]:
        items = list(items)
        if not items:
            return []
        workers = min(cpus or usable_cpus(), len(items))
        size = chunksize or -(-len(items) // (workers * CHUNKS_EACH))
        job = encode(function, Reach(None)), star
        results: list[Any] = []
        outcomes = start(workers, job, [_dumps(items[at : at + size]) for at in range(0, len(items), size)])
        try:
            for values, failure in outcomes:
                if failure is not None:
                    raise remote_error(failure)
                results += _pickle.loads(values)
                if progress is not None:
                    progress(len(results))
        finally:
            outcomes.close()
        return results

    return run


_function: Callable[..., Any] | None = None
_job: tuple[bytes, bool] = (b"", False)


def install(job: Job) -> None:
    """Runs in a process, before chunks of this job.

    Only notes the function: an error in here would be a broken pool, without a reason.
    """
    global _job, _function
    if job != _job:
        _job, _function = job, None


def run_chunk(chunk: bytes) -> Outcome:
    """Runs in a process: the values of a chunk of the job that was installed, or the first exception."""
    global _function
    try:
        payload, star = _job
        if _function is None:
            _function = _slot.load(payload)
        function = _function
        values = [function(*item) if star else function(item) for item in _pickle.loads(chunk)]
        return _dumps(values, "result"), None
    except BaseException as error:
        return b"", _slot.failure(error)


def run_chunk_of(job: Job, chunk: bytes) -> Outcome:
    """The same where nothing can be installed beforehand."""
    install(job)
    return run_chunk(chunk)


def _dumps(values: list[Any], root: Any = "value") -> bytes:
    try:
        data = _pickle.dumps(values, 5)
    except Exception:
        data = b"__main__"
    return dumps(values, root) if b"__main__" in data else data

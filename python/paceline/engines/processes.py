"""The engine that is the standard library's process pool.

Owns: making `ProcessPoolExecutor` take lambdas, closures and functions of scripts without a `__main__` guard.
The function travels as slots get it, once per process; the main script is not imported again.
"""

from __future__ import annotations

import _pickle
import multiprocessing
import multiprocessing.context
import multiprocessing.popen_spawn_posix
import multiprocessing.spawn
from concurrent.futures import ProcessPoolExecutor
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from paceline import _slot
from paceline._functions import encode
from paceline._machine import usable_cpus
from paceline._outcome import remote_error
from paceline._pickling import Reach, dumps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# A process gets about this many chunks, so that a slow one does not hold up the end for long.
CHUNKS_EACH = 4


def run(
    function: Callable[..., Any],
    items: Iterable[Any],
    *,
    star: bool,
    chunksize: int | None,
    progress: Callable[[int], object] | None,
) -> list[Any]:
    items = list(items)
    if not items:
        return []
    workers = min(usable_cpus(), len(items))
    size = chunksize or -(-len(items) // (workers * CHUNKS_EACH))
    payload = encode(function, Reach(None))
    results: list[Any] = []
    executor = ProcessPoolExecutor(workers, _Context(), _install, (payload, star))
    try:
        chunks = [executor.submit(_run_chunk, _dumps(items[at : at + size])) for at in range(0, len(items), size)]
        for chunk in chunks:
            values, failure = chunk.result()
            if failure is not None:
                raise remote_error(failure)
            results += _pickle.loads(values)
            if progress is not None:
                progress(len(results))
    finally:
        executor.shutdown(cancel_futures=True)
    return results


_function: Callable[..., Any] | None = None
_packed: tuple[bytes, bool] = (b"", False)


def _install(payload: bytes, star: bool) -> None:
    """Runs first in each process.

    Only notes the function: an error in here would be a broken pool, without a reason.
    """
    global _packed
    _packed = (payload, star)


def _run_chunk(chunk: bytes) -> tuple[bytes, bytes | None]:
    """Runs in a process: the values of a chunk, or the first exception."""
    global _function
    try:
        payload, star = _packed
        if _function is None:
            _function = _slot.load(payload)
        function = _function
        values = [function(*item) if star else function(item) for item in _pickle.loads(chunk)]
        return _dumps(values, "result"), None
    except BaseException as error:
        return b"", _slot.failure(error)


def _dumps(values: list[Any], root: Any = "value") -> bytes:
    try:
        data = _pickle.dumps(values, 5)
    except Exception:
        data = b"__main__"
    return dumps(values, root) if b"__main__" in data else data


_launch: Any = vars(multiprocessing.popen_spawn_posix.Popen)["_launch"]


class _Popen(multiprocessing.popen_spawn_posix.Popen):
    """Starts a process as `spawn` does, which forks nothing of our threads, but says nothing of the main
    script.

    The standard library would import the script again in every process, and so run it again where it has no
    guard. Nothing here is ever looked up in it, so the import is left out, by a copy of the launcher that
    sees our `spawn`.
    """

    _launch = FunctionType(
        _launch.__code__,
        {
            **_launch.__globals__,
            "spawn": SimpleNamespace(
                get_command_line=multiprocessing.spawn.get_command_line,
                get_executable=multiprocessing.spawn.get_executable,
                get_preparation_data=lambda name: _without_main(multiprocessing.spawn.get_preparation_data(name)),
            ),
        },
    )


def _without_main(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if not name.startswith("init_main")}


class _Process(multiprocessing.context.SpawnProcess):
    @staticmethod
    def _Popen(process: Any) -> Any:
        return _Popen(process)


class _Context(multiprocessing.context.SpawnContext):
    Process = _Process

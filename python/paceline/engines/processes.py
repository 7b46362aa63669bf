"""The engines that are the standard library's: the process pool of `concurrent.futures`, and that of `multiprocessing`.

Owns: starting their processes without the main script.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.context
import multiprocessing.popen_spawn_posix
import multiprocessing.spawn
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from paceline.engines import chunks

if TYPE_CHECKING:
    from collections.abc import Generator

    from paceline.engines.chunks import Job, Outcome


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


def executor(workers: int, job: Job) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, _Context(), chunks.install, (job,))


def _futures(workers: int, job: Job, messages: list[bytes]) -> Generator[Outcome, None, None]:
    pool = executor(workers, job)
    try:
        for future in [pool.submit(chunks.run_chunk, message) for message in messages]:
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _pool(workers: int, job: Job, messages: list[bytes]) -> Generator[Outcome, None, None]:
    pool = _Context().Pool(workers, chunks.install, (job,))
    processes: list[Any] = list(vars(pool)["_pool"])
    try:
        outcomes = pool.imap(chunks.run_chunk, messages)
        for _ in messages:
            while True:
                try:
                    yield outcomes.next(POLL)
                    break
                except multiprocessing.TimeoutError:
                    # The pool itself would replace the process, forget its chunk, and wait for ever.
                    ended = [process for process in processes if process.exitcode is not None]
                    if ended:
                        raise BrokenProcessPool(
                            f"a process of the pool ended with exit code {ended[0].exitcode}, and its work with it"
                        ) from None
    finally:
        pool.terminate()
        pool.join()


# How often, in seconds, somebody looks whether the processes of a pool are there, while nothing comes from them.
POLL = 0.2

run = chunks.engine(_futures)
multiprocessing_pool = chunks.engine(_pool)

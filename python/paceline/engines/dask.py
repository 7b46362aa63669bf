"""The engine that is dask's scheduler of processes on this machine. All values come at the end."""

from __future__ import annotations

import importlib

from paceline.engines import chunks, processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from paceline.engines.chunks import Job, Outcome


def _compute(workers: int, job: Job, messages: list[bytes]) -> Generator[Outcome, None, None]:
    dask: Any = importlib.import_module("dask")
    run_chunk = dask.delayed(chunks.run_chunk, pure=False)
    # In processes of our own making: dask's would run a script that has no guard again.
    with processes.executor(workers, job) as pool:
        yield from dask.compute(*map(run_chunk, messages), scheduler="processes", num_workers=workers, pool=pool)


run = chunks.engine(_compute)

"""An executor and a pool that are wrong: every result is 0. The suites must notice."""

from __future__ import annotations

import concurrent.futures
from typing import Any


class ProcessPoolExecutor(concurrent.futures.Executor):
    """Never calls anything."""

    def __init__(self, max_workers: int | None = None, *_: Any, **__: Any) -> None:
        self._max_workers = max_workers or 1

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        future: concurrent.futures.Future[int] = concurrent.futures.Future()
        future.set_result(0)
        return future


class Zero:
    """A result that is there at once."""

    def __init__(self, value: Any = 0) -> None:
        self.value = value

    def get(self, timeout: float | None = None) -> Any:
        return self.value

    def wait(self, timeout: float | None = None) -> None:
        return None


class Pool:
    """Never calls anything."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._state = "RUN"

    def apply(self, *_: Any, **__: Any) -> int:
        return 0

    def map(self, function: Any, items: Any, chunksize: int | None = None) -> list[int]:
        return [0 for _ in items]

    starmap = imap = imap_unordered = map

    def apply_async(self, *_: Any, **__: Any) -> Zero:
        return Zero()

    def map_async(self, function: Any, items: Any, *_: Any, **__: Any) -> Zero:
        return Zero([0 for _ in items])

    starmap_async = map_async

    def close(self) -> None:
        return None

    terminate = join = close

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        return None

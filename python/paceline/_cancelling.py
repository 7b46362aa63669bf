"""Ending tasks that may be running."""

from __future__ import annotations

import concurrent.futures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def cancel(future: concurrent.futures.Future[Any]) -> bool:
    """End a task, also one that runs: its code gets a `KeyboardInterrupt`, and if it is not over after two
    seconds its slot is ended. Says whether the task was ended by this; its future is cancelled then.

    `future.cancel()` is gentler: it leaves a task alone that is known to run.

    >>> import time, paceline as pl
    >>> with pl.connect(cpus=1):
    ...     future = pl.remote(time.sleep).submit(60)
    ...     pl.cancel(future), future.cancelled()
    (True, True)
    """
    from paceline._future import Future

    if isinstance(future, Future):
        return future._interrupt()
    return future.cancel()

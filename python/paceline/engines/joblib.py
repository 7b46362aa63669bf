"""The engine that is joblib's own: its processes, not Paceline's. `paceline.joblib` is the other way round."""

from __future__ import annotations

import importlib
import warnings

from paceline.engines import chunks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from paceline.engines.chunks import Job, Outcome


def _parallel(workers: int, job: Job, messages: list[bytes]) -> Generator[Outcome, None, None]:
    # By its full name, because this module is called so, too.
    joblib: Any = importlib.import_module("joblib")
    parallel = joblib.Parallel(workers, backend="loky", return_as="generator", batch_size=1, pre_dispatch="all")
    outcomes = parallel(joblib.delayed(chunks.run_chunk_of)(job, message) for message in messages)
    try:
        # Not `yield from`, which would close them itself, and before we can keep joblib quiet.
        for outcome in outcomes:  # noqa: UP028
            yield outcome
    finally:
        # After an exception of the user's nobody wants what is left, and joblib need not warn of it.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            outcomes.close()


run = chunks.engine(_parallel)

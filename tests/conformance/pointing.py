"""Points the names of the standard library at ours, in this process and in the scripts that tests start.

`ours` are `pl.Executor` and `pl.Pool`; `zero` are the canaries: an executor and a pool whose every result is 0.
"""

from __future__ import annotations

import concurrent.futures
import sys
from pathlib import Path
from typing import Any

HERE = str(Path(__file__).parent)


def point(whose: str) -> type[concurrent.futures.Executor]:
    """Do it, and return what `ProcessPoolExecutor` is now. Comes before the suites are imported."""
    import concurrent.futures.process
    import multiprocessing.context
    import multiprocessing.managers
    import multiprocessing.pool

    executor, pool = _classes(whose)
    modules: list[Any] = [concurrent.futures, concurrent.futures.process]
    for module in modules:
        module.ProcessPoolExecutor = executor
    places: list[Any] = [multiprocessing, multiprocessing.pool]
    for place in places:
        place.Pool = pool
    contexts: Any = multiprocessing.context.BaseContext
    contexts.Pool = staticmethod(pool)
    multiprocessing.managers.SyncManager.register("Pool", pool, multiprocessing.managers.PoolProxy)  # type: ignore[attr-defined]
    return executor


def point_scripts(whose: str, suites: str) -> None:
    """Have scripts that tests start by `assert_python_ok` see ours too."""
    from test.support import script_helper

    started: Any = script_helper.run_python_until_end
    first = f"import sys; sys.path[:0] = [{suites!r}, {HERE!r}]; import pointing; pointing.point({whose!r})\n"

    def run(*args: str, **env: Any) -> Any:
        if "-c" in args:
            at = args.index("-c") + 1
            args = (*args[:at], first + args[at], *args[at + 1 :])
        return started(*args, **env)

    script_helper.run_python_until_end = run


def _classes(whose: str) -> tuple[type[concurrent.futures.Executor], Any]:
    if whose == "zero":
        import canary

        return canary.ProcessPoolExecutor, canary.Pool
    import paceline as pl

    # Scripts import it by this name.
    return type("ProcessPoolExecutor", (pl.Executor,), {}), pl.Pool


if HERE not in sys.path:
    sys.path.append(HERE)

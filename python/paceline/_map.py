"""One `map` over many engines.

Owns `map` itself. The engines are in `paceline.engines`.
"""

from __future__ import annotations

from paceline import engines
from paceline._checks import whole_number
from paceline._functions import name_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeVar

    R = TypeVar("R")


def map(
    function: Callable[..., R],
    items: Iterable[Any],
    *,
    engine: str = "auto",
    chunksize: int | None = None,
    progress: bool = False,
    star: bool = False,
    cpus: int | None = None,
) -> list[R]:
    """Call a function with each item, on the engine of your choice, and return the values in the order of the
    items.

    `serial` and `threads` run in this process, `processes` on the standard library's pool, and `cluster`, the
    default, on the current cluster, which is started if there is none. There are also `multiprocessing`, `joblib`
    and `dask`, if they are installed, and the ways of Python itself, all serial: `for_loop`, `list_comprehension`,
    `generator_expression`, `generator_function`, `map` and `starmap`.

    With `star` each item is the tuple of all arguments. `cpus` says how many threads or processes there are, or how
    large the cluster is that is started; by default all CPUs that this process may use.

    >>> import paceline as pl
    >>> pl.map(lambda x: x * x, range(4), engine="serial")
    [0, 1, 4, 9]
    >>> pl.map(pow, [(2, 3), (3, 2)], engine="threads", star=True)
    [8, 9]
    """
    if not callable(function):
        raise TypeError(f"map takes a function, not a {type(function).__name__}")
    if chunksize is not None:
        chunksize = whole_number("chunksize", chunksize, least=1)
    more = {} if cpus is None else {"cpus": whole_number("cpus", cpus, least=1)}
    run = engines.find(engine)
    if not progress:
        return run(function, items, star=star, chunksize=chunksize, progress=None, **more)
    from paceline._progress import Bar, total_of

    with Bar(name_of(function), total_of(items)) as bar:
        return run(function, items, star=star, chunksize=chunksize, progress=bar, **more)

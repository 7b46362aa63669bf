"""What a type checker knows about the public names. `test_types.py` runs mypy over this file; nothing runs it."""

from collections.abc import Callable, Iterator
from typing import Any, assert_type

import paceline as pl


@pl.remote
def simulate(seed: int, *, steps: int = 3) -> list[float]:
    return [0.0] * (seed + steps)


@pl.remote(cpus=2, retries=0)
def bare() -> None: ...


class Model:
    @pl.remote
    def predict(self, x: float) -> str:
        return str(x)


async def check(cluster: pl.Cluster, model: Model) -> None:
    assert_type(simulate(1, steps=2), list[float])
    future = simulate.submit(1)
    assert_type(future, pl.Future[list[float]])
    assert_type(future.result(), list[float])
    assert_type(await future, list[float])
    assert_type(simulate.map(range(3)), list[list[float]])
    assert_type(simulate.imap(range(3)), Iterator[list[float]])
    assert_type(simulate.options(priority=1, cluster=cluster)(2), list[float])
    assert_type(simulate.original(1), list[float])
    bare()
    assert_type(model.predict(1.0), str)
    assert_type(model.predict.submit(1.0), pl.Future[str])
    assert_type(Model.predict(model, 1.0), str)
    assert_type(pl.map(abs, [1]), list[Any])
    assert_type(pl.wait([future]).done, list[pl.Future[list[float]]])
    assert_type(pl.as_completed([future]), Iterator[pl.Future[list[float]]])
    assert_type(cluster.nodes, list[dict[str, Any]])
    callback: Callable[[int], list[float]] = simulate
    callback(1)
    simulate("text")  # type: ignore[arg-type]
    simulate(1, unknown=2)  # type: ignore[call-arg]
    simulate.submit()  # type: ignore[call-arg]
    model.predict("text")  # type: ignore[arg-type]
    pl.remote(tpus=1)  # type: ignore[call-overload]
    _ = pl.nothing_like_this  # type: ignore[attr-defined]

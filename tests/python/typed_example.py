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


class Learner:
    def __init__(self, rate: float) -> None:
        self.rate = rate

    def step(self, batch: list[int]) -> float:
        return self.rate * len(batch)


RemoteLearner = pl.remote(Learner)
Restarted = pl.remote(gpus=1, restarts=2)(Learner)


@pl.remote(gpus=1)
class Decorated:
    """mypy takes a decorated class for the class itself: constructor and methods keep their types."""

    def step(self, batch: list[int]) -> float:
        return 0.0


def check_actors() -> None:
    assert_type(RemoteLearner, pl.ActorClass[Learner])
    assert_type(Restarted, pl.ActorClass[Learner])
    learner = RemoteLearner(1e-3)
    assert_type(learner, pl.Actor[Learner])
    assert_type(learner.step([1]), Any)
    assert_type(learner.step.submit([1]), Any)
    assert_type(learner.rate, Any)
    assert_type(RemoteLearner.original(1e-3).step([1]), float)
    assert_type(RemoteLearner.options(name="x", restarts=1)(1e-3), pl.Actor[Learner])
    assert_type(pl.broadcast([learner], "step", [1], timeout=1.0), list[pl.Answer])
    assert_type(Decorated().step([1]), float)
    Decorated().step("text")  # type: ignore[arg-type]
    pl.destroy(learner)
    pl.destroy(7)  # type: ignore[arg-type]
    RemoteLearner.options(tpus=1)  # type: ignore[call-arg]


class Step(pl.NamedArray):
    reward: list[float]
    done: list[bool] | None = None


def check_named_arrays() -> None:
    step = Step(reward=[1.0])
    assert_type(step.reward, list[float])
    assert_type(step[1:], Any)
    assert_type(step * 2 + step, Step)
    assert_type(Step.stack([step, step]), Step)
    assert_type(step.mean(axis=0), Step)
    assert_type(Step.loads(step.dumps("zlib")), Step)
    assert_type(list(step), list[Step])
    assert_type(pl.NamedArray(a=1, b={"c": 2}).b, Any)
    Step(rewrad=[1.0])  # type: ignore[call-arg]
    Step(reward="text")  # type: ignore[arg-type]

"""What `test_joblib.py` runs on two backends. A module of its own, so that slots import it and nothing of pytest."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from joblib import Parallel, delayed


class Custom(Exception):
    def __init__(self, code: int, where: str) -> None:
        super().__init__(code, where)
        self.code, self.where = code, where


class Model:
    def __init__(self, weight: float) -> None:
        self.weight = weight

    def predict(self, x: float) -> float:
        return self.weight * x


def square(x: Any) -> Any:
    return x * x


def both(a: int, b: int = 0, *more: int, **named: int) -> tuple[Any, ...]:
    return a, b, more, sorted(named.items())


def uneven(x: int) -> int:
    time.sleep(0.02 if x % 5 == 0 else 0)
    return x


def raising(x: int) -> int:
    if x == 7:
        raise Custom(x, "there")
    return x


def inner(x: int) -> list[int]:
    found: list[int] = Parallel(n_jobs=2)(delayed(square)(x + y) for y in range(3))
    return found


def innermost(x: int) -> list[list[int]]:
    found: list[list[int]] = Parallel(n_jobs=2)(delayed(inner)(x + y) for y in range(2))
    return found


def what_it_is(array: Any) -> tuple[str, bool, float]:
    return type(array).__name__, bool(array.flags.writeable), float(array.sum())


def part(array: Any) -> Any:
    return array[:10]


def add_one(array: Any, row: int) -> None:
    array[row] += 1


def threads() -> str | None:
    return os.environ.get("OMP_NUM_THREADS")


def failed(call: Callable[[], Any]) -> tuple[str, tuple[Any, ...]]:
    try:
        call()
    except Exception as error:
        return type(error).__name__, error.args
    return "nothing", ()


def plain() -> Any:
    return Parallel(n_jobs=2)(delayed(square)(x) for x in range(20))


def nothing() -> Any:
    return Parallel(n_jobs=2)(delayed(square)(x) for x in [])


def arguments() -> Any:
    return Parallel(n_jobs=2)(delayed(both)(x, x + 1, x + 2, key=x) for x in range(5))


def closures() -> Any:
    base = 10
    return Parallel(n_jobs=2)(delayed(lambda x: x + base)(x) for x in range(10))


def methods() -> Any:
    model = Model(1.5)
    return Parallel(n_jobs=2)(delayed(model.predict)(x) for x in range(10))


def batches_of_seven() -> Any:
    return Parallel(n_jobs=2, batch_size=7)(delayed(square)(x) for x in range(50))


def batches_by_themselves() -> Any:
    return Parallel(n_jobs=2)(delayed(square)(x) for x in range(3000))


def uneven_times() -> Any:
    return Parallel(n_jobs=2, pre_dispatch="all")(delayed(uneven)(x) for x in range(60))


def dispatched_one_by_one() -> Any:
    return Parallel(n_jobs=2, pre_dispatch=1, batch_size=1)(delayed(square)(x) for x in range(20))


def a_generator() -> Any:
    return list(Parallel(n_jobs=2, return_as="generator")(delayed(square)(x) for x in range(30)))


def a_generator_in_any_order() -> Any:
    return sorted(Parallel(n_jobs=2, return_as="generator_unordered")(delayed(square)(x) for x in range(30)))


def an_error() -> Any:
    return failed(lambda: Parallel(n_jobs=2)(delayed(raising)(x) for x in range(20)))


def an_error_then_more() -> Any:
    with Parallel(n_jobs=2) as parallel:
        before = failed(lambda: parallel(delayed(raising)(x) for x in range(20)))
        # Before them joblib gives back what was left of the run that failed, more or less of it, whatever the backend.
        return before, parallel(delayed(square)(x) for x in range(5))[-5:]


def too_late() -> Any:
    return failed(lambda: Parallel(n_jobs=2, timeout=0.5)(delayed(time.sleep)(20) for _ in range(2)))[0]


def nested() -> Any:
    return Parallel(n_jobs=2)(delayed(inner)(x) for x in range(4))


def nested_twice() -> Any:
    return Parallel(n_jobs=2)(delayed(innermost)(x) for x in range(3))


def large_arrays() -> Any:
    array = np.arange(400_000, dtype=float)
    small = np.arange(10, dtype=float)
    found = Parallel(n_jobs=2)(delayed(what_it_is)(x) for x in (array, small, array))
    return found, [x.tolist() for x in Parallel(n_jobs=2)(delayed(part)(array) for _ in range(2))]


def arrays_to_write_to() -> Any:
    array = np.memmap(
        os.path.join(os.environ["JOBLIB_CASES"], f"m{time.monotonic_ns()}"), "f8", "w+", shape=(4, 50_000)
    )
    Parallel(n_jobs=2)(delayed(add_one)(array, row) for row in range(4))
    return float(array.sum())


def threads_of_libraries() -> Any:
    return Parallel(n_jobs=2)(delayed(threads)() for _ in range(4))


def grid_search() -> Any:
    from sklearn.datasets import load_iris
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    data, target = load_iris(return_X_y=True)
    search = GridSearchCV(LogisticRegression(max_iter=500), {"C": [0.1, 1.0, 10.0]}, cv=3, n_jobs=2)
    search.fit(data, target)
    return search.best_params_, search.cv_results_["mean_test_score"].tolist()


def forest() -> Any:
    from sklearn.datasets import make_classification
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import cross_val_score

    data, target = make_classification(400, 10, random_state=0)
    model = RandomForestClassifier(20, random_state=0)
    return cross_val_score(model, data, target, cv=3, n_jobs=2).tolist()


CASES: list[Callable[[], Any]] = [
    plain,
    nothing,
    arguments,
    closures,
    methods,
    batches_of_seven,
    batches_by_themselves,
    uneven_times,
    dispatched_one_by_one,
    a_generator,
    a_generator_in_any_order,
    an_error,
    an_error_then_more,
    too_late,
    nested,
    nested_twice,
    large_arrays,
    arrays_to_write_to,
    threads_of_libraries,
    grid_search,
    forest,
]

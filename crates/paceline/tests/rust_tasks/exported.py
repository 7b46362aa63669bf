"""What Rust calls in `programs.rs`."""

import os
import signal
from pathlib import Path
from typing import Any

import paceline as pl


@pl.export("mean")
def mean(values: list[float]) -> float:
    return sum(values) / len(values)


@pl.export("scale")
def scale(array: Any, factor: float) -> Any:
    return array * factor


@pl.export("describe")
def describe(value: Any) -> dict[str, Any]:
    return {"type": type(value).__name__, "value": value}


@pl.export("add")
def add(*numbers: int) -> int:
    return sum(numbers)


@pl.export("fail")
@pl.remote
def fail(text: str) -> None:
    raise LookupError(text)


@pl.export("unsendable")
def unsendable() -> Any:
    return [1, {"x": {2, 3}}]


@pl.export("pid")
def pid() -> int:
    return os.getpid()


@pl.export("die_once")
def die_once(mark: str) -> int:
    if not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    current = pl.current()
    return current.attempt if current else 0


@pl.export("threads")
def threads() -> str:
    return os.environ["OMP_NUM_THREADS"]


def hidden() -> int:
    return 7

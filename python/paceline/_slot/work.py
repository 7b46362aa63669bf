"""The object that a slot of a `WorkerPool` holds, and the calls of it.

A slot that was in a pool ends with it, so nothing here is ever taken back.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

worker: Any = None
"""The one object of this slot."""

applied = 0
"""How many updates it has got, those included that its state stands for."""


class Call:
    """All arguments of a call. Made by `paceline.call`."""

    __slots__ = ("args", "kwargs")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args = args
        self.kwargs = kwargs

    def __reduce__(self) -> tuple[Any, ...]:
        return Call, (self.args, self.kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Call) and (self.args, self.kwargs) == (other.args, other.kwargs)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        parts = [repr(value) for value in self.args] + [f"{name}={value!r}" for name, value in self.kwargs.items()]
        return f"call({', '.join(parts)})"


def construct(kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """The first thing that a slot of a pool does."""
    global worker
    worker = kind(*args, **kwargs)


def run(*args: Any) -> Any:
    """A job."""
    if len(args) == 1 and type(args[0]) is Call:
        return worker.run(*args[0].args, **args[0].kwargs)
    return worker.run(*args)


def update(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Between jobs. What it returns is nobody's."""
    global applied
    worker.handle_update(*args, **kwargs)
    applied += 1


def get_state() -> tuple[int, Any]:
    """How many updates it has got, and what they have made of it."""
    return applied, worker.get_state()


def set_state(count: int, state: Any) -> None:
    """Instead of so many updates."""
    global applied
    worker.set_state(state)
    applied = count

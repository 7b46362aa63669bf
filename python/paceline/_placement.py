"""What tasks need of nodes: amounts of memory, custom resources, and which nodes will do.

Owns: `Placement`, and how users write amounts. Does not own: who gets what, which is the head's to decide.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    Rule = tuple[str, bool, tuple[tuple[str, str], ...], tuple[str, ...], tuple[str, ...], int]

ORDERS = ("spread", "pack")
ALONE = "one_per_node"
UNITS = {"": 1, "B": 1}
UNITS |= {unit + "B": 1024**power for power, unit in enumerate("KMGT", 1)}
UNITS |= {unit + "IB": 1024**power for power, unit in enumerate("KMGT", 1)}
UNITS |= {unit: 1024**power for power, unit in enumerate("KMGT", 1)}


class Placement:
    """On which nodes tasks may run. Given to `remote` and `options` as `placement=`.

    `order` is "spread" (the node with most room first) or "pack" (the fullest that has room). With `one_per_node`, no
    two slots of this placement are on the same node. `labels` are those a node must have; `nodes` and `exclude` are
    names of nodes.

    >>> import paceline as pl
    >>> pl.Placement("pack", labels={"zone": "b"})
    Placement('pack', labels={'zone': 'b'})
    """

    def __init__(
        self,
        order: str = "spread",
        *,
        one_per_node: bool = False,
        labels: Mapping[str, str] | None = None,
        nodes: Iterable[str] = (),
        exclude: Iterable[str] = (),
    ) -> None:
        if order not in ORDERS:
            raise ValueError(f"the order of a placement is one of {', '.join(ORDERS)}: {order!r}")
        self.order = order
        self.one_per_node = bool(one_per_node)
        self.labels = {str(name): str(value) for name, value in dict(labels or {}).items()}
        self.nodes = _names("nodes", nodes)
        self.exclude = _names("exclude", exclude)

    def __repr__(self) -> str:
        parts = [repr(self.order)]
        for name in ("one_per_node", "labels", "nodes", "exclude"):
            if getattr(self, name):
                parts.append(f"{name}={getattr(self, name)!r}")
        return f"Placement({', '.join(parts)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Placement) and self._rule(0) == other._rule(0)

    def __hash__(self) -> int:
        return hash(self._rule(0))

    def _rule(self, gpu_memory: int) -> Rule:
        labels = tuple(sorted(self.labels.items()))
        return (self.order, self.one_per_node, labels, self.nodes, self.exclude, gpu_memory)


def rule_of(placement: Any, gpu_memory: int) -> Rule | None:
    """The rule that `placement=` and `min_gpu_memory=` make together; None if any node will do."""
    if isinstance(placement, str):
        placement = Placement(one_per_node=True) if placement == ALONE else Placement(placement)
    elif placement is None:
        placement = Placement()
    elif not isinstance(placement, Placement):
        raise TypeError(
            f"placement must be 'pack', 'spread', 'one_per_node' or a Placement, not {type(placement).__name__}"
        )
    rule: Rule = placement._rule(gpu_memory)
    return None if rule == Placement()._rule(0) else rule


def amount_of_bytes(name: str, value: Any) -> int:
    """A number of bytes, or a text such as "2GB" or "512 MiB"; a unit is a power of 1024.

    >>> amount_of_bytes("memory", "1.5GiB")
    1610612736
    """
    if value is None:
        return 0
    if isinstance(value, str):
        text = value.replace(" ", "").upper()
        digits = text.rstrip("BIKMGT")
        unit = text[len(digits) :]
        try:
            return _from_zero(name, float(digits) * UNITS[unit], value)
        except (ValueError, KeyError):
            raise ValueError(f"{name} must be a number of bytes or a text such as '2GB': {value!r}") from None
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} must be a number of bytes or a text such as '2GB', not {type(value).__name__}")
    return _from_zero(name, float(value), value)


def custom_resources(value: Any) -> tuple[tuple[str, float], ...]:
    """What `resources=` asks for, in the order of the names.

    >>> custom_resources({"license": 1})
    (('license', 1.0),)
    """
    if value is None:
        return ()
    found = []
    for name, amount in dict(value).items():
        if not isinstance(name, str) or not name:
            raise TypeError(f"a resource is named by a text: {name!r}")
        if name in ("cpus", "gpus", "memory", "CPU", "GPU"):
            raise ValueError(f"{name} is no custom resource: there is an option of that name")
        if isinstance(amount, bool) or not hasattr(amount, "__float__"):
            raise TypeError(f"the amount of {name} must be a number, not {type(amount).__name__}")
        if not 0 < amount < float("inf"):
            raise ValueError(f"the amount of {name} must be more than zero: {amount}")
        found.append((name, float(amount)))
    if len(found) > 4:
        raise ValueError(f"at most four custom resources can be asked for at once, not {len(found)}")
    return tuple(sorted(found))


def number_of_gpus(value: Any) -> float:
    """GPUs: a fraction is a part of one device, more are whole devices."""
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise TypeError(f"gpus must be a number, not {type(value).__name__}")
    if not 0 <= value < float("inf") or (value > 1 and value != int(value)):
        raise ValueError(f"gpus must be a whole number, or a fraction of one: {value}")
    return float(value)


def _from_zero(name: str, amount: float, value: Any) -> int:
    if not 0 <= amount < 2**50:
        raise ValueError(f"{name} must be a number of bytes from zero up: {value!r}")
    return int(amount)


def _names(name: str, names: Iterable[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        names = (names,)
    checked = tuple(names)
    for each in checked:
        if not isinstance(each, str):
            raise TypeError(f"{name} are names, not {type(each).__name__}")
    return tuple(sorted(checked))

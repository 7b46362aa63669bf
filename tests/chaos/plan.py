"""The plan of a run: which fault befalls whom, when, and for how long. The same seed gives the same plan.

Owns: the choice. `faults` carries it out. Pure: no clock, no process, no randomness but the seed's.

* PL-1: every fault has ended by the end of the plan.
* PL-2: a node's daemon stands still only while nothing else can keep it from hearing its head, or early in a cut, and
  never together with its zygotes: one of the two must end its slots in time.
* PL-3: kinds come from a deck that is dealt out before it is shuffled again, so a short run has nearly all of them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

HEAD = "head"
NODES = ("node1", "node2", "node3")
CLIENTS = ("alice", "bob")
HOSTS = (HEAD, *NODES, *CLIENTS)

# Settings of the cluster under test, in seconds: short, so that much happens in a minute.
HEARTBEAT = 0.5
HEAD_LOST = 8.0
CLIENT_LOST = 6.0
# A cut that lasts so long has nodes end their slots, and everything rebuilt elsewhere.
LONG_CUT = (HEAD_LOST + 4.0, HEAD_LOST + 7.0)
# How long after one fault has ended another one may begin that must not meet it.
SETTLE_TIME = 3.0
# No fault before everybody has begun to work.
WARM_UP = 3.0


@dataclass(frozen=True)
class Fault:
    """One fault. `pick`, from 0 to 1, chooses among the processes of that time; `amount` is a delay or a share."""

    at: float
    seconds: float
    kind: str
    target: str
    other: str = ""
    pick: float = 0.0
    amount: float = 0.0

    @property
    def end(self) -> float:
        return self.at + self.seconds

    def __str__(self) -> str:
        whom = f"{self.target} {self.other}".strip()
        amount = f" {self.amount:g}" if self.amount else ""
        return f"{self.at:6.1f} s  {self.kind:16} {whom:12} for {self.seconds:4.1f} s{amount}"


# How many of each kind are in the deck.
DECK = {
    "kill-slot": 3,
    "kill-zygote": 1,
    "kill-node": 2,
    "kill-head": 2,
    "kill-client": 1,
    "interrupt-client": 1,
    "stop-slot": 2,
    "stop-zygote": 1,
    "stop-node": 1,
    "stop-head": 1,
    "stop-client": 1,
    "stop-host": 1,
    "cut-host": 2,
    "cut-pair": 2,
    "cut-one-way": 2,
    "cut-long": 1,
    "cut-restart": 1,
    "cut-stall": 1,
    "delay": 1,
    "loss": 1,
    "reset": 1,
    "fill-state": 1,
    "fill-temporary": 1,
    "drain-node": 1,
}

# From how short to how long a fault of a kind is, in seconds.
DURATIONS = {
    "kill-slot": (0.0, 0.0),
    "kill-zygote": (0.0, 0.0),
    "kill-node": (0.2, 4.0),
    "kill-head": (0.2, 4.0),
    "kill-client": (0.2, 3.0),
    "interrupt-client": (0.2, 3.0),
    "stop-slot": (0.5, 15.0),
    "stop-zygote": (0.5, 6.0),
    "stop-node": (0.6, 4.0),
    "stop-head": (0.6, 10.0),
    "stop-client": (0.6, 10.0),
    "stop-host": (0.6, 4.0),
    "cut-host": (0.5, 6.0),
    "cut-pair": (0.5, 6.0),
    "cut-one-way": (0.5, 6.0),
    "cut-long": LONG_CUT,
    "cut-restart": LONG_CUT,
    "cut-stall": LONG_CUT,
    "delay": (2.0, 6.0),
    "loss": (2.0, 6.0),
    "reset": (0.0, 0.0),
    "fill-state": (1.0, 6.0),
    "fill-temporary": (1.0, 6.0),
    "drain-node": (8.0, 8.0),
}


def make(seed: int, seconds: float) -> list[Fault]:
    """Returns the faults of a run of so many seconds, by the time when they begin."""
    rng = random.Random(seed)
    plan: list[Fault] = []
    deck: list[str] = []
    at = WARM_UP
    while at < seconds:
        if not deck:
            deck = [kind for kind, count in DECK.items() for _ in range(count)]
            rng.shuffle(deck)
        fault = _fault(rng, at, deck.pop())
        if fault.end <= seconds and not any(conflict(fault, other) for other in plan):
            plan.append(fault)
        at += rng.uniform(0.2, 2.0)
    return plan


def _fault(rng: random.Random, at: float, kind: str) -> Fault:
    seconds = round(rng.uniform(*DURATIONS[kind]), 1)
    target, other = _whom(rng, kind)
    amount = 0.0
    if kind == "delay":
        amount = round(rng.uniform(0.01, 0.15), 3)
    elif kind == "loss":
        amount = float(rng.randint(2, 15))
    return Fault(round(at, 1), seconds, kind, target, other, round(rng.random(), 3), amount)


def _whom(rng: random.Random, kind: str) -> tuple[str, str]:
    if kind in ("delay", "loss"):
        return "network", ""
    if kind in ("kill-head", "stop-head", "fill-state"):
        return HEAD, ""
    if kind.endswith("-client"):
        return rng.choice(CLIENTS), ""
    if kind in ("cut-pair", "cut-one-way", "reset"):
        one, other = rng.sample(HOSTS, 2)
        return one, other
    if kind == "cut-host":
        return rng.choice(HOSTS), ""
    if kind in ("cut-long", "cut-restart", "cut-stall"):
        # From the head only, or from everybody.
        return rng.choice(NODES), rng.choice([HEAD, ""])
    # Kinds that are about a node, or about a process on one.
    return rng.choice(NODES), ""


def conflict(one: Fault, other: Fault) -> bool:
    """Returns whether two faults must not meet."""
    first, second = (one, other) if one.at <= other.at else (other, one)
    if first.end + SETTLE_TIME <= second.at:
        return False
    alone, shared = claims(one)
    others_alone, others_shared = claims(other)
    return bool(alone & (others_alone | others_shared) or others_alone & shared)


def claims(fault: Fault) -> tuple[set[str], set[str]]:
    """Returns what a fault needs for itself, and what it shares with others of its like."""
    kind, target, other = fault.kind, fault.target, fault.other
    alone: set[str] = set()
    shared: set[str] = set()
    if kind in ("kill-node", "stop-node", "stop-host", "drain-node", "cut-stall"):
        alone.add(f"daemon {target}")
    if kind in ("kill-head", "stop-head", "cut-restart"):
        alone.add("daemon head")
    if kind.endswith("-client"):
        alone.add(f"client {target}")
    if kind in ("delay", "loss", "fill-state"):
        alone.add(kind)
    if kind == "fill-temporary":
        alone.add(f"{kind} {target}")
    if kind in ("stop-node", "stop-host", "cut-stall"):
        alone.add(f"silence {target}")
    shared |= {f"silence {node}" for node in _silenced(kind, target, other)}
    return alone, shared - alone


def _silenced(kind: str, target: str, other: str) -> tuple[str, ...]:
    """Returns the nodes that cannot hear the head, or that it cannot hear, during a fault."""
    if kind in ("kill-head", "stop-head", "cut-restart"):
        return NODES
    if kind in ("cut-host", "cut-pair", "cut-one-way", "cut-long", "reset"):
        ends = {target, other}
        if other == "":
            return NODES if target == HEAD else (target,) if target in NODES else ()
        return tuple(node for node in NODES if node in ends and HEAD in ends)
    return ()


def describe(plan: list[Fault]) -> str:
    """Returns the plan, a line for each fault."""
    return "\n".join(str(fault) for fault in plan)

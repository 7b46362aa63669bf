"""What clients do with actors: their own, each other's, and those that are nobody's."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import paceline as pl
from chaos import history, workload
from chaos.activity import Activity
from chaos.plan import CLIENTS

if TYPE_CHECKING:
    from chaos.client import Client

CounterActor = pl.remote(cpus=0)(workload.Counter)
relay = pl.remote(workload.relay)


class ActorActivity(Activity):
    """Calls one actor in bursts, and gets another one when it is gone for good."""

    kind = ""

    def __init__(self, client: Client, rng: random.Random) -> None:
        super().__init__(client, rng)
        self.actor: Any = None
        self.made = 0
        self.sequence = 0

    def obtain(self) -> None:
        """Sets `actor`, or leaves None."""
        raise NotImplementedError

    def attempt(self) -> bool:
        if self.actor is None:
            self.obtain()
        if self.actor is None:
            return False
        futures = [self.call() for _ in range(self.rng.randint(1, 8))]
        succeeded = self.client.settle(futures)
        if any(future is not None and _is_gone(future) for future in futures):
            self.actor = None
        return succeeded

    def call(self) -> Any:
        """Submits one call; calls are numbered in the order in which they are submitted."""
        self.sequence += 1
        sequence, seconds, caller = self.sequence, self.rng.choice([0.0, 0.01, 0.1]), history.process()
        actor = self.actor
        return self.client.submit(
            "call", lambda call: actor.add.submit(call, caller, sequence, seconds), sequence=sequence
        )


def _is_gone(future: Any) -> bool:
    """Returns whether an actor will take no more calls, as the outcome of this one says."""
    error = future.exception(timeout=0) if future.done() and not future.cancelled() else None
    return isinstance(error, pl.ActorDied) and not error.again


class NamedActor(ActorActivity):
    """An actor of this client that has a name and is built anew when it dies; the other client calls it, too."""

    kind = "named"

    def obtain(self) -> None:
        self.made += 1
        whole = f"{self.client.label}.{self.kind}.{self.made}"
        made = CounterActor.options(restarts=5, **self.options())
        # Whoever had the name must have let go of it.
        self.actor = None
        self.actor = self.client.do("create", lambda _: made(whole, self.kind), whole=whole)

    def options(self) -> dict[str, Any]:
        return {"name": f"named-{self.client.name}-{self.made}"}


class UnnamedActor(NamedActor):
    """An actor of this client that nobody else knows."""

    kind = "unnamed"

    def options(self) -> dict[str, Any]:
        return {}


class VisitedActor(ActorActivity):
    """The other client's actor, called by this client and by its tasks."""

    kind = "visited"

    def obtain(self) -> None:
        other = CLIENTS[1 - CLIENTS.index(self.client.name)]
        # It has had few actors so far, or is at a later one.
        self.made = self.made % 3 + 1
        name = f"named-{other}-{self.made}"
        self.actor = self.client.do("find", lambda _: pl.get_actor(name), name=name)

    def attempt(self) -> bool:
        succeeded = super().attempt()
        actor = self.actor
        if actor is not None and self.rng.random() < 0.3:
            number = self.rng.randrange(1000)
            about = {"retries": 3, "value": workload.value_of(number)}
            return self.client.settle(
                [self.client.submit("task", lambda call: relay.submit(call, number, actor), **about)]
            )
        return succeeded

    def finish(self) -> bool:
        # The other client may have ended its actor by now.
        return True


class DetachedActor(ActorActivity):
    """An actor of nobody's, which both clients find or make."""

    kind = "detached"

    def obtain(self) -> None:
        name = f"detached-{self.rng.randrange(2)}"
        self.actor = self.client.do("find", lambda _: pl.get_actor(name), whole=name)
        if self.actor is None:
            made = CounterActor.options(name=name, detached=True, restarts=1000)
            self.actor = self.client.do("create", lambda _: made(name, self.kind), whole=name, detached=True)

    def attempt(self) -> bool:
        succeeded = super().attempt()
        # So that both actors, and finding them, are used.
        if not succeeded or self.rng.random() < 0.2:
            self.actor = None
        return succeeded

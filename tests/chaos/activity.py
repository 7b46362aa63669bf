"""Something a client does again and again."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chaos.client import Client


class Activity:
    """One kind of work in a thread of its own: `step` until the run is to end, then `finish` until it succeeds."""

    # The longest time between two steps, in seconds.
    pause = 0.2

    def __init__(self, client: Client, rng: random.Random) -> None:
        self.client = client
        self.rng = rng

    def attempt(self) -> bool:
        """Does it once and returns whether it succeeded."""
        raise NotImplementedError

    def step(self) -> None:
        """Does it once, whatever comes of it, and rests a while."""
        if not self.attempt():
            self.client.stopping.wait(0.3)
        self.client.stopping.wait(self.rng.uniform(0.0, self.pause))

    def finish(self) -> bool:
        """Does it once more and returns whether it succeeded; all faults are over, so in a while it must."""
        return self.attempt()

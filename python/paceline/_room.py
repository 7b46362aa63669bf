"""What happens when more tasks wait to be sent than the queue may hold.

Owns: which threads may wait for room, the words for those that may not, and waiting on an event loop. The core
keeps the order: tasks are accepted as they were submitted.

* RO-1: a thread that runs an event loop, callbacks or a task never waits here.
"""

from __future__ import annotations

import sys

from paceline import _slot
from paceline.errors import QueueFull

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio

    from paceline._native import Gate

# After so many tasks that found room, others on the loop get their turn.
BURST = 64
_accepted = 0


def check(in_callback: bool, fill: tuple[int, int, int, int]) -> None:
    """Raise `QueueFull` if this thread must not wait. `fill` is how much waits, and how much may."""
    if _slot.number is not None:
        where = "a task"
    elif in_callback:
        where = "a callback"
    elif runs_a_loop():
        where = "a thread that runs an event loop"
    else:
        return
    tasks, size, queue_tasks, queue_bytes = fill
    raise QueueFull(where=where, tasks=tasks, bytes=size, queue_tasks=queue_tasks, queue_bytes=queue_bytes)


def runs_a_loop() -> bool:
    """Whether this thread runs an event loop."""
    # Without the module, or while another thread still imports it, nobody can have started one.
    running_loop = getattr(sys.modules.get("asyncio.events"), "_get_running_loop", None)
    return running_loop is not None and running_loop() is not None


async def turn() -> None:
    """Let others on the loop run now and then: a coroutine that only submits would not."""
    global _accepted
    _accepted += 1
    if _accepted >= BURST:
        _accepted = 0
        import asyncio

        await asyncio.sleep(0)


async def passed(gate: Gate) -> None:
    """Wait until the task was accepted. Raises `ClusterClosed` if the cluster ends before. Cancelling the wait
    takes the task back."""
    import asyncio

    from paceline._future import wake

    try:
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[None] = loop.create_future()
        gate.on_open(lambda: wake(loop, opened))
        await opened
    except BaseException:
        # Cancelled, thrown away, or no loop of asyncio's: nobody would ever hear of the task.
        gate.withdraw()
        raise
    gate.pass_through()

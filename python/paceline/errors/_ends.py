"""Errors of tasks that did not end by themselves: too long, or with their process, node, group or pool."""

from __future__ import annotations

from paceline.errors._base import PacelineError
from paceline.errors._wording import (
    STOPPING,
    after_attempts,
    amount,
    how_it_ended,
    how_it_was_lost,
    memory_ran_out,
    signal_name,
    task_name,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal


class TaskTimeout(PacelineError):
    """One attempt of a task ran longer than its `timeout`."""

    code = "task-timeout"

    def __init__(self, *, task: int = 0, function: str = "", timeout: float = 0.0, attempts: int = 1) -> None:
        self.task = task
        self.function = function
        self.timeout = timeout
        self.attempts = attempts
        super().__init__(
            f"{task_name(task, function)} ran longer than its timeout of {timeout:g} s{after_attempts(attempts)}",
            hint="raise timeout=, or make the task smaller",
        )


class NodeLost(PacelineError):
    """The machine that ran the task is gone, or silent for too long."""

    code = "node-lost"

    def __init__(self, *, task: int = 0, function: str = "", node: str = "", attempts: int = 1) -> None:
        self.task = task
        self.function = function
        self.node = node
        self.attempts = attempts
        super().__init__(
            f"{task_name(task, function)} was lost with its node {node or 'unknown'}{after_attempts(attempts)}",
            hint="the machine went down or cannot be reached; raise retries= if this is to be expected",
        )


class SlotDied(PacelineError):
    """The process that ran the task ended before the task did.

    `signal` is the number of the signal that ended it, or that stopped it for too long, and `exit_code` what it left
    with. `out_of_memory` says whether memory was the reason; then `peak` is the most bytes the process had and `limit`
    how many there are, as far as they are known. With `own_limit` it is the limit that the task itself was given by
    `memory=`.
    """

    code = "slot-died"

    def __init__(
        self,
        *,
        task: int = 0,
        function: str = "",
        slot: int = 0,
        node: str = "",
        signal: int | None = None,
        exit_code: int | None = None,
        out_of_memory: Literal["yes", "likely", "no"] = "no",
        attempts: int = 1,
        slots: tuple[int, ...] = (),
        peak: int = 0,
        limit: int = 0,
        own_limit: bool = False,
    ) -> None:
        self.task = task
        self.function = function
        self.slot = slot
        self.slots = tuple(slots)
        self.node = node
        self.signal = signal
        self.exit_code = exit_code
        self.out_of_memory = out_of_memory
        self.peak = peak
        self.limit = limit
        self.own_limit = own_limit
        self.attempts = attempts
        super().__init__(self._message(), hint=self._hint())

    def _message(self) -> str:
        where = f"slot {self.slot}" + (f" on {self.node}" if self.node else "")
        task, after = task_name(self.task, self.function), after_attempts(self.attempts)
        return f"{task} died with {where}: {self._ending()}{after}"

    def _ending(self) -> str:
        if self.own_limit:
            return f"it took more memory than it may: {amount(self.peak)} of {amount(self.limit)}"
        memory = memory_ran_out(self.out_of_memory)
        if memory and self.peak and self.limit:
            memory += f": it had {amount(self.peak)} of {amount(self.limit)}"
        return how_it_ended(self.signal, self.exit_code) + memory

    def _hint(self) -> str:
        plain = f"{self.function.rpartition('.')[2] or 'it'}.original(...)"
        if self.own_limit:
            return (
                "raise its memory=, or give it less data at a time; it is not run again by itself, for it would take "
                'as much again: retry_on=("slot", "node", "memory") does'
            )
        if self.out_of_memory != "no":
            return (
                "give it less data at a time, or ask for more cpus= so that fewer tasks run side by side; "
                "PACELINE_MEMORY_LIMIT sets how much slots may have"
            )
        if self.signal is None:
            return "the function called os._exit or something it uses did; raise an exception instead"
        if signal_name(self.signal) in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE"):
            return f"native code crashed; run {plain} under python -X faulthandler to see where"
        if signal_name(self.signal) in STOPPING:
            return (
                "something stopped the process, and nobody let it go on with kill -CONT; "
                "PACELINE_STOPPED_LIMIT sets how long it may stand still"
            )
        return "something outside killed the process; look at the system log, or raise retries="


class OutOfMemory(SlotDied):
    """The process that ran the task was ended for memory: because there was none left, or because the task took more
    than its own `memory=`. By its node, or by the kernel."""

    code = "out-of-memory"


class PoisonTask(SlotDied):
    """A task that ended every slot it ran in, and is not run again. `slots` are all of them."""

    code = "poison-task"

    def _message(self) -> str:
        slots = ", ".join(str(slot) for slot in self.slots or (self.slot,))
        where = f" on {self.node}" if self.node else ""
        task = task_name(self.task, self.function)
        return f"{task} is not run again, it ended slots {slots}; the last{where} was {self._ending()}"


class GroupLost(PacelineError):
    """The group that the task was to run in has lost a member, and so it is lost as a whole.

    `rank` is the member, `slot` and `node` where it was; `signal` or `exit_code` say how its process ended, unless
    its node was lost.
    """

    code = "group-lost"

    def __init__(
        self,
        *,
        task: int = 0,
        function: str = "",
        rank: int = 0,
        size: int = 0,
        slot: int = 0,
        node: str = "",
        signal: int | None = None,
        exit_code: int | None = None,
        out_of_memory: Literal["yes", "likely", "no"] = "no",
        node_lost: bool = False,
        timed_out: bool = False,
    ) -> None:
        self.task = task
        self.function = function
        self.rank = rank
        self.size = size
        self.slot = slot
        self.node = node
        self.signal = signal
        self.exit_code = exit_code
        self.out_of_memory = out_of_memory
        self.node_lost = node_lost
        ending = "it ran too long and did not stop" if timed_out else how_it_ended(signal, exit_code)
        how = how_it_was_lost(node_lost, slot, node, ending, out_of_memory)
        super().__init__(
            f"{task_name(task, function)} ended with its group: rank {rank} of {size} {how}",
            hint="a group is lost as a whole; open another with pl.group(...), and go on from what was saved",
        )


class PoolBroken(PacelineError):
    """A pool has ended: what prepares its slots failed in one after the other, or too many of them died.

    `call` is what failed, in `tries` slots in a row; the exception that it raised is `error`, and the `__cause__`. Else
    `signal` or `exit_code` say how the last slot ended, and `deaths` how many there were.
    """

    code = "pool-broken"

    def __init__(
        self,
        *,
        function: str = "",
        call: str = "",
        tries: int = 0,
        error: BaseException | None = None,
        reason: str = "",
        slot: int = 0,
        node: str = "",
        signal: int | None = None,
        exit_code: int | None = None,
        out_of_memory: Literal["yes", "likely", "no"] = "no",
        deaths: int = 0,
        node_lost: bool = False,
    ) -> None:
        self.function = function
        self.call = call
        self.tries = tries
        self.error = error
        self.slot = slot
        self.node = node
        self.signal = signal
        self.exit_code = exit_code
        self.out_of_memory = out_of_memory
        self.deaths = deaths
        memory = memory_ran_out(out_of_memory)
        where = f"slot {slot}{f' on {node}' if node else ''}"
        died = f"{where} was lost with its node" if node_lost else f"{where} {how_it_ended(signal, exit_code)}{memory}"
        slots = f"in {tries} slots in a row" if tries > 1 else "in a slot"
        if call and (error is not None or reason):
            said = reason if error is None else f"{type(error).__name__}: {error}"
            what = f"{call} failed {slots}, at last with {said}"
            hint = "what every slot of a pool runs must not fail; the cause has the traceback from the slot"
        elif call:
            what = f"{call} ended its slot {slots}; the last one: {died}"
            hint = "what every slot of a pool runs must not end the process"
        else:
            what = f"{died}, and no more deaths are made good" if deaths > 1 else died
            hint = "what was to run in it was not run again; open another pool"
        super().__init__(f"the pool is broken: {what}", hint=hint)

"""Errors of actors, and of pools of them."""

from __future__ import annotations

from paceline.errors._base import PacelineError
from paceline.errors._wording import amount, how_it_ended, how_it_was_lost, task_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal


class ActorDied(PacelineError):
    """The process that an actor lives in has ended.

    `ran` says whether the call had begun, as far as anybody knows; otherwise it never will. With `again` the actor is
    built anew and takes the next call. `deaths` is how often it has died.
    """

    code = "actor-died"

    def __init__(
        self,
        *,
        task: int = 0,
        function: str = "",
        ran: bool = False,
        again: bool = False,
        deaths: int = 1,
        slot: int = 0,
        node: str = "",
        signal: int | None = None,
        exit_code: int | None = None,
        out_of_memory: Literal["yes", "likely", "no"] = "no",
        node_lost: bool = False,
        timed_out: bool = False,
        why: str = "",
    ) -> None:
        self.task = task
        self.function = function
        self.ran = ran
        self.again = again
        self.deaths = deaths
        self.slot = slot
        self.node = node
        self.signal = signal
        self.exit_code = exit_code
        self.out_of_memory = out_of_memory
        ending = "a call ran too long and did not stop" if timed_out else how_it_ended(signal, exit_code)
        lost = how_it_was_lost(node_lost, slot, node, ending, out_of_memory)
        how = f"is gone: {why}" if why else lost
        begun = "it had begun, and is not run again" if ran else "it had not begun"
        super().__init__(
            f"{task_name(task, function)} ended with its actor, which {how}; {begun}",
            hint="the actor is built anew and takes further calls"
            if again
            else "options(restarts=n) has it built anew after a death; __checkpoint__ and __restore__ keep its state",
        )


class ActorUnavailable(PacelineError):
    """An actor cannot be reached just now; it may live. The call has not run."""

    code = "actor-unavailable"

    def __init__(self, *, task: int = 0, function: str = "", why: str = "") -> None:
        self.task = task
        self.function = function
        call = task_name(task, function) if task or not function else function
        super().__init__(
            f"{call} did not run: its actor cannot be reached{f', for {why}' if why else ''}",
            hint="try again in a while",
        )


class ActorRefused(PacelineError, ValueError):
    """Others cannot call an actor: its name is another's, most likely."""

    code = "actor-refused"

    def __init__(self, message: str = "the actor's name is taken", *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)


class NoSuchActor(PacelineError, LookupError):
    """No actor of this name is in the cluster. `gone` says what became of the last one, if that is known."""

    code = "no-such-actor"

    def __init__(self, name: str = "", gone: str = "") -> None:
        self.name = name
        self.gone = gone
        super().__init__(
            f"there is no actor of the name {name!r} in this cluster" + (f" any more: {gone}" if gone else ""),
            hint="Class.options(name=...)(...) makes one; it ends with its owner, unless it is detached=True",
        )


class HistoryFull(PacelineError):
    """The updates that slots which come later must run take more room than they may."""

    code = "history-full"

    def __init__(self, call: str = "", size: int = 0, limit: int = 0) -> None:
        self.call = call
        self.size = size
        self.limit = limit
        super().__init__(
            f"{call or 'an update'} does not fit: the updates of the pool take {amount(size)} of {amount(limit)}",
            hint="give the class get_state and set_state, which then stand for all updates before; or say replaces=key "
            "where an update makes earlier ones void; or raise update_history=",
        )

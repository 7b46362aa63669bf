"""Errors of what there is not: room in the queue, resources, hardware, depth, a group's slots."""

from __future__ import annotations

from paceline.errors._base import PacelineError
from paceline.errors._wording import megabytes

# How the head ends a reason that is a setting of its own.
OF_HEAD = " of the head)"


class QueueFull(PacelineError):
    """More tasks wait to be sent than the queue may hold, and the thread that submits must not wait for room: it
    runs an event loop, a callback or a task.

    `tasks` and `bytes` are what waits, `queue_tasks` and `queue_bytes` how much may.
    """

    code = "queue-full"

    def __init__(
        self,
        *,
        where: str = "this thread",
        tasks: int = 0,
        bytes: int = 0,
        queue_tasks: int = 0,
        queue_bytes: int = 0,
    ) -> None:
        self.where = where
        self.tasks = tasks
        self.bytes = bytes
        self.queue_tasks = queue_tasks
        self.queue_bytes = queue_bytes
        super().__init__(
            f"the queue is full: {tasks} of {queue_tasks} tasks and {megabytes(bytes)} of {megabytes(queue_bytes)} "
            f"MB of arguments wait to be sent, and {where} must not wait for room",
            hint="await submit_async(...) instead, ask for some results before submitting more, use map, or raise "
            "queue_tasks= or queue_bytes= of connect()",
        )


class NoResources(PacelineError):
    """No node can ever hold what the task asks for, none had room for it in the time it may wait, or the client has as
    many of something as the head allows."""

    code = "no-resources"

    def __init__(
        self,
        *,
        needs: str,
        largest: str = "",
        why: str = "",
        waited: bool = False,
        task: int = 0,
        function: str = "",
        group: int = 0,
    ) -> None:
        self.task = task
        self.group = group
        self.needs = needs
        self.largest = largest
        self.why = why
        self.waited = waited
        self.function = function
        whose = f" for {function}" if function else ""
        most = why or (f"the largest has {largest}" if largest else "")
        what = f"a group of {group} with {needs} each" if group else f"{needs}{whose}"
        if waited:
            message = f"no room for {what} in the time it may wait"
            hint = f"wait longer with {'group' if group else 'options'}(wait=...), ask for less, or add nodes"
        elif why.endswith(OF_HEAD):
            # A setting is reached, and says so: no node is too small.
            setting = why.removesuffix(OF_HEAD).rpartition("(")[2]
            message = f"the head gives no slots to {what}" if group else f"the head gives no slot with {what}"
            hint = f"use fewer at a time, or start the head with a larger PACELINE_{setting.upper()}"
        elif group:
            message = f"there is not enough for {what}, and never will be"
            hint = "ask for fewer members or for less, or connect to a larger cluster"
        else:
            message = f"no node can ever hold {what}"
            hint = "ask for less with options(cpus=...), or connect to a larger cluster"
        super().__init__(f"{message}{': ' if most else ''}{most}", hint=hint)


class NestingTooDeep(PacelineError):
    """So many tasks wait for others on one node that another one may not, and it cannot run what it waits for."""

    code = "nesting-too-deep"

    def __init__(self, *, needs: str = "", task: int = 0, function: str = "") -> None:
        self.task = task
        self.needs = needs
        self.function = function
        what = f"{function} (task {task})" if function else f"task {task}"
        more = f" and {what} needs {needs}, which is more than the task that waits for it has" if needs else ""
        super().__init__(
            f"too many tasks wait for other tasks on this node{more}",
            hint="nest less deeply, or give the outer task as many cpus as the inner one",
        )


class NoSuchHardware(PacelineError):
    """This machine does not have what a node on it was to have."""

    code = "no-such-hardware"
    hint = "leave it out to use what there is; PACELINE_FAKE_GPUS=2 pretends to have two GPUs, for tests"


class GroupClosed(PacelineError):
    """The group has been closed, and its slots were given back."""

    code = "group-closed"
    hint = "use it inside its with block, or open another with pl.group(...)"

    def __init__(self, message: str = "the group is closed", *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)

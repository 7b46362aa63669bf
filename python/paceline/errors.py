"""Every error that Paceline raises by itself.

Owns the tree under `PacelineError`: each class has a stable `code` for programs, a `hint` for people, and
fields that say what happened. Errors of user code are not here: they reach the caller as what they are, with
a `RemoteTraceback` as their cause.

* ER-1: every error survives pickling with all its fields, whatever its constructor takes.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal

__all__ = [
    "ActorDied",
    "ActorRefused",
    "ActorUnavailable",
    "ArgumentNotSerializable",
    "ClusterClosed",
    "ClusterStopped",
    "ConnectionFailed",
    "FunctionNotSerializable",
    "GroupClosed",
    "GroupLost",
    "HeadLost",
    "HistoryFull",
    "NoResources",
    "NoSuchActor",
    "NoSuchFunction",
    "NoSuchHardware",
    "NodeLost",
    "NotConnected",
    "OutOfMemory",
    "PacelineError",
    "PoisonTask",
    "PoolBroken",
    "ProgramNotStarted",
    "QueueFull",
    "RemoteError",
    "RemoteTraceback",
    "ResultNotSerializable",
    "SerializationError",
    "SlotDied",
    "TaskTimeout",
    "WrongArguments",
]


def _restore(kind: type[BaseException], args: tuple[Any, ...], fields: dict[str, Any]) -> BaseException:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


class PacelineError(Exception):
    """Base of all errors of Paceline.

    >>> try:
    ...     raise PacelineError("the disk is full", hint="delete something")
    ... except PacelineError as error:
    ...     print(error)
    the disk is full
    hint: delete something
    """

    code: str = "paceline"
    hint: str | None = None

    def __init__(self, message: str = "", *, hint: str | None = None) -> None:
        super().__init__(message)
        if hint is not None:
            self.hint = hint

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\nhint: {self.hint}" if self.hint else message

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, self.__dict__)


class NotConnected(PacelineError):
    """A remote function was used without a cluster to run it on."""

    code = "not-connected"
    hint = "call paceline.connect() first"

    def __init__(self, message: str = "not connected to a cluster", *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)


class ClusterClosed(PacelineError):
    """The cluster was closed before the task had ended, or is used after its end."""

    code = "cluster-closed"

    def __init__(self, message: str = "the cluster is closed", *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)


class ClusterStopped(ClusterClosed):
    """The cluster was stopped, by `paceline stop` or a signal to its head, before the task had ended.

    `by` says who stopped it.
    """

    code = "cluster-stopped"

    def __init__(self, by: str = "somebody", *, task: int = 0, function: str = "") -> None:
        self.by = by
        self.task = task
        self.function = function
        ended = f"{_task(task, function)} ended with the cluster, which" if task or function else "the cluster"
        super().__init__(
            f"{ended} was stopped by {by}",
            hint="start it again with paceline start, connect again, and submit what had not ended",
        )


class ConnectionFailed(PacelineError, ConnectionError):
    """A cluster could not be reached, or did not let this program in. `address` is where it was looked for."""

    code = "connection-failed"

    def __init__(self, message: str = "", *, address: str = "", hint: str | None = None) -> None:
        self.address = address
        super().__init__(message, hint=hint)


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
            f"the queue is full: {tasks} of {queue_tasks} tasks and {_megabytes(bytes)} of {_megabytes(queue_bytes)} "
            f"MB of arguments wait to be sent, and {where} must not wait for room",
            hint="await submit_async(...) instead, ask for some results before submitting more, use map, or raise "
            "queue_tasks= or queue_bytes= of connect()",
        )


class NoResources(PacelineError):
    """No node can ever hold what the task asks for, or none had room for it in the time it may wait."""

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
        elif group:
            message = f"there is not enough for {what}, and never will be"
            hint = "ask for fewer members or for less, or connect to a larger cluster"
        else:
            message = f"no node can ever hold {what}"
            hint = "ask for less with options(cpus=...), or connect to a larger cluster"
        super().__init__(f"{message}{': ' if most else ''}{most}", hint=hint)


class GroupClosed(PacelineError):
    """The group has been closed, and its slots were given back."""

    code = "group-closed"
    hint = "use it inside its with block, or open another with pl.group(...)"

    def __init__(self, message: str = "the group is closed", *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)


class NoSuchHardware(PacelineError):
    """This machine does not have what a node on it was to have."""

    code = "no-such-hardware"
    hint = "leave it out to use what there is; PACELINE_FAKE_GPUS=2 pretends to have two GPUs, for tests"


class HeadLost(PacelineError):
    """The task waited for the head of the cluster, which was out of reach for too long.

    Tasks that run in slots go on without the head; what waits for a slot ends with this after 60 seconds.
    """

    code = "head-lost"

    def __init__(self, *, task: int = 0, function: str = "", after: float = 0.0) -> None:
        self.task = task
        self.function = function
        self.after = after
        super().__init__(
            f"{_task(task, function)} waited for the head of the cluster, which was out of reach for {after:g} s",
            hint="is the head running and reachable? see paceline status; then submit the task again",
        )


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


class TaskTimeout(PacelineError):
    """One attempt of a task ran longer than its `timeout`."""

    code = "task-timeout"

    def __init__(self, *, task: int = 0, function: str = "", timeout: float = 0.0, attempts: int = 1) -> None:
        self.task = task
        self.function = function
        self.timeout = timeout
        self.attempts = attempts
        super().__init__(
            f"{_task(task, function)} ran longer than its timeout of {timeout:g} s{_after(attempts)}",
            hint="raise timeout=, or make the task smaller",
        )


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
        memory = {"yes": ", out of memory", "likely": ", likely out of memory"}.get(out_of_memory, "")
        if node_lost:
            how = f"was lost with its node {node or 'unknown'}"
        else:
            ending = "it ran too long and did not stop" if timed_out else _ending(signal, exit_code)
            how = f"died with slot {slot}{f' on {node}' if node else ''}: {ending}{memory}"
        super().__init__(
            f"{_task(task, function)} ended with its group: rank {rank} of {size} {how}",
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
        memory = {"yes": ", out of memory", "likely": ", likely out of memory"}.get(out_of_memory, "")
        where = f"slot {slot}{f' on {node}' if node else ''}"
        died = f"{where} was lost with its node" if node_lost else f"{where} {_ending(signal, exit_code)}{memory}"
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
        memory = {"yes": ", out of memory", "likely": ", likely out of memory"}.get(out_of_memory, "")
        if why:
            how = f"is gone: {why}"
        elif node_lost:
            how = f"was lost with its node {node or 'unknown'}"
        else:
            ending = "a call ran too long and did not stop" if timed_out else _ending(signal, exit_code)
            how = f"died with slot {slot}{f' on {node}' if node else ''}: {ending}{memory}"
        begun = "it had begun, and is not run again" if ran else "it had not begun"
        super().__init__(
            f"{_task(task, function)} ended with its actor, which {how}; {begun}",
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
        super().__init__(
            f"{_task(task, function)} did not run: its actor cannot be reached{f', for {why}' if why else ''}",
            hint="try again in a while",
        )


class ActorRefused(PacelineError, ValueError):
    """Others cannot call an actor: its name is another's, most likely."""

    code = "actor-refused"

    def __init__(self, message: str = "the actor's name is taken") -> None:
        super().__init__(message)


class NoSuchActor(PacelineError, LookupError):
    """No actor of this name is in the cluster."""

    code = "no-such-actor"

    def __init__(self, name: str = "") -> None:
        self.name = name
        super().__init__(
            f"there is no actor of the name {name!r} in this cluster",
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
            f"{call or 'an update'} does not fit: the updates of the pool take {_bytes(size)} of {_bytes(limit)}",
            hint="give the class get_state and set_state, which then stand for all updates before; or say replaces=key "
            "where an update makes earlier ones void; or raise update_history=",
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
            f"{_task(task, function)} was lost with its node {node or 'unknown'}{_after(attempts)}",
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
        return f"{_task(self.task, self.function)} died with {where}: {self._ending()}{_after(self.attempts)}"

    def _ending(self) -> str:
        if self.own_limit:
            return f"it took more memory than it may: {_bytes(self.peak)} of {_bytes(self.limit)}"
        memory = {"yes": ", out of memory", "likely": ", likely out of memory"}.get(self.out_of_memory, "")
        if memory and self.peak and self.limit:
            memory += f": it had {_bytes(self.peak)} of {_bytes(self.limit)}"
        return _ending(self.signal, self.exit_code) + memory

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
        if _signal_name(self.signal) in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE"):
            return f"native code crashed; run {plain} under python -X faulthandler to see where"
        if _signal_name(self.signal) in _STOPPING:
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
        task = _task(self.task, self.function)
        return f"{task} is not run again, it ended slots {slots}; the last{where} was {self._ending()}"


UNREADABLE = "it was pickled and cannot be loaded: look at what its __reduce__ or __getstate__ gives, and who uses it"


class SerializationError(PacelineError):
    """Something cannot be sent between processes. `path` names the part that is to blame."""

    code = "not-serializable"

    def __init__(self, message: str = "", *, path: str = "", hint: str | None = None) -> None:
        self.path = path
        super().__init__(message, hint=hint)


class ArgumentNotSerializable(SerializationError):
    """An argument of a call cannot be sent to a slot."""

    code = "argument-not-serializable"


class ResultNotSerializable(SerializationError):
    """What the function returned cannot be sent back."""

    code = "result-not-serializable"


class FunctionNotSerializable(SerializationError):
    """The function, or something it refers to, cannot be sent to a slot."""

    code = "function-not-serializable"


class RemoteError(PacelineError):
    """Stands in for an exception of user code that could not travel, or for an error of another language.

    `type_name` and `message` are those of the original; its traceback is the `__cause__`. A Rust panic has the
    type name "panic", and `location` says where it happened.
    """

    code = "remote-error"

    def __init__(self, type_name: str = "", message: str = "", *, location: str = "", hint: str | None = None) -> None:
        self.type_name = type_name
        self.message = message
        self.location = location
        text = f"{type_name}: {message}" if message else type_name
        super().__init__(f"{text} (at {location})" if location else text, hint=hint)


class ProgramNotStarted(PacelineError):
    """The program that has the function could not be started, or its slots die at once.

    `kind` is one of "not-run" (no such file, not allowed), "ended" (it ended at once), "foreign" (it speaks
    another version), "silent" (it runs, but is no Paceline worker) and "slots-die". `exit_code` or `signal` say how it
    ended, and `stderr` has its last lines.
    """

    code = "program-not-started"

    def __init__(
        self,
        *,
        program: str = "",
        reason: str = "",
        kind: str = "",
        exit_code: int | None = None,
        signal: int | None = None,
        stderr: str = "",
        function: str = "",
    ) -> None:
        self.program = program
        self.reason = reason
        self.kind = kind
        self.exit_code = exit_code
        self.signal = signal
        self.stderr = stderr
        self.function = function
        words = "".join(f"\n    {line}" for line in stderr.splitlines())
        super().__init__(f"{program} could not be started for {function}: {reason}{words}", hint=_START_HINTS.get(kind))


_START_HINTS = {
    "not-run": "check the path, and that the program has been built and may be executed",
    "foreign": "build the program with the same version of paceline as this one",
}
_START_HINTS |= dict.fromkeys(
    ("ended", "silent", "slots-die"), "the program's main must begin with paceline::init(), before anything else"
)


class NoSuchFunction(PacelineError):
    """The program has no function of this name. `exports` are the names that it has."""

    code = "no-such-function"

    def __init__(self, *, function: str = "", exports: Sequence[str] = (), program: str = "") -> None:
        self.function = function
        self.exports = tuple(exports)
        self.program = program
        where = program or "the program"
        names = ", ".join(self.exports)
        super().__init__(
            f"{where} exports no function {function!r}: {f'there are {names}' if names else 'it exports none'}",
            hint='export it by name: #[paceline::task(name = "...")] in Rust, @pl.export("...") in Python',
        )


class WrongArguments(PacelineError, TypeError):
    """The function of another language does not take these arguments. `reason` names the one that is wrong."""

    code = "wrong-arguments"

    def __init__(self, *, function: str = "", reason: str = "") -> None:
        self.function = function
        self.reason = reason
        super().__init__(
            f"{function} does not take these arguments: {reason}",
            hint="look at the types of its parameters: they are converted only where nothing is lost",
        )


class RemoteTraceback(Exception):
    """The traceback of a remote exception, as text. Always a cause, never raised by itself."""

    def __init__(self, text: str = "") -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text.rstrip()}\n"""'


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.3g}" if size < 1e9 else f"{size / 1e6:.0f}"


def _task(task: int, function: str) -> str:
    return f"task {task} ({function})" if function else f"task {task}"


def _after(attempts: int) -> str:
    return f", after {attempts} attempts" if attempts > 1 else ""


def _bytes(count: int) -> str:
    amount, units = float(count), ["GiB", "MiB", "KiB"]
    while amount >= 1024 and units:
        amount, unit = amount / 1024, units.pop()
    return f"{count} bytes" if count < 1024 else f"{amount:.4g} {unit}"


# Signals that nobody dies of.
_STOPPING = ("SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU")


def _ending(signal: int | None, exit_code: int | None) -> str:
    if signal is not None:
        name = _signal_name(signal)
        if name in _STOPPING:
            return f"stopped by {name} (signal {signal}), and ended because it stood still for too long"
        return f"killed by {name} (signal {signal})" if name else f"killed by signal {signal}"
    if exit_code is not None:
        return f"ended with exit code {exit_code}"
    return "lost for an unknown reason"


def _signal_name(number: int) -> str:
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return ""

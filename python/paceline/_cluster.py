"""Which cluster there is, and which one is current.

Owns: `connect`, `shutdown`, `Cluster`, the current cluster of each context, and what happens to clusters at a
fork and at the end of the program.

* CL-1: current is the cluster of the innermost `with` in this context, else the last connected one that is
  still open.
* CL-2: a forked child never touches its parent's cluster; the first use there starts one of its own, of the
  same size, or connects to the same one by itself.
* CL-3: inside a slot every cluster is the one that the slot belongs to, and `connect` starts nothing: user modules
  may call it while they are imported there. Only tasks run anything; a module that does while it is imported would
  do so in every slot, and in the slots of those tasks, without end.

How a cluster is reached by its address is in `paceline._address`.
"""

from __future__ import annotations

import _thread
import os
import sys
from contextvars import ContextVar

from paceline import _slot
from paceline._checks import whole_number
from paceline.errors import ClusterClosed, NoSuchHardware, NotConnected, PacelineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, NoReturn, TypedDict

    from paceline._address import Target
    from paceline._files import Code, Wanted
    from paceline._native import Session
    from paceline._status import Status

    class Limits(TypedDict):
        """How much this program may hold; None is the default."""

        queue_tasks: int | None
        queue_bytes: int | None
        result_bytes: int | None

    class Size(TypedDict):
        """What a cluster inside this program has beside CPUs."""

        gpus: str
        memory: str
        resources: tuple[tuple[str, float], ...]
        object_memory: str | None


SPARES = 1


class _Holder:
    """What has a session: a cluster, or the place that follows the last connected one."""

    _session: Session | None = None


_latest = _Holder()
context: ContextVar[_Holder] = ContextVar("paceline.cluster", default=_latest)
"""Where remote functions look for their session. The default follows the last connected cluster."""

_entered: ContextVar[tuple[Cluster, ...]] = ContextVar("paceline.entered", default=())
_open: list[Cluster] = []
_lock = _thread.RLock()  # a signal handler may close a cluster while one is being opened
_watching = False
# The thread in which this program ends, once it does.
_exiting: int | None = None


class Cluster(_Holder):
    """A cluster this program is connected to. Made by `connect`.

    In a `with` statement it is the current cluster of the block, and closed at the end of the outermost one.

    >>> import paceline as pl
    >>> with pl.connect(cpus=2) as cluster:
    ...     cluster.cpus
    2
    """

    def __init__(self, cpus: int, name: str | None, limits: Limits | None = None, target: Target | None = None) -> None:
        self.name = name
        self._cpus = cpus
        self._target = target
        self._limits: Limits = limits or {"queue_tasks": None, "queue_bytes": None, "result_bytes": None}
        self._closed = False
        self._depth = 0
        self._size: Size = {"gpus": "auto", "memory": "auto", "resources": (), "object_memory": _for_objects(None)}
        self._standing = (1, 0)
        self._surroundings: tuple[str, list[str]] | None = None
        self._files: tuple[list[str], list[str]] = ([], [])
        self._env: dict[str, str] = {}
        self._code: Code | None = None
        self._code_changes = 0

    @property
    def cpus(self) -> int:
        """How many CPUs it has, all nodes together."""
        if self._target is not None and self._session is not None:
            return max(1, self._session.cpus)
        return self._cpus

    @property
    def address(self) -> str | None:
        """Where its head is; None if it is inside this program."""
        return None if self._target is None else self._target.address

    def close(self) -> None:
        """Leave the cluster; one inside this program ends. Tasks that have not ended are cancelled. Harmless when
        repeated."""
        self._close()

    def disconnect(self) -> None:
        """The same as `close`."""
        self._close()

    def status(self) -> Status:
        """What the cluster has and does, as a dictionary that prints as a report.

        >>> import paceline as pl
        >>> with pl.connect(cpus=1) as cluster:
        ...     len(cluster.status()["nodes"])
        1
        """
        from paceline._status import Status

        session = self._connected()
        if self._target is None or _slot.number is not None:
            return Status(session.status())
        from paceline._address import status

        return Status(status(session, self._target.address))

    @property
    def nodes(self) -> list[dict[str, Any]]:
        """The machines of the cluster, as `status` tells of them."""
        return list(self.status().get("nodes", ()))

    def __enter__(self) -> Cluster:
        if self._closed:
            raise ClusterClosed()
        _entered.set((*_entered.get(), self))
        context.set(self)
        with _lock:
            self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        outer = list(_entered.get())
        if self in outer:
            del outer[len(outer) - 1 - outer[::-1].index(self)]
        _entered.set(tuple(outer))
        context.set(outer[-1] if outer else _latest)
        with _lock:
            self._depth -= 1
            last = self._depth == 0
        if last:
            self.close()

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        where = "embedded" if self._target is None else f"at {self._target.address}"
        return f"<paceline.Cluster{name}: {'closed' if self._closed else f'{where}, {self.cpus} cpus'}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a cluster cannot be sent to another process")

    def _itself(self) -> Cluster:
        return self

    def _connected(self) -> Session:
        """The session. Started here in a forked child, where the parent's is of no use."""
        if self._closed:
            raise ClusterClosed()
        if _importing():
            raise NotConnected(
                "a module that a slot imports calls a remote function, which every slot would do again",
                hint="put what the program does under if __name__ == '__main__':",
            )
        return self._session or self._start()

    def _start(self) -> Session:
        with _lock:
            if self._session is None:
                directory, path = _surroundings()
                if _slot.number is not None:
                    self._session = _nested(directory, path)
                elif self._target is not None:
                    from paceline._files import Code

                    code = self._code = Code(self._files)
                    variables = {**_unset_thread_counts(), **self._env}
                    self._session = self._target.connect(directory, path, variables, code.wanted, self._limits)
                else:
                    self._session = self._embedded(directory, path)
                if self._standing != (1, 0):
                    self._session.set_standing(*self._standing)
                self._surroundings = (directory, path)
                _follow()
            return self._session

    def _embedded(self, directory: str, path: list[str]) -> Session:
        from paceline._native import Session

        try:
            return Session.embedded(
                cpus=self.cpus,
                spares=SPARES,
                command=zygote_command(),
                directory=directory,
                path=path,
                environment={**_unset_thread_counts(), **self._env},
                **self._limits,
                **self._size,
            )
        except ValueError as error:
            raise NoSuchHardware(str(error)) from None

    def _refresh(self) -> None:
        """Tell slots if the directory or `sys.path` has changed since they were told."""
        surroundings = _surroundings()
        session = self._session
        if session is None:
            return
        moved = surroundings != self._surroundings
        if self._code is not None and (self._code.has_grown() or moved) and session.refresh_files():
            self._code_changes += 1
            moved = True
        if moved:
            session.refresh(*surroundings, self._code_changes)
            self._surroundings = surroundings

    def _close(self) -> int:
        with _lock:
            session, self._session = self._session, None
            self._closed = True
            if self in _open:
                _open.remove(self)
            _follow()
        if session is None or _slot.number is not None:
            return 0  # a slot's session is there for the tasks to come
        try:
            return session.close()
        finally:
            # Another thread may still import the module, which has nothing to forget then.
            if not _open and (forget := getattr(sys.modules.get("paceline._output"), "forget", None)) is not None:
                forget()


def connect(
    address: str | None = None,
    *,
    cpus: int | None = None,
    gpus: int | str | Sequence[int] | None = None,
    memory: int | str | None = None,
    resources: Mapping[str, float] | None = None,
    weight: int = 1,
    priority: int = 0,
    name: str | None = None,
    password: str | None = None,
    key_file: str | os.PathLike[str] | None = None,
    files: Iterable[str | os.PathLike[str]] = (),
    env: Mapping[str, str] | None = None,
    queue_tasks: int | None = None,
    queue_bytes: int | None = None,
    result_bytes: int | None = None,
    object_memory: int | str | None = None,
) -> Cluster:
    """Connect to the cluster at an address ("host:7077"), or start one on this machine, inside this program, with one
    slot for each CPU this process may use.

    It becomes the current cluster: remote functions run there. It ends with `close`, at the end of its `with`
    block, by `shutdown`, or with the program. `cpus`, `gpus`, `memory` (bytes, or "8GB") and `resources` (amounts by
    names of your own) are the size of one inside this program. When several programs want more than there is, each gets
    a share that goes by its `weight`, and those of a higher `priority` come first; `name` is what this
    program is called in the status of the cluster. Without an address, that of the variable `PACELINE_ADDRESS` is used
    if it is set; the address "auto" is the cluster of yours that runs on this machine.

    Programs of the same user on the machine of the head need nothing else. Others prove that they may come by
    `key_file`, a copy of the cluster's key, or by its `password`; without either, `PACELINE_KEY` (the file) or
    `PACELINE_PASSWORD` is used.

    `gpus` is how many GPUs of this machine tasks may have, or which: `gpus=2`, `gpus=[0, 3]`; all by default. `memory`
    is how much memory tasks may have together: a number of bytes, `"5GB"`, `"auto"` or `"unlimited"`; by default
    what this process may use.

    `files` names what tasks read on other machines: files, patterns (`"data/*.csv"`) and whole folders, by their paths
    below the working directory; tasks find them at the same paths. Modules of your own go there by themselves. `env`
    are variables of the environment that every task finds set.

    While `queue_tasks` tasks (100,000) or `queue_bytes` bytes of arguments (256,000,000) wait to be sent, `submit`
    waits for room. Unread results beyond `result_bytes` (a quarter of this process's memory) are kept on disk.
    Values that `put` keeps have `object_memory` (a number of bytes, or "8GB"; 30 % of the memory by default); those
    beyond go to disk, the least recently used first.

    >>> import paceline as pl
    >>> cluster = pl.connect(cpus=1)
    >>> pl.remote(sum)([1, 2, 3])
    6
    >>> cluster.close()
    """
    if _exiting is not None and _thread.get_ident() != _exiting:
        raise ClusterClosed("the cluster is closed: the program is ending")
    limits: Limits = {
        "queue_tasks": _at_least("queue_tasks", queue_tasks, 1),
        "queue_bytes": _at_least("queue_bytes", queue_bytes, 0),
        "result_bytes": _at_least("result_bytes", result_bytes, 0),
    }
    standing = (whole_number("weight", weight, least=1), whole_number("priority", priority))
    named = _named_files(files)
    variables = checked_variables(env)
    address = address or os.environ.get("PACELINE_ADDRESS") or None
    if _slot.number is None and address is not None:
        from paceline._address import Target

        if (cpus, gpus, memory, resources, object_memory) != (None,) * 5:
            raise PacelineError(
                "cpus=, gpus=, memory=, resources= and object_memory= are the size of a cluster inside this program, "
                f"and the one at {address} has its own",
                hint="leave them out, or the address (and unset PACELINE_ADDRESS) to run inside this program",
            )
        target = Target(address, name, password, None if key_file is None else os.fspath(key_file))
        cluster = Cluster(1, name, limits, target)
        cluster._files, cluster._env = named, variables
        return _opened(cluster, standing)
    if password is not None or key_file is not None:
        raise PacelineError(
            "password= and key_file= are for a cluster at an address, and none was given",
            hint='connect("host:7077", ...), or set PACELINE_ADDRESS',
        )
    if cpus is None:
        from paceline._machine import usable_cpus

        cpus = usable_cpus()
    else:
        cpus = whole_number("cpus", cpus, least=1)
    cluster = Cluster(cpus, name, limits)
    cluster._env = variables
    if (gpus, memory, resources, object_memory) != (None,) * 4:
        from paceline._placement import custom_resources

        cluster._size = {
            "gpus": _which_gpus(gpus),
            "memory": _how_much(memory),
            "resources": custom_resources(resources),
            "object_memory": _for_objects(object_memory),
        }
    return cluster if _slot.number is not None else _opened(cluster, standing)


def _opened(cluster: Cluster, standing: tuple[int, int] = (1, 0)) -> Cluster:
    """The cluster, started and current."""
    cluster._standing = standing
    _watch_process()
    cluster._start()
    with _lock:
        _open.append(cluster)
        _follow()
    return cluster


def _which_gpus(gpus: int | str | Sequence[int] | None) -> str:
    """As the core reads it: ids have commas behind them, so that one is not taken for a number of them."""
    if gpus is None or isinstance(gpus, str):
        return gpus or "auto"
    if hasattr(gpus, "__index__"):
        return str(whole_number("gpus", gpus, least=0))
    return "".join(f"{whole_number('gpus', id, least=0)}," for id in gpus) or "0"


def _how_much(memory: int | str | None) -> str:
    if memory is None or isinstance(memory, str):
        return memory or "auto"
    return str(whole_number("memory", memory, least=1))


def _for_objects(memory: int | str | None) -> str | None:
    if memory is None:
        return os.environ.get("PACELINE_OBJECT_MEMORY") or None
    return memory if isinstance(memory, str) else str(whole_number("object_memory", memory, least=0))


def _named_files(files: Iterable[str | os.PathLike[str]]) -> tuple[list[str], list[str]]:
    """What `files=` names. On this machine tasks find it where it is, but it has to be there. A slot has it already."""
    if not files or _slot.number is not None:
        return [], []
    from paceline._named_files import resolve

    return resolve(files)


def checked_variables(env: Mapping[str, str] | None) -> dict[str, str]:
    """What `env=` gives. Raises `TypeError` or `ValueError` if it cannot be."""
    if not env:
        return {}
    for name, value in env.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"env= takes names and values as text, not {name!r}: {value!r}")
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(f"env= has what no variable can be: {name!r}: {value!r}")
    return dict(env)


def _at_least(name: str, value: int | None, least: int) -> int | None:
    return None if value is None else whole_number(name, value, least=least)


def shutdown() -> None:
    """Close every cluster this program is connected to. Harmless when there is none.

    >>> import paceline as pl
    >>> pl.shutdown()
    """
    for cluster in reversed(_open[:]):
        cluster.close()


def disconnect() -> None:
    """Leave every cluster this program is connected to: the same as `shutdown`. Harmless when there is none.

    >>> import paceline as pl
    >>> pl.disconnect()
    """
    shutdown()


def status() -> Status:
    """What the current cluster has and does, as `Cluster.status` tells it; without one, that this program is not
    connected.

    >>> import paceline as pl
    >>> pl.status()["state"]
    'not connected'
    >>> with pl.connect(cpus=1):
    ...     [node["cpus"] for node in pl.status()["nodes"]]
    [1]
    """
    try:
        return current().status()
    except (NotConnected, ClusterClosed) as error:
        from paceline._status import Status

        return Status(state="not connected", hint=error.hint)


def current() -> Cluster:
    """The cluster that remote functions of this context run on. Raises `NotConnected` when there is none."""
    holder = context.get()
    if isinstance(holder, Cluster):
        return holder
    with _lock:
        if _open:
            return _open[-1]
        if _slot.number is not None:
            _open.append(Cluster(_slot_cpus(), None))
            return _open[-1]
    raise NotConnected()


def address_of(session: Session) -> str:
    """Where the head of a session's cluster is, if the cluster is at an address; else nothing."""
    return next((cluster.address or "" for cluster in _open[:] if cluster._session is session), "")


def current_or_new() -> Cluster:
    """The current cluster; a new one when there is none."""
    try:
        return current()
    except NotConnected:
        return connect()


def zygote_command() -> list[str]:
    """The command that starts the process slots are forked from. The core appends a descriptor to it."""
    if not sys.executable:
        raise PacelineError(
            "sys.executable is empty, so there is no interpreter to start slots with",
            hint="set sys.executable to the path of a python before connecting",
        )
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return [sys.executable, *_interpreter_flags(), "-c", _ZYGOTE, home, *_sendable(sys.argv)]


# paceline is imported from where we have it, whatever the zygote's own path says; the directory it starts in
# must not be able to stand in for a module of the standard library.
_ZYGOTE = (
    "import sys; path = sys.path[:]; sys.path.insert(0, sys.argv[1]); import paceline; "
    "sys.path[:] = filter(None, path); from paceline._slot.zygote import main; main()"
)


def _interpreter_flags() -> list[str]:
    """The flags this interpreter runs with. As `subprocess` finds them, without the time its import takes."""
    flags = sys.flags
    letters = {"B": flags.dont_write_bytecode, "S": flags.no_site, "b": flags.bytes_warning, "O": flags.optimize}
    if flags.isolated:
        letters["I"] = 1
    else:
        letters |= {"E": flags.ignore_environment, "s": flags.no_user_site, "P": flags.safe_path}
    found = [f"-{letter * int(count)}" for letter, count in letters.items() if count]
    implied = {"error::BytesWarning", "default::BytesWarning"} | ({"default"} if flags.dev_mode else set())
    found += [f"-W{option}" for option in sys.warnoptions if option not in implied]
    for name, value in sys._xoptions.items():
        if name != "importtime":  # it asks about the client's imports
            found += ["-X", name if value is True else f"{name}={value}"]
    return found


def _surroundings() -> tuple[str, list[str]]:
    """The working directory and `sys.path`, as another process can use them."""
    try:
        directory = os.getcwd()
    except OSError:
        directory = "/"  # it was deleted
    path = [os.path.join(directory, entry) for entry in sys.path if isinstance(entry, str)]
    return directory, _sendable(os.path.normpath(entry) for entry in path)


def _sendable(texts: Any) -> list[str]:
    """Those of the texts that are text: names of files may hold bytes that are none."""
    return [text for text in texts if text.isprintable() or text.encode("utf-8", "ignore").decode() == text]


def _unset_thread_counts() -> dict[str, str]:
    """How many threads a task may use is its slot's to say, where the user has not: without a value."""
    return {name: "" for name in _slot.THREAD_COUNTS if name not in os.environ}


def _nested(directory: str, path: list[str]) -> Session:
    """The session of the slot that this process is. How many threads a task may use, its slot finds out itself."""
    from paceline._native import Session

    return Session.nested(directory, path, dict.fromkeys(_slot.THREAD_COUNTS, ""), _wanted)


def _wanted() -> Wanted:
    """What tasks of this slot need on other machines, if it is the client's own machine. Rarely asked."""
    from paceline._files import Code

    return Code().wanted()


def _slot_cpus() -> int:
    from paceline._machine import usable_cpus

    return usable_cpus()


def _importing() -> bool:
    """Whether this is a slot, and a module is being imported by whoever calls."""
    if _slot.number is None:
        return False
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _follow() -> None:
    """Let the default of every context follow the last connected cluster. Called with the lock held."""
    _latest._session = _open[-1]._session if _open else None


def _watch_process() -> None:
    """Ask, once, to be told when this process forks and when it ends."""
    global _watching
    if not _watching:
        _watching = True
        import atexit

        os.register_at_fork(after_in_child=_after_fork)
        atexit.register(_at_exit)


def _after_fork() -> None:
    global _lock, _exiting
    from paceline._native import after_fork_in_child

    _exiting = None

    _lock = _thread.RLock()  # whoever held it is not in this process
    after_fork_in_child()
    _latest._session = None
    for cluster in _open:
        cluster._session = None


def _at_exit() -> None:
    global _exiting
    # What another thread would open from here on, nobody would close.
    _exiting = _thread.get_ident()
    cancelled = 0
    for cluster in reversed(_open[:]):
        try:
            cancelled += cluster._close()
        except KeyboardInterrupt:
            pass  # Ctrl-C once more: what is to end has ended, but for a callback that does not return
    # In a sub-interpreter that lives to the end, writing would end this thread, for it lets others run (EN-3).
    if cancelled and sys.stderr is not None and not sys.is_finalizing():
        tasks = "1 task that had" if cancelled == 1 else f"{cancelled} tasks that had"
        print(f"paceline: cancelled {tasks} not ended at exit", file=sys.stderr)

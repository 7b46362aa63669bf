"""The Rust core as Python sees it.

Nothing here is public: users meet `paceline` itself. Two sides use it: client processes (`Session`, `Function`,
`FutureBase`, `Watch`) and slots (`Zygote`, `slot_main`).
"""

from collections.abc import Callable, Iterable, Sequence
from types import CellType
from typing import Any, Self, final

from typing_extensions import disjoint_base

from paceline._future import Future

__version__: str

@final
class Watch:
    """Notices when a name that a function depends on is bound to another object.

    Compares by identity only: `globals` entries as (namespace, name, object then bound), `cells` as
    (cell, object then inside). A name that was missing is recorded with `Watch.MISSING`.
    """

    MISSING: object
    def __new__(
        cls,
        globals: Sequence[tuple[dict[str, Any], str, object]],
        cells: Sequence[tuple[CellType, object]],
    ) -> Watch: ...
    def unchanged(self) -> bool: ...

@disjoint_base
class FutureBase:
    """State of one task as the caller holds it. First base of `paceline._future.Future`; never made from Python."""

    def __new__(cls, *_args: object, **_kwargs: object) -> Self: ...
    @property
    def task_id(self) -> int: ...
    def explain(self) -> str:
        """Where the task is, and what it waits for, in words."""
    def result(self, timeout: float | None = None) -> Any: ...
    def exception(self, timeout: float | None = None) -> BaseException | None: ...
    def done(self) -> bool: ...
    def running(self) -> bool: ...
    def cancelled(self) -> bool: ...
    def cancel(self) -> bool: ...
    def _interrupt(self) -> bool:
        """End the task even if it runs. Says whether it was ended by this."""

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None: ...

@final
class Function:
    """A function as one session ships it, with the options its tasks run under."""

    @property
    def name(self) -> str: ...
    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...
    def submit(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Future[Any]:
        """Waits while the queue is full, or raises `QueueFull` in a thread that must not."""
    def offer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Future[Any], Gate | None]:
        """Never waits. With a gate, the task is submitted once there is room."""
    def map(
        self,
        items: Iterable[Any],
        star: bool,
        chunksize: int | None,
        progress: Callable[[int], object] | None,
    ) -> list[Any]:
        """Results in input order. `progress` is called from the calling thread with the number of items done."""
    def imap(self, items: Iterable[Any], star: bool, chunksize: int, ordered: bool, lookahead: int) -> Results:
        """Lazy results. At most `lookahead` items are pulled beyond the results already taken."""

@final
class Group:
    """Slots that a session has together or not at all. Given back when it is closed, or forgotten."""

    def function(
        self,
        payload: bytes,
        name: str,
        member: int,
        *,
        wait: float | None,
        retries: int,
        retry_on: Sequence[str],
        timeout: float | None,
        priority: int,
    ) -> Function:
        """A function that runs in this member."""
    def places(self) -> list[tuple[str, int, str | None]] | None:
        """Node, slot and host of each member, if they are all there."""
    def close(self) -> None: ...

@final
class Gate:
    """A task that waits for room in the queue."""

    def on_open(self, callback: Callable[[], object]) -> None:
        """Have this called from the callback thread when the task is submitted or turned away; at once if it is."""
    def pass_through(self) -> None:
        """Raises `ClusterClosed` if it was turned away."""
    def withdraw(self) -> None:
        """End the task, whether it has been submitted or not."""

@final
class Results:
    """Values of an `imap`, one by one."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...

@final
class Session:
    """A connection to one cluster."""

    @staticmethod
    def embedded(
        *,
        cpus: int,
        spares: int,
        command: Sequence[str],
        directory: str,
        path: Sequence[str],
        environment: dict[str, str],
        queue_tasks: int | None,
        queue_bytes: int | None,
        result_bytes: int | None,
        gpus: str = "auto",
        memory: str = "auto",
        resources: Sequence[tuple[str, float]] = ...,
    ) -> Session:
        """Start a cluster inside this process. `command` starts the zygote: the socket's descriptor is appended.

        `gpus` is `auto`, a number, or ids with commas; `memory` is `auto`, `unlimited`, or a size.
        """
    @staticmethod
    def remote(
        *,
        address: str,
        name: str,
        password: str | None,
        key_file: str | None,
        python: tuple[int, int, int],
        directory: str,
        path: Sequence[str],
        environment: dict[str, str],
        queue_tasks: int | None,
        queue_bytes: int | None,
        result_bytes: int | None,
    ) -> Session:
        """Connect to the cluster at an address. Raises `Unreached`."""
    @staticmethod
    def nested(directory: str, path: Sequence[str], environment: dict[str, str]) -> Session:
        """The session of this slot, for tasks that submit tasks."""
    def function(
        self,
        payload: bytes,
        name: str,
        *,
        cpus: float,
        gpus: float,
        memory: int,
        resources: Sequence[tuple[str, float]],
        placement: tuple[str, bool, Sequence[tuple[str, str]], Sequence[str], Sequence[str], int] | None,
        wait: float | None,
        retries: int,
        retry_on: Sequence[str],
        timeout: float | None,
        priority: int,
        program: str | None = None,
    ) -> Function:
        """A function of this program, or with `program` one that the Rust program of this path exports."""
    def group(
        self,
        size: int,
        *,
        cpus: float,
        gpus: float,
        memory: int,
        resources: Sequence[tuple[str, float]],
        placement: tuple[str, bool, Sequence[tuple[str, str]], Sequence[str], Sequence[str], int] | None,
    ) -> Group:
        """Ask for so many slots together. Tasks wait until all are there."""
    def set_standing(self, weight: int, priority: int) -> None:
        """How much this program counts when there is not enough for all."""
    def refresh(self, directory: str, path: Sequence[str]) -> None:
        """Tell slots about a changed working directory or `sys.path`, before the next function that is shipped."""
    def status(self) -> dict[str, Any]: ...
    def cluster_status(self) -> str:
        """How a cluster at an address stands, as its head tells it: JSON. Raises `Unreached`."""
    @property
    def cpus(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> int:
        """End the cluster. Returns how many tasks were cancelled by it. Harmless when repeated."""

def usable_cpus(affinity: int, root: str, environment: dict[str, str]) -> int:
    """How many CPUs affinity, control groups and Slurm leave to this process."""

def wait(futures: Sequence[Future[Any]], n: int, timeout: float | None) -> None:
    """Block until `n` of the futures are done or the time is over."""

class Unreached(Exception):
    """No connection: why, and what to do about it."""

def parse_address(text: str) -> str:
    """The address as everybody writes it. Looks nothing up; raises `ValueError`."""

def after_fork_in_child() -> None:
    """Close what a forked child must not hold, and forget every session of the parent."""

@final
class Zygote:
    """The zygote's end of its link to the node, and the reaper of its children."""

    def __new__(cls, descriptor: int) -> Zygote: ...
    def next(self) -> Birth | None:
        """The next slot to fork; None when the node is gone or says so. Reaps and reports deaths meanwhile."""
    def forked(self, birth: Birth, pid: int) -> None: ...
    def not_forked(self, birth: Birth, errno: int) -> None: ...

@final
class Birth:
    """One slot to be: its id and the descriptors it starts with."""

    @property
    def slot(self) -> int: ...
    def close(self) -> None: ...

def current() -> tuple[int, int, int] | None:
    """Task, attempt and slot, inside a task."""

@final
class Beside:
    """A call that goes on beside others in its slot. Its answer may come from any thread, once."""

    @property
    def number(self) -> int: ...
    @property
    def task(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    def apply(self) -> Any:
        """Call the function."""
    def answer(self, value: Any) -> None: ...
    def fail(self, error: BaseException) -> None: ...

def allow_overlap(most: int) -> None:
    """In a slot: so many calls may go on beside each other."""

def next_stop() -> int:
    """In a slot: wait until a call that goes on beside others is to stop. Its number."""

def interrupt_thread(thread: int) -> None:
    """Raise `KeyboardInterrupt` in a thread, by its `threading.get_ident`."""

def slot_main(zygote: Zygote, birth: Birth) -> None:
    """Be a slot until told to end. Runs in the forked child, on its main thread."""

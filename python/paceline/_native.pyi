"""The Rust core as Python sees it.

Nothing here is public: users meet `paceline` itself. Two sides use it: client processes (`Session`, `Function`,
`FutureBase`, `Watch`) and slots (`Zygote`, `slot_main`).
"""

from collections.abc import Callable, Iterable, Sequence
from types import CellType
from typing import Any, Self, SupportsIndex, final

from typing_extensions import disjoint_base

from paceline._files import Wanted
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
    def _fail(self, error: BaseException) -> None:
        """What the task waits for has failed, and so has the task."""
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
    def call_back(self, callback: Callable[[], object]) -> None:
        """Call it in the callback thread; here if the session is closed."""
    def look(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Only see whether the arguments can be sent."""
    def later(self) -> Future[Any]:
        """The future of a task whose arguments are not there yet."""
    def begin(self, future: FutureBase, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """They are: submit it, unless it was cancelled meanwhile."""
    def map(
        self,
        items: Iterable[Any],
        star: bool,
        chunksize: int | None,
        progress: Callable[[int], object] | None,
        whole: bool = False,
    ) -> list[Any]:
        """Results in input order. `progress` is called from the calling thread with the number of items done.

        With `whole`, a task that fails ends nothing: the first error is raised when all have ended.
        """
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
class Pool:
    """Slots of a session's own, each of which runs the standing calls before anything else.

    Given back when it is closed, or forgotten. A slot that leaves the pool ends.
    """

    @property
    def closed(self) -> bool: ...
    def prepare(self, payload: bytes, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A standing call before everything else. Only before the first `submit`, `update` or `ready`."""
    def update(
        self,
        payload: bytes,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        replaces: bytes | None = None,
    ) -> Future[Any]:
        """A standing call from here on, in order with what is submitted.

        Ends when all slots that are there have applied it, with what one of them returned. With `replaces`, earlier
        updates of the same key are not run by slots that come later. Raises `HistoryFull` if it does not fit.
        """
    def cut(self, after: int, payload: bytes, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Slots that come later run this call instead of all updates that were accepted before the task `after`."""
    @property
    def history(self) -> int:
        """Bytes that standing calls take."""
    def function(
        self,
        payload: bytes,
        name: str,
        *,
        wait: float | None,
        retries: int,
        retry_on: Sequence[str],
        timeout: float | None,
        priority: int,
    ) -> Function:
        """A function that runs in this pool."""
    def places(self) -> list[tuple[str, int, bool]]:
        """Node, slot, and whether it has run all standing calls."""
    def ready(self, count: int, timeout: float | None) -> bool:
        """Wait until so many slots are there and have run all standing calls. Raises what has broken the pool."""
    def ended(self, timeout: float | None = None) -> bool:
        """Wait until the pool has ended. Raises what has broken it; of one that was closed, `ClusterClosed` or
        `CancelledError`."""
    def join(self, timeout: float | None = None) -> bool:
        """Wait until nothing runs or waits in the pool; after `finish`, until its slots are given back, too."""
    def host(self, actor: bytes, *, about: bytes | None = None) -> None:
        """Let others call the actor that this pool is, wherever it is built anew. It is over for them with the pool.

        `actor` are 16 random bytes, and others are told what it is `about` (at most 64 KiB). Both were said already if
        its name was claimed; then `ActorRefused` is raised if it was ended meanwhile.
        """
    def cancel_waiting(self, keep: int = 0) -> int:
        """Cancel what has not begun as far as is known, but for the `keep` oldest. Says how many calls that were."""
    def interrupt(self) -> None:
        """Cancel every call. One that runs gets a `KeyboardInterrupt`, and two seconds later its slot ends."""
    def broken(self) -> BaseException | None:
        """What has broken the pool."""
    def finish(self) -> None:
        """Nothing more will be submitted: slots go back as they run dry."""
    def close(self) -> None:
        """What waits is cancelled, what runs ends with its slot. Harmless when repeated."""

@final
class Guest:
    """A handle to an actor of another process. Let go when it is closed, or forgotten.

    Calls run at most once, in the order they were submitted; `ActorDied` and `ActorUnavailable` say what went wrong.
    """

    @property
    def closed(self) -> bool: ...
    @property
    def actor(self) -> bytes: ...
    def function(
        self,
        payload: bytes,
        name: str,
        *,
        wait: float | None,
        retries: int,
        retry_on: Sequence[str],
        timeout: float | None,
        priority: int,
    ) -> Function:
        """A function that runs where the actor is."""
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
class Objects:
    """The store that this process reaches."""

    @staticmethod
    def of_slot() -> Objects | None:
        """The one of the slot that this process is, if it is one."""
    def put(self, value: object, wait: float) -> Held | None:
        """Keep a value, waiting so many seconds for room. None if the program it would belong to cannot be told."""
    def put_again(self, value: object, wait: float, object: int) -> None:
        """Keep a value as the object that it was before it was lost. Its owner knows of it when this returns."""
    def get(self, reference: bytes, timeout: float | None) -> Any:
        """The value of a reference."""
    def parts(self, reference: bytes) -> tuple[memoryview, list[memoryview]]:
        """The same as it was pickled, with the buffers beside it."""
    def hold(self, reference: bytes) -> Held:
        """One more reference, to what something else keeps meanwhile."""
    def claim(self, reference: bytes, pin: int) -> Held:
        """The reference that has come by this pin."""

@final
class Held:
    """A reference that counts."""

    @property
    def reference(self) -> bytes:
        """Its bytes."""
    @property
    def objects(self) -> Objects:
        """The store that it is held by."""
    def send(self) -> tuple[str | None, bytes, int | None]:
        """It is being pickled: how it is read again (not at all if its value goes along), its bytes, and the pin by
        which it travels."""

@final
class Mapped:
    """The bytes of an object. Has a buffer."""

    def __buffer__(self, flags: int, /) -> memoryview: ...

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
        object_memory: str | None = None,
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
        files: Callable[[], Wanted] | None,
        queue_tasks: int | None,
        queue_bytes: int | None,
        result_bytes: int | None,
    ) -> Session:
        """Connect to the cluster at an address. Raises `Unreached`."""
    @staticmethod
    def nested(
        directory: str, path: Sequence[str], environment: dict[str, str], files: Callable[[], Wanted] | None
    ) -> Session:
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
        env: Sequence[tuple[str, str]] = ...,
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
        env: Sequence[tuple[str, str]] = ...,
    ) -> Group:
        """Ask for so many slots together. Tasks wait until all are there."""
    def submit_program(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        directory: str,
        variables: Sequence[tuple[str, str]],
        input: bytes,
        restarts: int,
    ) -> None:
        """Have a program run on the cluster, whatever becomes of this one; it reads `input` on its standard input.

        `{python}` as the first argument is the node's Python. When this returns, the program is in the head's journal.
        Raises `ActorRefused`, which says why not.
        """
    def stop_program(self, name: str, within: float = 5.0) -> str | None:
        """End a submitted program. Why the head has not said within this time that it will, if it has not."""
    def claim_actor(self, actor: bytes, *, name: str, about: bytes = ..., program: str | None = None) -> None:
        """Have a name for the actor of these 16 random bytes, which is about to be made.

        Others find it by the name, and what it is `about` (at most 64 KiB); raises `ActorRefused` if an actor of that
        name is there. With the `program` that this process was submitted as, the actor is waited for while that is
        started again. It is over with `actor_gone`, or with the pool that hosts it.
        """
    def actor_gone(self, actor: bytes, why: str) -> None:
        """End an actor, whoever has it."""
    def visit(self, actor: bytes) -> Guest:
        """A handle to an actor of another process, by the 16 bytes that it was hosted as."""
    def find_actor(self, name: str, within: float = 10.0) -> tuple[bytes, bytes] | None:
        """The actor of this name and what its owner says of it. One that is being started is waited for."""
    def actor_comes(self, name: str) -> bool:
        """Whether an actor of this name is being started, or built anew, though nobody has it now."""
    def why_actor_gone(self, name: str) -> str | None:
        """What became of the last actor of this name, if there is none now and the head knows."""
    def pool(
        self,
        size: int,
        *,
        eager: bool,
        once: bool = False,
        identity: bytes | None = None,
        restarts: int | None = None,
        owner_program: str | None = None,
        calls_per_slot: int | None = None,
        history: int = 256_000_000,
        cpus: float,
        gpus: float,
        memory: int,
        resources: Sequence[tuple[str, float]],
        placement: tuple[str, bool, Sequence[tuple[str, str]], Sequence[str], Sequence[str], int] | None,
        env: Sequence[tuple[str, str]] = ...,
    ) -> Pool:
        """At most so many slots with state of their own.

        With `eager` all are asked for now and kept, else as calls need them, kept once there. With `once` calls run at
        most once, in the order they were submitted, and `size` is 1; `identity` is what the actor is known by, so that
        no second one of it is built while the first may live. `restarts` deaths of slots are made good (None:
        all), and with `owner_program`, the submitted program that owns it, those by the loss of a node do not count;
        `calls_per_slot` calls use a slot up.
        """
    def set_standing(self, weight: int, priority: int) -> None:
        """How much this program counts when there is not enough for all."""
    def refresh(self, directory: str, path: Sequence[str], files: int) -> None:
        """Tell slots about a changed working directory or `sys.path`, before the next function that is shipped; `files`
        is how often the files of the code have changed."""
    def refresh_files(self) -> bool:
        """Look at the files of the code again, and deliver what is new where others were delivered. False: nowhere."""
    def status(self) -> dict[str, Any]: ...
    def cluster_status(self) -> str:
        """How a cluster at an address stands, as its head tells it: JSON. Raises `Unreached`."""
    def objects(self) -> Objects:
        """The objects that this program has references to."""
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
    def next(self, patience: float | None = None) -> Birth | None:
        """The next slot to fork; None if there was nothing to do for so many seconds, or it has `ended`. Reaps and
        reports deaths meanwhile."""
    @property
    def ended(self) -> bool:
        """Whether the node is gone or said so, and with it all slots."""
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
class Collector:
    """Collects large buffers while a value is pickled: the `buffer_callback` of a pickler."""

    def __call__(self, /, buffer: object) -> bool: ...
    def clear(self) -> None: ...

@final
class Memory:
    """A large buffer that has come, to read and write. It has the buffer protocol, and nothing else."""

@final
class Apart:
    """Bytes that are pickled as a large buffer."""

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> tuple[object, tuple[object]]: ...

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
    def interrupt(self, thread: int) -> None:
        """Raise `KeyboardInterrupt` in the thread that is at it, by its `threading.get_ident`.

        If the thread imports or unpickles something, `next_stop` names the call again soon instead.
        """
    def answer(self, value: Any) -> None: ...
    def fail(self, error: BaseException) -> None: ...

def allow_overlap(most: int) -> None:
    """In a slot: so many calls may go on beside each other."""

def next_stop() -> int:
    """In a slot: wait until a call that goes on beside others is to stop. Its number."""

def stop_later(number: int) -> None:
    """In a slot: the call of this number cannot be stopped just now, and is to be named again by `next_stop`."""

def slot_main(zygote: Zygote, birth: Birth) -> None:
    """Be a slot until told to end. Runs in the forked child, on its main thread."""

def travels() -> str | None:
    """What this thread pickles just now: `arguments`, a `result`, an `object`, or something that we know nothing of."""

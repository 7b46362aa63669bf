"""What runs in Python inside a slot. The core calls these; users never do.

Owns: the surroundings of user code (`bind`), turning bytes into a function (`load`), turning an exception
into bytes (`failure`), and leaving in good order (`finish`). Does not own: when any of it happens.

* SL-1: importing this pulls in nothing but what a bare interpreter has already, because every slot pays for
  it.
* SL-2: `failure` and `finish` never raise.
"""

from __future__ import annotations

import _pickle
import os
import sys

from paceline._slot import rebuild

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

THREAD_COUNTS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "RAYON_NUM_THREADS",
)

# First byte of a function's payload.
REFERENCE = b"R"  # module, zero byte, qualified name
PICKLE = b"P"  # a pickle that needs paceline alone
CLOUDPICKLE = b"C"  # a pickle that needs cloudpickle too
EXPORTED = b"E"  # module, zero byte, the name it is exported by
CONSTRUCTOR = b"N"  # how many calls may overlap, zero byte, the payload of a class
KEPT = b"K"  # the payload of a function whose results are kept here
METHOD = b"M"  # a class, zero byte, the name of a method of the object here

# A line that says: what this slot writes from here on has no prefix.
PLAINLY = b"\0paceline: plainly\n"

_own_path: list[str] = []

number: int | None = None
"""Which slot this process is. None everywhere else."""


_refused: str | None = None


def bind(
    directory: str,
    path: list[str],
    environment: dict[str, str],
    far: bool = False,
    files: str | None = None,
    counts: dict[str, str] | None = None,
) -> None:
    """Make this process look to user code like the client does.

    Comes before anything of the user's is imported. With `far` the client is on another machine: the directory is one
    of this slot's own, or below `files`, where the node has what the client brought; and of the client's path counts
    what exists here, before what this interpreter has itself. `counts` are variables that
    count only where this machine has none of that name.
    """
    brought: list[str] = []
    if files is not None:
        brought = _brought(files)
        try:
            os.makedirs(directory, 0o700, exist_ok=True)
        except OSError as error:
            print(f"paceline: {directory} cannot be made: {error.strerror}", file=sys.stderr)
    os.environ.update(environment)
    for name, value in (counts or {}).items():
        os.environ.setdefault(name, value)
    try:
        os.chdir(directory)
    except OSError as error:
        print(f"paceline: cannot enter {directory}: {error.strerror}", file=sys.stderr)
    if far:
        global _own_path
        _own_path = _own_path or sys.path[:]
        here = [*brought, directory, *filter(os.path.exists, path)]
        sys.path[:] = dict.fromkeys([*here, *_own_path])
        if brought and "importlib" in sys.modules:
            # Folders that were looked at before may hold more by now.
            import importlib

            importlib.invalidate_caches()
        if files is not None and os.path.exists(os.path.join(files, "notes", "packages")):
            from paceline._slot.packages import check

            check(files, sys.path)
    elif path:
        sys.path[:] = path
    elif directory not in sys.path:
        # A client of another language has no path of its own; its modules are where it was started.
        sys.path.insert(0, directory)


def _brought(files: str) -> list[str]:
    """Where to import from what the client has brought. Why that cannot be done is kept for whoever calls something."""
    global _refused
    _refused = None
    root = os.path.join(files, "root")
    failed = _lines(os.path.join(files, "failed"))
    if failed:
        _refused = "the files of this program could not be delivered to this machine: " + " ".join(failed)
    for name in _lines(os.path.join(files, "notes", "modules")):
        there = getattr(sys.modules.get(name), "__file__", None)
        if isinstance(there, str) and not there.startswith(root + os.sep):
            _refused = (
                f"module {name} is the program's own, which is in {root}, but {there} is loaded here under that name\n"
                "hint: give the program's module another name"
            )
    return [os.path.join(root, line) for line in _lines(os.path.join(files, "notes", "path"))]


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except OSError:
        return []


def load(payload: bytes) -> Callable[..., Any]:
    """The function that `paceline._functions` packed."""
    if _refused is not None:
        from paceline.errors import FilesNotDelivered

        raise FilesNotDelivered(_refused)
    if payload[:1] == REFERENCE:
        module, _, name = payload[1:].decode().partition("\0")
        function: Callable[..., Any] = rebuild.original(module, name)
    elif payload[:1] == EXPORTED:
        from paceline._export import find

        module, _, name = payload[1:].decode().partition("\0")
        function = find(module, name)
    elif payload[:1] == METHOD:
        from paceline._slot import objects

        function = objects.method(payload.partition(b"\0")[2].decode())
    elif payload[:1] == CONSTRUCTOR:
        from paceline._slot import objects

        number, _, inner = payload[1:].partition(b"\0")
        function = objects.constructor(int(number), load(inner))
    elif payload[:1] == KEPT:
        function = _kept(load(payload[1:]))
    else:
        function = rebuild.plain(_pickle.loads(memoryview(payload)[1:]))
    return function


def _kept(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with a reference to its result as the result."""

    def kept(*args: Any, **kwargs: Any) -> Any:
        from paceline._objects import put

        return put(function(*args, **kwargs))

    kept.__wrapped__ = function  # type: ignore[attr-defined]
    return kept


def again(kept: Any, name: int) -> Callable[..., None]:
    """The function of `_kept`, whose result becomes again the object of this name, which is lost."""

    def make(*args: Any, **kwargs: Any) -> None:
        from paceline._objects import WAIT, store

        store().put_again(kept.__wrapped__(*args, **kwargs), WAIT, name)

    return make


def each(function: Callable[..., Any], items: list[Any]) -> list[Any]:
    """Apply the function to every item of a chunk."""
    return [function(item) for item in items]


def each_star(function: Callable[..., Any], items: list[Any]) -> list[Any]:
    """As `each`, where each item is all arguments."""
    return [function(*item) for item in items]


def failure(error: BaseException) -> bytes:
    """An exception of user code as bytes for `paceline._outcome.remote_error`."""
    from paceline._slot.failing import describe

    return describe(error)


def finish() -> None:
    """Leave as an interpreter would: join threads, run exit handlers, flush output."""
    for step in (_join_threads, _run_exit_handlers, _flush):
        try:
            step()
        except BaseException as error:
            _complain(error)


def _join_threads() -> None:
    shutdown = getattr(sys.modules.get("threading"), "_shutdown", None)
    if shutdown is not None:
        shutdown()


def _run_exit_handlers() -> None:
    import atexit

    atexit._run_exitfuncs()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not getattr(stream, "closed", False):
            stream.flush()


def _complain(error: BaseException) -> None:
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except BaseException:
        return

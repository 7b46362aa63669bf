"""Functions of other programs, called by the names they are exported under.

Owns: `program` and what it gives. A function found there is a `RemoteFunction` like any other; only its
original is in another language.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn, Unpack

    from paceline._native import Function, Session
    from paceline._remote import Options, RemoteFunction

NAMED = b"N"  # first byte of a function that a Rust program knows by the name that follows


class Program:
    """Another program, whose exported functions run on the current cluster. Made by `program`."""

    def __init__(self, path: str) -> None:
        self.path = path
        """The file that is run."""

    def function(self, name: str, **options: Unpack[Options]) -> RemoteFunction[..., Any]:
        """The function that the program exports under this name, with the options of `remote`.

        It is looked up when it is first called: `NoSuchFunction` then lists what there is.
        """
        from paceline._remote import remote

        if not isinstance(name, str):
            raise TypeError(f"a function has a name, not a {type(name).__name__}")
        return remote(**options)(Exported(self.path, name))

    def __repr__(self) -> str:
        return f"<paceline.Program {self.path}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)


class Exported:
    """Stands where the plain function would: it cannot be called in this process."""

    def __init__(self, path: str, name: str) -> None:
        self.path = path
        self.__module__ = "paceline"
        self.__name__ = self.__qualname__ = name
        self.__doc__ = f"{name} of {path}"

    def __call__(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise TypeError(f"{self.__name__} is a function of {self.path}: it has no original to call here")

    def __reduce__(self) -> tuple[Any, ...]:
        return Exported, (self.path, self.__name__)

    def package(self) -> ExportedPackage:
        """What `RemoteFunction` ships."""
        return ExportedPackage(self.path, self.__name__)


class ExportedPackage:
    """As `paceline._functions.Package`, for a function that is never stale: its program has it."""

    def __init__(self, path: str, name: str) -> None:
        self._path = path
        self._name = name
        self._handles: dict[tuple[Any, ...], Function] = {}

    def handle(
        self, session: Session, options: dict[str, Any], before: Callable[[], object]
    ) -> tuple[Function, Callable[[], bool]]:
        """The function as this session ships it, and whether that still holds."""
        key = (session, *options.values())
        function = self._handles.get(key)
        if function is None:
            before()
            payload = NAMED + self._name.encode()
            function = session.function(payload, self._name, **options, program=self._path)
            open_ones = {key: handle for key, handle in self._handles.items() if not key[0].closed}
            self._handles = {**open_ones, key: function}
        return function, _unchanged


def _unchanged() -> bool:
    return True


def program(path: str | os.PathLike[str]) -> Program:
    """A Rust program whose tasks can be called from here, by the path of its file.

    The program uses the `paceline` crate: its `main` begins with `paceline::init()`, and what it exports are its
    tasks, `#[paceline::task(name = "area")]`. It is started when one of them is first called, and its processes
    share the cluster's CPUs with Python's.

    >>> import paceline as pl
    >>> shapes = pl.program("target/release/shapes")
    >>> area = shapes.function("area", retries=0)
    >>> with pl.connect(cpus=1):
    ...     try:
    ...         area(2.0, 3.0)
    ...     except pl.ProgramNotStarted as error:
    ...         print(error.kind)
    not-run
    """
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"the path of a program is a str, not {type(text).__name__}")
    if os.sep not in text:
        from shutil import which

        text = which(text) or text
    return Program(os.path.abspath(text))

"""Servers and nodes. On `start_head` and `start_node`: a server is a head, a client a node.

Owns: the processes that this program has started, and the name by which they are found. There is one server and one
node a machine, as there: the cluster is called `NAME`.

* DN-1: a password goes from here to the daemons in a file that only its owner can read, and that is gone afterwards.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager

from paceline._daemons import Daemon, is_head_running, is_node_running
from paceline._daemons import start_head as _start_head
from paceline._daemons import start_node as _start_node
from paceline.compat._addresses import joined

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Ends = tuple[Callable[[], None], Callable[[], None]]

DEFAULT_PORT = 6379
NAME = "distributed-computing"
# Others join by the password, so the server listens to them.
EVERYWHERE = "0.0.0.0"

# What is started here ends with the program, and not when its handle is forgotten.
_started: list[Daemon] = []


def is_server_running() -> bool:
    """Whether a pool server runs on this machine.

    >>> is_server_running()
    False
    """
    return is_head_running(NAME)


def is_client_running() -> bool:
    """Whether a worker node runs on this machine.

    >>> is_client_running()
    False
    """
    return is_node_running(NAME)


def start_node(
    password: str, address: str = "localhost", port: int = DEFAULT_PORT, max_gpus: int | None = None
) -> Ends:
    """Start a worker node of the server at an address, with at most `max_gpus` workers.

    Returns a function that ends it and one that waits for its end. One that runs here already is left alone.
    """
    if is_client_running():
        print("A client is already running on this machine.")
        return _ends([])
    print("Starting workers pool client.")
    with _in_a_file(password) as file:
        return _ends([_start_node(joined(address, port), name=NAME, port=0, gpus=max_gpus, password_file=file)])


def start_server(password: str, port: int = DEFAULT_PORT) -> Ends:
    """Start a pool server without a worker node.

    Returns a function that ends it and one that waits for its end. One that runs here already is left alone.
    """
    return _serve(password, port, None, 0)


def start_head_node(password: str, port: int = DEFAULT_PORT, max_gpus: int | None = None) -> Ends:
    """Start a pool server and a worker node.

    Returns a function that ends both and one that waits for their end. One that runs here already is left alone.

    >>> terminate, wait = start_head_node("doc string", port=0)
    Starting workers pool server.
    >>> is_server_running(), is_client_running()
    (True, True)
    >>> terminate()
    >>> wait()
    """
    return _serve(password, port, max_gpus, None)


def _serve(password: str, port: int, max_gpus: int | None, cpus: int | None) -> Ends:
    if is_server_running():
        print("A server is already running on this machine.")
        return _ends([])
    print("Starting workers pool server.")
    with _in_a_file(password) as file:
        head = _start_head(name=NAME, port=port, bind=EVERYWHERE, cpus=cpus, gpus=max_gpus, password_file=file)
    return _ends([head])


def _ends(daemons: list[Daemon]) -> Ends:
    _started.extend(daemons)

    def terminate() -> None:
        for daemon in daemons:
            daemon.terminate()

    def wait() -> None:
        for daemon in daemons:
            daemon.wait()

    return terminate, wait


@contextmanager
def _in_a_file(password: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="paceline-") as directory:
        path = os.path.join(directory, "password")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(password)
        yield path

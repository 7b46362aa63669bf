"""A master and workers on this machine. On `start_head`; the workers are the slots of its node.

Owns: which cluster of this machine is that of cluster-workers. There is one at a time, as there: it is called `NAME`.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager

from paceline._cli import environment, program
from paceline._daemons import Daemon, is_head_running, start_head, start_node
from paceline.errors import PacelineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "cluster-workers"
PORT = 5494
# What the node with the workers is called, so that it can be stopped by itself.
WORKERS = "workers"


def start(nworkers: int, master: bool = True, workers: bool = True, *, port: int = PORT) -> None:
    """Start a master and so many workers in the background. They live on until `stop`."""
    _start(nworkers, master, workers, port, detached=True)


def stop(master: bool = True, workers: bool = True) -> None:
    """Stop what `start` has started: all of it, or only the workers, or only the master, without which workers end."""
    if workers and not master:
        _command("stop", "--name", NAME, "--node", WORKERS)
    elif master:
        _command("stop", "--name", NAME)


@contextmanager
def allocate(
    nworkers: int, master: bool = True, workers: bool = True, *, port: int = PORT
) -> Iterator[tuple[str, int]]:
    """A master and so many workers for the time of a `with` block: gives the master's host and port.

    They end with the block, however it ends, and with this program, if they are not ended before.

    >>> with allocate(2, port=0) as (host, port):
    ...     host
    '127.0.0.1'
    """
    daemons = _start(nworkers, master, workers, port, detached=False)
    try:
        host, _, number = (daemons[0].address or f"127.0.0.1:{port}").rpartition(":")
        yield host, int(number)
    finally:
        for daemon in reversed(daemons):
            daemon._end()


def _start(nworkers: int, master: bool, workers: bool, port: int, *, detached: bool) -> list[Daemon]:
    daemons: list[Daemon] = []
    if master:
        if is_head_running(NAME):
            raise PacelineError(
                "a master runs on this machine already",
                hint=f"cw.mp.stop() ends it, and so does: paceline stop --name {NAME}",
            )
        daemons.append(start_head(name=NAME, port=port, cpus=0, detached=detached))
    if workers:
        address = (daemons[0].address if daemons else None) or f"127.0.0.1:{port}"
        try:
            daemons.append(start_node(address, name=NAME, node_name=WORKERS, port=0, cpus=nworkers, detached=detached))
        except BaseException:
            for daemon in daemons:
                daemon._end()
            raise
    return daemons


def _command(*arguments: str) -> None:
    done = subprocess.run([program(), *arguments], env=environment(), stdin=subprocess.DEVNULL, capture_output=True)
    sys.stderr.write(done.stderr.decode(errors="replace"))

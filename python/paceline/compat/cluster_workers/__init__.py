"""The names of cluster-workers (`cw`): a master, workers, and clients that are called back.

    import paceline.compat.cluster_workers as cw

A master is a head, a worker a node with one slot, a client a program that is connected. `ClientThread` and
`ClusterExecutor` are in `client`, `allocate` and its kind in `mp`; the commands are
`python -m paceline.compat.cluster_workers.master` and `...worker [HOST]`.

What Slurm starts is not here yet: Paceline has no launchers so far.
"""

from __future__ import annotations

from paceline.compat.cluster_workers import client, mp
from paceline.compat.cluster_workers.client import (
    BaseClientThread,
    ClientThread,
    ClusterExecutor,
    RemoteException,
    randid,
)
from paceline.errors import PacelineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

__all__ = [
    "BaseClientThread",
    "ClientThread",
    "ClusterExecutor",
    "RemoteException",
    "allocate",
    "client",
    "is_slurm_available",
    "mp",
    "randid",
    "start",
    "stop",
]


def is_slurm_available() -> bool:
    """Whether this machine can ask Slurm for others.

    >>> is_slurm_available() in (True, False)
    True
    """
    import shutil

    return shutil.which("salloc") is not None


def start(
    nworkers: int,
    master: bool = True,
    workers: bool = True,
    master_options: Sequence[str] = (),
    worker_options: Sequence[str] = (),
    docker_image: str | None = None,
    docker_args: str = "",
) -> None:
    """Start a master and so many workers on this machine, in the background. They live on until `stop`."""
    _only_here(master_options, worker_options, docker_image, docker_args)
    mp.start(nworkers, master, workers)


def stop(master: bool = True, workers: bool = True) -> None:
    """Stop what `start` has started."""
    mp.stop(master, workers)


def allocate(
    nworkers: int,
    master: bool = True,
    workers: bool = True,
    master_options: Sequence[str] = (),
    worker_options: Sequence[str] = (),
    docker_image: str | None = None,
    docker_args: str = "",
) -> AbstractContextManager[tuple[str, int]]:
    """A master and so many workers for the time of a `with` block. They end with it, however it ends, and with this
    program."""
    _only_here(master_options, worker_options, docker_image, docker_args)
    return mp.allocate(nworkers, master, workers)


def _only_here(*options: object) -> None:
    if any(options):
        raise PacelineError(
            "options for Slurm and Docker are not there yet: workers are started on this machine only",
            hint="leave them out; python -m paceline.compat.cluster_workers.worker HOST runs a worker elsewhere",
        )
    if is_slurm_available():
        raise PacelineError(
            "this machine has Slurm, where the master and its workers were to be Slurm jobs, which is not there yet",
            hint="cw.mp.allocate(...) starts them on this machine",
        )

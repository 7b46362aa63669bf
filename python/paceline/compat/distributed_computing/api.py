"""The API of distributed-computing: `Pool`, `WorkerInterface`, and what starts servers and nodes. On `WorkerPool`.

What a program observes is that of distributed-computing, where that works: jobs and updates are dictionaries of `args`
and `kwargs`, there is one worker for each GPU, and a new pool of this program replaces the one before. What hung or was
lost there is not here: a job may return None, what `run` raises is raised by `map`, late workers get every update, and
`close` leaves the GPUs to others.
"""

from __future__ import annotations

import weakref

from paceline.compat._addresses import joined
from paceline.compat.distributed_computing._nodes import (
    DEFAULT_PORT,
    is_client_running,
    is_server_running,
    start_head_node,
    start_node,
    start_server,
)
from paceline.errors import ConnectionFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import timedelta
    from typing import Any

    from paceline._cluster import Cluster

__all__ = [
    "DEFAULT_PORT",
    "Pool",
    "WorkerInterface",
    "is_client_running",
    "is_server_running",
    "start_head_node",
    "start_node",
    "start_server",
]


class WorkerInterface:
    """What a worker class has. One object of it is made in each worker."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Do one job."""
        raise NotImplementedError(f"{type(self).__name__} has no method run")

    def handle_update(self, *args: Any, **kwargs: Any) -> None:
        """Take an update. Called between jobs."""
        raise NotImplementedError(f"{type(self).__name__} has no method handle_update")


class Pool:
    """Workers of a class of yours, one for each GPU of every node; on nodes without any GPU, one for each CPU.

    `init_data` is what the class is made with: `{"args": [...], "kwargs": {...}}`. A job that takes longer than
    `job_timeout` seconds is given to another worker, and its own starts anew. GPUs with less than
    `min_gpu_memory_required` MB free are left out. With `min_workers` it waits for so many before it returns.
    """

    _open: weakref.ref[Pool] | None = None

    def __init__(
        self,
        worker_class: type,
        init_data: dict[str, Any] | None,
        password: str,
        server_address: str = "localhost",
        server_port: int = DEFAULT_PORT,
        job_timeout: float | None = None,
        min_gpu_memory_required: int = 11000,
        min_workers: int = 0,
    ) -> None:
        from paceline._cluster import connect
        from paceline._workers import WorkerPool, call

        before = Pool._open() if Pool._open is not None else None
        if before is not None:
            before.close()
        try:
            self._cluster = connect(joined(server_address, server_port), password=password)
        except ConnectionFailed as error:
            raise Exception("Work was not approved by the pool server") from error
        args, kwargs = _unpacked(init_data or {})
        needs: dict[str, Any] = {"cpus": 1}
        if _are_gpus(self._cluster):
            needs = {"gpus": 1, "min_gpu_memory": min_gpu_memory_required * 1_000_000}
        try:
            self._pool = WorkerPool(
                worker_class, call(*args, **kwargs), job_timeout=job_timeout, cluster=self._cluster, **needs
            )
        except BaseException:
            self._cluster.close()
            raise
        Pool._open = weakref.ref(self)
        if min_workers:
            self.wait_for_workers(min_workers)

    def map(self, data: Iterable[Any]) -> list[Any]:
        """The results of all jobs, in their order."""
        return list(self._pool.map(_calls(data)))

    def imap(self, data: Iterable[Any]) -> Iterator[Any]:
        """The results in the order of the jobs, each as soon as it is there."""
        return iter(self._pool.imap(_calls(data)))

    def imap_unordered(self, data: Iterable[Any]) -> Iterator[Any]:
        """The results as they come."""
        return iter(self._pool.imap_unordered(_calls(data)))

    def update_workers(self, data: Any) -> None:
        """Let every worker's `handle_update` have this before any job that is submitted from now on."""
        args, kwargs = _unpacked(data)
        self._pool.update(*args, **kwargs)

    def get_workers_count(self) -> int:
        """How many workers there are."""
        return self._pool.workers

    def get_nodes_count(self) -> int:
        """On how many nodes they are."""
        return self._pool.nodes

    def wait_for_workers(self, min_workers: int = 1, timeout: float | timedelta | None = None) -> None:
        """Wait until there are so many workers, or the time is over."""
        from datetime import timedelta

        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        try:
            self._pool.wait_for_workers(min_workers, timeout=seconds)
        except TimeoutError:
            pass  # whoever wants to know counts them

    def close(self) -> None:
        """End the workers. Jobs that run are given up. Harmless when repeated."""
        self._pool.terminate()
        self._cluster.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _unpacked(data: Any) -> tuple[list[Any], dict[str, Any]]:
    """Arguments as distributed-computing has them; anything else is the one argument."""
    if isinstance(data, dict) and data.keys() <= {"args", "kwargs"}:
        return list(data.get("args") or ()), dict(data.get("kwargs") or {})
    return [data], {}


def _calls(data: Iterable[Any]) -> Iterator[Any]:
    from paceline._workers import call

    for item in data:
        args, kwargs = _unpacked(item)
        yield call(*args, **kwargs)


def _are_gpus(cluster: Cluster) -> bool:
    """Whether workers have GPUs, as they always had there. Where no node has any, they have CPUs."""
    nodes = cluster.nodes
    return not nodes or any(node["total"].get("gpus") for node in nodes)

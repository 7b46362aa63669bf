"""`Master`: a head, started from Python."""

from __future__ import annotations

from paceline._cluster import Cluster, connect
from paceline._daemons import start_head
from paceline.compat._addresses import PRESENT
from paceline.compat.parl.remote.names import name_at
from paceline.compat.parl.utils import logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Master"]


class Master:
    """The control centre of a cluster on this machine. It serves from its construction on; `run` waits for its end.

    It ends with `exit`, and with this program.
    """

    def __init__(
        self, port: int | str, monitor_port: int | str | None = None, device: str = "cpu", *, bind: str | None = None
    ) -> None:
        self.port = port
        self.device = device
        self.monitor_port = monitor_port
        self._head = start_head(name=name_at(port), port=int(port), bind=bind, cpus=0)
        self.master_ip, _, self.port = (self._head.address or "").rpartition(":")
        self._watch: Cluster | None = None

    @property
    def cpu_num(self) -> int:
        """How many CPUs of workers are free."""
        return sum(int(node["free"].get("cpus", 0)) for node in self._nodes() if not node["total"].get("gpus"))

    @property
    def gpu_num(self) -> int:
        """How many GPUs of workers are free."""
        return sum(int(node["free"].get("gpus", 0)) for node in self._nodes())

    @property
    def worker_num(self) -> int:
        """How many workers there are."""
        return len(self._nodes())

    def run(self) -> None:
        """Wait until it ends."""
        self._head.wait()

    def exit(self) -> None:
        """End it, and with it its workers. Harmless when repeated."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        self._head._end()
        logger.info("[Master] Exit master.")

    def _nodes(self) -> list[dict[str, Any]]:
        if self._watch is None:
            self._watch = _aside(self._head.address or "")
        return [node for node in self._watch.nodes if node["state"] in PRESENT]


def _aside(address: str) -> Cluster:
    """A connection that is not the current one: whoever looks at a master may be connected elsewhere."""
    from paceline import _cluster

    cluster = connect(address, name="parl master")
    with _cluster._lock:
        _cluster._open.remove(cluster)
        _cluster._open.insert(0, cluster)
        _cluster._follow()
    return cluster

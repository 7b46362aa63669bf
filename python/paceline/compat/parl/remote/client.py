"""The one client of a process: which cluster its remote objects live on. On `paceline.connect`.

* PC-1: there is one client in a process. A second `connect` is ignored, also to another address; a forked child has a
  client of its own.
"""

from __future__ import annotations

import glob
import multiprocessing
import os
import time

from paceline import _slot
from paceline._cluster import Cluster
from paceline._cluster import connect as _connect
from paceline.compat._addresses import PRESENT, key_here, known
from paceline.compat.parl.remote.names import name_at
from paceline.compat.parl.utils import get_ip_address, logger
from paceline.errors import ConnectionFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Client", "connect", "disconnect", "get_global_client"]

GLOBAL_CLIENT: Client | None = None


class Client:
    """The connection of this process to a master.

    `client_id` names it, and `actor_num.value` is how many remote objects it has.
    """

    def __init__(self, master_address: str, process_id: int, distributed_files: list[str] | None = None) -> None:
        self.master_address = master_address
        self.process_id = process_id
        self.distributed_files = list(distributed_files or [])
        self.client_id = f"{get_ip_address()}_{os.getpid()}_{int(time.time())}"
        self.actor_num = multiprocessing.Value("i", 0)
        self.log_monitor_url: str | None = None
        self.read_local_files()
        self.cluster = self._connected()

    def read_local_files(self) -> None:
        """Look whether all files to be distributed are there."""
        for pattern in self.distributed_files:
            assert not os.path.isabs(pattern), "[XPARL] Please do not distribute a file with absolute path."
            if not glob.glob(pattern):
                raise ValueError(f"no local file is matched with '{pattern}', please check your input")

    def destroy(self) -> None:
        """Leave the cluster. Every remote object of this process ends."""
        self.cluster.close()

    def _connected(self) -> Cluster:
        try:
            address = known(self.master_address)
            key_file = key_here(address, name_at(address.rpartition(":")[2]))
            return _connect(address, key_file=key_file, files=self.distributed_files)
        except ConnectionFailed as error:
            if "version" in str(error) or "Python" in str(error):
                raise AssertionError(f"Version mismatch: {error}") from error
            logger.warning("%s", error)
            raise Exception(
                "Client can not connect to the master, please check if master is started and ensure the input "
                f"address {self.master_address} is correct."
            ) from error

    def devices(self) -> tuple[int, int]:
        """How many CPUs and GPUs the cluster has for remote objects."""
        nodes: list[dict[str, Any]] = [node for node in self.cluster.nodes if node["state"] in PRESENT]
        gpus = sum(int(node["total"].get("gpus", 0)) for node in nodes)
        cpus = sum(int(node["total"].get("cpus", 0)) for node in nodes if not node["total"].get("gpus"))
        return cpus, gpus


def connect(master_address: str, distributed_files: list[str] | None = None) -> None:
    """Connect this process to a master. Once: another call is ignored, and so is one inside a remote object.

    On other machines than this one, `PACELINE_KEY` or `PACELINE_PASSWORD` says what lets this program in.
    """
    global GLOBAL_CLIENT
    assert len(master_address.split(":")) == 2, "Please input address in {ip}:{port} format"
    files = [] if distributed_files is None else distributed_files
    assert isinstance(files, list), "`distributed_files` should be a list."
    if _slot.number is not None:
        return
    if GLOBAL_CLIENT is None or GLOBAL_CLIENT.process_id != os.getpid():
        GLOBAL_CLIENT = Client(master_address, os.getpid(), files)


def get_global_client() -> Client:
    """The client of this process."""
    global GLOBAL_CLIENT
    assert GLOBAL_CLIENT is not None, (
        "Cannot get the client to submit the job, have you connected to the cluster by calling "
        "parl.connect(master_ip, master_port)?"
    )
    if GLOBAL_CLIENT.process_id != os.getpid():
        GLOBAL_CLIENT = Client(GLOBAL_CLIENT.master_address, os.getpid())
    return GLOBAL_CLIENT


def disconnect() -> None:
    """Leave the cluster: every remote object of this process ends. Harmless when there is none."""
    global GLOBAL_CLIENT
    if GLOBAL_CLIENT is None:
        logger.info("No client to be released. Please make sure that you have called `parl.connect`")
        return
    GLOBAL_CLIENT.destroy()
    GLOBAL_CLIENT = None
    logger.info("The client is disconneced to the master node.")

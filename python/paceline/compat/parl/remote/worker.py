"""`Worker`: a node, started from Python."""

from __future__ import annotations

import os

from paceline._daemons import start_node
from paceline.compat._addresses import key_here, known
from paceline.compat.parl.remote.names import name_at
from paceline.compat.parl.utils import logger
from paceline.errors import PacelineError

__all__ = ["Worker"]


class Worker:
    """The CPUs of this machine, or with `gpu` (ids with commas) its GPUs, as a part of the cluster of a master.

    It serves from its construction on; `run` waits for its end. It ends with `exit`, with its master, and with this
    program.
    """

    def __init__(
        self,
        master_address: str,
        cpu_num: int | None = None,
        log_server_port: int | None = None,
        gpu: str = "",
    ) -> None:
        self.master_address = master_address
        self.cpu_num = cpu_num
        self.gpu = gpu
        Worker.count += 1
        address = known(master_address)
        name = name_at(address.rpartition(":")[2])
        try:
            self._node = start_node(
                address,
                name=name,
                key_file=key_here(address, name),
                node_name=f"{os.uname().nodename}-{os.getpid()}-{Worker.count}",
                port=0,
                cpus=cpu_num or None,
                gpus=_ids(gpu),
            )
        except PacelineError as error:
            raise Exception(
                "Worker can not connect to the master node, please check if the input address "
                f"{master_address} is correct."
            ) from error

    count = 0

    def run(self) -> None:
        """Wait until it ends."""
        self._node.wait()

    def exit(self) -> None:
        """End it. Harmless when repeated."""
        self._node._end()
        logger.info("[Worker] Exit worker.")


def _ids(gpu: str) -> str | int:
    """As nodes take it: a CPU worker has none, whatever the machine has."""
    return f"{gpu.rstrip(',')}," if gpu else 0

"""Doing one thing inside another process's network namespace, from this process."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

CLONE_NEWNET = 0x40000000


def inside_network_of(pid: int, action: Callable[[], T]) -> T:
    """What `action` returns when it runs in that network.

    The kernel keeps the network a thread is in for each thread, and a socket stays in the network it was made in: so a
    thread that lives just for this leaves nothing changed.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                if libc.setns(descriptor, CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), f"entering the network of process {pid}")
            finally:
                os.close(descriptor)
            results.append(action())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]

"""The helpers of PARL that programs for its cluster use: its logger, two errors, an address and a port."""

from __future__ import annotations

import logging
import socket

__all__ = ["DeserializeError", "SerializeError", "get_free_tcp_port", "get_ip_address", "logger"]

logger = logging.getLogger("parl")


class SerializeError(Exception):
    """An argument of a call cannot be sent. The object that was called goes on."""

    def __init__(self, error_info: str) -> None:
        self.error_info = error_info
        super().__init__(f"[Error occurred when serializing data]: {error_info}")


class DeserializeError(Exception):
    """What came back cannot be loaded here."""

    def __init__(self, error_info: str) -> None:
        self.error_info = error_info
        super().__init__(f"[Error occurred when deserializing data]: {error_info}")


def get_ip_address() -> str:
    """An address of this machine; that of the loopback if it has no other.

    >>> get_ip_address().count(".")
    3
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        try:
            route.connect(("192.0.2.1", 9))  # nothing is sent: only the route is looked up
            return str(route.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def get_free_tcp_port() -> int:
    """A port that nobody uses just now.

    >>> 0 < get_free_tcp_port() < 65536
    True
    """
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])

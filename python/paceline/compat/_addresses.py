"""Addresses as the other systems have them: host and port apart, and often `localhost`, where nothing is asked for."""

from __future__ import annotations

import os

from paceline._daemons import _home

HERE = ("localhost", "127.0.0.1")

# Nodes that count: one that has just not answered may be busy.
PRESENT = ("up", "silent")


def joined(host: str, port: int | str) -> str:
    """One address. This machine is named by its number, by which its own clusters are known.

    >>> joined("localhost", 7077), joined("head", 7077)
    ('127.0.0.1:7077', 'head:7077')
    """
    return f"{'127.0.0.1' if host == 'localhost' else host}:{port}"


def known(address: str) -> str:
    """The same for an address in one piece.

    >>> known("localhost:7077")
    '127.0.0.1:7077'
    """
    host, _, port = address.rpartition(":")
    return joined(host, port)


def key_here(address: str, name: str) -> str | None:
    """The file with the key of this user's cluster of this name, if the address is one of this machine.

    A head that listens to everybody is known by the address that others use, and not by this one.

    >>> key_here("localhost:7077", "no-such-cluster")
    """
    path = os.path.join(_home(), "clusters", name, "key")
    return path if address.rpartition(":")[0] in HERE and os.path.exists(path) else None

"""Addresses as the other systems have them: host and port apart, and often `localhost`."""

from __future__ import annotations


def joined(host: str, port: int | str) -> str:
    """One address. This machine is named by its number, by which its own clusters are known and need no key.

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

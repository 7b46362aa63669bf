"""What the clusters of `xparl` are called on this machine."""

from __future__ import annotations


def name_at(port: str | int) -> str:
    """The name of the cluster whose master is at this port.

    >>> name_at(6006)
    'xparl-6006'
    """
    return f"xparl-{port}"

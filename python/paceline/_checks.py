"""Checks of what users pass in.

Owns: the words of the errors. Anything that counts as a whole number in Python is one here, numpy's integers too.
"""

from __future__ import annotations

import operator


def whole_number(name: str, value: object, least: int | None = None) -> int:
    """The value as an `int`. Raises `TypeError` or `ValueError` naming the argument.

    >>> whole_number("cpus", 3, least=1)
    3
    >>> whole_number("cpus", 0, least=1)
    Traceback (most recent call last):
    ValueError: cpus must be at least 1: 0
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be a whole number, not {type(value).__name__}")
    number = operator.index(value)
    if least is not None and number < least:
        raise ValueError(f"{name} must be at least {least}: {number}")
    return number

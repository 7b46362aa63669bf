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


def amount(name: str, value: object) -> float:
    """The value as a `float` from zero on. Raises `TypeError` or `ValueError` naming the argument.

    >>> amount("gpus", 0.5)
    0.5
    """
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    number = float(value)
    if not 0 <= number < float("inf"):
        raise ValueError(f"{name} must be a number from zero up: {value}")
    return number


def size(name: str, value: object) -> int:
    """A number of bytes, or a text that says one. Raises `TypeError` or `ValueError` naming the argument.

    >>> size("memory", "2 GB") == size("memory", 2**31)
    True
    """
    if isinstance(value, str):
        from paceline._native import size as read

        try:
            value = read(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return whole_number(name, value, least=1)

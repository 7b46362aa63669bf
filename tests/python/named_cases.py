"""What the tests of structures of arrays have in common. A module of its own, so that slots can import its classes."""

import random
from typing import Any

import numpy as np

import paceline as pl


class State(pl.NamedArray):
    hidden: np.ndarray
    mask: np.ndarray | None = None


class Step(pl.NamedArray):
    observation: np.ndarray
    reward: np.ndarray
    state: State | None = None


def sample(length: int = 6) -> pl.NamedArray:
    made = pl.NamedArray(
        observation=np.arange(length * 3, dtype=np.float32).reshape(length, 3),
        reward=np.arange(length),
        policy={"hidden": np.ones((length, 2)), "logits": None},
        nothing=None,
    )
    made.metadata["version"] = 3
    return made


TYPES = ["float64", "float32", "int64", "int8", "uint16", "bool", "complex64", ">f4", "datetime64[s]", "S3", "U2"]


def random_array(dice: random.Random, shape: tuple[int, ...] | None = None, types: list[str] = TYPES) -> np.ndarray:
    """Any type, any shape, and any order in memory: with gaps, backwards, by columns."""
    shape = tuple(dice.choice([0, 1, 2, 5]) for _ in range(dice.randrange(4))) if shape is None else shape
    count = int(np.prod([length * 2 for length in shape]))
    wide = np.array([dice.randrange(100) for _ in range(count)]).reshape([length * 2 for length in shape])
    array = wide.astype(dice.choice(types))
    if dice.random() < 0.5:
        return array[tuple(slice(None, length) for length in shape)].copy(order=dice.choice("CF"))
    return array[tuple(slice(None, None, dice.choice([2, -2])) for _ in shape)]


def random_structure(
    dice: random.Random, shape: tuple[int, ...] | None = None, types: list[str] = TYPES, depth: int = 3
) -> pl.NamedArray:
    fields: dict[str, Any] = {}
    for name in dice.sample(["a", "b", "long_name", "größe", "x y", "items", "_"], dice.randrange(1, 6)):
        if depth and dice.random() < 0.3:
            fields[name] = random_structure(dice, shape, types, depth - 1)
        else:
            fields[name] = None if dice.random() < 0.1 else random_array(dice, shape, types)
    metadata = {"seed": dice.randrange(9), "names": ["ü", None, 1.5]} if dice.random() < 0.3 else None
    return pl.NamedArray.from_dict(fields, metadata)


def same_metadata(one: pl.NamedArray, other: pl.NamedArray) -> bool:
    pairs = zip(one.values(), other.values(), strict=True)
    return one.metadata == other.metadata and all(
        same_metadata(mine, theirs) for mine, theirs in pairs if isinstance(mine, pl.NamedArray)
    )

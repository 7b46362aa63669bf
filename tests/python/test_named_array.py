"""Structures of arrays: fields, indexing, arithmetic, functions."""

import copy
import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import paceline as pl
from named_cases import State, Step, random_structure, sample


def test_fields() -> None:
    x = sample()
    assert x.reward is x["reward"]
    assert x.policy.hidden is x["policy.hidden"] is x["policy"]["hidden"]
    assert x.nothing is None
    assert x.keys() == ["observation", "reward", "policy", "nothing"] == [name for name, _ in x.items()]
    assert [type(value) for value in x.values()] == [np.ndarray, np.ndarray, pl.NamedArray, type(None)]
    assert "policy.hidden" in x
    assert "policy.nothing" not in x
    assert "reward.x" not in x
    assert list(x.flatten()) == ["observation", "reward", "policy.hidden", "policy.logits", "nothing"]
    assert {"observation", "policy"} <= set(dir(x))
    assert repr(x[:2]) == (
        "NamedArray(observation=float32[2, 3], reward=int64[2], "
        "policy=NamedArray(hidden=float64[2, 2], logits=None), nothing=None)"
    )


def test_setting_fields() -> None:
    x = sample()
    x.reward = [1, 2]
    x["policy.logits"] = 7
    x["more"] = {"a": 1.0}
    assert (x.reward.tolist(), int(x.policy.logits), float(x.more.a)) == ([1, 2], 7, 1.0)
    del x["more"]
    del x["policy.logits"]
    assert x.keys() == ["observation", "reward", "policy", "nothing"]
    assert x.policy.keys() == ["hidden"]


def test_what_is_not_there_is_told_with_what_is() -> None:
    x: Any = sample()
    with pytest.raises(AttributeError, match="no field 'rewrad': there are observation, reward, policy, nothing"):
        _ = x.rewrad
    with pytest.raises(KeyError, match=r"no field 'policy.x': there are"):
        _ = x["policy.x"]
    with pytest.raises(AttributeError, match=r"no field 'rewrad' to set: .*structure\['rewrad'\] = ... adds one"):
        x.rewrad = 3
    with pytest.raises(AttributeError, match="'mean'"):
        x.mean = 3
    with pytest.raises(KeyError):
        x["reward.x"] = 3
    with pytest.raises(KeyError):
        del x["policy.x"]
    for name in ("", "a.b", 3):
        with pytest.raises(ValueError, match="names are text without a dot"):
            pl.NamedArray.from_dict({name: 1})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="field 'a' cannot be a object"):
        pl.NamedArray(a=object())


def test_a_field_of_a_methods_name_is_an_item() -> None:
    x = pl.NamedArray(items=[1, 2], max=[3, 4])
    assert x["items"].tolist() == [1, 2]
    assert x.max()["max"] == 4
    assert (x * 2)["items"].tolist() == [2, 4]


def test_from_and_to_dicts_dataclasses_and_named_tuples() -> None:
    @dataclass
    class Inner:
        x: list[int]

    class Pair(NamedTuple):
        left: float
        right: Any

    @dataclass
    class Outer:
        inner: Inner
        pair: Pair
        none: None = None

    x = pl.NamedArray.from_dataclass(Outer(Inner([1, 2]), Pair(0.5, None)))
    assert x.shapes == {"inner": {"x": (2,)}, "pair": {"left": (), "right": None}, "none": None}
    assert pl.NamedArray.from_dict(x.to_dict()) == x == pl.NamedArray.from_flattened(x.flatten())
    with pytest.raises(TypeError, match="from_dataclass takes an object of a dataclass, not a int"):
        pl.NamedArray.from_dataclass(3)
    for wrong in ({"a": 1, "a.b": 2}, {"a.b": 1, "a": 2}):
        with pytest.raises(ValueError, match="field"):
            pl.NamedArray.from_flattened(wrong)


def test_declared_fields() -> None:
    step = Step(observation=np.zeros((2, 3)), reward=[1.0, 2.0], state={"hidden": [1, 2]})  # type: ignore[arg-type]
    assert type(step.state) is State
    assert step.state.mask is None
    assert type(step[0]) is type(step * 2) is type(Step.stack([step, step])) is Step
    assert type(step[0].state) is State
    assert step.reward.dtype == np.float64
    with pytest.raises(TypeError, match="Step has the fields observation, reward, state: it lacks observation"):
        Step(reward=[1])  # type: ignore[call-arg, arg-type]
    with pytest.raises(TypeError, match="it does not have rewrad and it lacks reward"):
        Step(observation=[1], rewrad=[1])  # type: ignore[call-arg, arg-type]
    with pytest.raises(KeyError, match="Step has no field 'more'"):
        step["more"] = 1
    with pytest.raises(TypeError, match="declares its fields"):
        del step["reward"]

    class Longer(Step):
        extra: np.ndarray | None = None
        limit = 3

    assert Longer(observation=[1], reward=[2]).keys() == [*step.keys(), "extra"]  # type: ignore[arg-type]
    assert Longer.limit == 3
    with pytest.raises(TypeError, match="cannot have the field 'mean': NamedArray has it already"):
        type("Bad", (pl.NamedArray,), {"__annotations__": {"mean": int}})
    with pytest.raises(TypeError, match="begin with a letter"):
        type("Bad", (pl.NamedArray,), {"__annotations__": {"_x": int}})


INDEXES = [
    1,
    -1,
    slice(2, 5),
    slice(None, None, -2),
    ...,
    None,
    (slice(None), 0),
    np.array([3, 0, 0]),
    [1, 2],
    np.arange(6) % 2 == 0,
    (np.array([1, 2]), 1),
]


@pytest.mark.parametrize("index", INDEXES, ids=str)
def test_an_index_goes_to_all_fields(index: Any) -> None:
    dice = random.Random(str(index))
    x = random_structure(dice, (6, 3))
    part = x[index]
    for path, leaf in x.flatten().items():
        if leaf is None:
            assert part[path] is None
        else:
            assert isinstance(part[path], np.ndarray)
            np.testing.assert_array_equal(part[path], leaf[index])
    assert part.metadata == x.metadata


@pytest.mark.parametrize("index", INDEXES[:9], ids=str)
def test_assignment_goes_to_all_fields(index: Any) -> None:
    dice = random.Random(str(index))
    x = random_structure(dice, (6, 3), ["float64", "int64"])
    expected = {path: None if leaf is None else leaf.copy() for path, leaf in x.flatten().items()}
    part = x[index] * 2 + 1
    for path, leaf in expected.items():
        if leaf is not None:
            leaf[index] = part[path]
    arrays = x.flatten()
    x[index] = part
    assert x == pl.NamedArray.from_flattened(expected)
    assert all(x[path] is leaf for path, leaf in arrays.items()), "written in place"
    x[index] = 9
    assert all(leaf is None or (leaf[index] == 9).all() for leaf in x.flatten().values())


def test_assignment_leaves_none_alone_and_touches_nothing_that_does_not_fit() -> None:
    x = sample()
    x[0] = {"observation": 5, "reward": None, "policy": None, "nothing": [1]}
    assert (x.observation[0].tolist(), x.reward[0], x.policy.hidden[0, 0], x.nothing) == ([5, 5, 5], 0, 1, None)
    before = x.copy()
    with pytest.raises(ValueError, match="structures of different fields: only the first has nothing, policy"):
        x[0] = {"observation": 1, "reward": 2}
    with pytest.raises(ValueError, match="field 'reward' is an array in one structure and a structure in another"):
        x[0] = {**x[1].to_dict(), "reward": {"a": 1}}
    with pytest.raises(TypeError, match="None cannot be put into arrays"):
        x[0] = None
    assert x == before


def test_an_error_names_its_field() -> None:
    x = sample()
    with pytest.raises(IndexError) as caught:
        _ = x[:, 2]
    assert caught.value.__notes__ == ["in field 'reward', of shape (6,)"]
    with pytest.raises(ValueError, match="broadcast") as wrong:
        _ = x + np.zeros(6)
    assert wrong.value.__notes__ == ["in field 'observation', of shape (6, 3), (6,)"]


def test_rows() -> None:
    x = sample(4)
    assert len(x) == x.length() == 4
    rows = list(x)
    assert [int(row.reward) for row in rows] == [0, 1, 2, 3]
    assert rows[2].observation.tolist() == [6, 7, 8]
    assert pl.NamedArray.stack(rows) == x
    assert x
    assert pl.NamedArray(a=[])
    with pytest.raises(ValueError, match="differ in length along axis 0: a: 2, b: 1"):
        len(pl.NamedArray(a=[1, 2], b=[1]))
    with pytest.raises(ValueError, match="without arrays"):
        len(pl.NamedArray(a=None))


OPERATORS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a / b,
    lambda a, b: a // b,
    lambda a, b: a % b,
    lambda a, b: a**b,
    np.maximum,
    np.hypot,
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("operate", OPERATORS)
def test_arithmetic(operate: Callable[[Any, Any], Any], seed: int) -> None:
    dice = random.Random(seed)
    x = random_structure(dice, (3, 2), ["float64"]) + 1
    y = x.apply(lambda leaf: leaf * 0 + dice.randrange(1, 4))
    for other in (y, y.to_dict(), 2, np.float64(2), np.array([1.0, 2.0])):
        here, there = operate(x, other), operate(other, x) if not isinstance(other, dict) else None
        for path, leaf in x.flatten().items():
            beside = pl.NamedArray.from_dict(other)[path] if isinstance(other, dict) else other
            beside = beside[path] if isinstance(beside, pl.NamedArray) else beside
            if leaf is None:
                assert here[path] is None
                continue
            np.testing.assert_array_equal(here[path], operate(leaf, beside))
            if there is not None:
                np.testing.assert_array_equal(there[path], operate(beside, leaf))
        assert here.metadata == x.metadata


def test_signs_and_functions_of_one_array() -> None:
    x = pl.NamedArray(a=[-4.0, 9.0], b=None)
    assert (-x).a.tolist() == [4.0, -9.0]
    assert (+x).a.tolist() == [-4.0, 9.0]
    assert np.sqrt(abs(x)).a.tolist() == [2.0, 3.0]
    with pytest.raises(TypeError):
        np.add.reduce(x)
    with pytest.raises(TypeError, match="many arrays, not one"):
        np.asarray(x)
    with pytest.raises(TypeError):
        _ = x + None


def test_in_place() -> None:
    x = sample()
    array = x.observation
    x += 1
    x *= {"observation": 2, "reward": 3, "policy": None, "nothing": 1}
    assert x.observation is array
    assert array[0].tolist() == [2, 4, 6]
    assert (x.reward[1], x.policy.hidden[0, 0]) == (6, 2)


def test_stacking() -> None:
    x = sample(2)
    y = x * 10
    both = pl.NamedArray.stack([x, y], axis=1)
    assert both.shapes["observation"] == (2, 2, 3)
    assert both[:, 0] == x
    assert both.metadata == {"version": 3}
    assert pl.NamedArray.concatenate([x, y], axis=0)[2:] == y
    assert pl.NamedArray.aggregate([x, y], lambda leaves: len(leaves)).reward == 2


def test_stacking_with_fields_that_are_none() -> None:
    x, y = sample(2), sample(2)
    y.policy = None
    with pytest.raises(ValueError, match=r"field 'policy.hidden' is None in 1 of 2 structures: fill=0 puts"):
        pl.NamedArray.stack([y, x])
    both = pl.NamedArray.stack([y, x], fill=0)
    assert both.policy.hidden.tolist() == [[[0, 0], [0, 0]], [[1, 1], [1, 1]]]
    assert both.policy.logits is None
    with pytest.raises(ValueError, match="in 'policy': only the first has logits"):
        pl.NamedArray.stack([x, _without(x, "policy.logits")])
    with pytest.raises(ValueError, match="at least one"):
        pl.NamedArray.stack([])
    with pytest.raises(ValueError, match="an array in one"):
        pl.NamedArray.stack([x, pl.NamedArray.from_dict({**x.to_dict(), "policy": [1]})])
    with pytest.raises(ValueError, match="shape") as wrong:
        pl.NamedArray.stack([x, x[:1]])
    assert wrong.value.__notes__[0].startswith("in field 'observation'")


def _without(x: pl.NamedArray, path: str) -> pl.NamedArray:
    made = x.copy()
    del made[path]
    return made


def test_applying_and_reducing() -> None:
    x = sample(4)
    assert x.apply(lambda a, b: a + b, x) == x * 2
    assert x.map(lambda path, leaf: len(path)).policy.hidden == len("policy.hidden")
    assert x.sum(axis=0).observation.tolist() == [18, 22, 26]
    assert float(x.mean().reward) == 1.5
    assert (int(x.max().reward), int(x.min(axis=0).reward)) == (3, 0)
    assert x.full_like(7).reward.tolist() == [7] * 4
    assert x.to_numpy() == x
    assert x.shapes["policy"] == {"hidden": (4, 2), "logits": None}
    assert x.dtypes["reward"] == np.int64
    assert x.nbytes == 4 * 3 * 4 + 4 * 8 + 4 * 2 * 8


def test_equality() -> None:
    x = sample()
    assert x == x.copy()
    assert x != x + 1
    assert x != x[:3]
    assert x != x.apply(lambda leaf: leaf.astype(np.float16))
    assert x != pl.NamedArray(observation=None, reward=None, policy=None, nothing=None)
    assert x != 3
    gap = pl.NamedArray(a=[np.nan, 1.0], t=np.array(["NaT"], "datetime64[s]"), s=["ä"], o=np.array([{}], object))
    assert gap == gap.copy()
    assert pl.NamedArray(a=[0.3]).allclose(pl.NamedArray(a=[0.1 + 0.2]))
    assert not pl.NamedArray(a=[0.3]).allclose(pl.NamedArray(a=[0.4]))
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)


def test_metadata_goes_along() -> None:
    x = sample()
    for made in (x[1:], x * 2, x.copy(), copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), np.sqrt(x)):
        assert made.metadata == {"version": 3}
        made.metadata["more"] = 1
    assert x.metadata == {"version": 3}


def test_copies() -> None:
    x = sample()
    flat, deep = copy.copy(x), copy.deepcopy(x)
    assert flat.reward is x.reward
    flat["new"] = 1
    deep[:] = 0
    assert "new" not in x
    assert x == sample()

"""Structures of arrays between processes, and with tensors in them."""

import pickle
import random

import numpy as np
import pytest

import paceline as pl
from named_cases import TYPES, Step, random_structure, same_metadata
from support import assert_nothing_left, run_script


@pytest.mark.parametrize("seed", range(30))
def test_pickles_have_the_arrays_beside_them(seed: int) -> None:
    """NA-3"""
    dice = random.Random(seed)
    types = [name for name in TYPES if not name.startswith("datetime")]
    x = random_structure(dice, (40, 50), types)
    beside: list[pickle.PickleBuffer] = []
    stream = pickle.dumps(x, 5, buffer_callback=beside.append)
    leaves = [leaf for leaf in x.flatten().values() if leaf is not None]
    assert len(beside) == len(leaves)
    assert len(stream) < 200 + 200 * len(x.flatten()) + 100 * str(x).count("NamedArray")
    again = pickle.loads(stream, buffers=[bytearray(buffer.raw()) for buffer in beside])
    assert again == x
    assert same_metadata(again, x)
    native = x.apply(lambda leaf: leaf.astype(leaf.dtype.newbyteorder("=")))  # numpy's older pickles turn bytes round
    for protocol in range(2, 6):
        assert pickle.loads(pickle.dumps(native, protocol)) == native
    # Arrays without gaps are not copied on the way.
    whole = [leaf for leaf in leaves if leaf.flags.forc]
    shared = [leaf for leaf in whole if any(np.shares_memory(leaf, np.frombuffer(b, "u1")) for b in beside)]
    assert len(shared) == len(whole)


def test_to_a_slot_and_back(cluster: pl.Cluster) -> None:
    x = Step(observation=np.zeros((200, 300)), reward=np.arange(200))

    @pl.remote
    def more(step: Step) -> Step:
        step += 1
        return step[::2]

    back = more(x)
    assert type(back) is Step
    assert back == x[::2] + 1
    assert float(x.observation.sum()) == 0
    back[:] = 7


def test_a_class_of_the_main_script() -> None:
    done = run_script(
        """
        import numpy as np
        import paceline as pl

        class State(pl.NamedArray):
            hidden: np.ndarray

        class Step(pl.NamedArray):
            reward: np.ndarray
            state: State
            done: np.ndarray | None = None

            def total(self):
                return float(self.reward.sum())

        @pl.remote
        def double(step):
            made = Step(reward=step.reward * 2, state={"hidden": step.state.hidden})
            assert type(made.state) is type(step.state) is State
            return made

        with pl.connect(cpus=1):
            made = double(Step(reward=[1.0, 2.0], state={"hidden": [0]}))
        assert type(made) is Step and type(made.state) is State and made.total() == 6.0 and made.done is None
        """
    ).ok()
    assert_nothing_left(done)


def test_numpy_is_loaded_when_an_array_is_met() -> None:
    run_script(
        """
        import sys
        import paceline as pl
        x = pl.NamedArray(a=None, b={"c": None})
        assert x.b.c is None and x == x.copy() and "numpy" not in sys.modules and "torch" not in sys.modules
        pl.NamedArray(a=1)
        assert "numpy" in sys.modules and "torch" not in sys.modules
        """
    ).ok()


def test_tensors() -> None:
    torch = pytest.importorskip("torch")
    x = pl.NamedArray(a=torch.arange(6).reshape(2, 3), b={"c": torch.ones(2, dtype=torch.bfloat16), "d": None})
    assert pl.NamedArray.stack([x, x])[0] == x
    assert (x * 2 - x) == x
    assert x.sum(axis=0).a.tolist() == [3, 5, 7]
    assert x.max().a == 5
    beside: list[pickle.PickleBuffer] = []
    stream = pickle.dumps(x, 5, buffer_callback=beside.append)
    assert len(beside) == 2
    assert pickle.loads(stream, buffers=beside) == x
    assert pl.NamedArray(a=[1.0]).to_torch().to_numpy().a.tolist() == [1.0]
    for encoding in ("raw", "zlib"):
        again = pl.NamedArray.loads(x.dumps(encoding))
        assert again == x
        again[:] = 0

"""Structures of arrays as bytes: every encoding is recognised, and nothing that is damaged gets through."""

import json
import pickle
import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paceline as pl
from named_cases import State, Step, random_structure, same_metadata, sample
from paceline._named_array import codecs, container

BASES = ["raw", "pickle"]
ENCODINGS = [*BASES, *(f"{base}+{way}" for base in BASES for way in codecs.installed())]


def test_there_are_eight_at_least() -> None:
    assert len(ENCODINGS) >= 8


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_what_is_written_is_read_whatever_it_was(encoding: str) -> None:
    dice = random.Random(encoding)
    for _ in range(5 if "lzma" in encoding else 25):
        x = random_structure(dice)
        for again in (
            pl.NamedArray.loads(x.dumps(encoding), allow_pickle=True),
            pl.NamedArray.loads(x.frames(encoding), allow_pickle=True),
            pl.NamedArray.loads(bytearray(x.dumps(encoding, checksum=False)), allow_pickle=True, copy=False),
        ):
            assert again == x
            assert again.keys() == x.keys()
            assert same_metadata(again, x)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_what_is_read_can_be_written_to(encoding: str) -> None:
    x = sample(100)
    data = x.dumps(encoding)
    again = pl.NamedArray.loads(data, allow_pickle=True)
    again[:] = 7
    assert (again.reward == 7).all()
    assert pl.NamedArray.loads(data, allow_pickle=True) == x


def test_without_a_copy_arrays_are_the_memory_that_is_given() -> None:
    data = bytearray(sample().dumps())
    here = pl.NamedArray.loads(data, copy=False)
    memory = np.frombuffer(data, "u1")
    assert all(leaf is None or np.shares_memory(leaf, memory) for leaf in here.flatten().values())
    with pytest.raises(ValueError, match="read-only"):
        pl.NamedArray.loads(bytes(data), copy=False).reward[0] = 1
    here.reward[0] = 9
    with pytest.raises(pl.DamagedData, match="buffer 1 of a named array has changed"):
        pl.NamedArray.loads(data)


def test_frames_are_not_copied() -> None:
    x = sample()
    for encoding in BASES:
        shared = [frame for frame in x.frames(encoding) if np.shares_memory(np.frombuffer(frame, "u1"), x.observation)]
        assert len(shared) == 1


def test_orders_in_memory_and_types() -> None:
    x = pl.NamedArray(
        columns=np.asfortranarray(np.arange(6).reshape(2, 3)),
        record=np.array([(1, 2.5, b"ab")], [("n", "<i4"), ("x", ">f8", ()), ("s", "S2")]),
        empty=np.zeros((0, 3)),
        nothing=np.zeros(3, "U0"),
        scalar=np.float16(1.5),
        days=np.array(["2026-11-16"], "datetime64[D]"),
    )
    again = pl.NamedArray.loads(x.dumps())
    assert again == x
    assert again.columns.flags.f_contiguous
    assert again.shapes == x.shapes


def test_some_fields_are_compressed() -> None:
    x = pl.NamedArray(frame=np.zeros(5000), policy={"a": np.zeros(5000), "b": np.zeros(5000)}, noise=np.arange(3))

    def large(data: bytes) -> int:
        return round(len(data) / 40_000)

    assert large(x.dumps()) == 3
    assert large(x.dumps("zlib")) == 0
    assert large(x.dumps("zlib", only=["frame"])) == 2
    assert large(x.dumps("zlib", only=["policy"])) == 1
    assert large(x.dumps("zlib", skip="policy.a")) == 1
    assert large(x.dumps("bz2", only=["policy"], skip=["policy.b"])) == 2
    for options in ({"only": ["frame"]}, {"skip": ["policy"]}):
        assert pl.NamedArray.loads(x.dumps("lzma", **options)) == x
    with pytest.raises(ValueError, match=r"no field 'frmae' to compress or to skip: there are frame, policy.a"):
        x.dumps("zlib", only=["frmae"])
    for encoding in ("raw", "pickle+zlib"):
        with pytest.raises(ValueError, match="say which fields are compressed"):
            x.dumps(encoding, only=["frame"])


def test_what_does_not_get_smaller_is_not_compressed() -> None:
    x = pl.NamedArray(noise=np.frombuffer(random.Random(1).randbytes(1000), "u1"))
    assert len(x.dumps("zlib")) <= len(x.dumps()) + 100


def test_levels() -> None:
    x = pl.NamedArray(a=np.arange(20_000) % 137)
    assert len(x.dumps("zlib", level=9)) < len(x.dumps("zlib", level=1))


def test_declared_classes() -> None:
    step = Step(observation=np.ones((2, 3)), reward=np.arange(2), state=State(hidden=np.zeros(2)))
    for encoding in ENCODINGS:
        again = Step.loads(step.dumps(encoding), allow_pickle=True)
        assert again == step
        assert type(again) is Step
        assert type(again.state) is State
    assert type(pl.NamedArray.loads(step.dumps())) is pl.NamedArray
    assert type(pl.NamedArray.loads(step.dumps("pickle"), allow_pickle=True)) is Step
    with pytest.raises(pl.EncodingError, match="what was read is no State: State has the fields hidden, mask"):
        State.loads(step.dumps())


class Trap:
    sprung = False

    def __reduce__(self) -> Any:
        return spring, ()


def spring() -> str:
    Trap.sprung = True
    return "sprung"


@pytest.mark.parametrize("encoding", [name for name in ENCODINGS if name.startswith("pickle")])
def test_nothing_is_unpickled_unasked(encoding: str) -> None:
    """EN-1"""
    x = sample()
    x.metadata["trap"] = Trap()
    Trap.sprung = False
    for data in (x.dumps(encoding), x.frames(encoding)):
        with pytest.raises(pl.PickleRefused, match="allow_pickle=True"):
            pl.NamedArray.loads(data)
        assert not Trap.sprung
        assert pl.NamedArray.loads(data, allow_pickle=True).metadata["trap"] == "sprung"
        Trap.sprung = False


def test_a_head_that_lies_about_a_pickle_is_not_unpickled() -> None:
    stream = memoryview(pickle.dumps(Trap()))
    Trap.sprung = False
    header = {"encoding": "raw", "structure": {"fields": [["a", {"type": "|O", "shape": [1]}]]}}
    for head in (header, {**header, "encoding": "raw+zlib"}, {"encoding": "dill"}):
        frames = container.pack(head, [stream], [None], level=None, checksum=True)
        with pytest.raises(pl.EncodingError):
            pl.NamedArray.loads(frames, allow_pickle=True)
    assert not Trap.sprung


def test_what_raw_cannot_keep_is_refused() -> None:
    """EN-2"""
    masked = np.ma.masked_array([1, 2], [True, False])
    for x in (pl.NamedArray(a=np.array([{}, None], object)), pl.NamedArray(b={"a": masked})):
        with pytest.raises(
            pl.EncodingError, match=r"field '(b\.)?a' cannot be written raw.*\n*hint: use the encoding pickle"
        ):
            x.dumps()
        assert pl.NamedArray.loads(x.dumps("pickle"), allow_pickle=True).keys() == x.keys()
    for value in ((1, 2), {1: 2}, {3}, b"x", np.float64(1), object()):
        x = pl.NamedArray(n={"a": 1})
        x.n.metadata["value"] = value
        with pytest.raises(pl.EncodingError, match="the metadata of 'n' cannot be written raw"):
            x.dumps()
    x = pl.NamedArray(a=1)
    x.metadata["lock"] = threading.Lock()
    with pytest.raises(pl.EncodingError, match=r"the structure cannot be pickled: .*lock"):
        x.dumps("pickle")


@pytest.mark.parametrize("name", ["", "Raw", "raw+", "raw+rar", "+zlib", "zlib+raw", "pickle+pickle"])
def test_an_unknown_encoding(name: str) -> None:
    with pytest.raises(pl.UnknownEncoding, match=r"no encoding has the name .*\nhint: there are raw and pickle"):
        sample().dumps(name)


@pytest.mark.parametrize("way", [name for name in codecs.NAMES if name not in codecs.installed()])
def test_what_is_not_installed_is_named(way: str) -> None:
    with pytest.raises(pl.UnknownEncoding, match=f"{way} is not installed here\nhint: pip install "):
        sample().dumps(way)
    frames = container.pack({"encoding": f"raw+{way}"}, [memoryview(b"")], [None], level=None, checksum=False)
    head = json.loads(bytes(frames[0])[16:])
    head["buffers"] = [[1, 2, way, None]]
    with pytest.raises(pl.UnknownEncoding, match="not installed"):
        pl.NamedArray.loads([_head(head), b"x"])


def _head(header: Any, version: int = 1) -> bytes:
    """A head with a good check sum, whatever it says."""
    import struct
    import zlib

    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<4sBxxxII", b"PLNA", version, len(text), zlib.crc32(text)) + text


def test_bytes_of_others() -> None:
    for data in (b"", b"PLN", b"hello, this is no array", pickle.dumps(Trap()), bytes(100), [], [b""], [b"a", b"b"]):
        with pytest.raises(pl.UnknownEncoding, match="these bytes are no named array"):
            pl.NamedArray.loads(data, allow_pickle=True)
    with pytest.raises(pl.UnknownEncoding, match="of version 2 cannot be read here"):
        pl.NamedArray.loads(_head({}, 2))
    nothing: Any = 3
    for wrong in (nothing, [nothing], "text"):
        with pytest.raises(TypeError, match="bytes, or a list of them, can be read"):
            pl.NamedArray.loads(wrong)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_nothing_that_is_damaged_gets_through(encoding: str) -> None:
    """CN-2, EN-3: every cut, and changes of single bytes anywhere."""
    dice = random.Random(encoding)
    x = sample(30)
    data = x.dumps(encoding)
    for length in {*range(40), *(dice.randrange(len(data)) for _ in range(60)), len(data) - 1}:
        with pytest.raises(pl.EncodingError):
            pl.NamedArray.loads(data[:length], allow_pickle=True)
    with pytest.raises(pl.DamagedData, match="bytes, and"):
        pl.NamedArray.loads(data + b"x", allow_pickle=True)
    refused = 0
    for at in {*range(40), *(dice.randrange(len(data)) for _ in range(300))}:
        changed = bytearray(data)
        changed[at] ^= 1 << dice.randrange(8)
        try:
            assert pl.NamedArray.loads(changed, allow_pickle=True) == x, "a gap between two buffers"
        except pl.EncodingError:
            refused += 1
    assert refused > 200
    head, *frames = x.frames(encoding)
    for wrong in ([head], [head, *frames[:-1]], [head, *frames, b""], [head, b"", *frames[1:]], frames):
        with pytest.raises(pl.EncodingError):
            pl.NamedArray.loads(wrong, allow_pickle=True)


@pytest.mark.parametrize("way", codecs.installed())
def test_a_compressed_buffer_that_lies_about_its_size(way: str) -> None:
    """CO-1"""
    packed = codecs.compress(way, memoryview(bytes(10_000)), None)
    for size in (0, 9_999, 10_001, 1 << 60):
        with pytest.raises(pl.DamagedData):
            codecs.decompress(way, memoryview(packed), size)
    for broken in (packed[:-1], b"", packed[:4] + b"xxxx" + packed[8:], packed + b"more"):
        if way in ("lz4", "zstd") and broken == packed + b"more":
            continue  # further frames are theirs to judge
        with pytest.raises(pl.DamagedData):
            codecs.decompress(way, memoryview(broken), 10_000)


HEADS: list[Any] = [
    b"no json",
    b"\xff\xfe",
    b"[" * 100_000,
    [],
    {},
    {"encoding": "raw"},
    {"encoding": "raw", "buffers": 3},
    {"encoding": "raw", "buffers": [[1]]},
    {"encoding": "raw", "buffers": [[-1, -1, None, None]]},
    {"encoding": "raw", "buffers": [[True, True, None, None]]},
    {"encoding": "raw", "buffers": [[8, 9, None, None]]},
    {"encoding": "raw", "buffers": [[8, 8, "rar", None]]},
    {"encoding": 3, "buffers": [[8, 8, None, None]]},
    {"encoding": "raw", "buffers": [[8, 8, None, None]]},
    *(
        {"encoding": "raw", "buffers": [[8, 8, None, None]], "structure": {"fields": fields}}
        for fields in (
            3,
            [],
            [["a"]],
            [[3, {"type": "<f8", "shape": [1]}]],
            [["a", {"type": "<f8", "shape": [2]}]],
            [["a", {"type": "<f8", "shape": [-1]}]],
            [["a", {"type": "<f8", "shape": [10**30, 10**30]}]],
            [["a", {"type": "<f8", "shape": "x"}]],
            [["a", {"type": "|O", "shape": [1]}]],
            [["a", {"type": "[('a', '|O')]", "shape": [1]}]],
            [["a", {"type": "[().__class__]", "shape": [1]}]],
            [["a", {"type": "what", "shape": [1]}]],
            [["a", {"type": "<f8", "shape": [1]}], ["a", None]],
            [["a", {"type": "<f8", "shape": [1]}], ["b", {"type": "<f8", "shape": [1]}]],
            [["a", {"type": "<f8", "shape": [1], "torch": "float64"}], ["b", 3]],
        )
    ),
]


@pytest.mark.parametrize("head", HEADS, ids=lambda head: str(head)[:60])
def test_heads_that_make_no_sense(head: Any) -> None:
    with pytest.raises(pl.EncodingError):
        pl.NamedArray.loads([_head(head), bytes(8)], allow_pickle=True)


def test_a_head_without_end_in_depth() -> None:
    fields: Any = None
    for _ in range(2000):
        fields = {"fields": [["a", fields]]}
    try:
        head = _head({"encoding": "raw", "buffers": [], "structure": fields})
    except RecursionError:
        text = '{"fields":[["a",' * 2000 + "null" + "]]}" * 2000
        head = _head(b'{"encoding":"raw","buffers":[],"structure":' + text.encode() + b"}")
    with pytest.raises(pl.DamagedData):
        pl.NamedArray.loads(head)


def test_files_and_maps_of_them(tmp_path: Path) -> None:
    import mmap

    x = sample(1000)
    path = tmp_path / "sample"
    path.write_bytes(x.dumps())
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        here = pl.NamedArray.loads(mapped, copy=False)  # type: ignore[arg-type]
        assert here == x
        del here


def test_fifty_threads() -> None:
    failures: list[str] = []

    def run(seed: int) -> None:
        dice = random.Random(seed)
        for encoding in ("raw", "pickle+zlib", "zlib"):
            x = random_structure(dice)
            if pl.NamedArray.loads(x.dumps(encoding), allow_pickle=True) != x:
                failures.append(repr(x))

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures

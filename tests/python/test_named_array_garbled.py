"""Bytes from anybody: reading a named array never costs more than the bytes that are here, whatever they claim."""

from __future__ import annotations

import json
import lzma
import struct
import time
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import paceline as pl
from named_cases import random_structure, sample
from paceline._named_array import codecs, encoding

MEBIBYTE = 1 << 20
# What a head of a few kilobytes may cost, with all that numpy and json need for it.
MAX_MEMORY = 32 * MEBIBYTE
MAX_SECONDS = 5.0

ENCODINGS = ["raw", "pickle", *(f"raw+{way}" for way in codecs.installed())]


def head(header: Any) -> bytes:
    """A head with a good check sum, whatever it says."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<4sBxxxII", b"PLNA", 1, len(text), zlib.crc32(text)) + text


def described(*fields: Any, **more: Any) -> dict[str, Any]:
    return {"fields": list(fields), **more}


def array(shape: Any, kind: Any = "<f8", **more: Any) -> dict[str, Any]:
    return {"type": kind, "shape": shape, **more}


def raw(structure: Any, *lengths: int) -> bytes:
    return head({"encoding": "raw", "structure": structure, "buffers": [[each, each, None, None] for each in lengths]})


def cheaply_refused(data: Any, match: str | None = None, **options: Any) -> None:
    """Raises the documented error, and takes neither memory nor time for what is only claimed."""
    pl.NamedArray.loads(sample().dumps("zlib"))  # whatever is imported when it is first needed
    tracemalloc.start()
    begun = time.monotonic()
    try:
        with pytest.raises(pl.EncodingError, match=match):
            pl.NamedArray.loads(data, **options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.monotonic() - begun < MAX_SECONDS
    assert peak < MAX_MEMORY


@pytest.mark.parametrize("kind", ["<f8", "|u1", "|V0", "<U0", "|S0", "|V2000000000", "[('a', '<f8', (1000, 1000))]"])
@pytest.mark.parametrize("shape", [[1 << 27], [1 << 40], [1 << 20, 1 << 20], [10**18], [3, 5, 1 << 31]])
def test_loads_shape_without_bytes_is_refused_before_room_is_made(kind: str, shape: list[int]) -> None:
    """EN-4"""
    cheaply_refused([raw(described(["a", array(shape, kind)]), 0), b""])


@pytest.mark.parametrize("shape", [[1] * 65, [1] * 100_000, [True], [1.0], ["1"], "1", {"1": 1}, None, [[1]], [-1, -1]])
def test_loads_shape_that_is_none_is_refused(shape: Any) -> None:
    cheaply_refused([raw(described(["a", array(shape)]), 8), bytes(8)])


@pytest.mark.parametrize(
    "kind", ["(1,)f8", "(1000000,)f8", "[" * 1000, "[" + "-" * 5000 + "1]", "[" + "(" * 90 + ")" * 90]
)
def test_loads_type_that_no_array_has_is_refused(kind: str) -> None:
    cheaply_refused([raw(described(["a", array([1], kind)]), 8), bytes(8)])


def test_loads_type_of_many_characters_is_refused() -> None:
    many = repr([(f"field{number}", "|V0") for number in range(100_000)])
    cheaply_refused([raw(described(["a", array([1], many)]), 0), b""], match="characters")


@pytest.mark.parametrize("depth", [encoding.MAX_NESTING, 250, 800, 50_000])
def test_loads_structure_nested_too_deep_is_refused(depth: int) -> None:
    """EN-4: at any depth of the caller's own stack, and not only where Python gives up."""
    text = '{"fields":[["a",' * depth + '{"fields":[]}' + "]]}" * depth
    cheaply_refused(head(b'{"encoding":"raw","buffers":[],"structure":' + text.encode() + b"}"))


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("depth", [encoding.MAX_NESTING + 1, 800, 50_000])
def test_loads_metadata_nested_too_deep_is_refused(opening: str, depth: int) -> None:
    closing = "]" if opening == "[" else "}"
    deep = '{"deep":' + opening * depth + "1" + closing * depth + "}"
    text = '{"encoding":"raw","buffers":[],"structure":{"fields":[],"metadata":' + deep + "}}"
    cheaply_refused(head(text.encode()))


@pytest.mark.parametrize("metadata", [[["a", 1]], "text", 3, None])
def test_loads_metadata_that_is_no_dict_is_refused(metadata: Any) -> None:
    cheaply_refused(raw(described(metadata=metadata)))


@pytest.mark.parametrize("name", ["", "a.b", ".", 3, None])
def test_loads_field_with_a_name_that_none_can_have_is_refused(name: Any) -> None:
    cheaply_refused(raw(described([name, None])))


def test_dumps_what_could_not_be_read_again_is_refused() -> None:
    """EN-2: whatever is written can be read."""
    deep = pl.NamedArray(a=np.zeros(2))
    for _ in range(encoding.MAX_NESTING - 1):
        deep = pl.NamedArray(a=deep)
    assert pl.NamedArray.loads(deep.dumps()) == deep
    with pytest.raises(pl.EncodingError, match=r"nested more than 100 deep(.|\n)*hint: use the encoding pickle"):
        pl.NamedArray(a=deep).dumps()
    told = pl.NamedArray(a=1)
    value: Any = 1
    for _ in range(encoding.MAX_NESTING):
        value = [value]
    told.metadata["deep"] = value
    assert pl.NamedArray.loads(told.dumps()).metadata == told.metadata
    told.metadata["deep"] = [value]
    with pytest.raises(pl.EncodingError, match="metadata cannot be written raw: it is nested more than 100 deep"):
        told.dumps()
    told.metadata["deep"] = told.metadata
    with pytest.raises(pl.EncodingError, match="metadata cannot be written raw"):
        told.dumps()
    for values in (np.zeros((1 << 20) + 1, "V0"), np.zeros(1, [(f"field{number}", "<f8") for number in range(9999)])):
        with pytest.raises(pl.EncodingError, match="field 'a' cannot be written raw"):
            pl.NamedArray(a=values).dumps()


@pytest.mark.parametrize("way", codecs.installed())
def test_loads_compressed_claim_beyond_the_limit_is_refused_unread(way: str) -> None:
    """CN-3: thousands of times as large as the bytes that are here."""
    x = pl.NamedArray(a=np.zeros(8 * MEBIBYTE, "u1"), b=np.zeros(4 * MEBIBYTE, "u1"))
    data = x.dumps(way)
    cheaply_refused(data, "has 12582912 bytes, and 12582911 are allowed", max_bytes=x.nbytes - 1)
    assert pl.NamedArray.loads(data, max_bytes=x.nbytes) == x
    assert pl.NamedArray.loads(data) == x
    told = json.loads(bytes(x.frames(way)[0])[16:])
    told["buffers"][0][1] = told["structure"]["fields"][0][1]["shape"][0] = 3 << 30
    for claim in (head(told), head({**told, "encoding": "pickle"})):
        cheaply_refused([claim, *x.frames(way)[1:]], r"and 1073741824 are allowed", allow_pickle=True)


def test_loads_lzma_that_asks_for_gigabytes_of_dictionary_is_refused() -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 30}]
    packed = bytearray(lzma.compress(bytes(1000), filters=filters))
    told = {"encoding": "raw+lzma", "structure": described(["a", array([1000], "|u1")])}
    cheaply_refused([head({**told, "buffers": [[len(packed), 1000, "lzma", None]]}), packed], "emory")


# Heads that are right in most places, and anything at all in some.
names = st.one_of(st.sampled_from(["a", "b", "", "a.b"]), st.text(max_size=3))
sizes = st.one_of(st.integers(0, 9), st.sampled_from([-1, 1 << 31, 1 << 62, 10**30, True, None, 2.5, "8"]))
kinds = st.one_of(
    st.sampled_from(["<f8", "|u1", "<U0", "|V0", "|O", "<M8[D]", "|S3", "(2,)f8", "f8,f8", "[('a', '<f8')]", "["]),
    st.text(max_size=8),
)
leaves = st.fixed_dictionaries(
    {"type": kinds, "shape": st.lists(sizes, max_size=4)},
    optional={"order": st.sampled_from(["F", "C", 3])},
)
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=6,
)
structures = st.recursive(
    st.one_of(leaves, st.none(), anything),
    lambda inner: st.fixed_dictionaries(
        {"fields": st.lists(st.tuples(names, inner), max_size=4)}, optional={"metadata": anything}
    ),
    max_leaves=8,
)
buffers = st.tuples(sizes, sizes, st.sampled_from([None, *codecs.NAMES, "rar", 3]), st.none())
heads = st.fixed_dictionaries(
    {"encoding": st.sampled_from(["raw", "raw+zlib", "pickle", "dill", 3]), "structure": structures},
    optional={"buffers": st.lists(buffers, max_size=4), "more": anything},
)


# Each field has a buffer, as long as it is said to be.
fields = st.lists(st.tuples(leaves, st.one_of(st.just(b""), st.binary(max_size=16))), max_size=3)


def read(data: Any) -> None:
    """Gives a structure that can be used, or raises the documented error; and costs little."""
    tracemalloc.start()
    try:
        again = pl.NamedArray.loads(data)
        repr(again)
        assert pl.NamedArray.loads(again.dumps()) == again
    except pl.EncodingError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < MAX_MEMORY


@settings(max_examples=150, deadline=MAX_SECONDS * 1000)
@given(told=heads, frames=st.lists(st.binary(max_size=16), max_size=4))
def test_loads_head_that_lies_gives_a_structure_or_the_documented_error(told: Any, frames: list[bytes]) -> None:
    """EN-3, EN-4"""
    told.setdefault("buffers", [[len(frame), len(frame), None, None] for frame in frames])
    read([head(told), *frames])


@settings(max_examples=150, deadline=MAX_SECONDS * 1000)
@given(told=fields)
def test_loads_arrays_that_lie_give_a_structure_or_the_documented_error(told: list[tuple[Any, bytes]]) -> None:
    """EN-3, EN-4"""
    named = [[f"field{number}", leaf] for number, (leaf, _) in enumerate(told)]
    frames = [frame for _, frame in told]
    read([raw(described(*named), *map(len, frames)), *frames])


@settings(max_examples=150, deadline=MAX_SECONDS * 1000)
@given(
    kind=st.sampled_from(ENCODINGS),
    dice=st.randoms(use_true_random=False),
    cuts=st.lists(
        st.tuples(st.integers(0, 1 << 20), st.integers(0, 40), st.binary(max_size=8)), min_size=1, max_size=4
    ),
    sealed=st.booleans(),
)
def test_loads_garbled_bytes_give_a_structure_or_the_documented_error(
    kind: str, dice: Any, cuts: list[tuple[int, int, bytes]], sealed: bool
) -> None:
    """EN-3, EN-4: pieces cut out and put in anywhere, with a check sum of the head that is right again, or not."""
    data = bytearray(random_structure(dice).dumps(kind, checksum=False))
    for place, length, piece in cuts:
        place %= len(data)
        data[place : place + length] = piece
    if sealed and len(data) >= 16 and data[:4] == b"PLNA":
        length = min(struct.unpack_from("<I", data, 8)[0], len(data) - 16)
        struct.pack_into("<II", data, 8, length, zlib.crc32(data[16 : 16 + length]))
    read(data)

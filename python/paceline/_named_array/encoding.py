"""A structure as a header and buffers, and back.

Two encodings, each with any way to compress: `raw` has every array as it is in memory and the structure as JSON;
`pickle` has what pickle makes of it, with the arrays as buffers beside it.

* EN-1: nothing is unpickled unless the bytes say that they are a pickle, and the caller allows it.
* EN-2: `raw` keeps everything or refuses: types, shapes, the order in memory, metadata.
* EN-3: whatever the bytes are, reading them gives a structure or raises an `EncodingError`.
* EN-4: reading takes time and memory in proportion to the bytes that are here, and at most `max_bytes` for what was
  compressed: no size, shape or nesting that is only claimed is acted upon.
"""

from __future__ import annotations

import ast
import json
import math
import pickle
from importlib import import_module

from paceline._named_array import arrays, codecs
from paceline._named_array.container import Packed, is_size, pack
from paceline._named_array.structure import NamedArray, field_of, make
from paceline.errors import DamagedData, EncodingError, PickleRefused, UnknownEncoding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, TypeVar

    from paceline._named_array.container import Buffer

    S = TypeVar("S", bound=NamedArray)

# Structures within structures, and lists and dicts within metadata. Deeper ones would run into Python's own limit when
# they are compared or printed, and how deep that is depends on who calls.
MAX_NESTING = 100
# As many dimensions as an array of numpy's can have.
MAX_DIMENSIONS = 64
# The name of a type is parsed, which takes many times its length in memory.
MAX_TYPE_LENGTH = 64 << 10
# Values without bytes, such as empty text: nothing that is here bounds how many are claimed.
MAX_EMPTY_VALUES = 1 << 20


def encode(
    structure: NamedArray,
    encoding: str,
    *,
    level: int | None,
    only: Iterable[str] | None,
    skip: Iterable[str],
    checksum: bool,
) -> list[Buffer]:
    base, way = _parsed(encoding)
    skip = _names(skip)
    header: dict[str, Any] = {"encoding": base if way is None else f"{base}+{way}"}
    if (only is not None or skip) and (base != "raw" or way is None):
        raise ValueError(f"only= and skip= say which fields are compressed, and {encoding!r} compresses none of them")
    if base == "pickle":
        buffers = _pickled(structure)
        ways = [way] * len(buffers)
    else:
        chosen = _chosen(structure, None if only is None else _names(only), skip)
        header["structure"], leaves = _described(structure)
        ways = [way if path in chosen else None for path in leaves]
        buffers = list(leaves.values())
    return pack(header, buffers, ways, level=level, checksum=checksum)


def decode(
    kind: type[S], data: Buffer | Iterable[Buffer], *, allow_pickle: bool, copy: bool, max_bytes: int | None
) -> S:
    packed = Packed(data, max_bytes)
    base = str(packed.encoding).partition("+")[0]
    if base == "pickle":
        if not allow_pickle:
            raise PickleRefused()
        found = _unpickled(packed.buffers(copy))
    elif base == "raw":
        found = _read(packed.header.get("structure"), packed.buffers(copy))
    else:
        raise UnknownEncoding(
            f"no encoding has the name {packed.encoding!r}", hint="it may come from a newer version of paceline"
        )
    try:
        made: S = field_of(found, "", kind)
    except (TypeError, ValueError) as error:
        raise EncodingError(f"what was read is no {kind.__name__}: {error}") from error
    return made


def _parsed(encoding: str) -> tuple[str, str | None]:
    base, plus, way = encoding.partition("+")
    if base in codecs.NAMES and not plus:
        base, way = "raw", base
    if base not in ("raw", "pickle") or (plus and not way) or (way and way not in codecs.NAMES):
        raise UnknownEncoding(
            f"no encoding has the name {encoding!r}",
            hint=f"there are raw and pickle, alone or with one of {', '.join(codecs.NAMES)} behind a plus",
        )
    return base, way or None


def _names(paths: Iterable[str]) -> list[str]:
    return [paths] if isinstance(paths, str) else list(paths)


def _chosen(structure: NamedArray, only: list[str] | None, skip: list[str]) -> set[str]:
    """The paths of the arrays that are to be compressed."""
    for path in (*(only or ()), *skip):
        if path not in structure:
            raise ValueError(f"no field {path!r} to compress or to skip: there are {', '.join(structure.flatten())}")

    def among(path: str, named: list[str]) -> bool:
        return any(path == name or path.startswith(f"{name}.") for name in named)

    return {path for path in structure.flatten() if (only is None or among(path, only)) and not among(path, skip)}


# pickle


def _pickled(structure: NamedArray) -> list[memoryview]:
    beside: list[pickle.PickleBuffer] = []
    try:
        stream = pickle.dumps(structure, 5, buffer_callback=beside.append)
    except Exception as error:
        raise EncodingError(f"the structure cannot be pickled: {error}") from error
    return [memoryview(stream), *(buffer.raw() for buffer in beside)]


def _unpickled(buffers: list[bytearray | memoryview]) -> NamedArray:
    if not buffers:
        raise DamagedData("a pickled named array without a pickle")
    try:
        found = pickle.loads(buffers[0], buffers=buffers[1:])
    except Exception as error:
        raise DamagedData(f"the pickle of a named array cannot be read: {error!r}") from error
    if not isinstance(found, NamedArray):
        raise DamagedData(f"the pickle of a named array has something else: {type(found).__name__}")
    return found


# raw


def _described(
    structure: NamedArray, path: str = "", depth: int = MAX_NESTING
) -> tuple[dict[str, Any], dict[str, memoryview]]:
    """The structure as JSON can tell it, and the memory of each array by its path, in order."""
    if not depth:
        raise EncodingError(f"structures are nested more than {MAX_NESTING} deep: {path[:40]}...", hint=_USE_PICKLE)
    fields: list[list[Any]] = []
    leaves: dict[str, memoryview] = {}
    for name, field in structure.items():
        here = f"{path}{name}"
        if field is None:
            fields.append([name, None])
        elif isinstance(field, NamedArray):
            nested, inner = _described(field, f"{here}.", depth - 1)
            fields.append([name, nested])
            leaves |= inner
        else:
            told, leaves[here] = _array(field, here)
            fields.append([name, told])
    described: dict[str, Any] = {"fields": fields}
    if structure.metadata:
        described["metadata"] = _plain(structure.metadata, path)
    return described, leaves


def _plain(metadata: dict[str, Any], path: str) -> dict[str, Any]:
    """EN-2: JSON makes lists of tuples and text of keys, and does not say so."""
    try:
        if _is_deep(metadata):
            why = f"it is nested more than {MAX_NESTING} deep"
        elif repr(json.loads(json.dumps(metadata))) == repr(metadata):
            return metadata
        else:
            why = "JSON would change it"
    except (TypeError, ValueError, RecursionError) as error:
        why = str(error)
    where = f" of {path.removesuffix('.')!r}" if path else ""
    raise EncodingError(f"the metadata{where} cannot be written raw: {why}", hint=_USE_PICKLE)


def _is_deep(value: Any) -> bool:
    """Whether containers are nested deeper than `MAX_NESTING`. A value that contains itself is."""
    level = [value]
    for _ in range(MAX_NESTING + 1):
        level = [
            item
            for each in level
            if isinstance(each, dict | list)
            for item in (each.values() if isinstance(each, dict) else each)
            if isinstance(item, dict | list)
        ]
        if not level:
            return False
    return True


_USE_PICKLE = "use the encoding pickle, or pickle+zlib, for what is more than arrays of numbers and text"


def _array(array: Any, path: str) -> tuple[dict[str, Any], memoryview]:
    told: dict[str, Any] = {}
    if arrays.is_tensor(array):
        array, told["torch"] = arrays.tensor_memory(array)
    np: Any = arrays.numpy()
    if type(array) not in (np.ndarray, np.memmap):
        raise EncodingError(f"field {path!r} cannot be written raw: it is a {type(array).__name__}", hint=_USE_PICKLE)
    dtype = array.dtype
    told["type"] = dtype.str if dtype.names is None else repr(dtype.descr)
    if dtype.hasobject or not _is_kept(dtype, told["type"]) or (not dtype.itemsize and array.size > MAX_EMPTY_VALUES):
        raise EncodingError(f"field {path!r} cannot be written raw: its values are {dtype}", hint=_USE_PICKLE)
    told["shape"] = list(array.shape)
    if array.flags.f_contiguous and not array.flags.c_contiguous:
        told["order"] = "F"
        array = array.T
    if not array.nbytes:
        return told, memoryview(b"")
    # As bytes by a view of numpy's, because not all types of numpy's can be asked for as a buffer.
    return told, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _is_kept(dtype: Any, text: str) -> bool:
    """Whether a type is told by this text."""
    try:
        return bool(_dtype(text) == dtype)
    except (TypeError, ValueError):
        return False


def _dtype(text: str) -> Any:
    np: Any = arrays.numpy()
    if len(text) > MAX_TYPE_LENGTH:
        raise ValueError(f"the name of a type has {len(text)} characters")
    if text.startswith("["):
        return import_module("numpy.lib.format").descr_to_dtype(ast.literal_eval(text))
    return np.dtype(text)


def _read(described: Any, buffers: list[bytearray | memoryview]) -> NamedArray:
    left = iter(buffers)
    try:
        found = _structure(described, left)
    except EncodingError:
        raise
    except Exception as error:
        raise DamagedData(f"the head of a named array does not say what it should: {error!r}") from error
    if next(left, None) is not None:
        raise DamagedData("a named array has more buffers than fields")
    return found


def _structure(described: dict[str, Any], left: Any, depth: int = MAX_NESTING) -> NamedArray:
    if not depth:
        raise DamagedData(f"a named array is nested more than {MAX_NESTING} deep")
    fields: dict[str, Any] = {}
    for name, told in described["fields"]:
        if not isinstance(name, str) or not name or "." in name or name in fields:
            raise ValueError(f"a field of the name {name!r}")
        if told is None:
            fields[name] = None
        elif "fields" in told:
            fields[name] = _structure(told, left, depth - 1)
        else:
            fields[name] = _array_of(told, next(left))
    metadata = described.get("metadata", {})
    if not isinstance(metadata, dict) or _is_deep(metadata):
        raise ValueError(f"metadata that is no dict, or is nested more than {MAX_NESTING} deep")
    return make(NamedArray, fields, metadata)


def _array_of(told: dict[str, Any], buffer: bytearray | memoryview) -> Any:
    np: Any = arrays.numpy()
    dtype, shape = _dtype(told["type"]), tuple(told["shape"])
    if dtype.hasobject or dtype.subdtype is not None or len(shape) > MAX_DIMENSIONS or not all(map(is_size, shape)):
        raise ValueError(f"an array of {dtype} of {len(shape)} dimensions")
    # EN-4: numpy makes room for whatever a shape claims.
    count = math.prod(shape)
    if count * dtype.itemsize != len(buffer) or (not dtype.itemsize and count > MAX_EMPTY_VALUES):
        raise ValueError("an array and its memory differ in size")
    backwards = told.get("order") == "F"
    stored = shape[::-1] if backwards else shape
    # Not by np.empty, which makes text of no length one character long.
    array = np.frombuffer(buffer, dtype).reshape(stored) if len(buffer) else np.ndarray(stored, dtype)
    if backwards:
        array = array.T
    if "torch" not in told:
        return array
    try:
        return arrays.tensor_of(array, told["torch"])
    except ImportError as error:
        raise EncodingError("these are tensors of torch, which is not here", hint="pip install torch") from error

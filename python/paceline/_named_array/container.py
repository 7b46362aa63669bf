"""What all encodings have in common: a head that says how to read the rest, and buffers.

The head is `PLNA`, a version, its length, its check sum, and JSON: the name of the encoding, and of every buffer its
length, that before it was compressed, how that was done, and its check sum. In one piece, each buffer begins at a
multiple of 64 bytes, so that arrays can be used where they are.

* CN-1: nothing of a buffer is used before its length and its check sum are right.
* CN-2: whatever the bytes are, reading them gives the buffers or raises an `EncodingError`.
* CN-3: what is compressed is refused before it is unpacked if all of it claims to be larger than is allowed.
"""

from __future__ import annotations

import json
import struct
import zlib

from paceline._named_array import arrays, codecs
from paceline.errors import DamagedData, EncodingError, UnknownEncoding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, TypeAlias

    Buffer: TypeAlias = bytes | bytearray | memoryview

MAGIC = b"PLNA"
VERSION = 1
ALIGNMENT = 64

# Unless the caller says otherwise, compressed bytes may become this many times as many, or this many if that is more.
MAX_EXPANSION = 64
MAX_UNPACKED_BYTES = 1 << 30

_HEAD = struct.Struct("<4sBxxxII")


def pack(
    header: dict[str, Any],
    buffers: Sequence[memoryview],
    ways: Sequence[str | None],
    *,
    level: int | None,
    checksum: bool,
) -> list[Buffer]:
    """The head and the buffers, each compressed in its way, or not, if there is none or nothing is won."""
    frames: list[Buffer] = []
    told = []
    for data, way in zip(buffers, ways, strict=True):
        frame: Buffer = data
        if way is not None:
            packed = codecs.compress(way, data, level)
            if len(packed) < data.nbytes:
                frame = packed
            else:
                way = None
        told.append([len(frame), data.nbytes, way, zlib.crc32(frame) if checksum else None])
        frames.append(frame)
    text = json.dumps({**header, "buffers": told}, separators=(",", ":")).encode()
    return [_HEAD.pack(MAGIC, VERSION, len(text), zlib.crc32(text)) + text, *frames]


def join(frames: Sequence[Buffer]) -> bytes:
    """The frames in one piece."""
    pieces: list[Buffer] = []
    at = 0
    for frame in frames:
        gap = -at % ALIGNMENT
        pieces += [bytes(gap), frame]
        at += gap + len(frame)
    return b"".join(pieces)


class Packed:
    """What `pack` or `join` has made, with nothing of it read but the head."""

    def __init__(self, data: Buffer | Iterable[Buffer], max_bytes: int | None = None) -> None:
        parts: Any = data
        try:
            frames = [memoryview(parts).cast("B")]
        except TypeError:
            try:
                frames = [memoryview(frame).cast("B") for frame in parts]
            except TypeError:
                raise TypeError(f"bytes, or a list of them, can be read, not a {type(data).__name__}") from None
        self.header, end = _header(frames[0] if frames else memoryview(b""))
        self._buffers: list[tuple[int, int, str | None, int | None]] = []
        try:
            self.encoding: str = self.header["encoding"]
            for length, size, way, check in self.header["buffers"]:
                if not is_size(length) or not is_size(size) or not (check is None or is_size(check)):
                    raise ValueError("sizes are whole numbers")
                if way is None and size != length:
                    raise ValueError("a buffer has two sizes")
                self._buffers.append((length, size, way, check))
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedData(f"the head of a named array does not say what it should: {error!r}") from error
        self._check_claims(frames, max_bytes)
        self._frames = self._split(frames[0], end) if len(frames) == 1 else frames[1:]
        if len(self._frames) != len(self._buffers):
            raise DamagedData(f"a named array has {len(self._buffers)} buffers, and {len(self._frames)} are here")

    def _check_claims(self, frames: list[memoryview], max_bytes: int | None) -> None:
        """CN-3"""
        claimed = sum(size for _, size, way, _ in self._buffers if way is not None)
        if max_bytes is None:
            max_bytes = max(MAX_UNPACKED_BYTES, MAX_EXPANSION * sum(map(len, frames)))
        if claimed > max_bytes:
            raise EncodingError(
                f"a compressed named array says that it has {claimed} bytes, and {max_bytes} are allowed",
                hint="loads(..., max_bytes=...) allows more, if you trust whoever made it",
            )

    def _split(self, whole: memoryview, at: int) -> list[memoryview]:
        frames = []
        for length, *_ in self._buffers:
            at += -at % ALIGNMENT
            frames.append(whole[at : at + length])
            at += length
        if at != len(whole):
            raise DamagedData(f"a named array should have {at} bytes, and {len(whole)} are here")
        return frames

    def buffers(self, copy: bool) -> list[bytearray | memoryview]:
        """The buffers as they were before they were packed. Those that were compressed are copies in any case. CN-1"""
        made: list[bytearray | memoryview] = []
        for number, ((length, size, way, check), frame) in enumerate(zip(self._buffers, self._frames, strict=True)):
            if len(frame) != length:
                raise DamagedData(f"buffer {number} of a named array should have {length} bytes, and has {len(frame)}")
            if check is not None and zlib.crc32(frame) != check:
                raise DamagedData(f"buffer {number} of a named array has changed: its check sum is another")
            if way is None:
                made.append(arrays.memory_of_its_own(frame) if copy else frame)
            elif way in codecs.NAMES:
                made.append(codecs.decompress(way, frame, size))
            else:
                raise UnknownEncoding(f"no way to compress has the name {way!r}", hint=_NEWER)
        return made


_NEWER = "it may come from a newer version of paceline"


def _header(frame: memoryview) -> tuple[dict[str, Any], int]:
    """What the head says, and where it ends."""
    if len(frame) < _HEAD.size or frame[:4] != MAGIC:
        raise UnknownEncoding(
            "these bytes are no named array: they do not begin as one",
            hint="NamedArray.loads reads what dumps and frames of a NamedArray have made",
        )
    _, version, length, check = _HEAD.unpack_from(frame)
    if version != VERSION:
        raise UnknownEncoding(f"a named array of version {version} cannot be read here, only {VERSION}", hint=_NEWER)
    end = _HEAD.size + length
    text = frame[_HEAD.size : end]
    if len(text) != length or zlib.crc32(text) != check:
        raise DamagedData("the head of a named array is cut off or has changed")
    try:
        header = json.loads(bytes(text))
    except (ValueError, RecursionError) as error:
        raise DamagedData(f"the head of a named array is no JSON: {error}") from error
    if not isinstance(header, dict):
        raise DamagedData("the head of a named array does not say what it should")
    return header, end


def is_size(value: object) -> bool:
    return type(value) is int and value >= 0

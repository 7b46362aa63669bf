"""Ways to compress, by name.

Owns: which there are, and that nothing is made larger in reading than it says it is. Those of the standard library are
always there, `lz4` and `zstd` where their packages are.

* CO-1: what is unpacked never takes more memory than the size it is to have, whatever the bytes say.
"""

from __future__ import annotations

from importlib import import_module

from paceline.errors import DamagedData, UnknownEncoding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Of its own accord a decompressor of lzma takes the memory that the bytes ask for, up to 4 GiB. Level 9 needs 65 MiB.
LZMA_MEMORY_LIMIT = 128 << 20

NAMES = ("zlib", "bz2", "lzma", "lz4", "zstd")

# Where each is looked for, in turn, and what to install if it is nowhere.
_HOMES = {
    "zlib": (("zlib",), ""),
    "bz2": (("bz2",), ""),
    "lzma": (("lzma",), ""),
    "lz4": (("lz4.frame",), "lz4"),
    "zstd": (("compression.zstd", "zstandard"), "zstandard"),
}


def installed() -> list[str]:
    """The names of those that work here."""
    return [name for name in NAMES if _module(name) is not None]


def compress(name: str, data: memoryview, level: int | None) -> bytes:
    module = _loaded(name)
    packed: bytes = _COMPRESS[module.__name__](module, data, level)
    return packed


def decompress(name: str, data: memoryview, size: int) -> bytearray:
    """CO-1"""
    module = _loaded(name)
    try:
        made = _DECOMPRESS[module.__name__](module, data, size + 1)
    except Exception as error:
        raise DamagedData(f"what {name} has compressed cannot be read: {error}") from error
    if len(made) != size:
        raise DamagedData(f"what {name} has compressed is not whole: it should have {size} bytes")
    return bytearray(made)


def _loaded(name: str) -> Any:
    module = _module(name)
    if module is None:
        package = _HOMES[name][1]
        hint = f"pip install {package}" if package else "this Python was built without it"
        raise UnknownEncoding(f"{name} is not installed here", hint=hint)
    return module


def _module(name: str) -> Any:
    for home in _HOMES[name][0]:
        try:
            return import_module(home)
        except ImportError:
            pass
    return None


def _all_of(reader: Any, data: memoryview, most: int) -> bytes:
    made: bytes = reader.decompress(data, most)
    if not reader.eof or reader.unused_data:
        raise ValueError("it has no end, or something behind it")
    return made


def _in_pieces(reader: Any, most: int) -> bytearray:
    """All that a reader gives, up to so many bytes. Asked for them at once, it makes room for all of them first."""
    made = bytearray()
    while len(made) < most and (piece := reader.read(min(most - len(made), 1 << 20))):
        made += piece
    return made


# Quick rather than small where nobody asks for a level: compressing is to keep up with the data.
_COMPRESS: dict[str, Callable[[Any, memoryview, int | None], bytes]] = {
    "zlib": lambda module, data, level: module.compress(data, 1 if level is None else level),
    "bz2": lambda module, data, level: module.compress(data, 9 if level is None else level),
    "lzma": lambda module, data, level: module.compress(data, preset=1 if level is None else level),
    "lz4.frame": lambda module, data, level: module.compress(data, compression_level=level or 0),
    "compression.zstd": lambda module, data, level: module.compress(data, level),
    "zstandard": lambda module, data, level: module.ZstdCompressor(3 if level is None else level).compress(data),
}

_DECOMPRESS: dict[str, Callable[[Any, memoryview, int], bytes | bytearray]] = {
    "zlib": lambda module, data, most: _all_of(module.decompressobj(), data, most),
    "bz2": lambda module, data, most: _all_of(module.BZ2Decompressor(), data, most),
    "lzma": lambda module, data, most: _all_of(module.LZMADecompressor(memlimit=LZMA_MEMORY_LIMIT), data, most),
    "lz4.frame": lambda module, data, most: _all_of(module.LZ4FrameDecompressor(), data, most),
    "compression.zstd": lambda module, data, most: _all_of(module.ZstdDecompressor(), data, most),
    "zstandard": lambda module, data, most: _in_pieces(module.ZstdDecompressor().stream_reader(data), most),
}

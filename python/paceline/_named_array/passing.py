"""How a structure becomes bytes, and is made of them again: the methods. `encoding` does it, when it is first used."""

from __future__ import annotations

from paceline._named_array.functions import Functions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Self

    from paceline._named_array.container import Buffer


class Passing(Functions):
    """The methods of `NamedArray` that write and read bytes."""

    __slots__ = ()

    def frames(
        self,
        encoding: str = "raw",
        *,
        level: int | None = None,
        only: Iterable[str] | None = None,
        skip: Iterable[str] = (),
        checksum: bool = True,
    ) -> list[Buffer]:
        """As `dumps`, in parts: what says how to read it, and then each array. Arrays that are not compressed are not
        copied, so they must not change before the parts are sent.

        >>> from paceline import NamedArray
        >>> head, a, b = NamedArray(a=[1, 2], b=[3.0]).frames()
        >>> NamedArray.loads([head, a, b]).b
        array([3.])
        """
        from paceline._named_array.encoding import encode

        structure: Any = self
        return encode(structure, encoding, level=level, only=only, skip=skip, checksum=checksum)

    def dumps(
        self,
        encoding: str = "raw",
        *,
        level: int | None = None,
        only: Iterable[str] | None = None,
        skip: Iterable[str] = (),
        checksum: bool = True,
    ) -> bytes:
        """The structure as bytes that say themselves how they are to be read.

        `raw` has the arrays as they are in memory and needs no pickle, `pickle` takes whatever pickle does; behind a
        plus there may be a way to compress: `raw+zlib`, `pickle+lzma`. `zlib` alone is `raw+zlib`. With `only`, or all
        but `skip`, some fields are compressed and others not. `level` is the compressor's own.

        >>> from paceline import NamedArray
        >>> sample = NamedArray(observation=[0] * 1000, reward=[1.0])
        >>> len(sample.dumps("zlib", only=["observation"])) < len(sample.dumps()) / 10
        True
        """
        from paceline._named_array.container import join

        return join(self.frames(encoding, level=level, only=only, skip=skip, checksum=checksum))

    @classmethod
    def loads(
        cls,
        data: Buffer | Iterable[Buffer],
        *,
        allow_pickle: bool = False,
        copy: bool = True,
        max_bytes: int | None = None,
    ) -> Self:
        """The structure of bytes from `dumps`, or of the parts from `frames`, whatever the encoding.

        Nothing is unpickled unless you allow it: pickle runs code, so allow it only for bytes of somebody you trust.
        Without `copy` the arrays are the memory that you give, where it is not compressed, and cannot be written to if
        that cannot. What is compressed may become `max_bytes` in all; by default 1 GiB, or 64 times as much as is given
        if that is more.

        >>> from paceline import NamedArray
        >>> NamedArray.loads(NamedArray(a=[1, 2]).dumps("lzma"))
        NamedArray(a=int64[2])
        """
        from paceline._named_array.encoding import decode

        kind: Any = cls
        made: Self = decode(kind, data, allow_pickle=allow_pickle, copy=copy, max_bytes=max_bytes)
        return made

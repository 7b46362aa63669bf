"""Errors of structures of arrays that are written, or read, as bytes."""

from __future__ import annotations

from paceline.errors._values import SerializationError


class EncodingError(SerializationError, ValueError):
    """A named array cannot be written so, or what was read is not what was asked for."""

    code = "encoding-error"


class UnknownEncoding(EncodingError):
    """No encoding of this name is known or installed here, or the bytes are none of ours."""

    code = "unknown-encoding"


class DamagedData(EncodingError):
    """Bytes that begin as a named array are cut off, or have changed since they were written."""

    code = "damaged-data"
    hint = "read it again from where it comes from; all of its bytes, and no others, must arrive"


class PickleRefused(EncodingError):
    """The bytes are a pickle, and the caller has not allowed to load one."""

    code = "pickle-refused"
    hint = "loads(..., allow_pickle=True), if you trust whoever made it: loading a pickle runs code"

    def __init__(self, message: str = "this named array is a pickle, and pickles are not loaded unasked") -> None:
        super().__init__(message)

"""Errors of values that are kept on nodes and go by reference."""

from __future__ import annotations

from paceline.errors._base import PacelineError
from paceline.errors._wording import amount


class ObjectLost(PacelineError):
    """A reference refers to nothing any more: the node that kept the value has ended, and the value cannot be made
    again. The message says why not."""

    code = "object-lost"
    hint = "put the value again, or run the task again that made it"

    def __init__(
        self,
        message: str = "the object is lost: no node has its value any more, and nobody knows how to make it again",
        *,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)


class OwnerLost(PacelineError):
    """The program that a value belonged to has ended, and its objects with it."""

    code = "owner-lost"
    hint = "objects end with the program that put them: keep it running, or send the value itself"

    def __init__(
        self,
        message: str = "the object is gone: the program that it belonged to has ended",
        *,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)


class StoreFull(PacelineError):
    """There is no room for one more value on the node, and none came free in the time one waits for it.

    `size` is what was to be kept, `used` what is kept in memory, `limit` how much may, all in bytes; `disk` says why
    nothing could be moved to disk, if that was tried.
    """

    code = "store-full"

    def __init__(self, size: int = 0, used: int = 0, limit: int = 0, disk: str | None = None) -> None:
        self.size = size
        self.used = used
        self.limit = limit
        self.disk = disk
        if size > limit:
            message = f"an object of {amount(size)} is more than a node may keep in memory, which is {amount(limit)}"
            hint = "raise object_memory= of connect(), or PACELINE_OBJECT_MEMORY where the node is started"
        else:
            why = f"and moving others to disk failed: {disk}" if disk else "and tasks use what could be moved to disk"
            message = f"no room for an object of {amount(size)}: {amount(used)} of {amount(limit)} are in use, {why}"
            hint = "let go of references that are not needed, or raise object_memory= (PACELINE_OBJECT_MEMORY)"
            if disk:
                hint += "; TMPDIR says where objects go on disk"
        super().__init__(message, hint=hint)

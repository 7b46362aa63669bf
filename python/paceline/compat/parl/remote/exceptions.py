"""The errors of PARL's remote objects, with its texts."""

from __future__ import annotations

__all__ = [
    "FutureFunctionError",
    "FutureGetRepeatedlyError",
    "FutureObjectEmpty",
    "RemoteAttributeError",
    "RemoteDeserializeError",
    "RemoteError",
    "RemoteSerializeError",
    "ResourceError",
]

DISCONNECTED = "This instance is disconncted with the remote instance."


class ResourceError(Exception):
    """The cluster has had no room for an object for too long."""

    def __init__(
        self,
        error_info: str = "Cannot submit the job to the master. "
        "Please add more computation resources to the master or try again later.",
    ) -> None:
        self.error_info = error_info
        super().__init__(error_info)


class RemoteError(Exception):
    """A call of a remote object has failed, and with it the object. `func_name` is what was called.

    >>> print(RemoteError("step", "no such file"))
    [Error occurred in xparl, when calling function `step`]:
    no such file
    """

    def __init__(self, func_name: str, error_info: str) -> None:
        self.func_name = func_name
        self.error_info = error_info
        super().__init__(func_name, error_info)

    def __str__(self) -> str:
        return f"[Error occurred in xparl, when calling function `{self.func_name}`]:\n{self.error_info}"


class RemoteSerializeError(RemoteError):
    """What a call returned, or what a constructor was given, cannot be sent."""


class RemoteDeserializeError(RemoteError):
    """What was sent cannot be loaded on the other side."""


class RemoteAttributeError(RemoteError):
    """There is no such method, or the code of one has raised an `AttributeError`."""


class FutureFunctionError(Exception):
    """The call behind a future has failed, and with it the object."""

    def __init__(self, func_name: str) -> None:
        self.func_name = func_name
        super().__init__(func_name)

    def __str__(self) -> str:
        return (
            f"There is an error raised when calling the future function `{self.func_name}`. "
            "You can see the detailed error message above, which is printed by another thread."
        )


class FutureGetRepeatedlyError(Exception):
    """The value of a future was taken before."""

    def __init__(self) -> None:
        super().__init__("The value of the future object has already been gotten before, it can be gotten only once.")


class FutureObjectEmpty(Exception):
    """The value of a future is not there yet. It can be asked for again."""

    def __init__(self) -> None:
        super().__init__("The result is currently unavailable.")

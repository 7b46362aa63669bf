"""Errors of what travels: values that cannot, and exceptions of others."""

from __future__ import annotations

from paceline.errors._base import PacelineError

UNREADABLE = "it was pickled and cannot be loaded: look at what its __reduce__ or __getstate__ gives, and who uses it"


class SerializationError(PacelineError):
    """Something cannot be sent between processes. `path` names the part that is to blame."""

    code = "not-serializable"

    def __init__(self, message: str = "", *, path: str = "", hint: str | None = None) -> None:
        self.path = path
        super().__init__(message, hint=hint)


class ArgumentNotSerializable(SerializationError):
    """An argument of a call cannot be sent to a slot."""

    code = "argument-not-serializable"


class ResultNotSerializable(SerializationError):
    """What the function returned cannot be sent back."""

    code = "result-not-serializable"


class FunctionNotSerializable(SerializationError):
    """The function, or something it refers to, cannot be sent to a slot."""

    code = "function-not-serializable"


class RemoteError(PacelineError):
    """Stands in for an exception of user code that could not travel, or for an error of another language.

    `type_name` and `message` are those of the original; its traceback is the `__cause__`. A Rust panic has the
    type name "panic", and `location` says where it happened.
    """

    code = "remote-error"

    def __init__(self, type_name: str = "", message: str = "", *, location: str = "", hint: str | None = None) -> None:
        self.type_name = type_name
        self.message = message
        self.location = location
        text = f"{type_name}: {message}" if message else type_name
        super().__init__(f"{text} (at {location})" if location else text, hint=hint)


class RemoteTraceback(Exception):
    """The traceback of a remote exception, as text. Always a cause, never raised by itself."""

    def __init__(self, text: str = "") -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text.rstrip()}\n"""'

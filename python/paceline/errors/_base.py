"""The root of the tree, and how an error travels."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _restore(kind: type[BaseException], args: tuple[Any, ...], fields: dict[str, Any]) -> BaseException:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


class PacelineError(Exception):
    """Base of all errors of Paceline.

    >>> try:
    ...     raise PacelineError("the disk is full", hint="delete something")
    ... except PacelineError as error:
    ...     print(error)
    the disk is full
    hint: delete something
    """

    code: str = "paceline"
    hint: str | None = None

    def __init__(self, message: str = "", *, hint: str | None = None) -> None:
        super().__init__(message)
        if hint is not None:
            self.hint = hint

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\nhint: {self.hint}" if self.hint else message

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, self.__dict__)

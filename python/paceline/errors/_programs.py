"""Errors of programs of any language, and of calls of their functions."""

from __future__ import annotations

from paceline.errors._base import PacelineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class ProgramNotStarted(PacelineError):
    """The program that has the function could not be started, or its slots die at once.

    `kind` is one of "not-run" (no such file, not allowed), "ended" (it ended at once), "foreign" (it speaks
    another version), "silent" (it runs, but is no Paceline worker) and "slots-die". `exit_code` or `signal` say how it
    ended, and `stderr` has its last lines.
    """

    code = "program-not-started"

    def __init__(
        self,
        *,
        program: str = "",
        reason: str = "",
        kind: str = "",
        exit_code: int | None = None,
        signal: int | None = None,
        stderr: str = "",
        function: str = "",
    ) -> None:
        self.program = program
        self.reason = reason
        self.kind = kind
        self.exit_code = exit_code
        self.signal = signal
        self.stderr = stderr
        self.function = function
        words = "".join(f"\n    {line}" for line in stderr.splitlines())
        super().__init__(f"{program} could not be started for {function}: {reason}{words}", hint=_START_HINTS.get(kind))


_START_HINTS = {
    "not-run": "check the path, and that the program has been built and may be executed",
    "foreign": "build the program with the same version of paceline as this one",
}
_START_HINTS |= dict.fromkeys(
    ("ended", "silent", "slots-die"), "the program's main must begin with paceline::init(), before anything else"
)


class NoSuchFunction(PacelineError):
    """The program has no function of this name. `exports` are the names that it has."""

    code = "no-such-function"

    def __init__(self, *, function: str = "", exports: Sequence[str] = (), program: str = "") -> None:
        self.function = function
        self.exports = tuple(exports)
        self.program = program
        where = program or "the program"
        names = ", ".join(self.exports)
        super().__init__(
            f"{where} exports no function {function!r}: {f'there are {names}' if names else 'it exports none'}",
            hint='export it by name: #[paceline::task(name = "...")] in Rust, @pl.export("...") in Python',
        )


class WrongArguments(PacelineError, TypeError):
    """The function of another language does not take these arguments. `reason` names the one that is wrong."""

    code = "wrong-arguments"

    def __init__(self, *, function: str = "", reason: str = "") -> None:
        self.function = function
        self.reason = reason
        super().__init__(
            f"{function} does not take these arguments: {reason}",
            hint="look at the types of its parameters: they are converted only where nothing is lost",
        )

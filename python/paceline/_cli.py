"""The console script: becomes the program that came with this package."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def program() -> str:
    """Where the program is."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "_bin", "paceline")


def environment() -> dict[str, str]:
    """Our own, with the interpreter that slots are to run unless another was named."""
    return {"PACELINE_PYTHON": sys.executable, **os.environ}


def without_token(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """Arguments without the token that may be among them, and a variable with it: those only we can read."""
    kept: list[str] = []
    variables: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        option, separator, value = argument.partition("=")
        if option != "--token":
            kept.append(argument)
            continue
        token = value if separator else next(rest, None)
        if token is None or token == "-":
            return arguments, {}
        variables["PACELINE_TOKEN"] = token
    return kept, variables


def main() -> NoReturn:
    """Run `paceline` with the arguments of this process."""
    path = program()
    try:
        arguments, variables = without_token(sys.argv[1:]) if sys.argv[1:2] == ["join"] else (sys.argv[1:], {})
        os.execve(path, ["paceline", *arguments], environment() | variables)
    except OSError as error:
        print(f"error: {path} cannot be run: {error.strerror}", file=sys.stderr)
        print("hint: install paceline again; this one was built without its command line", file=sys.stderr)
        sys.exit(1)

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


def main() -> NoReturn:
    """Run `paceline` with the arguments of this process."""
    path = program()
    try:
        os.execve(path, ["paceline", *sys.argv[1:]], environment())
    except OSError as error:
        print(f"error: {path} cannot be run: {error.strerror}", file=sys.stderr)
        print("hint: install paceline again; this one was built without its command line", file=sys.stderr)
        sys.exit(1)

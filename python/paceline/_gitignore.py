"""What `.gitignore` files say about a path.

Owns: reading their patterns, by git's own rules. Does not own: git's index; what was added in spite of them is ignored
all the same.

* GI-1: of several patterns that fit, the last in the file nearest to the path counts.
* GI-2: what is in an ignored folder is ignored, whatever other patterns say.
"""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class Pattern(NamedTuple):
        """One line."""

        fits: re.Pattern[str]
        ignores: bool
        folders_only: bool

else:
    from collections import namedtuple

    Pattern = namedtuple("Pattern", "fits ignores folders_only")


class Ignored:
    """Answers for everything below one folder: the top of its repository if it is in one."""

    def __init__(self, folder: str) -> None:
        self.top = _top_of(folder)
        self._patterns: dict[str, list[Pattern]] = {}
        self._known: dict[str, bool] = {}

    def __call__(self, path: str, is_folder: bool) -> bool:
        """Whether this absolute path is ignored. What is not below the top is not."""
        if not path.startswith(self.top.rstrip(os.sep) + os.sep):
            return False
        parent, name = os.path.split(path)
        if name == ".git":
            return True
        if parent != self.top and self._folder(parent):
            return True  # GI-2
        return self._says(path, is_folder)

    def _folder(self, path: str) -> bool:
        known = self._known.get(path)
        if known is None:
            known = self._known[path] = self(path, True)
        return known

    def _says(self, path: str, is_folder: bool) -> bool:
        folder = os.path.dirname(path)
        while True:
            for pattern in reversed(self._of(folder)):
                if pattern.folders_only and not is_folder:
                    continue
                if pattern.fits.match(os.path.relpath(path, folder).replace(os.sep, "/")):
                    return pattern.ignores
            if folder == self.top:
                return False
            folder = os.path.dirname(folder)

    def _of(self, folder: str) -> list[Pattern]:
        patterns = self._patterns.get(folder)
        if patterns is None:
            try:
                with open(os.path.join(folder, ".gitignore"), encoding="utf-8", errors="surrogateescape") as file:
                    lines = file.read().splitlines()
            except OSError:
                lines = []
            patterns = self._patterns[folder] = [read for line in lines if (read := pattern_of(line)) is not None]
        return patterns


def pattern_of(line: str) -> Pattern | None:
    """What one line says; None if it says nothing.

    >>> pattern = pattern_of("build/*.log")
    >>> bool(pattern.fits.match("build/a.log")), bool(pattern.fits.match("x/build/a.log"))
    (True, False)
    """
    line = re.sub(r"(?<!\\) +$", "", line)
    if not line or line.startswith("#"):
        return None
    ignores = not line.startswith("!")
    line = line if ignores else line[1:]
    folders_only = line.endswith("/")
    line = line.rstrip("/") if folders_only else line
    anchored = "/" in line
    line = line.lstrip("/")
    if not line:
        return None
    text = _expression(line)
    try:
        return Pattern(re.compile(text if anchored else f"(?:.*/)?{text}"), ignores, folders_only)
    except re.error:
        return None


def _expression(line: str) -> str:
    out = ""
    place = 0
    while place < len(line):
        letter = line[place]
        place += 1
        if letter == "*":
            stars = 1
            while place < len(line) and line[place] == "*":
                stars, place = stars + 1, place + 1
            first, last = place - stars == 0 or line[place - stars - 1] == "/", place == len(line)
            if stars == 2 and first and last:
                out += ".+"
            elif stars == 2 and first and line[place] == "/":
                out, place = out + "(?:.*/)?", place + 1
            else:
                out += "[^/]*"
        elif letter == "?":
            out += "[^/]"
        elif letter == "[":
            end = line.find("]", place + 2 if line[place : place + 1] in ("!", "^") else place + 1)
            if end < 0:
                out += r"\["
                continue
            inside = line[place:end].replace("\\", "\\\\")
            out += "(?!/)[" + ("^" + inside[1:] if inside[:1] in ("!", "^") else inside) + "]"
            place = end + 1
        elif letter == "\\" and place < len(line):
            out += re.escape(line[place])
            place += 1
        else:
            out += re.escape(letter)
    return out + r"\Z"


def _top_of(folder: str) -> str:
    """The folder that has `.git`, this one or one above it; else this one."""
    above = folder
    while True:
        if os.path.exists(os.path.join(above, ".git")):
            return above
        parent = os.path.dirname(above)
        if parent == above:
            return folder
        above = parent

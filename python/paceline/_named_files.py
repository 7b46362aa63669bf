"""What `connect(files=...)` names: files, patterns and folders, by their paths relative to the working directory.

* NF-1: what names nothing, or names it by an absolute path, is an error at once.
* NF-2: a folder goes with all that is in it, also folders that hold nothing; what `.gitignore` says does not go, unless
  it is named by itself.
"""

from __future__ import annotations

import glob
import os

from paceline._gitignore import Ignored
from paceline.errors import NoSuchFiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def resolve(names: Iterable[str | os.PathLike[str]]) -> tuple[list[str], list[str]]:
    """All files and folders that these names stand for, as absolute paths."""
    if isinstance(names, (str, os.PathLike)):
        names = [names]
    directory = os.getcwd()
    ignored = Ignored(directory)
    files: dict[str, None] = {}
    folders: dict[str, None] = {}
    for given in names:
        name = os.fspath(given)
        if not isinstance(name, str):
            raise TypeError(f"files= takes names as text, not {type(name).__name__}")
        if os.path.isabs(name):
            raise NoSuchFiles(
                f"files= has an absolute path: {name}",
                hint="name it relative to the working directory: it has the same place there",
            )
        found = [name] if os.path.exists(name) else glob.glob(name, recursive=True)
        if not found:
            raise NoSuchFiles(f"files= names what is not there: {name!r} in {directory}", hint="see `os.listdir()`")
        before = len(files) + len(folders)
        for each in found:
            path = os.path.normpath(os.path.join(directory, each))
            if each != name and ignored(path, os.path.isdir(path)):
                continue
            if os.path.isdir(path):
                folders[path] = None
                _walk(path, ignored, files, folders)
            else:
                files[path] = None
        if len(files) + len(folders) == before and not any(_is_known(each, files, folders) for each in found):
            raise NoSuchFiles(
                f"files= names only what .gitignore leaves out: {name!r} in {directory}",
                hint="name such files one by one, without a pattern",
            )
    return list(files), list(folders)


def _is_known(name: str, files: dict[str, None], folders: dict[str, None]) -> bool:
    path = os.path.abspath(name)
    return path in files or path in folders


def _walk(top: str, ignored: Ignored, files: dict[str, None], folders: dict[str, None]) -> None:
    seen = {os.path.realpath(top)}
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                is_folder = entry.is_dir()
                if entry.name == "__pycache__" or ignored(entry.path, is_folder):
                    continue
                if not is_folder:
                    if entry.is_file():
                        files[entry.path] = None
                    continue
                real = os.path.realpath(entry.path)
                folders[entry.path] = None
                if real not in seen:
                    seen.add(real)
                    waiting.append(entry.path)

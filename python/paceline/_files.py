"""Which files a program's code needs on other machines.

Owns: what counts as the user's own code, as opposed to what is installed. Does not own: what `connect(files=...)` names
(`_named_files`), finding the files of a package, hashing and sending, which are the core's.

* FL-1: own is what is imported from the script's folder, from other additions to `sys.path` and from editable installs;
  the standard library and installed packages are expected to be there.
* FL-2: nothing is imported and nothing is read to find that out.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType
    from typing import TypedDict

    class Wanted(TypedDict):
        """As the core takes it: absolute paths."""

        roots: list[str]
        folders_with_modules: list[str]
        packages: list[str]
        files: list[str]
        folders: list[str]
        skip: list[str]
        notes: list[tuple[str, list[str]]]


_STANDARD = os.path.realpath(os.path.dirname(os.__file__))
_INSTALLED = ("site-packages", "dist-packages")
_OURS = os.path.dirname(os.path.abspath(__file__))


class Code:
    """The code of this program, and what else it wants delivered."""

    def __init__(self, files: tuple[list[str], list[str]] = ([], [])) -> None:
        self.files, self.folders = files
        self._seen: set[str] = set()
        self._modules = 0

    def wanted(self) -> Wanted:
        """What is to be delivered, as things are now."""
        roots = [path for path in _search_path() if os.path.isdir(path)]
        archives = [path for path in _search_path() if os.path.isfile(path)]
        covered = [root + os.sep for root in roots]
        folders: dict[str, None] = {}
        packages: dict[str, None] = dict.fromkeys(archives)
        parents: dict[str, None] = {}
        own: dict[str, None] = {}
        self._modules = len(sys.modules)
        self._seen = set()
        for name, module, file in _own_modules():
            self._seen.add(name)
            own[name.partition(".")[0]] = None
            if any(file.startswith(root) for root in covered):
                folders[os.path.dirname(file)] = None
                continue
            for place in _package_of(name, module, file):
                packages[place] = None
                parents[os.path.dirname(place)] = None
        for finder in [module for name, module in sys.modules.items() if name.startswith("__editable__")]:
            mapping = getattr(finder, "MAPPING", None)
            for place in mapping.values() if isinstance(mapping, dict) else ():
                place = place if os.path.exists(place) else f"{place}.py"
                packages[place] = None
                parents[os.path.dirname(place)] = None
        path = [*roots, *archives, *parents]
        return {
            "roots": roots,
            "folders_with_modules": [folder for folder in folders if folder not in roots],
            "packages": [place for place in packages if os.path.exists(place)],
            "files": self.files,
            "folders": self.folders,
            "skip": [_OURS],
            "notes": [
                ("path", [entry.lstrip(os.sep) for entry in path]),
                ("modules", list(own)),
                ("packages", _packages()),
            ],
        }

    def has_grown(self) -> bool:
        """Whether modules of the user's own were loaded since `wanted` was last asked."""
        if len(sys.modules) == self._modules:
            return False
        self._modules = len(sys.modules)
        seen, self._seen = self._seen, {name for name, _, _ in _own_modules()}
        return not self._seen <= seen


def _packages() -> list[str]:
    """Installed distributions of which something is loaded, each with its version."""
    from paceline._slot.packages import installed, normal

    loaded = {normal(name) for name in sys.modules if "." not in name}
    found = installed(sys.path)
    return [f"{name} {version}" for name, (version, modules) in found.items() if loaded & {name, *modules}]


def _search_path() -> list[str]:
    """The entries of `sys.path` that are the user's own, in order."""
    found: dict[str, None] = {}
    for entry in sys.path:
        if isinstance(entry, str):
            try:
                path = os.path.abspath(entry)
            except OSError:
                continue  # the working directory was deleted
            if not is_installed(path):
                found[path] = None
    return list(found)


def is_installed(path: str) -> bool:
    """Whether this belongs to the interpreter or was installed, rather than being the user's own (FL-1).

    >>> is_installed(os.__file__), is_installed("/home/you/project/model.py")
    (True, False)
    """
    if any(part in _INSTALLED for part in path.split(os.sep)):
        return True
    real = os.path.realpath(path)
    if real == _STANDARD or real.startswith(_STANDARD + os.sep) or path.startswith(_OURS + os.sep):
        return True
    return any(part in _INSTALLED for part in real.split(os.sep)) or (real.endswith(".zip") and "python3" in real)


def _own_modules() -> Iterator[tuple[str, ModuleType, str]]:
    """Loaded modules of the user's own, each with its name and file."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name in ("__main__", "__mp_main__") or not isinstance(file, str) or not os.path.isabs(file):
            continue
        if not is_installed(file) and os.path.exists(file):
            yield name, module, file


def _package_of(name: str, module: ModuleType, file: str) -> list[str]:
    """Where the package or module is that an import of this one begins with; nowhere if its name leads elsewhere."""
    top = name.partition(".")[0]
    first = sys.modules.get(top, module)
    places = getattr(first, "__path__", None)
    if places is not None:
        return [os.path.abspath(place) for place in places if os.path.basename(place) == top]
    plain = os.path.basename(file).partition(".")[0] == top
    return [os.path.abspath(file)] if plain and first is module else []

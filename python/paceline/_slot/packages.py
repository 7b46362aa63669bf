"""Which distributions are installed here, and whether they are the client's.

Owns: reading the folders that installers leave, and the one line that says what differs.

* PK-1: nothing is imported for it, neither of the user's nor of the standard library.
"""

from __future__ import annotations

import os

SUFFIX = ".dist-info"
OURS = "paceline"


def installed(path: list[str]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Version and top-level modules of every distribution on this path, by its normal name."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for folder in path:
        try:
            names = [name for name in os.listdir(folder) if name.endswith(SUFFIX)]
        except OSError:
            continue
        for name in names:
            distribution, _, version = name[: -len(SUFFIX)].rpartition("-")
            modules = _lines(os.path.join(folder, name, "top_level.txt"))
            found.setdefault(normal(distribution), (version, tuple(normal(module) for module in modules)))
    return found


def normal(name: str) -> str:
    """The name of a distribution or module, as far as names of both can be compared.

    >>> normal("Ruamel.Yaml"), normal("scikit-learn")
    ('ruamel_yaml', 'scikit_learn')
    """
    return name.lower().replace("-", "_").replace(".", "_")


def differences(theirs: list[str], path: list[str]) -> list[str]:
    """What of the client's, each with its version, is another or not at all on this path."""
    ours = installed(path)
    told = []
    for line in theirs:
        name, _, version = line.partition(" ")
        here = ours.get(name)
        if name != OURS and here is None:
            told.append(f"{name} {version} is not installed here")
        elif name != OURS and here is not None and here[0] != version:
            told.append(f"{name} is {here[0]} here and {version} at the client")
    return told


def check(files: str, path: list[str]) -> None:
    """Say what differs, once for each client and machine."""
    try:
        os.close(os.open(os.path.join(files, "checked"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError:
        return
    told = differences(_lines(os.path.join(files, "notes", "packages")), path)
    if told:
        import sys

        host = os.uname().nodename
        print(f"paceline: packages of {host} are not the client's: {'; '.join(told)}", file=sys.stderr)


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except OSError:
        return []

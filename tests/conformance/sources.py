"""Where CPython's own tests come from.

Many interpreters come without them. They are looked for where this interpreter has them; otherwise Debian's packages of
the same version are fetched and unpacked beside the virtual environment, for which nobody needs to be root. All of the
`test` package is taken from one place, so that the suites and what they share fit each other.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
PACKAGES = (f"libpython{VERSION}-testsuite", f"libpython{VERSION}-stdlib")
POOLS = "_test_multiprocessing.py"
EXECUTORS = ("test_concurrent_futures.py", "test_concurrent_futures/__init__.py")


class Missing(Exception):
    """The suites are nowhere to be had. Says why."""


def is_complete(directory: Path) -> bool:
    """Whether a directory has a `test` package with all that is needed."""
    test = directory / "test"
    has_executors = any((test / name).is_file() for name in EXECUTORS)
    return has_executors and (test / POOLS).is_file() and (test / "support" / "__init__.py").is_file()


@functools.cache
def directory() -> Path:
    """A directory to put first in `sys.path`, which has the suites. Raises `Missing`."""
    spec = importlib.util.find_spec("test")
    own = [Path(place).parent for place in (spec.submodule_search_locations or ())] if spec else []
    fetched = Path(sys.prefix) / f"cpython-{VERSION}-tests"
    installed = Path(f"/usr/lib/python{VERSION}")
    for place in (*own, fetched, installed):
        if is_complete(place):
            # Debian's own directory is the whole library of an interpreter, so only its tests are taken.
            return _tests_of(place, fetched) if place == installed else place
    _fetch(fetched)
    return fetched


def _tests_of(place: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    (target / "test").symlink_to(place / "test")
    return target


def _fetch(target: Path) -> None:
    """Unpack Debian's packages into a directory of our own."""
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise Missing(f"this Python has no tests of its own, and there is no {program} to fetch Debian's with")
    work = target.with_suffix(f".{os.getpid()}")
    work.mkdir(parents=True)
    try:
        download = ["apt-get", "-o", "APT::Sandbox::User=root", "download", *PACKAGES]
        problem = _run(download, work)
        if problem and os.geteuid() == 0:
            # The list of packages may never have been fetched on this machine.
            problem = _run(["apt-get", "update"], work) or _run(download, work)
        if problem:
            raise Missing(f"Debian has no tests for Python {VERSION} here: {problem}")
        for package in sorted(work.glob("*.deb")):
            problem = _run(["dpkg-deb", "-x", str(package), "unpacked"], work)
            if problem:
                raise Missing(f"cannot unpack {package.name}: {problem}")
        found = work / "unpacked" / "usr" / "lib" / f"python{VERSION}"
        if not is_complete(found):
            raise Missing(f"{' and '.join(PACKAGES)} do not have the tests that they should")
        shutil.rmtree(target, ignore_errors=True)
        (work / "tests").mkdir()
        (found / "test").rename(work / "tests" / "test")
        (work / "tests").rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run(command: list[str], directory: Path) -> str:
    """What a command complained about; empty when it went well."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=300)
    return "" if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"

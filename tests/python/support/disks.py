"""Disks that hang, fail or are full, under the files of a cluster."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from .packages import needs_package

SOURCE = Path(__file__).with_name("disk_faults.c")


class FaultyDisk:
    """A directory whose files misbehave for processes that are started with `variables`."""

    def __init__(self, directory: Path, control: Path) -> None:
        needs_package("gcc")
        control.mkdir()
        library = control / "disk_faults.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
        self.control = control
        self.variables = {
            "LD_PRELOAD": str(library),
            "DISK_FAULTS": str(directory),
            "DISK_FAULTS_CONTROL": str(control),
        }

    @contextlib.contextmanager
    def fault(self, name: str) -> Iterator[None]:
        """While this lasts, the disk does `hang`, or answers with `eio`."""
        mark = self.control / name
        mark.touch()
        try:
            yield
        finally:
            mark.unlink()


@contextlib.contextmanager
def small_disk(path: Path, size: str) -> Iterator[Path]:
    """A file system of this size at `path`."""
    if os.geteuid() != 0 and os.environ.get("CI") == "true":
        pytest.fail("only root can mount a file system", pytrace=False)
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "none", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def fill(path: Path) -> Path:
    """Take all the room that is left there. Removing the file that this makes gives it back."""
    filler = path / "filler"
    with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler

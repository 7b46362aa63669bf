"""Debian packages that a test needs: installed when that is possible, otherwise said so."""

import functools
import os
import shutil
import subprocess

import pytest

# Package and the test that went without it, for the list at the end of the run.
missing: list[tuple[str, str]] = []


@functools.cache
def _apt(*arguments: str) -> str:
    """What apt-get complained about; empty when it went well."""
    done = subprocess.run(
        ["apt-get", *arguments],
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    return "" if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"


def _install(package: str) -> str:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return "not root, or no apt-get"
    install = ("install", "-y", "--no-install-recommends", package)
    if not _apt(*install):
        return ""
    # The list of packages may never have been fetched on this machine.
    problem = _apt("update") or _apt("-o", "Acquire::Retries=2", *install)
    return problem


def needs_package(package: str, program: str | None = None) -> None:
    """Make sure `program` (by default named as the package) is there, or skip the test; with CI=true, fail it."""
    wanted = program or package
    if shutil.which(wanted):
        return
    problem = _install(package)
    if not problem and shutil.which(wanted):
        return
    reason = f"needs {wanted} (Debian package {package}): {problem or 'not in the package'}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    missing.append((package, os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]))
    pytest.skip(reason)

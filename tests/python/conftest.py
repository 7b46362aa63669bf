"""Fixtures of all Python tests, and the list of what was left out at the end of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from support import packages

if TYPE_CHECKING:
    import paceline as pl


@pytest.fixture
def cluster() -> Iterator[pl.Cluster]:
    """An embedded cluster of two slots, closed after the test."""
    import paceline as pl

    with pl.connect(cpus=2) as connected:
        yield connected


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """No test goes missing without a line that says which and why."""
    if not packages.missing:
        return
    terminalreporter.section("tests left out for want of a Debian package")
    for package in sorted({package for package, _ in packages.missing}):
        tests = [test for missing, test in packages.missing if missing == package]
        terminalreporter.line(f"{package}: {len(tests)} tests")
        for test in tests:
            terminalreporter.line(f"  {test}")
    names = " ".join(sorted({package for package, _ in packages.missing}))
    terminalreporter.line(f"hint: apt-get install {names}, or run the tests as root")

"""Fixtures of the tests on several hosts."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import pytest

from lab import Lab
from lab.needs import why_not

LAB = pytest.StashKey[Lab]()


@pytest.fixture(scope="session")
def able() -> None:
    reason = why_not()
    if reason is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture
def lab(able: None, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Hosts and networks of one test, ended after it."""
    with Lab() as made:
        request.node.stash[LAB] = made
        yield made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows what ran on its hosts, and their logs."""
    report = yield
    made = item.stash.get(LAB, None)
    if made is not None and report.when == "call" and report.failed:
        report.sections.append(("hosts", made.report()))
    return report

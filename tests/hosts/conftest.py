"""Fixtures of the tests on several hosts."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from lab import Lab
from lab.cluster import Cluster
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


@pytest.fixture
def cluster(lab: Lab) -> Cluster:
    """Three nodes of two CPUs on `head`, `node1`, `node2`, and two hosts for clients, `alice` and `bob`."""
    made = Cluster(lab, lab.host("head"), "--cpus", "2")
    made.join(lab.host("node1"), lab.host("node2"))
    made.give_key(lab.host("alice"), lab.host("bob"))
    made.wait_for_nodes("head", "node1", "node2")
    return made


@pytest.fixture
def three_nodes(lab: Lab) -> Cluster:
    """A head that runs nothing itself, nodes on `node1` to `node3`, clients' hosts `alice` and `bob`."""
    made = Cluster(lab, lab.host("head"), "--cpus", "0")
    made.join(*(lab.host(f"node{number}") for number in (1, 2, 3)))
    made.give_key(lab.host("alice"), lab.host("bob"))
    made.wait_for_nodes("node1", "node2", "node3")
    return made


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Five hosts on one machine take their time when it is busy: these tests have three minutes, not one."""
    for item in items:
        if item.path.parent == Path(__file__).parent and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(180))


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

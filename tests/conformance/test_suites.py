"""CPython's own tests of executors and pools, run against `pl.Executor` and `pl.Pool`."""

from __future__ import annotations

import os

import pytest

import not_applicable
import running
import sources

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TABLES = {"executors": not_applicable.EXECUTORS, "pools": not_applicable.POOLS}
# What an executor or a pool whose every result is 0 must not pass.
CANARIES = {
    "executors": [
        "ProcessPoolSpawnProcessPoolExecutorTest.test_submit",
        "ProcessPoolSpawnProcessPoolExecutorTest.test_submit_keyword",
        "ProcessPoolSpawnProcessPoolExecutorTest.test_map",
        "ProcessPoolSpawnProcessPoolExecutorTest.test_map_exception",
        "ProcessPoolSpawnProcessPoolExecutorTest.test_map_timeout",
        "ProcessPoolSpawnProcessPoolExecutorTest.test_traceback",
        "ProcessPoolSpawnInitializerTest.test_initializer",
        "ProcessPoolSpawnWaitTest.test_first_exception",
        "ProcessPoolSpawnExecutorDeadlockTest.test_crash_during_func_exec_on_worker",
        "ProcessPoolSpawnExecutorDeadlockTest.test_error_at_task_pickle",
    ],
    "pools": [
        "WithProcessesTestPool.test_apply",
        "WithProcessesTestPool.test_map",
        "WithProcessesTestPool.test_starmap",
        "WithProcessesTestPool.test_async",
        "WithProcessesTestPool.test_imap",
        "WithProcessesTestPool.test_traceback",
        "WithProcessesTestPoolWorkerErrors.test_async_error_callback",
        "WithProcessesTestPoolWorkerErrors.test_unpickleable_result",
        "TestInitializers.test_pool_initializer",
    ],
}


@pytest.fixture(scope="module", autouse=True)
def suites() -> None:
    """The suites are there; otherwise nothing here can run."""
    try:
        sources.directory()
    except sources.Missing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))


@pytest.mark.parametrize("suite", TABLES)
def test_every_applicable_case_passes(suite: str) -> None:
    cases = running.list_cases(suite)
    assert len(cases) > 40, [case.name for case in cases]
    applicable = [case.name for case in cases if case.written_as not in TABLES[suite]]
    report = running.run(suite, applicable)
    print(f"{suite}: {report}")
    left_out = len(cases) - len(applicable)
    assert not report.names("failed"), f"{suite}: {report}\n{left_out} not applicable"
    assert {case.name for case in report.ended} == set(applicable)
    assert len(report.names("passed")) > 0.9 * len(applicable), str(report)


@pytest.mark.parametrize("suite", TABLES)
def test_only_what_touches_private_members_is_not_applicable(suite: str) -> None:
    source: dict[str, str] = {}
    for case in running.list_cases(suite):
        source[case.written_as] = case.source
    for name, member in TABLES[suite].items():
        assert member in not_applicable.PRIVATE, f"{name}: {member} is not private to the standard library"
        # A case that another version of Python does not have harms nobody.
        assert name not in source or member in source[name], f"{name} does not touch {member}"


@pytest.mark.parametrize("suite", TABLES)
def test_the_suites_notice_results_that_are_always_zero(suite: str) -> None:
    known = {case.name for case in running.list_cases(suite)}
    wanted = [name for name in CANARIES[suite] if name in known]
    assert len(wanted) >= 0.7 * len(CANARIES[suite])
    report = running.run(suite, wanted, "zero")
    assert report.names("failed") == sorted(wanted), str(report)

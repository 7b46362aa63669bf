"""joblib's `Parallel` on our backend returns what it returns on its own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import joblib
import pytest

import joblib_cases
import paceline as pl
import paceline.joblib
from support import wait_until

pytestmark = pytest.mark.filterwarnings("default")  # joblib's and scikit-learn's own are not ours to answer for


@pytest.fixture(scope="module")
def cluster() -> Iterator[pl.Cluster]:
    with pl.connect(cpus=2) as connected:
        yield connected


@pytest.fixture(scope="module", autouse=True)
def loky() -> Iterator[None]:
    yield
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True, kill_workers=True)


@pytest.mark.parametrize("case", joblib_cases.CASES, ids=lambda case: case.__name__)
def test_same_as_loky(
    cluster: pl.Cluster, case: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JOBLIB_CASES", str(tmp_path))
    with joblib.parallel_config("loky"):
        expected = case()
    with joblib.parallel_config("paceline"):
        assert case() == expected


def test_there_are_twenty_cases() -> None:
    assert len(joblib_cases.CASES) >= 20


def test_slots_are_kept_from_one_call_to_the_next(cluster: pl.Cluster) -> None:
    def processes() -> set[int]:
        return set(joblib.Parallel()(joblib.delayed(os.getpid)() for _ in range(4)))

    with joblib.parallel_config("paceline", n_jobs=2):
        first, second = processes(), processes()
    assert os.getpid() not in first
    assert first & second


def test_all_cpus_of_the_cluster_are_minus_one(cluster: pl.Cluster) -> None:
    with joblib.parallel_config("paceline"):
        assert joblib.effective_n_jobs(-1) == 2
        assert joblib.effective_n_jobs(5) == 5


def test_libraries_may_be_given_more_threads(cluster: pl.Cluster) -> None:
    with joblib.parallel_config("paceline", n_jobs=2, inner_max_num_threads=3):
        assert set(joblib.Parallel()(joblib.delayed(joblib_cases.threads)() for _ in range(4))) == {"3"}


def test_an_error_ends_what_still_runs(cluster: pl.Cluster) -> None:
    begun = time.monotonic()
    with joblib.parallel_config("paceline", n_jobs=2), pytest.raises(ZeroDivisionError):
        joblib.Parallel()(joblib.delayed(f)(x) for f, x in ((time.sleep, 30), (lambda x: 1 / x, 0)))
    assert time.monotonic() - begun < 10


def test_no_file_is_left_behind(cluster: pl.Cluster, tmp_path: Path) -> None:
    import numpy as np

    array = np.zeros(500_000)
    with joblib.parallel_config("paceline", n_jobs=2, temp_folder=str(tmp_path)):
        found = joblib.Parallel()(joblib.delayed(joblib_cases.what_it_is)(array) for _ in range(4))
    assert {name for name, _, _ in found} == {"memmap"}
    wait_until(lambda: not list(tmp_path.rglob("*.pkl")), "joblib's own process to remove its files")

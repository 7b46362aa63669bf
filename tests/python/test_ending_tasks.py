"""Tasks that are ended: by a time limit, by `pl.cancel`; and those that run again."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import pytest

import paceline as pl
from support import wait_until

FAR_TOO_LONG = 60.0


@pl.remote
def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@pl.remote
def grind(rounds: int) -> int:
    """C code that looks for no signal until it is over."""
    hashlib.pbkdf2_hmac("sha256", b"x", b"y", rounds)
    return rounds


@pl.remote
def count_runs(path: str, fail: str, times: int) -> int:
    """How often it has run; the first `times` runs go wrong."""
    with open(path, "a") as file:
        file.write("x")
    runs = len(Path(path).read_text())
    if runs <= times:
        if fail == "timeout":
            time.sleep(FAR_TOO_LONG)
        raise ValueError(f"run {runs}")
    return runs


@pytest.mark.usefixtures("cluster")
class TestTimeout:
    def test_ends_the_attempt(self) -> None:
        began = time.monotonic()
        with pytest.raises(pl.TaskTimeout) as caught:
            nap.options(timeout=0.2)(FAR_TOO_LONG)
        assert 0.2 <= time.monotonic() - began < 1.9
        assert (caught.value.timeout, caught.value.attempts, caught.value.function) == (0.2, 1, "nap")
        assert nap(0.0) == 0.0

    def test_does_not_touch_what_is_quick(self) -> None:
        assert nap.options(timeout=5).map([0.001] * 50, chunksize=1) == [0.001] * 50

    def test_code_that_does_not_listen_is_ended_with_its_slot(self) -> None:
        began = time.monotonic()
        with pytest.raises(pl.TaskTimeout):
            grind.options(timeout=0.2)(200_000_000)
        assert time.monotonic() - began < 4
        assert nap(0.0) == 0.0

    def test_counts_from_the_start_of_the_run_not_from_submission(self) -> None:
        nap.map([0.1] * 4, chunksize=1)  # loading the function takes time, too
        # Two at a time, the last ones wait longer than any may run.
        futures = [nap.options(timeout=1.5).submit(0.4) for _ in range(10)]
        assert [future.result() for future in futures] == [0.4] * 10

    def test_the_neighbours_of_a_timed_out_task_run_once(self, tmp_path: Path) -> None:
        quick = [count_runs.submit(str(tmp_path / f"{index}"), "", 0) for index in range(20)]
        with pytest.raises(pl.TaskTimeout):
            nap.options(timeout=0.1)(FAR_TOO_LONG)
        assert [future.result() for future in quick] == [1] * 20

    def test_is_retried_if_asked(self, tmp_path: Path) -> None:
        patient = count_runs.options(timeout=1, retry_on=("timeout",), retries=2)
        assert patient(str(tmp_path / "a"), "timeout", 2) == 3
        with pytest.raises(pl.TaskTimeout) as caught:
            patient(str(tmp_path / "b"), "timeout", 3)
        assert caught.value.attempts == 3


@pytest.mark.usefixtures("cluster")
class TestRetries:
    def test_own_exceptions_only_if_asked(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="run 1"):
            count_runs(str(tmp_path / "a"), "error", 1)
        assert count_runs.options(retry_on="error")(str(tmp_path / "b"), "error", 2) == 3
        with pytest.raises(ValueError, match="run 4"):
            count_runs.options(retry_on="error", retries=3)(str(tmp_path / "c"), "error", 9)

    def test_a_cause_that_does_not_exist_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"'weather': there are slot, node, timeout, error"):
            nap.options(retry_on=("weather",))
        with pytest.raises(ValueError, match="timeout must be more than zero"):
            nap.options(timeout=0)


@pytest.mark.usefixtures("cluster")
class TestCancel:
    def test_a_running_task(self) -> None:
        future = nap.submit(FAR_TOO_LONG)
        wait_until(future.running, "the task to run")
        assert not future.cancel()
        began = time.monotonic()
        assert pl.cancel(future)
        assert future.cancelled()
        assert nap.map([0.0] * 4, chunksize=1) == [0.0] * 4
        # Well before the two seconds after which its slot would be ended.
        assert time.monotonic() - began < 1.9

    def test_a_task_that_is_done_or_cancelled(self) -> None:
        future = nap.submit(0.0)
        future.result()
        assert not pl.cancel(future)
        assert future.result() == 0.0

    def test_code_that_does_not_listen(self) -> None:
        futures = [grind.submit(200_000_000) for _ in range(2)]
        wait_until(lambda: all(future.running() for future in futures), "both tasks to run")
        waiting = [nap.submit(0.0) for _ in range(6)]
        assert all(pl.cancel(future) for future in futures)
        began = time.monotonic()
        assert [future.result() for future in waiting] == [0.0] * 6
        assert time.monotonic() - began < 4

    def test_a_task_that_catches_the_interrupt_keeps_its_slot(self) -> None:
        @pl.remote
        def stubborn() -> str:
            try:
                time.sleep(FAR_TOO_LONG)
            except KeyboardInterrupt:
                return "caught"
            return "slept"

        future = stubborn.submit()
        wait_until(future.running, "the task to run")
        assert pl.cancel(future)
        assert nap(0.0) == 0.0


@pytest.mark.usefixtures("cluster")
def test_a_task_knows_itself(tmp_path: Path) -> None:
    @pl.remote
    def who() -> tuple[int, int, int]:
        found = pl.current()
        assert found is not None
        return found.task, found.attempt, found.slot

    first, second = who(), who()
    assert second[0] == first[0] + 1
    assert first[1] == 1
    assert pl.current() is None

    @pl.remote(retry_on="error")
    def third_time() -> int:
        found = pl.current()
        assert found is not None
        if found.attempt < 3:
            raise ValueError(found.attempt)
        return found.attempt

    assert third_time() == 3

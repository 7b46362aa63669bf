"""Programs for cluster-workers, after a changed import line."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import paceline as pl
import paceline.compat.cluster_workers as cw
from paceline.compat.cluster_workers.client import BaseClientThread
from support import wait_until
from support.daemons import Commands
from support.processes import MARKER


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    """A home of its own, and nothing left of what was started in it."""
    commands = Commands(tmp_path / "home")
    monkeypatch.setenv("PACELINE_HOME", str(commands.home))
    monkeypatch.setenv(MARKER, commands.marker)
    yield commands
    commands.end()


@pytest.fixture
def master(home: Commands) -> Iterator[tuple[str, int]]:
    with cw.mp.allocate(2, port=0) as where:
        yield where
    home.assert_nothing_left()


def fail(what: str) -> None:
    raise ValueError(what)


def test_jobs_with_ids_and_a_callback(master: tuple[str, int]) -> None:
    found: dict[int, int] = {}
    threads: set[int] = set()

    def completed(jobid: int, result: int) -> None:
        threads.add(threading.get_ident())
        found[jobid] = result

    ids = [cw.randid() for _ in range(50)]
    client = cw.ClientThread(completed, *master)
    client.start()
    for number, jobid in enumerate(ids):
        client.submit(jobid, lambda x, power=2: x**power, number, power=3)
    client.wait()
    assert found == {jobid: number**3 for number, jobid in enumerate(ids)}
    assert len(threads) == 1
    assert threading.get_ident() not in threads
    client.stop()
    client.stop()
    client.join()


def test_the_first_failure_is_raised_by_wait_with_its_traceback(master: tuple[str, int]) -> None:
    found: dict[int, int] = {}
    client = cw.ClientThread(found.__setitem__, *master)
    client.start()
    client.submit(1, fail, "a bad job")
    client.submit(2, time.sleep, 0.01)
    with pytest.raises(cw.RemoteException) as raised:
        client.wait()
    assert str(raised.value).startswith("Traceback (most recent call last):")
    assert "in fail\n" in str(raised.value)
    assert "ValueError: a bad job" in str(raised.value)
    assert isinstance(raised.value.error, ValueError)
    client.wait()
    client.submit(3, abs, -3)
    client.wait()
    assert found == {2: None, 3: 3}
    client.stop()


def test_it_raises_before_the_others_have_ended(master: tuple[str, int]) -> None:
    client = cw.ClientThread(lambda jobid, result: None, *master)

    def body() -> None:
        with client:
            client.submit(1, time.sleep, 600)
            client.submit(2, fail, "soon")

    with pytest.raises(cw.RemoteException):
        body()  # the block has left the cluster, and the long job with it


def test_what_cannot_be_sent_does_not_count(master: tuple[str, int]) -> None:
    with cw.ClientThread(lambda jobid, result: None, *master) as client:
        with pytest.raises(pl.ArgumentNotSerializable):
            client.submit(1, len, threading.Lock())


def test_a_worker_that_is_killed_loses_no_job(master: tuple[str, int], tmp_path: Path) -> None:
    def once(path: str) -> str:
        if not os.path.exists(path):
            Path(path).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "again"

    found: dict[int, str] = {}
    with cw.ClientThread(found.__setitem__, *master) as client:
        client.submit(1, once, str(tmp_path / "mark"))
    assert found == {1: "again"}


def test_sys_exit_and_ctrl_c_in_a_job_are_failures_of_the_job(master: tuple[str, int]) -> None:
    for ending in (SystemExit, KeyboardInterrupt):

        def leave(kind: type[BaseException] = ending) -> None:
            raise kind("now")

        with pytest.raises(cw.RemoteException, match=ending.__name__):
            with cw.ClientThread(lambda jobid, result: None, *master) as client:
                client.submit(1, leave)


def test_the_base_class_tells_success(master: tuple[str, int]) -> None:
    told: dict[int, tuple[bool, Any]] = {}
    client = BaseClientThread(lambda jobid, success, result: told.__setitem__(jobid, (success, result)), *master)
    with pytest.raises(pl.PacelineError, match="not been started"):
        client.start_job(0, abs, 1)
    client.start()
    client.start_job(1, abs, -1)
    client.start_job(2, fail, "no")
    wait_until(lambda: len(told) == 2, "both jobs")
    assert told[1] == (True, 1)
    assert told[2][0] is False
    assert "ValueError: no" in told[2][1]
    client.stop()


def test_the_executor(master: tuple[str, int]) -> None:
    with cw.ClusterExecutor(*master) as executor:
        assert isinstance(executor, concurrent.futures.Executor)
        assert list(executor.map(pow, range(5), [2] * 5)) == [0, 1, 4, 9, 16]
        futures = [executor.submit(abs, -number) for number in range(10)]
        assert sum(future.result() for future in concurrent.futures.as_completed(futures)) == 45
        with pytest.raises(cw.RemoteException, match="ValueError: no"):
            executor.submit(fail, "no").result()
        long = [executor.submit(time.sleep, 600) for _ in range(2)]
        try:
            wait_until(lambda: all(future.running() for future in long), "both workers to be busy")
            waits = executor.submit(abs, -1)
            assert waits.cancel()
            assert waits.cancelled()
        finally:
            for future in long:
                pl.cancel(future._inner)  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(abs, 1)


def test_shutdown_without_waiting_still_runs_what_was_submitted(master: tuple[str, int]) -> None:
    executor = cw.ClusterExecutor(*master)
    future = executor.submit(time.sleep, 0.2)
    executor.shutdown(wait=False)
    assert future.result(timeout=20) is None


def test_a_cluster_in_the_background(home: Commands) -> None:
    cw.mp.start(1, port=0)
    [cluster] = home("status", "--json").ok().json["clusters"]
    address = cluster["cluster"]["address"].rpartition(":")
    with pytest.raises(pl.PacelineError, match="a master runs on this machine already"):
        cw.mp.start(1, port=0)
    with cw.ClusterExecutor(address[0], int(address[2])) as executor:
        assert executor.submit(abs, -1).result() == 1
    cw.stop(master=False)
    assert home.nodes() == []
    cw.stop()
    home.assert_nothing_left()


def test_it_ends_with_the_block_however_that_ends(home: Commands) -> None:
    with pytest.raises(RuntimeError, match="mine"):
        with cw.allocate(1):
            raise RuntimeError("mine")
    home.assert_nothing_left()


def test_no_master(home: Commands) -> None:
    began = time.monotonic()
    with pytest.raises(pl.ConnectionFailed, match=":1"):
        cw.ClientThread(lambda jobid, result: None, "127.0.0.1", 1).start()
    assert time.monotonic() - began < 10


def test_what_slurm_would_start_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(pl.PacelineError, match="not there yet"):
        cw.allocate(1, docker_image="mine")
    (tmp_path / "salloc").write_text("#!/bin/sh\n")
    (tmp_path / "salloc").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert cw.is_slurm_available()
    with pytest.raises(pl.PacelineError, match="not there yet"):
        cw.allocate(1)


def command(home: Commands, name: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-m", f"paceline.compat.cluster_workers.{name}", *arguments],
        env=home.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )


def test_the_commands(home: Commands) -> None:
    """A master counts its workers; they come and go, and end with it."""
    master = command(home, "master", "--port", "0")
    assert master.stdout is not None
    assert master.stdout.readline() == "workers: 0\n"
    port = home.status()["cluster"]["address"].rpartition(":")[2]
    workers = [command(home, "worker", "localhost", "--port", port) for _ in range(2)]
    lines = ""
    while "workers: 2\n" not in lines:
        lines += master.stdout.readline()
    with cw.ClusterExecutor("localhost", int(port)) as executor:
        assert len(set(executor.map(_together, [2] * 2))) == 2, "one job at a time in each"
    workers[0].send_signal(signal.SIGINT)
    assert master.stdout.readline() == "workers: 1\n"
    master.send_signal(signal.SIGINT)
    assert workers[1].communicate(timeout=20)[0] == "connection to master closed\n"
    for process in (master, *workers):
        process.communicate(timeout=20)
    home.assert_nothing_left()


def _together(count: int) -> int:
    time.sleep(0.3)
    return os.getpid()

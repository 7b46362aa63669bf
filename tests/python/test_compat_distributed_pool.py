"""Worker pools of distributed-computing, after a changed import line. GPUs are pretended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import paceline as pl
from paceline.compat.distributed_computing.api import (
    Pool,
    WorkerInterface,
    start_head_node,
    start_node,
    start_server,
)
from support import wait_until
from support.daemons import Commands
from support.processes import MARKER


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    """A home of its own with three pretended GPUs, and nothing left of what was started in it."""
    commands = Commands(tmp_path / "home")
    monkeypatch.setenv("PACELINE_HOME", str(commands.home))
    monkeypatch.setenv("PACELINE_FAKE_GPUS", "3x16GB")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv(MARKER, commands.marker)
    yield commands
    commands.end()


@pytest.fixture
def port(home: Commands) -> Iterator[int]:
    """A head node, by the port of its server."""
    terminate, wait = start_head_node("secret horse", port=0)
    yield port_of(home)
    terminate()
    wait()
    home.assert_nothing_left()


def port_of(home: Commands) -> int:
    return int(home.status()["cluster"]["address"].rpartition(":")[2])


class Worker(WorkerInterface):
    def __init__(self, base: int, *, scale: int = 1) -> None:
        self.base = base
        self.scale = scale
        self.updates: list[Any] = []

    def run(self, what: Any = None, *rest: Any, **more: Any) -> Any:
        if what == "seen":
            return os.environ["CUDA_VISIBLE_DEVICES"], os.getpid()
        if what == "updates":
            return list(self.updates)
        if what == "nap":
            time.sleep(rest[0])
        if what == "raise":
            raise ValueError("a bad job")
        if what == "crash" and not os.path.exists(rest[0]):
            Path(rest[0]).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "slow once" and not os.path.exists(rest[0]):
            Path(rest[0]).touch()
            time.sleep(600)
        if isinstance(what, int):
            return self.base + self.scale * what + more.get("extra", 0)
        return None

    def handle_update(self, *args: Any, **kwargs: Any) -> None:
        self.updates.append((args, kwargs))


def jobs(*whats: Any) -> list[dict[str, Any]]:
    return [{"args": [what] if not isinstance(what, tuple) else list(what)} for what in whats]


def opened(port: int, **options: Any) -> Pool:
    return Pool(Worker, {"args": [100], "kwargs": {"scale": 10}}, "secret horse", server_port=port, **options)


def test_one_worker_for_each_gpu(port: int) -> None:
    with opened(port, min_workers=3) as pool:
        assert (pool.get_workers_count(), pool.get_nodes_count()) == (3, 1)
        seen = set(pool.map(jobs(*["seen", ("nap", 0.05)] * 30))) - {None}
        assert sorted(device for device, _ in seen) == ["0", "1", "2"], "each sees one of its own"
        assert len({pid for _, pid in seen}) == 3


def test_results_in_order_and_as_they_come(port: int) -> None:
    data = [{"args": [number], "kwargs": {"extra": 1}} for number in range(20)]
    expected = [101 + 10 * number for number in range(20)]
    with opened(port) as pool:
        assert pool.map(data) == expected
        assert list(pool.imap(data)) == expected
        assert sorted(pool.imap_unordered(data)) == expected
        assert pool.map([{}, {"args": []}]) == [None, None], "None is a result like any other"
        assert pool.map([7]) == [170], "what is no such dictionary is the one argument"


def test_updates_come_between_jobs_and_in_order(port: int) -> None:
    with opened(port, min_workers=3) as pool:
        for count, _ in enumerate(pool.imap_unordered(jobs(*range(10))), 1):
            pool.update_workers({"args": [count], "kwargs": {"last": False}})
        pool.update_workers("as it is")
        expected = [((count,), {"last": False}) for count in range(1, 11)] + [(("as it is",), {})]
        assert pool.map(jobs(*["updates"] * 30)) == [expected] * 30


def test_what_run_raises_is_raised_here(port: int) -> None:
    with opened(port) as pool:
        with pytest.raises(ValueError, match="a bad job"):
            pool.map(jobs("raise"))
        assert pool.map(jobs(1)) == [110], "the pool goes on"


def test_a_worker_that_dies_costs_nothing(port: int, tmp_path: Path) -> None:
    with opened(port) as pool:
        pool.update_workers({"args": ["kept"]})
        results = pool.map(jobs(*range(10), ("crash", str(tmp_path / "crash")), *range(10)))
        assert results == [100 + 10 * n for n in range(10)] + [None] + [100 + 10 * n for n in range(10)]
        assert pool.map(jobs(*["updates"] * 20)) == [[(("kept",), {})]] * 20, "the new one has got it, too"


def test_a_job_that_takes_too_long_is_given_to_another(port: int, tmp_path: Path) -> None:
    with opened(port, job_timeout=1) as pool:
        assert pool.map(jobs(("slow once", str(tmp_path / "slow")), 1)) == [None, 110]


def test_nodes_come_and_go(home: Commands) -> None:
    terminate, wait = start_server("secret horse", port=0)
    port = port_of(home)
    with opened(port) as pool:
        assert (pool.get_workers_count(), pool.get_nodes_count()) == (0, 0)
        began = time.monotonic()
        pool.wait_for_workers(1, timeout=timedelta(seconds=0.2))
        assert time.monotonic() - began < 5, "in vain, and without a word"
        stop, gone = start_node("secret horse", port=port, max_gpus=1)
        pool.wait_for_workers(1, timeout=30)
        assert pool.map(jobs(1, 2)) == [110, 120]
        stop()
        gone()
        wait_until(lambda: pool.get_nodes_count() == 0, "the node to be gone")
        stop, gone = start_node("secret horse", port=port)
        pool.wait_for_workers(3, timeout=30)
        assert pool.get_nodes_count() == 1
        assert pool.map(jobs(3)) == [130]
    stop()
    gone()
    terminate()
    wait()
    home.assert_nothing_left()


def test_a_new_pool_replaces_the_one_before(port: int) -> None:
    first = opened(port, min_workers=3)
    second = opened(port, min_workers=3)
    assert second.get_workers_count() == 3, "the first one has left its GPUs"
    with pytest.raises((pl.PacelineError, Exception)):
        first.map(jobs(1))
    assert second.map(jobs(1)) == [110]
    second.close()
    second.close()


def test_close_gives_up_what_runs(port: int) -> None:
    pool = opened(port)
    running = pool.imap(jobs(("nap", 600)))
    pool.wait_for_workers(1)
    began = time.monotonic()
    pool.close()
    assert time.monotonic() - began < 10
    del running


def test_gpus_that_are_too_small_are_left_out(port: int) -> None:
    with opened(port, min_gpu_memory_required=20_000) as pool:
        pool.wait_for_workers(1, timeout=0.5)
        assert pool.get_workers_count() == 0
    with opened(port, min_gpu_memory_required=10_000, min_workers=3) as pool:
        assert pool.get_workers_count() == 3


def test_another_password(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(Exception, match="Work was not approved by the pool server") as raised:
        Pool(Worker, {}, "guess", server_port=port)
    assert isinstance(raised.value.__cause__, pl.ConnectionFailed)


def test_without_gpus_workers_have_cpus(home: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_FAKE_GPUS", "0")
    terminate, wait = start_head_node("secret horse", port=0)
    with opened(port_of(home), min_workers=1) as pool:
        assert pool.get_workers_count() >= 1
        assert pool.map(jobs(1)) == [110]
    terminate()
    wait()


def test_the_interface() -> None:
    with pytest.raises(NotImplementedError, match="has no method run"):
        WorkerInterface().run()
    with pytest.raises(NotImplementedError, match="handle_update"):
        WorkerInterface().handle_update()

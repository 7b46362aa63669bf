"""Connecting, the current cluster, and how a cluster ends."""

import contextvars
import threading
from typing import Any

import pytest

import paceline as pl
from paceline import _cluster
from support import assert_nothing_left, run_script


@pl.remote
def square(x: int) -> int:
    return x * x


def current() -> pl.Cluster | None:
    try:
        return _cluster.current()
    except pl.NotConnected:
        return None


@pytest.fixture(autouse=True)
def nothing_connected() -> None:
    pl.shutdown()


def test_not_connected() -> None:
    for use in (square, square.submit, square.map):
        with pytest.raises(pl.NotConnected) as caught:
            use([1])  # type: ignore[arg-type]
        assert str(caught.value) == "not connected to a cluster\nhint: call paceline.connect() first"


def test_close_and_shutdown_may_be_repeated() -> None:
    cluster = pl.connect(cpus=1)
    assert square(3) == 9
    cluster.close()
    cluster.close()
    pl.shutdown()
    pl.shutdown()
    assert repr(cluster) == "<paceline.Cluster: closed>"
    with pytest.raises(pl.NotConnected):
        square(3)
    with pytest.raises(pl.ClusterClosed):
        cluster.status()
    with pytest.raises(pl.ClusterClosed), cluster:
        pass


def test_the_last_connected_one_is_current() -> None:
    """CL-1"""
    first = pl.connect(cpus=1)
    second = pl.connect(cpus=1, name="second")
    assert current() is second
    assert square(2) == 4
    second.close()
    assert current() is first
    assert square(3) == 9
    pl.shutdown()
    assert current() is None


def test_with_makes_it_current_in_this_context_alone() -> None:
    outer = pl.connect(cpus=1)
    seen: list[pl.Cluster | None] = []
    with pl.connect(cpus=1) as inner:
        last = pl.connect(cpus=1)
        assert current() is inner
        thread = threading.Thread(target=lambda: seen.append(current()))
        thread.start()
        thread.join()
        contextvars.copy_context().run(lambda: seen.append(current()))
        with outer, last, outer:
            assert current() is outer
        assert current() is inner
    assert seen == [last, inner]


def test_the_outermost_with_closes() -> None:
    with pl.connect(cpus=1) as cluster:
        with cluster:
            assert square(2) == 4
        assert square(3) == 9
    with pytest.raises(pl.ClusterClosed):
        cluster.status()
    assert current() is None


def test_a_with_in_two_threads_closes_at_the_end_of_the_last() -> None:
    cluster = pl.connect(cpus=1)
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with cluster:
            entered.set()
            leave.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait()
    with cluster:
        pass
    assert square(4) == 16
    leave.set()
    thread.join()
    assert current() is None


def test_options_name_a_cluster() -> None:
    first, second = pl.connect(cpus=1), pl.connect(cpus=1)
    pid = pl.remote(_pid)
    there = pid.options(cluster=first)
    assert there() == there() != pid()
    assert there.options(retries=0)() == there()
    assert there.options(cluster=None)() == pid()
    with second:
        assert there() != pid()
    first.close()
    with pytest.raises(pl.ClusterClosed):
        there()
    wrong: Any = "cluster"
    with pytest.raises(TypeError, match="cluster must be a Cluster, not str"):
        pid.options(cluster=wrong)


def _pid() -> int:
    import os

    return os.getppid()


def test_status() -> None:
    with pl.connect(cpus=2, name="mine") as cluster:
        assert cluster.cpus == 2
        assert repr(cluster) == "<paceline.Cluster 'mine': embedded, 2 cpus>"
        assert len(cluster.nodes) == 1
        assert "nodes:" in repr(cluster.status())


@pytest.mark.parametrize(
    ("cpus", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), ("2", TypeError), (True, TypeError)]
)
def test_bad_cpus(cpus: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="cpus must be"):
        pl.connect(cpus=cpus)


def test_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(pl.ConnectionFailed, match=r"cannot connect to 127\.0\.0\.1:1") as caught:
        pl.connect("127.0.0.1:1")
    assert "is it running there" in (caught.value.hint or "")
    with pytest.raises(pl.PacelineError, match="none was given"):
        pl.connect(password="x")
    monkeypatch.setenv("PACELINE_ADDRESS", "127.0.0.1:1")
    with pytest.raises(pl.ConnectionFailed, match=r"cannot connect to 127\.0\.0\.1:1"):
        pl.connect()
    with pytest.raises(pl.PacelineError, match="has its own") as refused:
        pl.connect(cpus=2)
    assert "unset PACELINE_ADDRESS" in (refused.value.hint or "")


def test_a_cluster_cannot_be_sent() -> None:
    with pl.connect(cpus=1) as cluster:
        with pytest.raises(pl.ArgumentNotSerializable, match="a cluster cannot be sent"):
            pl.remote(lambda x: x)(cluster)


def test_flags_of_the_interpreter() -> None:
    done = run_script(
        "from paceline._cluster import _interpreter_flags\nprint(*_interpreter_flags())",
        interpreter=["-OO", "-B", "-s", "-b", "-W", "ignore", "-X", "utf8", "-X", "importtime=no", "-X", "dev"],
    ).ok()
    assert done.stdout.split() == ["-B", "-b", "-OO", "-s", "-Wignore", "-X", "utf8", "-X", "dev"]


def test_the_end_of_the_program_says_what_it_cancelled() -> None:
    done = run_script(
        """
        import time
        import paceline as pl
        pl.connect(cpus=1)
        futures = [pl.remote(time.sleep).submit(0.2) for _ in range(10)]
        """
    ).ok()
    line = done.stderr.splitlines()[-1]
    assert line.startswith("paceline: cancelled ")
    assert line.endswith(" tasks that had not ended at exit")
    assert_nothing_left(done)


def test_a_quiet_end() -> None:
    done = run_script("import paceline as pl\npl.connect(cpus=1)\nassert pl.remote(abs)(-1) == 1").ok()
    assert (done.stdout, done.stderr) == ("", "")
    assert_nothing_left(done)


def test_a_forked_child_has_its_own() -> None:
    """CL-2"""
    done = run_script(
        """
        import os
        import paceline as pl
        cluster = pl.connect(cpus=1)
        square = pl.remote(lambda x: (x * x, os.getppid()))
        first = square(3)
        child = os.fork()
        if child == 0:
            value, zygote = square(4)
            assert value == 16 and zygote != first[1]
            assert cluster.cpus == 1 and len(cluster.nodes) == 1
            pl.shutdown()
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert square(5) == (25, first[1])
        """
    ).ok()
    assert_nothing_left(done)


def test_a_forked_child_that_does_not_use_it() -> None:
    done = run_script(
        """
        import multiprocessing, os
        import paceline as pl
        with pl.connect(cpus=1):
            square = pl.remote(lambda x: x * x)
            assert square(3) == 9
            with multiprocessing.get_context("fork").Pool(2) as pool:
                assert pool.map(abs, [-1, -2]) == [1, 2]
            assert square(4) == 16
        """,
        interpreter=["-W", "ignore::DeprecationWarning"],
    ).ok()
    assert_nothing_left(done)

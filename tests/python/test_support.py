"""The helpers of the tests, where a fault in them would hide faults of Paceline."""

import os
import signal
import sys
from pathlib import Path

import pytest

from support import (
    ScriptTimeout,
    assert_nothing_left,
    footprint,
    leftovers,
    needs_package,
    packages,
    run_script,
    start_script,
    wait_until,
)


def test_a_script_gives_its_output_and_exit_code() -> None:
    done = run_script(
        """
        import sys
        print("out", *sys.argv[1:])
        print("err", file=sys.stderr)
        sys.exit(3)
        """,
        args=["a", "b"],
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "out a b\n", "err\n")
    assert not done.run.directory.exists()
    with pytest.raises(AssertionError, match="exit code 3"):
        done.ok()


def test_the_environment_of_a_script_can_be_set_and_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONE", "x")
    done = run_script("import os; print(os.environ['NEW'], 'GONE' in os.environ)", env={"NEW": "1", "GONE": None})
    assert done.ok().stdout == "1 False\n"


def test_a_script_that_hangs_shows_its_last_state() -> None:
    with pytest.raises(ScriptTimeout) as caught:
        run_script(
            """
            import threading
            def wait_here():
                print("about to wait", flush=True)
                threading.Event().wait()
            wait_here()
            """,
            timeout=1,
        )
    assert "about to wait" in str(caught.value)
    assert "in wait_here" in str(caught.value)


ORPHAN = """
import os, socket, sys, tempfile, time
if os.fork() == 0:
    os.setsid()
    os.memfd_create("left")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("\\0left-" + os.environ["PACELINE_TEST_RUN"])
    tempfile.mkstemp()
    print("ready", flush=True)
    time.sleep(60)
while not os.listdir(os.environ["TMPDIR"]):
    time.sleep(0.001)
"""


def test_leftovers_are_found_and_then_gone() -> None:
    done = run_script(ORPHAN).ok()
    left = leftovers(done)
    assert len(left.processes) == 1
    assert any("left" in memfd for memfd in left.memfds)
    assert left.sockets == [f"@left-{done.run.marker}"]
    assert len(left.files) == 1
    with pytest.raises(AssertionError, match="leave nothing behind"):
        assert_nothing_left(done, within=0.05)
    Path(left.files[0]).unlink()
    assert_nothing_left(done)
    done.run.temporary.rmdir()
    done.run.directory.rmdir()


def test_a_running_script_can_be_watched_and_signalled() -> None:
    with start_script("import time\nprint('up', flush=True)\ntime.sleep(60)") as running:
        wait_until(lambda: "up" in running.output(), "the script to start")
        assert [one.pid for one in running.processes()] == [running.pid]
        running.send_signal(signal.SIGINT)
        done = running.wait()
    assert "KeyboardInterrupt" in done.stderr
    assert_nothing_left(done)


def test_waiting_names_what_it_waited_for() -> None:
    with pytest.raises(AssertionError, match=r"waited 0\.01 s for the moon; last state: dark"):
        wait_until(lambda: False, "the moon", 0.01, lambda: "dark")


def test_the_footprint_counts_what_is_held() -> None:
    before = footprint()
    memfd = os.memfd_create("held")
    after = footprint()
    os.close(memfd)
    assert len(after.memfds) == len(before.memfds) + 1
    assert footprint() == before


def test_a_missing_package_is_listed_and_in_ci_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    needs_package("python3", Path(sys.executable).name)
    monkeypatch.setattr(packages, "missing", [])
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="Debian package no-such-package"):
        needs_package("no-such-package", "no-such-program")
    assert [package for package, _ in packages.missing] == ["no-such-package"]
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception):
        needs_package("no-such-package", "no-such-program")


def test_script_under_an_ignored_hangup_is_ended_by_it() -> None:
    """As when the tests were started by `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with start_script("import time; print('ready', flush=True); time.sleep(60)") as running:
            wait_until(lambda: "ready" in running.output(), "the script to be ready")
            running.send_signal(signal.SIGHUP)
            assert running.wait(10).returncode == -signal.SIGHUP
    finally:
        signal.signal(signal.SIGHUP, before)

"""How a cluster ends: at exit, by signals, by death of any of its processes. Nothing may be left behind."""

from __future__ import annotations

import signal
import textwrap

import pytest

from support import Completed, Running, assert_nothing_left, run_script, start_script, wait_until

BUSY = textwrap.dedent(
    """
    import hashlib, os, time
    import paceline as pl

    pl.connect(cpus=2)

    def begins(seconds):
        if seconds > 1:
            open("begun", "w").close()

    @pl.remote
    def nap(seconds):
        begins(seconds)
        time.sleep(seconds)
        return seconds

    @pl.remote
    def grind(seconds):
        begins(seconds)
        # One call of C code: no signal handler of Python's runs before it is over.
        end = time.monotonic() + seconds
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", int(seconds * 1_000_000))
        return seconds

    nap(0)
    print("ready", flush=True)
    """
)


def interrupted(call: str) -> Completed:
    script = BUSY + textwrap.dedent(
        f"""
        began = time.monotonic()
        try:
            {call}
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        nap(0.01)
        print("next call works after", round(time.monotonic() - began, 1), flush=True)
        """
    )
    with start_script(script) as running:
        wait_until(lambda: "ready" in running.output(), "the script to be ready")
        # The interrupt must find the tasks at work and the client waiting. One that comes while `pl.wait` is imported
        # ends the script with SIGINT at its very end, however it is handled: Python does that once KeyboardInterrupt
        # has left an `eval` or `exec`, and `namedtuple` uses them.
        wait_until((running.run.directory / "begun").exists, "a task to begin")
        wait_until(lambda: len(running.processes()) >= 4, "client, zygote and two slots")
        running.send_signal(signal.SIGINT)
        done = running.wait(20).ok()
        assert "interrupted" in done.stdout
        assert "next call works" in done.stdout
        assert_nothing_left(done)
        return done


@pytest.mark.parametrize(
    "call",
    [
        "nap(30)",
        "nap.map([30] * 10, chunksize=1)",
        "nap.submit(30).result()",
        "list(nap.imap([30] * 10))",
        "pl.wait([nap.submit(30)])",
    ],
)
def test_ctrl_c_ends_the_wait_and_its_tasks(call: str) -> None:
    done = interrupted(call)
    assert done.seconds < 10, done.transcript()


def test_all_that_submit_imports_is_there_before_the_task_begins() -> None:
    """A Ctrl-C during an import would leave a task that has begun and that nobody can name."""
    run_script(
        BUSY
        + textwrap.dedent(
            """
            import sys

            class Imports:
                def find_spec(self, name, path, target=None):
                    if name.startswith("paceline."):
                        time.sleep(0.3)
                        assert not os.path.exists("begun"), name

            sys.meta_path.insert(0, Imports())
            nap.submit(1.01).result()
            assert os.path.exists("begun") and "paceline._future" in sys.modules
            """
        )
    ).ok()


def test_ctrl_c_ends_code_that_does_not_listen() -> None:
    """C code that never looks for signals is killed with its slot after two seconds, and the slot replaced."""
    assert interrupted("grind.map([60, 60], chunksize=1)").seconds < 15


def running_map() -> Running:
    return start_script(BUSY + "nap.map([30] * 4, chunksize=1)")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_killed_client_leaves_nothing(number: signal.Signals) -> None:
    with running_map() as running:
        wait_until(lambda: "ready" in running.output(), "the script to be ready")
        running.send_signal(number)
        done = running.wait(10)
        assert done.returncode == -number
        wait_until(lambda: not running.processes(), "every process of the cluster to end", 5)
        assert_nothing_left(done)


def test_a_killed_zygote_is_replaced() -> None:
    done = run_script(
        BUSY
        + textwrap.dedent(
            """
            import signal
            parent = pl.remote(os.getppid)
            zygote = parent()
            futures = [nap.submit(0.3) for _ in range(4)]
            os.kill(zygote, signal.SIGKILL)
            print([future.result() for future in futures])
            assert parent() != zygote
            """
        )
    ).ok()
    assert "[0.3, 0.3, 0.3, 0.3]" in done.stdout
    assert_nothing_left(done)


# The zygote stands still, and one of the two slots is dead, which only the zygote could notice.
STOPPED_ZYGOTE = BUSY + textwrap.dedent(
    """
    import signal
    zygote = pl.remote(os.getppid)()
    def stop():
        os.kill(os.getppid(), signal.SIGSTOP)
    def die_once(mark):
        try:
            os.mkdir(mark)
        except FileExistsError:
            return "again"
        os._exit(1)
    pl.remote(stop)()
    print("zygote", zygote, flush=True)
    """
)


@pytest.mark.slow
def test_calls_end_though_a_task_has_stopped_the_zygote() -> None:
    done = run_script(
        STOPPED_ZYGOTE
        + textwrap.dedent(
            """
            import tempfile
            dying = pl.remote(die_once).options(retries=2)
            with tempfile.TemporaryDirectory() as folder:
                futures = [dying.submit(f"{folder}/{number}") for number in range(4)]
                print([future.result(timeout=25) for future in futures])
            try:
                pl.remote(os._exit).options(retries=0).submit(1).result(timeout=25)
            except pl.SlotDied:
                print("told")
            assert pl.remote(os.getppid)() != zygote
            """
        ),
        timeout=50,
    ).ok()
    assert str(["again"] * 4) in done.stdout
    assert "told" in done.stdout
    assert_nothing_left(done)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_stopped_zygote_ends_with_its_program(number: signal.Signals) -> None:
    with start_script(STOPPED_ZYGOTE + "nap.map([30] * 2, chunksize=1)") as running:
        wait_until(lambda: "zygote" in running.output(), "the zygote to be stopped")
        running.send_signal(number)
        done = running.wait(10)
        assert done.returncode == -number
        wait_until(lambda: not running.processes(), "every process of the cluster to end", 5, running.processes)
        assert_nothing_left(done)


@pytest.mark.parametrize(
    "ending",
    ["", "pl.shutdown()", "raise SystemExit(3)", "1 / 0", "os._exit(4)"],
    ids=["end", "shutdown", "exit", "exception", "hard exit"],
)
def test_every_way_to_end_leaves_nothing(ending: str) -> None:
    done = run_script(BUSY + "futures = [nap.submit(0.2) for _ in range(5)]\n" + ending)
    wait_until(lambda: _is_clean(done), "everything to be gone", 5)
    assert_nothing_left(done)


def _is_clean(done: Completed) -> bool:
    from support import processes

    return not processes.processes_of(done.run.marker)


def test_a_forked_child_does_not_keep_a_dead_clients_cluster_alive() -> None:
    script = BUSY + textwrap.dedent(
        """
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        print("forked", flush=True)
        nap(30)
        """
    )
    with start_script(script) as running:
        wait_until(lambda: "forked" in running.output(), "the child")
        running.send_signal(signal.SIGKILL)
        # The child goes on; slots and zygote must not.
        wait_until(lambda: len(running.processes()) == 1, "only the forked child to be left", 5)


def test_a_child_forked_in_a_task_changes_nothing() -> None:
    done = run_script(
        BUSY
        + textwrap.dedent(
            """
            @pl.remote
            def fork_and_return(how):
                pid = os.fork()
                if pid == 0:
                    if how == "return":
                        return "child"
                    os._exit(0)
                os.waitpid(pid, 0)
                return "parent"

            print(fork_and_return("exit"), fork_and_return("return"), fork_and_return.map(["return"] * 5))
            """
        )
    ).ok()
    assert "parent parent ['parent', 'parent', 'parent', 'parent', 'parent']" in done.stdout
    assert_nothing_left(done)


def test_nothing_of_ours_is_among_the_users_children() -> None:
    """Not as a child that lives, not as one that died, not as a signal; and the user's own are as ever."""
    done = run_script(
        """
        import os, signal, subprocess, time
        heard = []
        signal.signal(signal.SIGCHLD, lambda *_: heard.append("child"))
        import paceline as pl

        def no_children():
            try:
                return os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return "no children"

        with pl.connect(cpus=2):
            parent = pl.remote(os.getppid)
            zygote = parent()
            print("while it runs:", no_children())
            os.kill(zygote, signal.SIGKILL)
            while parent() == zygote:  # its slots live a moment longer
                time.sleep(0.001)
            print("after a death:", no_children())
            own = os.posix_spawnp("true", ["true"], os.environ)
            print("own child:", os.waitpid(-1, 0) == (own, 0))
            del heard[:]
        print("at the end:", no_children(), heard)
        """
    ).ok()
    lines = [
        "while it runs: no children",
        "after a death: no children",
        "own child: True",
        "at the end: no children []",
    ]
    assert done.stdout.splitlines() == lines, done.transcript()
    assert_nothing_left(done)


def test_a_client_that_inherits_orphans_keeps_none_of_ours() -> None:
    """As the first process of a container does. There the zygote is its child after all, and taken off the list."""
    done = run_script(
        """
        import ctypes, os, signal, time
        PR_SET_CHILD_SUBREAPER = 36
        assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
        import paceline as pl
        with pl.connect(cpus=1):
            parent = pl.remote(os.getppid)
            os.kill(zygote := parent(), signal.SIGKILL)
            while parent() == zygote:  # its slots live a moment longer
                time.sleep(0.001)
        try:
            print(os.waitpid(-1, os.WNOHANG))
        except ChildProcessError:
            print("no children")
        """
    ).ok()
    assert done.stdout == "no children\n"
    assert_nothing_left(done)


def test_a_child_that_no_handler_saw_forked_does_not_keep_slots_alive() -> None:
    """It still has the link to the zygote open, so only the death of the client itself tells."""
    script = BUSY + textwrap.dedent(
        """
        import ctypes
        SYS_fork = {"x86_64": 57}.get(os.uname().machine)
        if SYS_fork is None:
            print("forked", flush=True)
        else:
            if ctypes.CDLL(None).syscall(SYS_fork) == 0:
                ctypes.CDLL(None).sleep(20)
                os._exit(0)
            print("forked", flush=True)
        nap(30)
        """
    )
    with start_script(script) as running:
        wait_until(lambda: "forked" in running.output(), "the child")
        running.send_signal(signal.SIGKILL)
        wait_until(lambda: len(running.processes()) <= 1, "only the forked child to be left", 5)


def test_thread_that_outlives_the_exit_opens_no_other_cluster() -> None:
    """Nobody would close it, and what is on the cluster that has ended would seem not to exist."""
    done = run_script(
        """
        import atexit, threading, time

        # Registered before the cluster is opened, so it runs after that has been closed.
        atexit.register(time.sleep, 1)
        import paceline as pl

        pl.connect(cpus=1)

        def go_on():
            while True:
                try:
                    pl.map(abs, [-1])
                except Exception as error:
                    print(f"{type(error).__name__}: {error}", flush=True)
                    time.sleep(0.05)

        threading.Thread(target=go_on, daemon=True).start()
        time.sleep(0.3)
        """
    )
    assert "ClusterClosed: the cluster is closed: the program is ending" in done.stdout, done.transcript()
    assert_nothing_left(done)

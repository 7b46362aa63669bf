"""Ctrl-C, Ctrl-Z and the end of the terminal, each in a real one, and what every way to end leaves behind: nothing."""

from __future__ import annotations

import os
import re
import signal
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import (
    CTRL_C,
    CTRL_Z,
    Running,
    Terminal,
    assert_nothing_left,
    in_terminal,
    leftovers,
    shell_in_terminal,
    start_script,
    wait_until,
)
from support import processes as proc

START = textwrap.dedent(
    """
    import hashlib, os, signal, sys, tempfile, time
    import paceline as pl

    cluster = pl.connect(cpus=2)

    @pl.remote
    def nap(seconds):
        time.sleep(seconds)
        return seconds

    @pl.remote
    def note(name, seconds):
        # Says that it runs, and how it ended.
        path = os.path.join(os.getcwd(), name)
        with open(path, "a") as file:
            file.write(f"began {time.monotonic()}\\n")
        try:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                time.sleep(0.01)
        except BaseException as error:
            with open(path, "a") as file:
                file.write(f"{type(error).__name__} {time.monotonic()}\\n")
            raise
        return seconds

    @pl.remote
    def deaf(name):
        # C code that looks for no signal until it is over.
        open(os.path.join(os.getcwd(), name), "w").close()
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", 200_000_000)

    nap(0)
    print("ready", flush=True)
    """
)


def shows(running: Running, text: str, timeout: float = 15.0) -> None:
    wait_until(lambda: text in running.output(), f"{text!r} to be shown", timeout, running.output)


def exists(running: Running, *names: str) -> None:
    wait_until(lambda: all((running.run.directory / name).exists() for name in names), f"{names} to run")


@pytest.fixture
def terminals() -> Iterator[Callable[[str], Terminal]]:
    """Starts scripts in terminals, and ends what is left of them."""
    started: list[Terminal] = []

    def start(text: str) -> Terminal:
        started.append(in_terminal(START + textwrap.dedent(text)))
        return started[-1]

    yield start
    for terminal in started:
        terminal.__exit__(None, None, None)


class TestCtrlC:
    def test_once(self, terminals: Callable[[str], Terminal]) -> None:
        """The call ends, its tasks hear of it, and the next call works. Slots get nothing from the terminal itself."""
        terminal = terminals(
            """
            try:
                note.starmap([("a", 60), ("b", 60)], chunksize=1)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            print("next", nap(0.01), flush=True)
            """
        )
        exists(terminal, "a", "b")
        terminal.type(CTRL_C)
        done = terminal.wait(20).ok()
        assert "interrupted" in done.stdout
        assert "next 0.01" in done.stdout
        assert "Traceback" not in done.stdout
        for name in ("a", "b"):
            words = re.findall(r"^\w+", (done.run.directory / name).read_text(), re.M)
            assert words == ["began", "KeyboardInterrupt"], "once, and from the client alone"
        assert_only_ours(done.run.directory, "a", "b")

    def test_once_kills_after_two_seconds_what_does_not_listen(self, terminals: Callable[[str], Terminal]) -> None:
        terminal = terminals(DEAF_THEN_NEXT)
        exists(terminal, "a", "b")
        terminal.type(CTRL_C)
        took = seconds_until_next(terminal)
        assert 1.5 < took < 4, took

    def test_twice_kills_at_once(self, terminals: Callable[[str], Terminal]) -> None:
        terminal = terminals(DEAF_THEN_NEXT)
        exists(terminal, "a", "b")
        terminal.type(CTRL_C)
        shows(terminal, "interrupted 1")
        terminal.type(CTRL_C)
        took = seconds_until_next(terminal)
        assert took < 1.2, took

    def test_twice_as_the_program_ends(self, terminals: Callable[[str], Terminal]) -> None:
        """Nobody catches it: the second comes while the cluster is being closed, and nothing is said about that."""
        terminal = terminals("deaf.map(['a', 'b'], chunksize=1)")
        exists(terminal, "a", "b")
        terminal.type(CTRL_C)
        shows(terminal, "KeyboardInterrupt")
        terminal.type(CTRL_C)
        done = terminal.wait(5)
        assert done.returncode in (-signal.SIGINT, 130, 1)
        assert "atexit" not in done.stdout

    def test_slots_are_out_of_reach_of_the_terminal(self, terminals: Callable[[str], Terminal]) -> None:
        """Every process of ours but the client is in a group of its own, none of them the terminal's."""
        terminal = terminals("note('a', 60)")
        exists(terminal, "a")
        client = terminal.process.pid
        others = [one.pid for one in terminal.processes() if one.pid != client]
        assert len(others) >= 3, "a zygote and two slots"
        groups = [os.getpgid(pid) for pid in others]
        assert os.getpgid(client) not in groups
        assert len(set(groups)) == len(groups)
        terminal.type(CTRL_C)
        terminal.wait(10)


EXECUTOR = """
    executor = pl.Executor(2)

    def begin(work, *names):
        return [executor.submit(work.original, *name) for name in names]

    def interrupted(way):
        began = time.monotonic()
        try:
            way()
        except KeyboardInterrupt:
            print(f"raised {time.monotonic() - began:.2f}", flush=True)
        else:
            print("not raised", flush=True)

    def block(work, *names):
        with executor:
            begin(work, *names)[0].result()

    def iterate(work, *names):
        list(executor.map(work.original, *zip(*names)))

    def shut(work, *names):
        begin(work, *names)
        while not all(os.path.exists(name[0]) for name in names):
            time.sleep(0.01)
        print("shutting down", flush=True)
        executor.shutdown(wait=True)
"""


def waits(terminal: Terminal, way: str) -> None:
    """Its calls run, and the program waits for them."""
    exists(terminal, "a", "b")
    if way == "shut":
        shows(terminal, "shutting down")
        time.sleep(0.1)


@pytest.mark.parametrize("way", ["block", "iterate", "shut"])
class TestCtrlCWithAnExecutor:
    """EX-5."""

    def test_once_ends_its_calls(self, terminals: Callable[[str], Terminal], way: str) -> None:
        terminal = terminals(textwrap.dedent(EXECUTOR) + f"interrupted(lambda: {way}(note, ('a', 60), ('b', 60)))")
        waits(terminal, way)
        began = time.monotonic()
        terminal.type(CTRL_C)
        done = terminal.wait(20).ok()
        assert time.monotonic() - began < 2
        assert "raised" in done.stdout
        assert "not raised" not in done.stdout
        assert "Traceback" not in done.stdout
        for name in ("a", "b"):
            words = re.findall(r"^\w+", (done.run.directory / name).read_text(), re.M)
            assert words == ["began", "KeyboardInterrupt"]

    def test_once_kills_after_two_seconds_what_does_not_listen(
        self, terminals: Callable[[str], Terminal], way: str
    ) -> None:
        terminal = terminals(textwrap.dedent(EXECUTOR) + f"interrupted(lambda: {way}(deaf, ('a',), ('b',)))")
        waits(terminal, way)
        began = time.monotonic()
        terminal.type(CTRL_C)
        done = terminal.wait(20).ok()
        assert 1.5 < time.monotonic() - began < 4
        assert "not raised" not in done.stdout

    def test_twice_kills_at_once(self, terminals: Callable[[str], Terminal], way: str) -> None:
        terminal = terminals(
            textwrap.dedent(EXECUTOR)
            + f"interrupted(lambda: {way}(deaf, ('a',), ('b',)))\ninterrupted(executor.shutdown)"
        )
        waits(terminal, way)
        began = time.monotonic()
        terminal.type(CTRL_C)
        time.sleep(0.4)
        terminal.type(CTRL_C)
        terminal.wait(20).ok()
        assert time.monotonic() - began < 1.6

    def test_nobody_catches_it(self, terminals: Callable[[str], Terminal], way: str) -> None:
        terminal = terminals(textwrap.dedent(EXECUTOR) + f"{way}(note, ('a', 60), ('b', 60))")
        waits(terminal, way)
        began = time.monotonic()
        terminal.type(CTRL_C)
        done = terminal.wait(20)
        assert time.monotonic() - began < 3
        assert done.returncode in (-signal.SIGINT, 130, 1)
        assert "KeyboardInterrupt" in done.stdout


def test_ctrl_c_at_the_result_of_an_executor_that_nobody_shuts_down(terminals: Callable[[str], Terminal]) -> None:
    """EX-5: the program ends by it, and does not wait for what was submitted."""
    terminal = terminals(textwrap.dedent(EXECUTOR) + "begin(note, ('a', 60), ('b', 60))[0].result()")
    exists(terminal, "a", "b")
    began = time.monotonic()
    terminal.type(CTRL_C)
    done = terminal.wait(20)
    assert time.monotonic() - began < 3
    assert done.returncode in (-signal.SIGINT, 130, 1)


def test_executor_goes_on_after_a_map_that_was_interrupted(terminals: Callable[[str], Terminal]) -> None:
    """PL-8: a slot that had to be ended for that does not break it."""
    terminal = terminals(
        textwrap.dedent(EXECUTOR)
        + "interrupted(lambda: iterate(deaf, ('a',), ('b',)))\nprint('next', executor.submit(abs, -1).result())"
    )
    exists(terminal, "a", "b")
    terminal.type(CTRL_C)
    done = terminal.wait(20).ok()
    assert "next 1" in done.stdout


DEAF_THEN_NEXT = """
    interrupts = 0
    futures = None
    while True:
        try:
            if futures is None:
                futures = True
                deaf.map(["a", "b"], chunksize=1)
            # Both slots are taken by what does not listen.
            nap(0)
            print("next", flush=True)
            break
        except KeyboardInterrupt:
            interrupts += 1
            print("interrupted", interrupts, flush=True)
    """


def seconds_until_next(terminal: Terminal) -> float:
    began = time.monotonic()
    shows(terminal, "next")
    took = time.monotonic() - began
    terminal.wait(10).ok()
    return took


def assert_only_ours(directory: Path, *names: str) -> None:
    """No core file, no log: the script's directory has what the script put there."""
    assert sorted(path.name for path in directory.iterdir()) == sorted([*names, "script.py", "tmp"])


# How a program may end. Each gets it as it runs a map, and says whether the client must be gone by that.


def end_normally(running: Running) -> None:
    (running.run.directory / "leave").touch()


def kill(running: Running) -> None:
    running.send_signal(signal.SIGKILL)


def ctrl_c(running: Running) -> None:
    assert isinstance(running, Terminal)
    running.type(CTRL_C)


def ctrl_c_twice(running: Running) -> None:
    assert isinstance(running, Terminal)
    running.type(CTRL_C)
    running.type(CTRL_C)


def hang_up(running: Running) -> None:
    assert isinstance(running, Terminal)
    running.hang_up()


WORKING = """
    # A map in another thread keeps all slots at work while this one waits to be told.
    import threading
    threading.Thread(target=lambda: note.starmap([(f"n{i}", 60) for i in range(8)], chunksize=1), daemon=True).start()
    while not os.path.exists("leave"):
        time.sleep(0.01)
    """
MAP = "note.starmap([(f'n{i}', 60) for i in range(8)], chunksize=1)"
FORKING = (
    """
    if os.fork() == 0:
        # The end of the leader of a terminal's session is told to all of it.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        open("child", "w").write(str(os.getpid()))
        time.sleep(60)
        os._exit(0)
    """
    + f"\n    {MAP}\n"
)

WAYS: dict[str, tuple[str, Callable[[Running], None]]] = {
    "normal exit": (WORKING, end_normally),
    "kill -9": (MAP, kill),
    "kill -9 with a forked child alive": (FORKING, kill),
    "Ctrl-C": (MAP, ctrl_c),
    "Ctrl-C twice": (MAP, ctrl_c_twice),
    "terminal closed": (MAP, hang_up),
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_left(terminals: Callable[[str], Terminal], way: str) -> None:
    """No process, socket, shared memory, memory file or temporary file, within two seconds of the end."""
    script, end = WAYS[way]
    shared_memory = set(os.listdir("/dev/shm"))
    terminal = terminals(script)
    wait_until(lambda: len(list(terminal.run.directory.glob("n*"))) >= 2, "two tasks to run", 15, terminal.output)
    pids = [one.pid for one in terminal.processes()]
    assert len(pids) >= 4, "client, zygote and two slots"
    assert any(proc.memfds(pid) for pid in pids), "there is something to leave behind"
    end(terminal)
    done = terminal.wait(10)
    child = done.run.directory / "child"
    if child.exists():
        alone = int(child.read_text())
        wait_until(lambda: [one.pid for one in terminal.processes()] == [alone], "only the forked child to be left", 2)
        assert proc.memfds(alone) == [], "it holds nothing of the cluster"
        assert [target for target in proc.descriptors(alone) if target.startswith("socket:")] == []
        os.kill(alone, signal.SIGKILL)
    wait_until(lambda: not leftovers(done), "everything to be gone", 2, lambda: leftovers(done))
    assert_nothing_left(done)
    new = {name for name in os.listdir("/dev/shm") if "sem." not in name} - shared_memory
    assert not [name for name in new if "paceline" in name]


class TestStopped:
    """A client that stands still: by Ctrl-Z in a shell, or by SIGSTOP. Slots go on, and nothing is lost or given up."""

    SCRIPT = START + textwrap.dedent(
        """
        @pl.remote
        def where(seconds):
            time.sleep(seconds)
            return pl.current().slot

        limited = note.options(timeout=STANDS + 4, retries=0)
        futures = [limited.submit(f"f{i}", 0.5) for i in range(6)]
        print("submitted", flush=True)
        values = note.starmap([(f"m{i}", 0.2) for i in range(40)], chunksize=1)
        print("map", len(values), set(values), flush=True)
        print("futures", [future.result() for future in futures], flush=True)
        # Slots are numbered as they are forked: one for each CPU, and a spare.
        print("slots died:", max(0, max(where.map([0.01] * 8, chunksize=1)) - 3), flush=True)
        """
    )

    def assert_all_there(self, running: Running) -> None:
        shows(running, "slots died:", 30)
        text = running.output()
        assert "map 40 {0.2}" in text
        assert "futures [0.5, 0.5, 0.5, 0.5, 0.5, 0.5]" in text
        assert "slots died: 0" in text
        runs = [(running.run.directory / f"m{index}").read_text().count("began") for index in range(40)]
        assert runs == [1] * 40, "each ran once"

    @pytest.mark.slow
    def test_ctrl_z_and_fg(self) -> None:
        with shell_in_terminal(self.SCRIPT.replace("STANDS", "3")) as shell:
            shell.type('"$PYTHON" script.py\n')
            shows(shell, "submitted")
            exists(shell, "m0")
            [client] = [one for one in shell.processes() if "script.py" in one.command and one.parent == shell.pid]
            shell.type(CTRL_Z)
            shows(shell, "Stopped")
            wait_until(lambda: state_of(client.pid) == "T", "the client to stand still")
            others = [one for one in shell.processes() if one.pid not in (client.pid, shell.pid)]
            assert len(others) >= 3
            assert "T" not in {one.state for one in others}, "slots go on"
            # Longer than a heartbeat, so that deadlines have to move.
            stand_still(client.pid, 3)
            shell.type("fg\n")
            self.assert_all_there(shell)
            shell.type("exit\n")
            assert_nothing_left(shell.wait(10))

    @pytest.mark.parametrize("seconds", [3, pytest.param(20, marks=pytest.mark.nightly)], ids=["for 3 s", "for 20 s"])
    @pytest.mark.slow
    def test_sigstop(self, seconds: int) -> None:
        with start_script(self.SCRIPT.replace("STANDS", str(seconds))) as running:
            shows(running, "submitted")
            exists(running, "m0")
            running.send_signal(signal.SIGSTOP)
            stand_still(running.pid, seconds)
            running.send_signal(signal.SIGCONT)
            self.assert_all_there(running)
            assert_nothing_left(running.wait(10).ok())

    def test_a_timeout_is_the_slots_own_time(self) -> None:
        """A task that runs too long is ended while its client stands still; one that does not is not."""
        script = START + textwrap.dedent(
            """
            late, early = note.options(timeout=0.5).submit("late", 60), note.options(timeout=60).submit("early", 1)
            print("submitted", flush=True)
            print(type(late.exception()).__name__, early.result(), flush=True)
            """
        )
        with start_script(script) as running:
            exists(running, "late", "early")
            running.send_signal(signal.SIGSTOP)
            late = running.run.directory / "late"
            wait_until(lambda: "KeyboardInterrupt" in late.read_text(), "the task to be told in time", 3)
            began, ended = (float(word) for word in re.findall(r"[\d.]+", late.read_text()))
            assert 0.4 < ended - began < 1.5
            stand_still(running.pid, 3)
            running.send_signal(signal.SIGCONT)
            shows(running, "TaskTimeout 1")
            running.wait(10).ok()


def state_of(pid: int) -> str:
    found = proc.process(pid)
    return found.state if found else ""


def stand_still(pid: int, seconds: float) -> None:
    """Let it be stopped for so long. Time itself is what is waited for here."""
    wait_until(lambda: state_of(pid) == "T", "it to stand still")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert state_of(pid) == "T"
        time.sleep(0.05)

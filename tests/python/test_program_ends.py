"""How programs end that something could hold: a callback that does not return, a connected sub-interpreter."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import pytest

from support import assert_nothing_left, run_script, start_script, wait_until
from support.scripts import Running

CALLBACKS = """
import os, signal, sys, threading, time
import paceline as pl

def interrupted(number, frame):
    print("interrupted", flush=True)
    raise KeyboardInterrupt

signal.signal(signal.SIGINT, interrupted)
begun = threading.Event()

def callback(future):
    begun.set()
    wait("enough")

def wait(path):
    until = time.monotonic() + 60
    while not os.path.exists(path) and time.monotonic() < until:
        time.sleep(0.005)

cluster = pl.connect(cpus=1)
same = pl.remote(abs)
# It has not ended when it is asked to call back: else it would do so here.
first = pl.remote(wait).submit("asked")
first.add_done_callback(callback)
open("asked", "x").close()
begun.wait()
second = same.submit(-2)
second.add_done_callback(lambda future: print("the second", flush=True))
second.result()
END
"""

ENDS = {"exit": "", "shutdown": "pl.shutdown()", "with": "with cluster: pass"}


@pytest.fixture(params=ENDS.values(), ids=ENDS.keys())
def ending(request: pytest.FixtureRequest) -> Iterator[Running]:
    """A program whose cluster has ended, and which waits for a callback."""
    with start_script(CALLBACKS.replace("END", request.param)) as running:
        # The first of its processes is itself.
        wait_until(lambda: len(running.processes()) > 1, "the cluster", 30, running.errors)
        wait_until(lambda: len(running.processes()) == 1, "the end of the cluster", 30, running.errors)
        yield running


def interrupt(running: Running, times: int) -> None:
    running.send_signal(signal.SIGINT)
    wait_until(lambda: running.output().count("interrupted") == times, f"Ctrl-C {times}", 5, running.errors)


def enough(running: Running) -> None:
    (running.run.directory / "enough").touch()


def test_end_waits_for_callbacks_and_those_that_are_queued(ending: Running) -> None:
    enough(ending)
    assert ending.wait().ok().stdout == "the second\n"


def test_first_ctrl_c_ends_the_callbacks_that_are_queued(ending: Running) -> None:
    interrupt(ending, 1)
    assert ending.process.poll() is None, "one runs"
    enough(ending)
    done = ending.wait()
    assert done.stdout == "interrupted\n"
    assert done.returncode in (0, -signal.SIGINT), done


def test_second_ctrl_c_leaves_a_callback_behind_that_does_not_return(ending: Running) -> None:
    interrupt(ending, 1)
    interrupt(ending, 2)
    done = ending.wait(10)
    assert done.stdout == "interrupted\n" * 2
    assert done.returncode in (0, -signal.SIGINT), done
    assert "Fatal Python error" not in done.stderr, done


INTERPRETERS = """
import sys
try:
    import _interpreters as interpreters
    made, run = interpreters.create("legacy"), interpreters.exec
except ImportError:
    import _xxsubinterpreters as interpreters
    made, run = interpreters.create(isolated=False), interpreters.run_string

run(made, '''
import atexit, os, threading, time
import paceline as pl
pl.connect(cpus=1)
same = pl.remote(abs)
print(same(-2), flush=True)
BODY
''')
sys.exit(7)
"""

BODIES = {
    "nothing": "",
    "a callback that does not return": """
begun = threading.Event()
def callback(future):
    begun.set()
    time.sleep(1e6)
def wait():
    while not os.path.exists("asked"):
        time.sleep(0.005)
future = pl.remote(wait).submit()
future.add_done_callback(callback)
open("asked", "x").close()
begun.wait()
""",
    "a task that runs": "running = pl.remote(time.sleep).submit(60)",
    "a call when it ends": "atexit.register(lambda: same(-3) == 3 or os._exit(9))",
    "a reference to an object": "kept = pl.put(bytes(1 << 20))",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_program_with_a_connected_sub_interpreter_ends_with_its_own_exit_code(body: str) -> None:
    done = run_script(INTERPRETERS.replace("BODY", body))
    assert done.returncode == 7, done
    assert done.stdout == "2\n"
    assert "Fatal Python error" not in done.stderr, done
    assert_nothing_left(done.run)


def test_program_ends_though_its_sub_interpreter_is_ended_by_the_interpreter() -> None:
    # Before 3.13, whatever lets other threads run in a sub-interpreter then ends the main thread, and so the program.
    body = "atexit.register(time.sleep, 0.1)"
    done = run_script(INTERPRETERS.replace("BODY", body))
    assert done.returncode == (7 if sys.version_info >= (3, 13) else 0), done
    assert_nothing_left(done.run)

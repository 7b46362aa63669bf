"""Daemon threads that are inside a call of ours when the program ends: it ends as it would without them."""

from __future__ import annotations

import pytest

from support import run_script

PRELUDE = """
import os, signal, sys, threading, time
import paceline as pl

pl.connect(cpus=2)
same = pl.remote(lambda item: item)
slow = pl.remote(lambda: time.sleep(60))


class Actor:
    def slow(self):
        time.sleep(60)


actor = pl.remote(Actor).options(cpus=0)()


def busy():
    for _ in range(2000):
        sum(range(100))
    return 1


class Slow:
    def __reduce__(self):
        return (busy, ()) if busy() else None


def items():
    while True:
        yield busy()


def work():
    begun.wait()
    while True:
        WORK


begun = threading.Barrier(9)
for _ in range(8):
    threading.Thread(target=work, daemon=True).start()
begun.wait()
time.sleep(0.2)
END
"""

WORK = {
    "waits for a result": "slow.submit().result()",
    "waits for an actor": "actor.slow()",
    "waits for futures": "pl.wait([slow.submit()])",
    "waits for a map": "slow.starmap([()] * 4)",
    "makes the items of a map": "same.map(items(), chunksize=10)",
    "makes the items of an imap": "list(same.imap(items()))",
    "pickles an argument": "same.submit(Slow())",
    "pickles an object": "pl.put(Slow())",
    "unpickles a result": "same.submit(1).result(); pl.get(pl.put(1)); pl.remote(Slow)()",
}


@pytest.mark.timeout(120)
@pytest.mark.slow
@pytest.mark.parametrize("work", WORK.values(), ids=WORK.keys())
def test_a_program_with_daemon_threads_in_calls_ends_with_its_own_exit_code(work: str) -> None:
    script = PRELUDE.replace("WORK", work)
    for _ in range(3):
        done = run_script(script.replace("END", "sys.exit(7)"))
        assert done.returncode == 7, done
        assert "Fatal Python error" not in done.stderr, done
        assert "FATAL" not in done.stderr, done


@pytest.mark.timeout(120)
@pytest.mark.slow
@pytest.mark.parametrize("work", WORK.values(), ids=WORK.keys())
def test_an_interrupted_program_with_daemon_threads_in_calls_is_not_aborted(work: str) -> None:
    script = PRELUDE.replace("WORK", work)
    for _ in range(3):
        done = run_script(script.replace("END", "os.kill(os.getpid(), signal.SIGINT); time.sleep(30)"))
        # 1: another thread was about to run a text when Ctrl-C came, and the interpreter forgot what it was.
        assert done.returncode in (-2, 130, 1), done
        assert "Fatal Python error" not in done.stderr, done
        assert "FATAL" not in done.stderr, done

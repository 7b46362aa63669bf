"""Several programs want more than there is: each gets its share, and nobody waits behind another's queue."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

import paceline as pl
from support import wait_until

ONE = """
import json, os, sys, time
import paceline as pl

@pl.remote
def five(x):
    time.sleep(0.005)
    return x

def until(path):
    end = time.monotonic() + 60
    while not os.path.exists(path):
        assert time.monotonic() < end, path
        time.sleep(0.001)

def say(**words):
    print(json.dumps(words), flush=True)
"""


class Program:
    """A client in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        assert process.stdout is not None
        self.output: IO[str] = process.stdout

    def hear(self) -> dict[str, Any]:
        line = self.output.readline()
        assert line, f"it ended: {self.process.wait(10)}"
        words = json.loads(line)
        assert isinstance(words, dict)
        return words


@contextmanager
def program(cluster: pl.LocalCluster, body: str, *arguments: object) -> Iterator[Program]:
    key = f"{cluster._home.name}/clusters/{cluster.head.name}/key" if cluster._home else ""
    code = ONE + textwrap.dedent(body)
    command = [sys.executable, "-c", code, cluster.address, key, *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield Program(process)
    finally:
        process.kill()
        process.wait(20)
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[pl.LocalCluster]:
    with pl.local_cluster(nodes=2, cpus=2) as cluster:
        yield cluster


THOUSAND = """
    address, key, ready, go = sys.argv[1:]
    with pl.connect(address, key_file=key):
        five(0)
        open(ready, "w").close()
        until(go)
        start = time.monotonic()
        futures = [five.submit(n) for n in range(1000)]
        assert [future.result(120) for future in futures] == list(range(1000))
        say(took=time.monotonic() - start, ended=time.monotonic())
"""


def test_two_programs_with_a_thousand_tasks_each_end_together(cluster: pl.LocalCluster, tmp_path: Path) -> None:
    go, ready = tmp_path / "go", [tmp_path / "one", tmp_path / "two"]
    with program(cluster, THOUSAND, ready[0], go) as one, program(cluster, THOUSAND, ready[1], go) as two:
        wait_until(lambda: all(path.exists() for path in ready), "both are connected")
        go.touch()
        took = sorted(each.hear()["took"] for each in (one, two))
    assert took[1] <= 1.1 * took[0], f"within a tenth of each other: {took}"


MILLION = """
    address, key = sys.argv[1:]
    with pl.connect(address, key_file=key):
        results = five.imap(range(1_000_000), chunksize=20)
        for count, _ in enumerate(results):
            if count % 100 == 0:
                say(count=count)
"""

SINGLE = """
    address, key = sys.argv[1:]
    with pl.connect(address, key_file=key):
        for _ in range(5):
            start = time.monotonic()
            assert five(7) == 7
            say(took=time.monotonic() - start)
            time.sleep(0.3)
"""


def test_one_task_does_not_wait_behind_a_million_of_another_program(cluster: pl.LocalCluster) -> None:
    with program(cluster, MILLION) as busy:
        for _ in range(3):
            busy.hear()
        with program(cluster, SINGLE) as other:
            took = [other.hear()["took"] for _ in range(5)]
        assert max(took) < 1, f"each is answered soon: {took}"
        before = busy.hear()["count"]
        while busy.hear()["count"] < before + 300:
            pass  # the other goes on as before


WEIGHED = """
    address, key, weight, ready, go = sys.argv[1:]
    with pl.connect(address, key_file=key, weight=int(weight), name=f"weight {weight}"):
        five(0)
        open(ready, "w").close()
        until(go)
        results = five.imap(range(1_000_000), chunksize=1)
        next(results)
        start, count = time.monotonic(), 0
        while time.monotonic() < start + 4:
            next(results)
            count += 1
        say(count=count)
        until(go + ".end")
"""


def test_a_program_of_weight_two_gets_twice_as_much(tmp_path: Path) -> None:
    with pl.local_cluster(nodes=1, cpus=6) as cluster:
        go, ready = tmp_path / "go", [tmp_path / "one", tmp_path / "two"]
        with (
            program(cluster, WEIGHED, 1, ready[0], go) as one,
            program(cluster, WEIGHED, 2, ready[1], go) as two,
        ):
            wait_until(lambda: all(path.exists() for path in ready), "both are connected")
            go.touch()
            light, heavy = one.hear()["count"], two.hear()["count"]
            Path(f"{go}.end").touch()
    assert 1.6 < heavy / light < 2.5, f"about twice: {light} and {heavy}"

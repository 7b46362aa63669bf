"""`xparl`, `Master` and `Worker`: clusters for remote classes, by command and from Python."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import paceline.compat.parl as parl
from paceline.compat.parl.remote import client
from paceline.compat.parl.remote.master import Master
from paceline.compat.parl.remote.worker import Worker
from paceline.compat.parl.utils import get_free_tcp_port
from support import wait_until
from support.daemons import Commands, Told
from support.processes import MARKER


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    """A home of its own with four pretended GPUs, and nothing left of what was started in it."""
    commands = Commands(tmp_path / "home")
    monkeypatch.setenv("PACELINE_HOME", str(commands.home))
    monkeypatch.setenv("PACELINE_FAKE_GPUS", "4x16GB")
    monkeypatch.setenv(MARKER, commands.marker)
    yield commands
    client.disconnect()
    commands.end()


def xparl(home: Commands, *arguments: str) -> Told:
    done = subprocess.run(
        [sys.executable, "-m", "paceline.compat.parl", *arguments],
        env=home.environment(PACELINE_FAKE_GPUS="4x16GB"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )
    return Told(done.returncode, done.stdout, done.stderr)


@pytest.mark.slow
def test_status_names_a_cluster_that_does_not_answer(home: Commands) -> None:
    port = get_free_tcp_port()
    xparl(home, "start", "--port", str(port), "--cpu_num", "1").ok()
    head = home.status()["cluster"]["pid"]
    os.kill(head, signal.SIGSTOP)
    try:
        told = xparl(home, "status").ok().out
    finally:
        os.kill(head, signal.SIGCONT)
    assert f"Can not connect to cluster localhost:{port}, please try later." in told


def test_start_status_connect_stop(home: Commands) -> None:
    assert xparl(home, "status").ok().out == "No active cluster is found.\n"
    port = get_free_tcp_port()
    told = xparl(home, "start", "--port", str(port), "--cpu_num", "3").ok().out
    assert f"# The Parl cluster is started at localhost:{port}." in told
    assert "# A local worker with 3 CPUs is connected to the cluster." in told
    assert f"connect --address localhost:{port}" in told
    line = f"# Cluster localhost:{port} has 0 used cpus, 3 vacant cpus, 0 used_gpus, 0 vacant_gpus."
    assert line in xparl(home, "status").ok().out
    xparl(home, "connect", "--address", f"localhost:{port}", "--cpu_num", "2").ok()
    assert "5 vacant cpus" in xparl(home, "status").ok().out
    again = xparl(home, "start", "--port", str(port))
    assert again.code == 1
    assert f"The master address localhost:{port} is already in use." in again.err
    xparl(home, "stop").ok()
    home.assert_nothing_left()
    xparl(home, "stop").ok()


def test_a_cluster_of_gpus(home: Commands) -> None:
    port = str(get_free_tcp_port())
    xparl(home, "start", "--port", port, "--gpu_cluster", "--gpu", "0,2").ok()
    assert "0 used_gpus, 2 vacant_gpus" in xparl(home, "status").ok().out
    xparl(home, "connect", "--address", f"localhost:{port}", "--gpu", "3").ok()
    assert "0 vacant cpus, 0 used_gpus, 3 vacant_gpus" in xparl(home, "status").ok().out
    xparl(home, "stop").ok()
    home.assert_nothing_left()


def test_several_clusters_and_only_its_own_are_stopped(home: Commands) -> None:
    other = home.start("--name", "mine", "--no-node")
    ports = sorted(str(get_free_tcp_port()) for _ in range(2))
    for port in ports:
        xparl(home, "start", "--port", port, "--cpu_num", "0").ok()
    told = xparl(home, "status").ok().out
    assert all(f"Cluster localhost:{port} has" in told for port in ports)
    xparl(home, "stop").ok()
    [cluster] = home("status", "--json").ok().json["clusters"]
    assert cluster["cluster"]["address"] == other["address"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["start", "--port", "1", "--log_server_port_range", "8000"], "should be `start-end` format"),
        (["start", "--port", "1", "--log_server_port_range", "9-8"], "must be smaller than the end port"),
        (["start"], "--port"),
        (["connect", "--address", "localhost:1"], "Worker can not connect to the master node"),
    ],
)
def test_wrong_uses(home: Commands, arguments: list[str], words: str) -> None:
    told = xparl(home, *arguments)
    assert told.code != 0
    assert words in told.err


def test_a_master_and_workers_in_python(home: Commands) -> None:
    port = get_free_tcp_port()
    master = Master(port=port)
    assert (master.worker_num, master.cpu_num) == (0, 0)
    workers = [Worker(f"localhost:{port}", cpu_num) for cpu_num in (1, 3)]
    wait_until(lambda: (master.worker_num, master.cpu_num, master.gpu_num) == (2, 4, 0), "both workers")
    workers[0].exit()
    wait_until(lambda: master.worker_num == 1, "the worker to leave")
    master.exit()
    master.run()
    workers[1].run()
    home.assert_nothing_left()


def test_no_master(home: Commands) -> None:
    began = time.monotonic()
    with pytest.raises(Exception, match=r"Client can not connect to the master.*127.0.0.1:1 is correct"):
        parl.connect("127.0.0.1:1")
    with pytest.raises(Exception, match="Worker can not connect to the master node"):
        Worker("localhost:1", 1)
    assert time.monotonic() - began < 10


def test_addresses_and_files_are_checked_first(home: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match=r"{ip}:{port} format"):
        parl.connect("localhost")
    with pytest.raises(AssertionError, match="should be a list"):
        parl.connect("localhost:1", "rom.txt")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"no local file is matched with .rom.txt."):
        parl.connect("localhost:1", ["rom.txt"])
    with pytest.raises(AssertionError, match="absolute path"):
        parl.connect("localhost:1", ["/etc/passwd"])


def test_one_client_in_a_process(home: Commands) -> None:
    with pytest.raises(AssertionError, match="have you connected to the cluster"):
        client.get_global_client()
    port = get_free_tcp_port()
    master = Master(port)
    parl.connect(f"localhost:{port}")
    first = client.get_global_client()
    parl.connect("localhost:1")
    assert client.get_global_client() is first, "another connect is ignored"
    assert first.master_address == f"localhost:{port}"
    client.disconnect()
    client.disconnect()
    with pytest.raises(AssertionError):
        client.get_global_client()
    master.exit()

"""Servers and nodes of distributed-computing: from Python, and by its command."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import paceline as pl
from paceline.compat.distributed_computing import api
from support import wait_until
from support.daemons import Commands
from support.processes import MARKER

START_NODE = "paceline.compat.distributed_computing.start_node"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    """A home of its own with two pretended GPUs, and nothing left of what was started in it."""
    commands = Commands(tmp_path / "home")
    monkeypatch.setenv("PACELINE_HOME", str(commands.home))
    monkeypatch.setenv("PACELINE_FAKE_GPUS", "2x16GB")
    monkeypatch.setenv(MARKER, commands.marker)
    yield commands
    commands.end()


def gpus(home: Commands) -> list[int]:
    return [int(node["total"].get("gpus", 0)) for node in home.status()["nodes"]]


def port_of(home: Commands) -> int:
    return int(home.status()["cluster"]["address"].rpartition(":")[2])


def test_a_head_node_from_python(home: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    assert (api.is_server_running(), api.is_client_running()) == (False, False)
    terminate, wait = api.start_head_node("secret horse", port=0)
    assert (api.is_server_running(), api.is_client_running()) == (True, True)
    assert gpus(home) == [2]
    again = api.start_head_node("secret horse", port=0)
    assert "A server is already running on this machine." in capsys.readouterr().out
    again[0]()
    again[1]()
    assert api.is_server_running(), "the one that was there is left alone"
    terminate()
    wait()
    assert (api.is_server_running(), api.is_client_running()) == (False, False)
    home.assert_nothing_left()


def test_server_and_node_apart(home: Commands, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stop_server, wait_for_server = api.start_server("secret horse", port=0)
    assert (api.is_server_running(), api.is_client_running()) == (True, False)
    stop_node, wait_for_node = api.start_node("secret horse", port=port_of(home), max_gpus=1)
    assert api.is_client_running()
    assert gpus(home) == [1]
    api.start_node("secret horse", port=port_of(home))
    assert "A client is already running on this machine." in capsys.readouterr().out
    stop_node()
    wait_for_node()
    assert not api.is_client_running()
    stop_server()
    wait_for_server()
    home.assert_nothing_left()


def test_another_password_is_refused(home: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminate, wait = api.start_server("secret horse", port=0)
    port = port_of(home)
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(pl.PacelineError, match="password"):
        api.start_node("guess", port=port)
    terminate()
    wait()


def test_the_server_ends_its_nodes(home: Commands) -> None:
    terminate, wait = api.start_server("secret horse", port=0)
    _, wait_for_node = api.start_node("secret horse", port=port_of(home))
    terminate()
    wait()
    wait_for_node()
    home.assert_nothing_left()


def command(home: Commands, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", START_NODE, *arguments],
        env=home.environment(PACELINE_FAKE_GPUS="2x16GB", **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_command(home: Commands) -> None:
    head = command(home, "--head", "--server-only", "--port", "0", "--password", "secret horse")
    assert head.stdout is not None
    lines = [head.stdout.readline().rstrip("\n") for _ in range(5)]
    assert lines[0] == "Starting workers pool server."
    assert lines[1] == lines[4] == "*" * 90
    assert lines[2] == "To start a worker node, type:"
    assert f"{START_NODE} -p {port_of(home)} -a " in lines[3]
    assert "secret horse" not in " ".join(lines)
    node = command(home, "-a", "localhost", "-p", str(port_of(home)), "-m", "1", PACELINE_PASSWORD="secret horse")
    wait_until(lambda: gpus(home) == [1], "the node to be there")
    twice = command(home, "-a", "localhost", "-p", str(port_of(home)), PACELINE_PASSWORD="secret horse")
    assert twice.communicate(timeout=20)[0] == "A client is already running on this machine.\n"
    assert twice.returncode == 0
    head.send_signal(signal.SIGINT)
    assert "can read a password on a command line" in head.communicate(timeout=20)[1]
    assert node.communicate(timeout=20) == ("Starting workers pool client.\n", "")
    home.assert_nothing_left()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-r", "x"], "head or address must be provided"),
        (["-r", "x", "-a", "localhost", "-s"], "server-only is only relevant for head nodes"),
        (["-a", "localhost"], "--password or PACELINE_PASSWORD must be given"),
        (["-a", "localhost", "-r", "x", "-p", "1"], "127.0.0.1:1"),
    ],
)
def test_wrong_uses_of_the_command(home: Commands, arguments: list[str], words: str) -> None:
    _, err = command(home, *arguments).communicate(timeout=20)
    assert words in err

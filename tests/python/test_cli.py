"""The command line: what it says, where it says it, and how it ends."""

from __future__ import annotations

import json
import re
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline._cli import program
from support.daemons import Commands
from support.packages import needs_package

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ["start", "join", "status", "stop", "explain", "doctor", "logs", "token", "config show", "node drain"]


@pytest.fixture
def paceline(tmp_path: Path) -> Iterator[Commands]:
    commands = Commands(tmp_path / "home")
    yield commands
    commands.end()


def test_one_command_starts_a_cluster_and_one_stops_it(paceline: Commands) -> None:
    told = paceline("start", "--port", "0", "--cpus", "1").ok()
    lines = [line.split() for line in told.out.splitlines()]
    assert "cluster default is up" in told.out
    assert any(
        words[0] == "join" and words[1].startswith("PACELINE_TOKEN=pl1-") and words[2:4] == ["paceline", "join"]
        for words in lines
        if len(words) > 4
    )
    assert ["status", "paceline", "status"] in lines
    assert ["stop", "paceline", "stop"] in lines
    assert paceline.nodes() == [paceline.status()["nodes"][0]["name"]]
    assert "cluster default is stopped" in paceline("stop").ok().err
    paceline.assert_nothing_left()


def test_status_is_one_line_a_cluster(paceline: Commands) -> None:
    assert paceline("status").ok().out == "no active cluster\n"
    paceline.start("--cpus", "2")
    [line] = paceline("status").ok().out.splitlines()
    assert line.startswith("default")
    assert "cpus 0 of 2 used" in line
    assert "1 node" in line


def test_a_second_start_says_so_and_succeeds(paceline: Commands) -> None:
    paceline.start("--cpus", "1")
    again = paceline("start", "--port", "0").ok()
    assert "cluster default runs already" in again.err
    assert paceline("start", "--json").ok().json["already"] is True
    assert len(paceline("status", "--json").json["clusters"]) == 1


def test_a_port_in_use_is_named(paceline: Commands) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        began = time.monotonic()
        told = paceline("start", "--port", str(port), "--cpus", "0")
        assert time.monotonic() - began < 5
    assert told.code == 6
    assert f"127.0.0.1:{port} is in use" in told.err
    assert "--port" in told.err
    assert told.out == ""
    paceline.assert_nothing_left()


def test_joining_a_dead_address_fails_within_a_second(paceline: Commands) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    began = time.monotonic()
    told = paceline("join", f"127.0.0.1:{port}", "--cpus", "1")
    # Starting the interpreter that is asked first is not part of it, but close to nothing.
    assert time.monotonic() - began < 2
    assert told.code == 4
    assert f"127.0.0.1:{port}" in told.err
    paceline.assert_nothing_left()


def test_an_address_that_is_none_is_refused_before_anything_else(paceline: Commands) -> None:
    for text in ["nowhere", "host:port", "http://host:7077"]:
        told = paceline("join", text)
        assert told.code == 2
        assert "HOST:PORT" in told.err


def test_two_clusters_are_stopped_one_by_one(paceline: Commands) -> None:
    first = paceline.start("--name", "first", "--cpus", "1")
    second = paceline.start("--name", "second", "--cpus", "1")
    assert first["address"] != second["address"]
    assert [line.split()[0] for line in paceline("status").ok().out.splitlines()] == ["first", "second"]
    told = paceline("logs")
    assert told.code == 3
    assert "first, second" in told.err
    paceline("stop", "--name", "first").ok()
    assert [line.split()[0] for line in paceline("status").ok().out.splitlines()] == ["second"]
    assert paceline("stop", "--name", "first").code == 3
    paceline("stop", "--all").ok()
    paceline.assert_nothing_left()


def test_data_goes_to_stdout_and_the_rest_to_stderr(paceline: Commands) -> None:
    told = paceline("stop", "--name", "none", "--json")
    assert told.code == 3
    assert json.loads(told.out)["code"] == "no-cluster"
    assert told.err.startswith("error: there is no cluster none")
    paceline.start("--cpus", "0")
    assert paceline("status", "--json").ok().err == ""
    assert re.match(r"PACELINE_TOKEN=pl1-[0-9a-f]{48} paceline join 127\.0\.0\.1:", paceline("token").ok().out)
    assert paceline("stop").ok().out == ""


def test_only_the_owner_may_look_after_a_cluster(paceline: Commands, tmp_path: Path) -> None:
    paceline.start("--cpus", "0")
    import os

    if os.getuid() != 0:
        pytest.skip("needs root to be somebody else")
    for path in [tmp_path, *tmp_path.parents]:
        if path != Path("/") and path.stat().st_mode & 0o005 != 0o005 and path.is_relative_to("/tmp"):
            path.chmod(path.stat().st_mode | 0o005)
    done = subprocess.run(
        [program(), "stop"],
        env=paceline.environment(),
        user=65534,
        group=65534,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert paceline.status()["cluster"]["name"] == "default"
    assert "is stopped" not in done.stderr


def test_settings_and_where_they_came_from(paceline: Commands, tmp_path: Path) -> None:
    (tmp_path / "paceline.toml").write_text('port = 7000\nheartbeat = "1s"\nresources = { disk = 2 }\n')
    told = paceline("config", "show", "--json", "--name", "mine", cwd=tmp_path, PACELINE_HEARTBEAT="500ms")
    rows = {row["name"]: (row["value"], row["source"]) for row in told.ok().json["settings"]}
    assert rows["port"] == ("7000", "paceline.toml")
    assert rows["heartbeat"] == ("500ms", "PACELINE_HEARTBEAT")
    assert rows["name"] == ("mine", "--name")
    assert rows["head_lost"] == ("60s", "default")
    assert rows["resources"] == ("disk=2", "paceline.toml")
    text = paceline("config", "show", cwd=tmp_path).ok().out
    assert re.search(r"^port +7000 +paceline.toml", text, re.MULTILINE)


def test_a_wrong_setting_is_named_with_its_source(paceline: Commands, tmp_path: Path) -> None:
    (tmp_path / "paceline.toml").write_text("prot = 7000\n")
    told = paceline("status", cwd=tmp_path)
    assert told.code == 2
    assert "prot" in told.err
    assert "paceline.toml" in told.err
    told = paceline("start", PACELINE_PORT="many")
    assert told.code == 2
    assert "PACELINE_PORT" in told.err
    told = paceline("start", PACELINE_MEMORY_LIMIT="lots")
    assert told.code == 2
    assert "lots" in told.err


def test_memory_limit_of_the_file_bounds_the_node(paceline: Commands, tmp_path: Path) -> None:
    (tmp_path / "paceline.toml").write_text('memory_limit = "300M"\n')
    paceline("start", "--cpus", "1", cwd=tmp_path).ok()
    [node] = paceline.status()["nodes"]
    assert node["total"]["memory"] == 300 * 1000**2 or node["total"]["memory"] == 300 << 20


def test_the_command_line_starts_fast() -> None:
    paths = [program(), str(Path(sys.executable).with_name("paceline"))]
    for path in paths:
        times = []
        for _ in range(7):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([path, "--version"], check=True, capture_output=True, timeout=20)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            # What others do on this machine at the same time is not counted.
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert min(times) < 0.05, times


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(paceline: Commands, tmp_path: Path, shell: str) -> None:
    script = paceline("completion", shell).ok().out
    assert "drain" in script
    assert "--head-lost" in script or "head-lost" in script
    if shell == "bash":
        (tmp_path / "complete").write_text(script)
        check = f"source {tmp_path}/complete; COMP_WORDS=(paceline sta); COMP_CWORD=1; _paceline paceline sta; "
        check += 'echo "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "-c", check], capture_output=True, text=True, timeout=20)
        assert {"start", "status"} <= set(done.stdout.split()), done.stderr


def test_logs_are_shown_rotated_and_cleaned(paceline: Commands) -> None:
    paceline.start("--cpus", "1", "--debug", PACELINE_LOG_SIZE="8k", PACELINE_LOG_FILES="3")
    for _ in range(120):
        paceline("status").ok()
    files = sorted((paceline.home / "clusters/default/logs").glob("*.log"))
    assert len(files) == 3, files
    assert sum(file.stat().st_size for file in files) <= 3 * 8192
    lines = paceline("logs", "head", "-n", "5").ok().out.splitlines()
    assert len(lines) == 5
    assert "gone" in paceline("logs", "--clean").ok().err
    assert sum(file.stat().st_size for file in (paceline.home / "clusters/default/logs").glob("*.log")) < 4096
    told = paceline("logs", "nobody")
    assert told.code == 1
    assert "no node nobody" in told.err


def test_the_switch_for_more_logs(paceline: Commands) -> None:
    paceline.start("--cpus", "0", "--debug")
    paceline("status").ok()
    assert "DEBUG" in paceline("logs").ok().out


def test_another_interpreter_runs_the_slots(paceline: Commands, tmp_path: Path) -> None:
    told = paceline("start", "--port", "0", PACELINE_PYTHON="/no/such/python")
    assert told.code == 1
    assert "/no/such/python cannot be run" in told.err
    assert "PACELINE_PYTHON" in told.err
    paceline.assert_nothing_left()
    log = tmp_path / "used"
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\necho used >> {log}\nexec {sys.executable} "$@"\n')
    script.chmod(0o755)
    paceline.start("--cpus", "1", PACELINE_PYTHON=str(script))
    assert "used" in log.read_text()


def test_doctor_finds_nothing_wrong_here(paceline: Commands) -> None:
    paceline.start("--cpus", "1")
    told = paceline("doctor", "--json").ok()
    assert all(check["ok"] for check in told.json["checks"]), told.out
    assert "python" in paceline("doctor").ok().out


def test_explain_says_that_nothing_waits(paceline: Commands) -> None:
    paceline.start("--cpus", "1")
    assert "nothing waits" in paceline("explain").ok().out
    told = paceline("explain", "nonsense")
    assert told.code == 1
    assert "nonsense" in told.err


def test_every_command_is_in_the_page_as_it_is() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    for command in COMMANDS:
        text = subprocess.run(
            [program(), *command.split(), "--help"], capture_output=True, text=True, timeout=20, check=True
        ).stdout
        for flag in re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", text, re.MULTILINE):
            assert flag in page or flag == "--help", f"docs/cli.md does not tell of paceline {command} {flag}"
    for number in range(1, 8):
        assert f"| {number} |" in page, f"docs/cli.md does not tell of exit code {number}"


def test_help_is_short_and_useful() -> None:
    text = subprocess.run([program(), "--help"], capture_output=True, text=True, timeout=20, check=True).stdout
    assert len(text.splitlines()) < 40
    assert all(f"  {command.split()[0]}" in text for command in COMMANDS)
    assert "daemon" not in text.split("Options")[0]


def test_the_scripts_of_shells_are_valid(paceline: Commands, tmp_path: Path) -> None:
    needs_package("zsh", "zsh")
    script = tmp_path / "_paceline"
    script.write_text(paceline("completion", "zsh").ok().out)
    assert shutil.which("zsh") is not None
    subprocess.run(["zsh", "-n", str(script)], check=True, timeout=20)

"""Heads and nodes as processes: how they come, go, and are killed, and that nothing is left of them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import paceline as pl
from paceline._cli import program
from support.daemons import Commands, abstract_sockets
from support.processes import children_of, process
from support.proxies import Proxy
from support.scripts import start_script
from support.terminal import shell_in_terminal
from support.waiting import wait_until

MEGABYTE = 1 << 20


@pytest.fixture
def paceline(tmp_path: Path) -> Iterator[Commands]:
    commands = Commands(tmp_path / "home")
    yield commands
    commands.end()


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def is_gone(pid: int) -> bool:
    return process(pid) is None


def alive(paceline: Commands) -> list[Any]:
    return [one.pid for one in paceline.processes()]


def test_a_head_without_any_node(paceline: Commands) -> None:
    up = paceline.start("--no-node")
    assert up["node"] is None
    assert paceline.status()["nodes"] == []
    assert children_of(up["pid"]) == []
    paceline("stop").ok()
    up = paceline.start("--cpus", "0")
    assert paceline.status()["nodes"] == []
    paceline("stop").ok()
    paceline.assert_nothing_left()


def test_a_machine_joins_and_leaves_by_one_command_each(paceline: Commands, tmp_path: Path) -> None:
    head = paceline.start("--no-node")
    other = Commands(tmp_path / "other", paceline.marker)
    told = other("join", head["address"], "--token", head["token"], "--cpus", "1", "--node-port", "0").ok()
    assert f"has joined cluster default at {head['address']}" in told.out
    [node] = paceline.status()["nodes"]
    assert (node["state"], node["total"]["cpus"], node["link"]) == ("up", 1, "tcp+tls")
    [line] = other("status").ok().out.splitlines()
    assert head["address"] in line, "the other machine asks the head by the key it has got"
    again = other("join", head["address"], "--cpus", "1").ok()
    assert "runs already" in again.err
    assert "has left cluster default" in other("stop").ok().err
    assert other.files() == []
    assert paceline.status()["nodes"] == []


def test_a_token_is_good_for_one_join(paceline: Commands, tmp_path: Path) -> None:
    head = paceline.start("--no-node")
    first = Commands(tmp_path / "first", paceline.marker)
    second = Commands(tmp_path / "second", paceline.marker)
    first.join(head["address"], "first", "--cpus", "1", "--token", head["token"])
    told = second("join", head["address"], "--node-name", "second", "--token", head["token"], "--cpus", "1")
    assert told.code == 5
    assert "paceline token" in told.err
    assert second.files() == []
    token = paceline("token", "--json").ok().json["token"]
    second.join(head["address"], "second", "--cpus", "1", "--token", token)
    assert sorted(paceline.nodes()) == ["first", "second"], "join returns when the head counts on the node"


def test_nodes_with_another_python_are_refused(paceline: Commands, tmp_path: Path) -> None:
    head = paceline.start("--no-node")
    other = Commands(tmp_path / "other", paceline.marker)
    ours = sys.version_info
    interpreter = tmp_path / "python"

    def pretends_to_be(minor: int, patch: int) -> str:
        told = f's/"python": [[][^]]*[]]/"python": [{ours[0]}, {minor}, {patch}]/'
        interpreter.write_text(f"#!/bin/sh\nexec {sys.executable} \"$@\" | sed '{told}'\n")
        interpreter.chmod(0o755)
        return str(interpreter)

    arguments = ("join", head["address"], "--token", head["token"], "--cpus", "1", "--node-port", "0")
    told = other(*arguments, "--node-name", "old", PACELINE_PYTHON=pretends_to_be(ours[1] + 1, 0))
    assert told.code == 5
    assert f"node old has Python {ours[0]}.{ours[1] + 1}.0" in told.err, "both sides are named"
    assert f"has Python {ours[0]}.{ours[1]}.{ours[2]}" in told.err
    assert "install the same Python" in told.err
    assert other.files() == []
    assert paceline.status()["nodes"] == []


def test_without_or_with_a_wrong_key_nobody_comes_in(paceline: Commands, tmp_path: Path) -> None:
    head = paceline.start("--no-node")
    other = Commands(tmp_path / "other", paceline.marker)
    told = other("join", head["address"], "--cpus", "1")
    assert told.code == 5
    assert head["address"] in told.err
    told = other("join", head["address"], "--cpus", "1", PACELINE_KEY="ab" * 32)
    assert told.code == 5
    assert "key" in told.err
    told = other("status", "--address", head["address"], PACELINE_KEY="ab" * 32)
    assert told.code != 0 or "key" in told.out
    assert paceline.status()["nodes"] == []


def test_a_password_opens_the_cluster(paceline: Commands, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("correct horse\n")
    secret.chmod(0o600)
    head = paceline.start("--no-node", "--password-file", str(secret))
    other = Commands(tmp_path / "other", paceline.marker)
    told = other("join", head["address"], "--cpus", "1", PACELINE_PASSWORD="wrong")
    assert told.code == 5
    [line] = [line for line in paceline("logs", "head").ok().out.splitlines() if "password refused" in line]
    assert "source=127.0.0.1" in line
    assert "failures=1" in line
    other.join(head["address"], "b", "--cpus", "1", "--password-file", str(secret))
    wait_until(lambda: paceline.nodes() == ["b"], "the node")


def test_password_that_is_too_short_is_refused_at_start(paceline: Commands) -> None:
    told = paceline("start", "--port", "0", "--no-node", PACELINE_PASSWORD="seven77")
    assert told.code == 2
    assert "at least 8 characters" in told.err
    paceline.assert_nothing_left()


def test_token_given_as_an_argument_is_not_seen_by_others(paceline: Commands) -> None:
    token = "pl1-" + "5a" * 24
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        for arguments in (["--token", token], [f"--token={token}"]):
            joining = subprocess.Popen(
                [program(), "join", address, *arguments, "--cpus", "1"],
                env=paceline.environment(),
                stderr=subprocess.DEVNULL,
            )
            # It is at the head, so its arguments have been read.
            connection, _ = silent.accept()
            seen = Path(f"/proc/{joining.pid}/cmdline").read_bytes()
            joining.kill()
            joining.wait()
            connection.close()
            while wait_for_more(silent):
                silent.accept()[0].close()
            assert b"join" in seen
            assert token.encode() not in seen
            assert b"5a5a" not in seen


def wait_for_more(listener: socket.socket) -> bool:
    return bool(select.select([listener], [], [], 0)[0])


@pytest.mark.parametrize("by", ["argument", "variable", "standard input"])
def test_token_is_redeemed_and_the_log_says_by_whom(paceline: Commands, tmp_path: Path, by: str) -> None:
    head = paceline.start("--no-node")
    token = head["token"]
    other = Commands(tmp_path / "other", paceline.marker)
    arguments = {"argument": ["--token", token], "variable": [], "standard input": ["--token", "-"]}[by]
    variables = {"PACELINE_TOKEN": token} if by == "variable" else {}
    done = subprocess.run(
        [program(), "join", head["address"], "--node-name", "b", "--node-port", "0", "--cpus", "1", *arguments],
        env=other.environment(**variables),
        input=f"{token}\n" if by == "standard input" else "",
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    wait_until(lambda: paceline.nodes() == ["b"], "the node")
    lines = [line for line in paceline("logs", "head").ok().out.splitlines() if "token redeemed" in line]
    assert len(lines) == 1, "by nobody else, and once"
    short = token.removeprefix("pl1-")[:8]
    assert f'token="{short}"' in lines[0]
    assert 'name="b"' in lines[0]
    assert "address=127.0.0.1:" in lines[0]
    assert token[20:] not in lines[0], "the secret is not in it"


def test_stop_ends_the_nodes_of_other_machines(paceline: Commands, tmp_path: Path) -> None:
    head = paceline.start("--no-node")
    others = [Commands(tmp_path / name, paceline.marker) for name in ("a", "b")]
    for other in others:
        token = paceline("token", "--json").ok().json["token"]
        other.join(head["address"], other.home.name, "--cpus", "1", "--token", token)
    wait_until(lambda: len(paceline.nodes()) == 2, "two nodes")
    before = set(abstract_sockets())
    paceline("stop").ok()
    paceline.assert_nothing_left()
    assert [other.files() for other in others] == [[], []]
    gone = before & set(abstract_sockets())
    assert not {name for name in gone if any(name.endswith(mine) for mine in (head["unix"],))}


def test_a_killed_node_disappears_and_the_total_shrinks(paceline: Commands) -> None:
    head = paceline.start("--no-node", PACELINE_HEARTBEAT="200ms")
    node = paceline.join(head["address"], "a", "--cpus", "2", PACELINE_HEARTBEAT="200ms")
    wait_until(lambda: paceline.nodes() == ["a"], "the node")
    wait_until(lambda: len(paceline.processes()) > 2, "its zygote")
    os.kill(node["pid"], signal.SIGKILL)
    wait_until(lambda: paceline.status()["nodes"] == [], "the node to be given up")
    assert "0 nodes" in paceline("status").ok().out
    wait_until(lambda: alive(paceline) == [head["pid"]], "its processes to end", state=paceline.processes)
    again = paceline.join(head["address"], "a", "--cpus", "2", PACELINE_HEARTBEAT="200ms")
    assert again["pid"] != node["pid"]
    wait_until(lambda: paceline.nodes() == ["a"], "the node again")


def test_stop_right_after_a_node_was_killed_waits_for_nothing_of_it(paceline: Commands) -> None:
    head = paceline.start("--no-node")
    node = paceline.join(head["address"], "a", "--cpus", "1")
    os.kill(node["pid"], signal.SIGKILL)
    assert paceline("stop").ok().err == "cluster default is stopped\n"
    paceline.assert_nothing_left()


def test_killed_process_of_a_node_is_noticed_at_once(paceline: Commands) -> None:
    """Though a heartbeat is two seconds, and silence ends a node after three."""
    head = paceline.start("--no-node")
    nodes = {name: paceline.join(head["address"], name, "--cpus", "1") for name in ("a", "b")}
    wait_until(lambda: len(paceline.nodes()) == 2, "both nodes")
    with pl.connect(head["address"], key_file=paceline.home / "clusters/default/key"):

        @pl.remote
        def nap(seconds: float) -> int:
            time.sleep(seconds)
            return os.getpid()

        futures = [nap.submit(1.5) for _ in range(2)]
        wait_until(lambda: all(future.running() for future in futures), "both to run")
        os.kill(nodes["a"]["pid"], signal.SIGKILL)
        killed = time.monotonic()
        wait_until(lambda: [one["name"] for one in paceline.status()["nodes"]] == ["b"], "the head to know", 3)
        assert time.monotonic() - killed < 1
        for future in futures:
            future.result(20)
        # The one that was lost runs after the one that was there, and waits for nothing else.
        assert time.monotonic() - killed < 4.5


@pytest.mark.parametrize("reset", [True, False])
def test_node_that_lives_outlasts_the_end_of_its_link(paceline: Commands, tmp_path: Path, reset: bool) -> None:
    head = paceline.start("--no-node")
    with Proxy(head["address"]) as proxy:
        key = str(paceline.home / "clusters/default/key")
        other = Commands(tmp_path / "other", paceline.marker)
        other.join(proxy.address, "a", "--cpus", "1", "--key-file", key)
        wait_until(lambda: paceline.nodes() == ["a"], "the node")
        paceline("submit", "--", "sleep", "600").ok()

        def state() -> str:
            [one] = paceline.status()["programs"]
            return f"{one['state']} {one['restarted']}"

        wait_until(lambda: state() == "running 0", "it to run", 20, state)
        proxy.refuse()
        proxy.cut(reset=reset)
        for _ in range(20):
            assert [one["name"] for one in paceline.status()["nodes"]] == ["a"], "a link that ended is no proof"
            time.sleep(0.1)
        proxy.refuse(False)
        wait_until(lambda: paceline.nodes() == ["a"], "the node to be back", 10, paceline.status)
        assert state() == "running 0"


def test_call_of_an_actor_whose_node_is_dead_has_not_begun(paceline: Commands) -> None:
    """PL-5: the client was idle and has not seen the end of its link, but nothing can be said over it any more."""
    head = paceline.start("--no-node")
    node = paceline.join(head["address"], "a", "--cpus", "1")
    wait_until(lambda: paceline.nodes() == ["a"], "the node")
    with pl.connect(head["address"], key_file=paceline.home / "clusters/default/key"):

        @pl.remote
        class Actor:
            def pid(self) -> int:
                return os.getpid()

        actor = Actor()
        slot = actor.pid()
        os.kill(node["pid"], signal.SIGKILL)
        wait_until(lambda: is_gone(slot), "its slot to end")
        with pytest.raises(pl.ActorDied) as caught:
            actor.pid()
        assert not caught.value.ran
        assert "had not begun" in str(caught.value)


def test_a_killed_head_can_be_started_again(paceline: Commands) -> None:
    head = paceline.start("--no-node")
    port = head["address"].rpartition(":")[2]
    paceline.join(head["address"], "a", "--cpus", "1")
    os.kill(head["pid"], signal.SIGKILL)
    wait_until(lambda: is_gone(head["pid"]), "the head to be gone")
    told = paceline("status", "--json")
    assert (told.code, told.json["clusters"][0]["code"]) == (4, "unreachable"), "the node is here, its head is not"
    again = paceline.start("--no-node", "--port", port)
    assert again["address"] == head["address"]
    wait_until(lambda: paceline.nodes() == ["a"], "the node to find the head again")
    paceline("stop").ok()
    paceline.assert_nothing_left()


def test_the_head_alone_is_stopped_and_nodes_wait(paceline: Commands) -> None:
    head = paceline.start("--no-node")
    node = paceline.join(head["address"], "a", "--cpus", "1")
    paceline("stop", "--head").ok()
    assert is_gone(head["pid"])
    assert not is_gone(node["pid"])
    paceline.start("--no-node", "--port", head["address"].rpartition(":")[2])
    wait_until(lambda: paceline.nodes() == ["a"], "the node to come back")
    paceline("stop", "--node").ok()
    assert is_gone(node["pid"])
    assert paceline.status()["nodes"] == []


def test_without_a_head_nodes_end_by_themselves(paceline: Commands) -> None:
    quick = {"PACELINE_HEAD_LOST": "1s", "PACELINE_HEARTBEAT": "100ms"}
    head = paceline.start("--no-node", **quick)
    node = paceline.join(head["address"], "a", "--cpus", "1", **quick)
    os.kill(head["pid"], signal.SIGKILL)
    wait_until(lambda: is_gone(node["pid"]), "the node to end", timeout=10)
    wait_until(lambda: not paceline.processes(), "everything to end", state=paceline.processes)


def test_a_killed_head_takes_its_own_slots_with_it(paceline: Commands) -> None:
    head = paceline.start("--cpus", "2")
    wait_until(lambda: len(paceline.processes()) >= 3, "zygote and slots")
    os.kill(head["pid"], signal.SIGKILL)
    wait_until(lambda: not paceline.processes(), "everything to end", state=paceline.processes)
    assert "the head of cluster default" in paceline("status").out
    paceline("stop").ok()
    assert paceline.files() == [], "what a killed head has left goes with the next stop"
    assert paceline("status").ok().out == "no active cluster\n"


def test_killed_head_is_reported_with_what_to_do(paceline: Commands) -> None:
    head = paceline.start("--cpus", "1", "--name", "red")
    os.kill(head["pid"], signal.SIGKILL)
    wait_until(lambda: is_gone(head["pid"]), "the head to be gone")
    told = paceline("status")
    assert told.code == 4
    assert f"the head of cluster red, process {head['pid']}, died; its log ends at 20" in told.out
    assert "paceline start --name red starts it again" in told.err
    for which in ((), ("--name", "red")):
        told = paceline("status", "--json", *which)
        [cluster] = told.json["clusters"]
        assert (told.code, cluster["code"], cluster["head"]) == (4, "unreachable", "died")
        assert cluster["cluster"]["name"] == "red"
        assert time.time() - 60 < cluster["last_sign"] <= time.time()
    for command in (["explain"], ["token", "--name", "red"]):
        told = paceline(*command)
        assert (told.code, "paceline start --name red" in told.err) == (4, True), told
    told = paceline("doctor")
    assert told.code == 1
    assert "the head of cluster red" in told.out
    paceline.start("--cpus", "1", "--name", "red")
    assert paceline.status()["cluster"]["name"] == "red"


def test_logs_are_read_from_files_when_no_head_runs(paceline: Commands) -> None:
    head = paceline.start("--cpus", "1", "--node-name", "own")
    paceline.join(head["address"], "other", "--cpus", "1")
    name = paceline("submit", "--json", "--wait", "--", "sh", "-c", "echo from the program").ok().json["program"]
    # The first is a part of the head's process: it has the head's log.
    alive = paceline("logs", "head").ok().out
    os.kill(head["pid"], signal.SIGKILL)
    wait_until(lambda: is_gone(head["pid"]), "the head to be gone")
    for of in ("head", "own"):
        told = paceline("logs", of).ok()
        assert alive.splitlines()[0] in told.out
        assert "died" in told.err
    assert "other" in paceline("logs", "other").ok().out
    assert paceline("logs", name).ok().out == "from the program\n"
    whose = [log["of"] for log in paceline("logs", "--json").ok().json["logs"]]
    assert whose == ["head", "other"]
    told = paceline("logs", "nobody")
    assert told.code == 1
    assert "head, other" in told.err


@pytest.mark.parametrize("how", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_signal_ends_a_head_in_order_and_start_goes_on(paceline: Commands, how: str) -> None:
    head = paceline.start("--cpus", "1", "--node-name", "own", PACELINE_HEARTBEAT="300ms")
    other = paceline.join(head["address"], "other", "--cpus", "1")
    key = (paceline.home / "clusters/default/key").read_bytes()

    def submit(*arguments: str) -> str:
        return str(paceline("submit", "--json", *arguments, "--", "sleep", "600").ok().json["program"])

    def states() -> dict[str, tuple[str, str | None]]:
        return {one["program"]: (one["state"], one["node"]) for one in paceline.status()["programs"]}

    names = [submit("--restarts", "1"), submit("--restarts", "1")]
    wait_until(lambda: {state for state, _ in states().values()} == {"running"}, "both to run", 20, states)
    nodes = {node: name for name, (_, node) in states().items()}
    assert set(nodes) == {"own", "other"}
    # A program counts as running once it has its process, shortly before that process has its command line.
    wait_until(lambda: len(programs_of(paceline, "other")) == 1, "the program to have its command line")
    [kept] = programs_of(paceline, "other")
    began = time.monotonic()
    os.kill(head["pid"], getattr(signal, how))
    wait_until(lambda: is_gone(head["pid"]), "the head to end")
    assert time.monotonic() - began < 5
    told = paceline("status", "--json")
    assert (told.code, told.json["clusters"][0]["code"]) == (4, "unreachable")
    assert "has ended, at 20" in told.json["clusters"][0]["error"]
    assert not is_gone(other["pid"])
    port = head["address"].rpartition(":")[2]
    again = paceline.start("--cpus", "1", "--node-name", "own", "--port", port, PACELINE_HEARTBEAT="300ms")
    assert again["cluster"] == head["cluster"]
    assert (paceline.home / "clusters/default/key").read_bytes() == key
    wait_until(lambda: {state for state, _ in states().values()} == {"running"}, "both to run", 30, states)
    assert set(states()) == set(names)
    assert programs_of(paceline, "other") == [kept], "it was taken over as it ran"
    restarted = {one["program"]: one["restarted"] for one in paceline.status()["programs"]}
    assert restarted == {nodes["own"]: 1, nodes["other"]: 0}
    paceline("stop").ok()
    paceline.assert_nothing_left()


def test_stop_keeps_other_clusters_whose_heads_have_ended(paceline: Commands) -> None:
    head = paceline.start("--name", "prod", "--no-node")
    os.kill(head["pid"], signal.SIGTERM)
    wait_until(lambda: is_gone(head["pid"]), "the head to end")
    paceline.start("--no-node")
    paceline("stop").ok()
    assert (paceline.home / "clusters/prod/key").exists(), "it can be started again"
    assert not (paceline.home / "clusters/default").exists()
    again = paceline.start("--name", "prod", "--no-node")
    assert again["cluster"] == head["cluster"]
    paceline("stop", "--name", "prod").ok()
    paceline.assert_nothing_left()


def test_stop_removes_the_only_cluster_whose_head_has_ended(paceline: Commands) -> None:
    head = paceline.start("--name", "prod", "--no-node")
    os.kill(head["pid"], signal.SIGKILL)
    wait_until(lambda: is_gone(head["pid"]), "the head to end")
    paceline("stop").ok()
    paceline.assert_nothing_left()


def programs_of(paceline: Commands, node: str) -> list[int]:
    """The processes of what was submitted and runs on a node."""
    [found] = [one for one in paceline.status()["nodes"] if one["name"] == node]
    naps = {one.pid for one in paceline.processes() if one.command.startswith("sleep 600")}
    return [slot["pid"] for slot in found["slots"] if slot["pid"] in naps]


def test_program_without_restarts_is_lost_with_the_node_of_a_head_that_was_ended(paceline: Commands) -> None:
    head = paceline.start("--cpus", "1", PACELINE_HEARTBEAT="300ms")
    name = paceline("submit", "--json", "--", "sleep", "600").ok().json["program"]

    def program() -> dict[str, Any]:
        [one] = paceline.status()["programs"]
        return dict(one)

    wait_until(lambda: program()["state"] == "running", "it to run", 20, program)
    os.kill(head["pid"], signal.SIGTERM)
    wait_until(lambda: is_gone(head["pid"]), "the head to end")
    paceline.start("--cpus", "1", PACELINE_HEARTBEAT="300ms")
    wait_until(lambda: program()["state"] == "ended", "it to have ended", 20, program)
    assert (program()["program"], program()["reason"]) == (name, "node-lost")


def test_stop_of_the_head_alone_says_that_its_node_would_end_too(paceline: Commands) -> None:
    head = paceline.start("--cpus", "1", "--node-name", "own")
    told = paceline("stop", "--head")
    assert told.code == 2
    assert "node own is a part of the head's process" in told.err
    assert "--head --node" in told.err
    assert not is_gone(head["pid"])
    told = paceline("stop", "--head", "--node", "other")
    assert told.code == 2
    assert not is_gone(head["pid"])
    told = paceline("stop", "--head", "--node").ok()
    assert "node own" in told.err
    wait_until(lambda: not paceline.processes(), "all to end", state=paceline.processes)
    again = paceline.start("--cpus", "1", "--node-name", "own")
    assert again["cluster"] == head["cluster"]


def test_foreground_node_that_loses_its_head_fails(paceline: Commands) -> None:
    quick = {"PACELINE_HEAD_LOST": "1s", "PACELINE_HEARTBEAT": "100ms"}
    head = paceline.start("--no-node", **quick)
    node = subprocess.Popen(
        [program(), "join", head["address"], "--cpus", "1", "--node-port", "0", "--foreground"],
        env=paceline.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: paceline.nodes(), "the node")
    os.kill(head["pid"], signal.SIGKILL)
    _, errors = node.communicate(timeout=20)
    assert node.returncode == 4
    assert f"error: the head at {head['address']} has not answered for 1s" in errors


def test_foreground_node_of_a_stopped_cluster_ends_well(paceline: Commands) -> None:
    head = paceline.start("--no-node")
    command = [program(), "join", head["address"], "--cpus", "1", "--node-port", "0", "--foreground"]
    node = subprocess.Popen(command, env=paceline.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: paceline.nodes(), "the node")
    paceline("stop").ok()
    assert node.wait(20) == 0


def test_a_node_that_is_told_to_end_leaves(paceline: Commands) -> None:
    head = paceline.start("--no-node")
    node = paceline.join(head["address"], "a", "--cpus", "1")
    wait_until(lambda: paceline.nodes() == ["a"], "the node")
    began = time.monotonic()
    os.kill(node["pid"], signal.SIGTERM)
    wait_until(lambda: is_gone(node["pid"]), "the node to end")
    assert time.monotonic() - began < 4, "it had nothing to wait for"
    assert paceline.status()["nodes"] == [], "the head knows at once"


def test_a_node_is_drained(paceline: Commands) -> None:
    head = paceline.start("--no-node")
    node = paceline.join(head["address"], "a", "--cpus", "1")
    paceline.join(head["address"], "b", "--cpus", "1")
    wait_until(lambda: len(paceline.nodes()) == 2, "both nodes")
    told = paceline("node", "drain", "nobody")
    assert told.code == 1
    assert "a, b" in told.err
    paceline("node", "drain", "a", "--wait").ok()
    assert paceline.nodes() == ["b"]
    wait_until(lambda: is_gone(node["pid"]), "the node to end")


def test_the_node_beside_the_head_is_drained_and_the_head_goes_on(paceline: Commands) -> None:
    up = paceline.start("--cpus", "1")
    paceline("node", "drain", up["node"], "--wait").ok()
    assert paceline.status()["nodes"] == []
    wait_until(lambda: alive(paceline) == [up["pid"]], "its slots to end", state=paceline.processes)


def test_head_and_node_are_small_when_idle(paceline: Commands) -> None:
    head = paceline.start("--cpus", "1")
    node = paceline.join(head["address"], "a", "--cpus", "1")
    wait_until(lambda: len(paceline.nodes()) == 2, "both nodes")
    for _ in range(20):
        paceline("status").ok()
    assert resident(head["pid"]) <= 30 * MEGABYTE, "head and node in one process"
    assert resident(node["pid"]) <= 30 * MEGABYTE


def test_a_closed_terminal_ends_nothing_that_was_started_in_it(paceline: Commands) -> None:
    shell = shell_in_terminal("")
    try:
        home, python = paceline.home, sys.executable
        shell.type(
            f"PACELINE_TEST_RUN={paceline.marker} PACELINE_HOME={home} PACELINE_PYTHON={python} "
            f"{program()} start --port 0 --cpus 1\n"
        )
        wait_until(lambda: "paceline stop" in shell.output(), "the cluster", state=shell.output)
        shell.hang_up()
        shell.wait()
    finally:
        shell.end()
    assert len(paceline.status()["nodes"]) == 1
    paceline("stop").ok()


def test_a_foreground_cluster_ends_with_ctrl_c(paceline: Commands) -> None:
    running = subprocess.Popen(
        [program(), "start", "--port", "0", "--cpus", "1", "--foreground"],
        env=paceline.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert running.stdout is not None
        assert "is up" in running.stdout.readline()
        assert paceline.status()["cluster"]["pid"] == running.pid
        running.send_signal(signal.SIGINT)
        assert running.wait(10) == 0
    finally:
        running.kill()
        running.wait()
        assert running.stdout is not None
        running.stdout.close()
    paceline.assert_nothing_left()


def test_other_processes_of_the_user_cannot_read_a_daemon(paceline: Commands) -> None:
    head = paceline.start("--cpus", "1", PACELINE_KEY="cd" * 32)
    # Files of a process that may not be dumped belong to root, whoever runs it.
    if os.getuid() != 0:
        assert Path(f"/proc/{head['pid']}/environ").stat().st_uid == 0

    def have_it() -> list[bool]:
        others = [one.pid for one in paceline.processes() if one.pid != head["pid"]]
        found = []
        for pid in others:
            # One that ends while it is looked at has nothing to read.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found.append(b"cd" * 32 in Path(f"/proc/{pid}/environ").read_bytes())
        return found

    # For a moment, before it becomes another program, a child is a copy of the daemon, and kept from others like it.
    wait_until(
        lambda: len(found := have_it()) >= 2 and not any(found), "zygote and slots, none with the key", state=have_it
    )
    key = paceline.home / "clusters/default/key"
    assert key.stat().st_mode & 0o777 == 0o600


def test_ports_and_addresses_are_those_that_were_asked_for(paceline: Commands) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        ports = [server.getsockname()[1] for server in (one, two)]
    arguments = ["--port", str(ports[0]), "--node-port", str(ports[1]), "--cpus", "1"]
    head = paceline.start(*arguments, "--bind", "127.0.0.1", "--advertise", "localhost")
    assert head["address"] == f"localhost:{ports[0]}"
    assert paceline.status()["nodes"][0]["serves"] == f"localhost:{ports[1]}"
    listening = subprocess.run(["cat", "/proc/net/tcp"], capture_output=True, text=True, timeout=10).stdout
    for port in ports:
        assert f" 0100007F:{port:04X} 00000000:0000 0A" in listening, "on loopback only"
        assert f" 00000000:{port:04X} " not in listening


def test_machines_to_oneself(paceline: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One slot a machine, if that is asked for; of a group, one member a machine."""
    head = paceline.start("--cpus", "2", "--node-name", "first")
    Commands(tmp_path / "other", paceline.marker).join(
        head["address"], "second", "--cpus", "2", "--token", head["token"]
    )
    monkeypatch.setenv("PACELINE_HOME", str(paceline.home))
    with pl.connect(head["address"]) as cluster:

        @pl.remote(placement="one_per_node", cpus=0.5)
        def slot() -> int:
            time.sleep(0.2)
            return os.getpid()

        futures = [slot.submit() for _ in range(8)]
        wait_until(lambda: sum(future.running() for future in futures) == 2, "two run")
        leases = [lease["node"] for lease in cluster.status()["leases"]]
        assert sorted(leases) == ["first", "second"], "one on each, though there is room for four"
        assert len({future.result(30) for future in futures}) == 2
        with pl.group(2, placement="one_per_node", wait=30) as group:
            assert sorted(group.nodes) == ["first", "second"]
            assert group.run(lambda: os.environ["LOCAL_RANK"]) == ["0", "0"]
        with pytest.raises(pl.NoResources, match="a group of 3"):
            pl.group(3, placement="one_per_node", wait=0.5)
        with pl.group(4) as group:
            assert sorted(group.nodes) == ["first", "first", "second", "second"]


def test_nodes_come_and_go_while_a_program_runs() -> None:
    with pl.local_cluster(nodes=1, cpus=1) as local, local.connect() as cluster:

        @pl.remote
        def where(pause: float) -> int:
            time.sleep(pause)
            return os.getppid()

        first = where(0)
        futures = [where.submit(0.05) for _ in range(60)]
        added = local.add_node(cpus=1)
        assert len({future.result(60) for future in futures}) == 2, "the new node is used by what waits"
        futures = [where.submit(0.05) for _ in range(40)]
        added.terminate()
        assert len([future.result(60) for future in futures]) == 40, "what it had not begun runs elsewhere"
        assert added.wait(20)
        assert where(0) == first
        assert len(cluster.nodes) == 1


# From Python.


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_parts_are_started_from_python_and_waited_for(home: Path) -> None:
    head = pl.start_head(port=0, cpus=0)
    assert pl.is_head_running()
    assert not pl.is_node_running()
    node = pl.start_node(head.address or "", cpus=1, port=0)
    assert pl.is_node_running()
    assert head.is_running()
    assert node.is_running()
    assert not node.wait(0.05)
    node.terminate()
    assert node.wait(10)
    assert not pl.is_node_running()
    head.terminate()
    head.terminate()
    assert head.wait(10)
    assert not pl.is_head_running()
    assert not home.exists()


def test_what_goes_wrong_is_raised(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(pl.PacelineError, match=rf"127.0.0.1:{port} is in use"):
            pl.start_head(port=port, cpus=0)
    with pytest.raises(pl.PacelineError, match=rf"no head answers at 127.0.0.1:{port}"):
        pl.start_node(f"127.0.0.1:{port}", cpus=1)
    assert not home.exists()


def test_a_cluster_of_several_nodes_for_tests() -> None:
    with pl.local_cluster(nodes=3, cpus=1) as cluster:
        pids = [daemon.pid for daemon in [cluster.head, *cluster.nodes]]
        assert len(set(pids)) == 4
        assert [node.node for node in cluster.nodes] == ["node1", "node2", "node3"]
        assert ":" in cluster.address
    assert all(is_gone(pid) for pid in pids)


def test_daemons_end_with_the_program_that_started_them(home: Path) -> None:
    text = """
        import time
        import paceline as pl
        head = pl.start_head(port=0, cpus=1)
        print(head.pid, flush=True)
        time.sleep(60)
        """
    with start_script(text, env={"PACELINE_HOME": str(home)}) as script:
        pid = int(
            wait_until(lambda: script.output().endswith("\n") and script.output(), "the head", state=script.errors)
        )
        assert not is_gone(pid)
        os.kill(script.pid, signal.SIGKILL)
        wait_until(lambda: is_gone(pid), "the head to end with its program")
        wait_until(lambda: not home.exists(), "its files to go")


def test_a_detached_head_outlives_its_handle(home: Path) -> None:
    head = pl.start_head(port=0, cpus=0, detached=True)
    pid = head.pid
    del head
    assert not is_gone(pid)
    done = subprocess.run([program(), "stop"], timeout=20, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert is_gone(pid)


def test_detached_head_that_is_terminated_ends_its_cluster(home: Path) -> None:
    head = pl.start_head(port=0, cpus=0, detached=True)
    head.terminate()
    assert head.wait(10)
    assert not home.exists()


def test_a_blocking_start(home: Path) -> None:
    text = """
        import paceline as pl
        pl.start_head(port=0, cpus=0, foreground=True)
        print("over", flush=True)
        """
    with start_script(text, env={"PACELINE_HOME": str(home)}) as script:
        wait_until(lambda: pl.is_head_running() and (home / "clusters/default/cluster.json").exists(), "the head")
        assert script.output() == ""
        done = subprocess.run([program(), "stop"], timeout=20, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert script.wait().ok().stdout == "over\n"

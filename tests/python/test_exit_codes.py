"""The exit code of a command says whether anybody answered, and its JSON is one value whatever happens."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.daemons import Commands
from support.waiting import wait_until

UNREACHABLE, TIMED_OUT = 4, 7


@pytest.fixture
def paceline(tmp_path: Path) -> Iterator[Commands]:
    commands = Commands(tmp_path / "home")
    yield commands
    commands.end()


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
def test_status_of_a_cluster_that_does_not_answer_fails(paceline: Commands) -> None:
    head = paceline.start("--no-node", "--name", "stuck")
    with standing_still(head["pid"]):
        for which in ([], ["--name", "stuck"]):
            told = paceline("status", "--json", *which)
            assert told.code == TIMED_OUT, told
            [cluster] = json.loads(told.out)["clusters"]
            assert cluster["cluster"]["name"] == "stuck"
            assert cluster["code"] == "timed-out"
            assert "did not answer in time" in cluster["error"]
            assert told.err.startswith("error: ")
        told = paceline("status")
        assert told.code == TIMED_OUT
        assert told.out.startswith("stuck: ")
    paceline("status", "--json").ok()


@pytest.mark.slow
def test_status_of_several_clusters_fails_if_one_does_not_answer(paceline: Commands) -> None:
    head = paceline.start("--no-node", "--name", "stuck")
    paceline.start("--no-node", "--name", "well")
    with standing_still(head["pid"]):
        told = paceline("status", "--json")
        assert told.code == TIMED_OUT
        assert [("error" in each, each["cluster"]["name"]) for each in told.json["clusters"]] == [
            (True, "stuck"),
            (False, "well"),
        ]
        assert "1 of 2 clusters did not answer" in told.err
        assert paceline("status", "--name", "well", "--json").ok().err == ""


def test_status_of_a_node_whose_head_is_gone_fails(paceline: Commands, tmp_path: Path) -> None:
    head = paceline.start("--no-node")
    other = Commands(tmp_path / "other", paceline.marker)
    other.join(head["address"], "a", "--cpus", "1", "--token", head["token"])
    other("status", "--json").ok()
    os.kill(head["pid"], signal.SIGKILL)
    told = other("status", "--json")
    assert told.code == UNREACHABLE, told
    assert told.json["clusters"][0]["code"] == "unreachable"


def test_status_without_any_cluster_is_no_failure(paceline: Commands) -> None:
    assert paceline("status", "--json").ok().json == {"clusters": []}


@pytest.mark.slow
def test_logs_of_a_node_that_does_not_answer_fail(paceline: Commands) -> None:
    slow = {"PACELINE_HEARTBEAT": "20s"}  # so that the node does not count as silent meanwhile
    head = paceline.start("--no-node", **slow)
    node = paceline.join(head["address"], "a", "--cpus", "1", **slow)
    wait_until(lambda: paceline.nodes() == ["a"], "the node")
    assert paceline("logs", "a").ok().out
    with standing_still(node["pid"]):
        told = paceline("logs", "a", "--json")
        assert told.code == TIMED_OUT, told
        assert told.json["logs"] == [{"of": "a", "error": "no answer in time", "silent": True}]
        told = paceline("logs", "--clean", "--json")
        assert told.code == TIMED_OUT, told
        assert [each["node"] for each in told.json["failed"]] == ["a"]
        told = paceline("logs")
        assert told.code == 0, "the head has told its own"
        assert "a does not tell: no answer in time" in told.err


@pytest.mark.slow
def test_stop_all_stops_the_others_if_one_does_not_answer(paceline: Commands) -> None:
    head = paceline.start("--no-node", "--name", "a-stuck")
    paceline.start("--no-node", "--name", "b-well")
    with standing_still(head["pid"]):
        told = paceline("stop", "--all")
        assert told.code == TIMED_OUT, told
        assert "stopped 1 of 2 clusters" in told.err
        assert paceline("status", "--name", "b-well").code == 3


def test_doctor_json_is_one_value_when_a_check_fails(paceline: Commands) -> None:
    told = paceline("doctor", "--json", "--address", "127.0.0.1:1", PACELINE_KEY="ab" * 32)
    assert told.code == 1
    assert [check["check"] for check in told.json["checks"] if not check["ok"]] == ["cluster"]
    assert "checks failed" in told.err

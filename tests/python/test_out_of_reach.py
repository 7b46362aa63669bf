"""The store of objects or the head is out of reach: who needs it is told by an error of ours that says so."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import paceline as pl
from paceline import _actor_home
from support.daemons import Commands
from support.waiting import wait_until


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "home"))
    commands = Commands(tmp_path / "home")
    try:
        yield commands
    finally:
        pl.shutdown()
        commands.end()


def test_put_and_get_after_the_cluster_was_stopped_raise_cluster_closed(commands: Commands) -> None:
    cluster = pl.connect(commands.start("--cpus", "1")["address"])
    references = [pl.put(1), pl.put(bytes(1_000_000))]
    commands("stop").ok()
    wait_until(lambda: cluster._connected().closed, "the cluster to be gone")
    with pytest.raises(pl.ClusterClosed) as raised:
        pl.put(2)
    assert isinstance(raised.value.__cause__, OSError)
    with pytest.raises(pl.ClusterClosed):
        pl.put(bytes(1_000_000))
    # What this program keeps itself may still be there.
    for reference in references:
        with contextlib.suppress(pl.PacelineError):
            assert pl.get(reference) in (1, bytes(1_000_000))


@pytest.mark.slow
def test_put_while_the_cluster_is_being_stopped_raises_nothing_but_our_errors(commands: Commands) -> None:
    cluster = pl.connect(commands.start("--cpus", "1")["address"])
    pl.put(1)
    commands("stop").ok()
    for size in (1, 1_000_000) * 200:
        try:
            pl.get(pl.put(bytes(size)))
        except pl.PacelineError:
            if cluster._connected().closed:
                return


@pytest.mark.slow
def test_looking_for_an_actor_whose_head_is_silent_raises_connection_failed(commands: Commands) -> None:
    head = commands.start("--cpus", "1")
    cluster = pl.connect(head["address"])
    session = cluster._connected()
    os.kill(head["pid"], signal.SIGSTOP)
    try:
        with pytest.raises(pl.ConnectionFailed, match="the head does not answer") as raised:
            pl.get_actor("nobody")
        assert raised.value.address == head["address"]
        assert "paceline status" in (raised.value.hint or "")
        # It answers whether there is one, and not any more what became of it.
        silent: Any = SimpleNamespace(
            find_actor=lambda *_: None, actor_comes=lambda _: False, why_actor_gone=session.why_actor_gone, closed=False
        )
        asked: Any = SimpleNamespace(_connected=lambda: silent)
        with pytest.raises(pl.ConnectionFailed, match="the head does not answer"):
            _actor_home.find("nobody", asked)
    finally:
        os.kill(head["pid"], signal.SIGCONT)


def test_an_argument_whose_slot_may_have_no_link_to_the_store_raises_limit_reached(commands: Commands) -> None:
    pl.connect(commands.start("--cpus", "4", PACELINE_MAX_TASK_LINKS="1")["address"])
    reference = pl.put(bytes(1_000_000))

    @pl.remote
    def size(value: bytes, seconds: float) -> int:
        time.sleep(seconds)
        return len(value)

    futures = [size.submit(reference, 1.0) for _ in range(4)]
    failed = [error for future in futures if (error := future.exception()) is not None]
    assert failed, "each slot had a link, so there was no limit to reach"
    assert {type(error) for error in failed} == {pl.LimitReached}

"""Passwords are tried one at a time and by source, and those who guess keep nobody out who knows the right one."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.daemons import Commands
from support.waiting import wait_until
from support.wire import begin_guess, is_answered

PASSWORD = "correct horse battery"
# Addresses of the loopback network, each a source of its own.
GUESSER, STRANGER = "127.0.0.9", "127.0.0.10"
EMPTY_CONNECTIONS_PER_SECOND = 160
# How long an unauthenticated connection may stay.
CONNECTION_TIMEOUT = 5.0


@pytest.fixture
def paceline(tmp_path: Path) -> Iterator[Commands]:
    commands = Commands(tmp_path / "home")
    yield commands
    commands.end()


def start(paceline: Commands) -> tuple[str, int]:
    """Starts a head with a password; returns its address and its port."""
    address = paceline.start("--no-node", PACELINE_PASSWORD=PASSWORD)["address"]
    return address, int(address.rsplit(":", 1)[1])


def guess(port: int, count: int) -> int:
    """Tries passwords, all at once; returns how many of them the head has answered."""
    with ThreadPoolExecutor(count) as threads:
        guessing = list(threads.map(lambda _: begin_guess(port, GUESSER), range(count)))
        return sum(threads.map(is_answered, guessing))


@pytest.mark.slow
def test_guesses_of_one_source_are_answered_one_by_one(paceline: Commands) -> None:
    _, port = start(paceline)
    began = time.monotonic()
    answered = guess(port, 40)
    took = time.monotonic() - began
    # The first at once, then after one second, two, and four.
    assert 1 <= answered <= 1 + took, f"{answered} guesses answered in {took:.1f} s"
    lines = [line for line in paceline("logs", "head").ok().out.splitlines() if "password refused" in line]
    assert any(f"source={GUESSER}" in line for line in lines), lines


@contextlib.contextmanager
def empty_connections(port: int) -> Iterator[None]:
    """Opens connections that say nothing, at a steady rate."""
    stop = threading.Event()
    held: deque[socket.socket] = deque()

    def connect() -> None:
        began = time.monotonic()
        made = 0
        while not stop.wait(0.002):
            while made < (time.monotonic() - began) * EMPTY_CONNECTIONS_PER_SECOND:
                held.append(socket.create_connection(("127.0.0.1", port), source_address=(STRANGER, 0)))
                made += 1
            while len(held) > EMPTY_CONNECTIONS_PER_SECOND * CONNECTION_TIMEOUT:
                held.popleft().close()

    thread = threading.Thread(target=connect)
    thread.start()
    try:
        # As many as the head bears at most.
        wait_until(lambda: len(held) > 2 * EMPTY_CONNECTIONS_PER_SECOND, "the connections")
        yield
    finally:
        stop.set()
        thread.join()
        for one in held:
            one.close()


@pytest.mark.slow
def test_right_password_opens_the_cluster_while_others_guess_and_crowd(paceline: Commands, tmp_path: Path) -> None:
    address, port = start(paceline)
    guess(port, 24)
    other = Commands(tmp_path / "other", paceline.marker)
    with empty_connections(port):
        other.join(address, "b", "--cpus", "1", PACELINE_PASSWORD=PASSWORD)
    wait_until(lambda: paceline.nodes() == ["b"], "the node")

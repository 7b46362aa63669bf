"""Actors that several processes call, as the native module has them."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import paceline as pl
from paceline import _cluster, _native, errors
from paceline._functions import pack
from paceline._slot import METHOD
from support.daemons import Commands
from support.scripts import Running, start_script
from support.waiting import wait_until

CALL: dict[str, Any] = {"wait": None, "retries": 0, "retry_on": (), "timeout": None, "priority": 0}
NEEDS: dict[str, Any] = {"cpus": 0, "gpus": 0, "memory": 0, "resources": (), "placement": None}


def build() -> None:
    """The object that lives in the slot."""
    import os
    import time

    from paceline._slot import objects

    class Diary:
        def __init__(self) -> None:
            self.lines: list[tuple[str, int]] = []

        def note(self, caller: str, number: int) -> int:
            self.lines.append((caller, number))
            return len(self.lines)

        def read(self) -> list[tuple[str, int]]:
            return self.lines

        def pid(self) -> int:
            return os.getpid()

        def sleep(self, seconds: float, path: str = "") -> str:
            if path:
                open(path, "w").close()
            time.sleep(seconds)
            return "awake"

        def fail(self) -> None:
            raise KeyError("no such page")

    objects.instance = Diary()


class Host:
    """An actor of this process."""

    def __init__(self, session: _native.Session, name: str | None = None, restarts: int = 0) -> None:
        self.id = os.urandom(16)
        if name is not None:
            session.claim_actor(self.id, name=name, about=b"a diary")
        self.pool = session.pool(1, eager=True, once=True, restarts=restarts, **NEEDS)
        self.pool.prepare(pack(build)[0], "build", (), {})
        self.pool.host(self.id, about=b"a diary" if name is None else None)

    def call(self, method: str, *args: object) -> Any:
        return function(self.pool, method).call(args, {})


def function(source: Any, method: str) -> _native.Function:
    return source.function(METHOD + b"Diary\0" + method.encode(), f"Diary.{method}", **CALL)  # type: ignore[no-any-return]


def visit(actor: bytes) -> _native.Guest:
    return _cluster.current()._connected().visit(actor)


def is_gone(guest: _native.Guest) -> bool:
    try:
        function(guest, "read").call((), {})
    except errors.ActorDied:
        return True
    return False


@pl.remote(cpus=0)
def note_many(actor: bytes, caller: str, count: int) -> list[int]:
    guest = visit(actor)
    note = function(guest, "note")
    futures: list[Future[int]] = [note.submit((caller, number), {}) for number in range(count)]
    return [future.result() for future in futures]


@pl.remote(cpus=0)
def call_once(actor: bytes, method: str, *args: object) -> Any:
    return function(visit(actor), method).call(args, {})


@pytest.fixture
def session() -> Iterator[_native.Session]:
    with pl.connect(cpus=2) as cluster:
        yield cluster._connected()


def test_tasks_call_the_actor_of_their_client_each_in_order(session: _native.Session) -> None:
    host = Host(session)
    host.call("note", "owner", 0)
    futures = [note_many.submit(host.id, f"task {number}", 50) for number in range(4)]
    for number in range(1, 50):
        host.call("note", "owner", number)
    for future in futures:
        numbers = future.result(60)
        assert numbers == sorted(numbers)
    lines = host.call("read")
    assert len(lines) == 250
    for caller in ["owner", *(f"task {number}" for number in range(4))]:
        assert [number for who, number in lines if who == caller] == list(range(50))
    assert call_once(host.id, "pid") == host.call("pid") != os.getpid()


def test_an_exception_is_the_callers_and_the_actor_goes_on(session: _native.Session) -> None:
    host = Host(session)
    with pytest.raises(KeyError, match="no such page"):
        call_once(host.id, "fail")
    assert call_once(host.id, "note", "after", 1) == 1


def test_who_never_was_is_gone(session: _native.Session) -> None:
    began = time.monotonic()
    with pytest.raises(errors.ActorDied, match="nobody in this cluster") as caught:
        call_once(os.urandom(16), "read")
    assert not caught.value.ran
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_killed_actor_is_a_typed_error_for_everybody(session: _native.Session, restarts: int, tmp_path: Path) -> None:
    host = Host(session, restarts=restarts)
    pid = call_once(host.id, "pid")
    guest = session.visit(host.id)
    mark = tmp_path / "asleep"
    running = function(guest, "sleep").submit((60, str(mark)), {})
    waiting = function(guest, "note").submit(("guest", 1), {})
    wait_until(mark.exists, "the call to begin")
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(errors.ActorDied) as caught:
        running.result(10)
    assert time.monotonic() - began < 1, "a death is told within a second"
    assert caught.value.ran
    assert caught.value.signal == signal.SIGKILL
    if restarts:
        assert waiting.result(10) == 1, "what had not begun runs in the actor that was built anew"
        assert function(guest, "pid").call((), {}) not in (pid, os.getpid())
    else:
        with pytest.raises(errors.ActorDied) as caught:
            waiting.result(10)
        assert not caught.value.ran
        with pytest.raises(errors.ActorDied, match="gone"):
            function(guest, "read").call((), {})


def test_names_are_unique_and_end_with_their_actor(session: _native.Session) -> None:
    assert session.find_actor("diary") is None
    host = Host(session, "diary")
    assert session.find_actor("diary") == (host.id, b"a diary")
    with pytest.raises(errors.ActorRefused, match="diary is there already"):
        Host(session, "diary")
    assert host.call("note", "owner", 1) == 1, "the one that has the name goes on"
    host.pool.close()
    wait_until(lambda: session.find_actor("diary") is None, "the name to be free")
    again = Host(session, "diary")
    assert call_once(again.id, "note", "task", 1) == 1


def test_a_name_is_had_before_the_actor_is_made(session: _native.Session) -> None:
    claimed, other = os.urandom(16), os.urandom(16)
    session.claim_actor(claimed, name="diary", about=b"a diary")
    assert session.find_actor("diary") == (claimed, b"a diary")
    with pytest.raises(errors.ActorRefused, match="diary is there already"):
        session.claim_actor(other, name="diary")
    guest = session.visit(claimed)
    early = function(guest, "note").submit(("early", 1), {})
    pool = session.pool(1, eager=True, once=True, **NEEDS)
    pool.prepare(pack(build)[0], "build", (), {})
    pool.host(claimed)
    assert early.result(20) == 1, "it waits until the actor is there"
    session.actor_gone(claimed, "it is enough")
    wait_until(lambda: session.find_actor("diary") is None, "the name to be free")
    with pytest.raises(errors.ActorRefused, match="ended already"):
        pool.host(claimed)


def test_anybody_can_end_an_actor(session: _native.Session) -> None:
    host = Host(session)
    guest = session.visit(host.id)
    assert function(guest, "note").call(("guest", 1), {}) == 1
    session.actor_gone(host.id, "it is enough")
    wait_until(lambda: is_gone(guest), "the end of the actor")


def test_guests_leave_no_trace_and_the_slot_goes_on(session: _native.Session) -> None:
    host = Host(session)
    for round_ in range(20):
        guest = session.visit(host.id)
        assert function(guest, "note").call(("guest", round_), {}) == round_ + 1
        guest.close()
    assert host.call("note", "owner", 1) == 21


OWNER = """
import os, sys, time
sys.path[:0] = {path!r}
import paceline as pl
from test_guests import Host
cluster = pl.connect({address!r})
host = Host(cluster._connected(), "shared")
host.call("note", "owner", 0)
print(host.id.hex(), host.call("pid"), flush=True)
time.sleep(120)
"""


class Daemons:
    def __init__(self, home: Path) -> None:
        self.paceline = Commands(home)
        self.address = self.paceline.start("--cpus", "2")["address"]

    def script(self, text: str) -> Running:
        """A program that finds this cluster, and these tests."""
        path = [str(Path(__file__).parent), *sys.path]
        text = text.format(path=path, address=self.address)
        return start_script(text, env={"PACELINE_HOME": str(self.paceline.home)})

    def keepers(self) -> list[int]:
        """Programs that keep detached actors."""
        return [each.pid for each in self.paceline.processes() if "paceline._detached" in each.command]


@pytest.fixture
def daemons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemons]:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "home"))
    daemons = Daemons(tmp_path / "home")
    try:
        yield daemons
    finally:
        pl.shutdown()
        daemons.paceline.end()


def test_another_program_finds_the_actor_and_outlives_its_owner(daemons: Daemons, tmp_path: Path) -> None:
    with daemons.script(OWNER) as owner:
        wait_until(lambda: len(owner.output().split()) == 2, "the owner", 60, owner.errors)
        with pl.connect(daemons.address) as cluster:
            session = cluster._connected()
            found = session.find_actor("shared")
            assert found is not None
            assert found[0].hex() == owner.output().split()[0]
            guest = session.visit(found[0])
            assert function(guest, "note").call(("other", 1), {}) == 2
            assert call_once(found[0], "note", "its task", 1) == 3
            with pytest.raises(errors.ActorRefused, match="shared is there already"):
                Host(session, "shared")
            mark = tmp_path / "asleep"
            running = function(guest, "sleep").submit((60, str(mark)), {})
            wait_until(mark.exists, "the call to begin")
            began = time.monotonic()
            owner.send_signal(signal.SIGKILL)
            with pytest.raises(errors.ActorDied) as caught:
                running.result(30)
            took = time.monotonic() - began
            assert caught.value.ran
            with pytest.raises(errors.ActorDied, match="has ended"):
                function(guest, "read").call((), {})
            assert session.find_actor("shared") is None
            assert took < 1.5, f"it took {took:.1f} s"


def test_callers_go_on_without_the_head_and_after_it_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PACELINE_HEARTBEAT", "500ms")
    paceline = Commands(tmp_path / "home")
    beat = {"PACELINE_HEARTBEAT": "500ms"}
    try:
        head = paceline.start("--no-node", **beat)
        paceline.join(head["address"], "a", "--cpus", "2", **beat)
        owner, other = (pl.connect(head["address"])._connected() for _ in range(2))
        host = Host(owner, "shared")
        note = function(other.visit(host.id), "note")
        assert note.call(("other", 1), {}) == 1
        os.kill(head["pid"], signal.SIGKILL)
        assert note.call(("other", 2), {}) == 2, "nothing that runs needs the head"
        port = head["address"].rpartition(":")[2]
        paceline.run(["start", "--port", port, "--no-node", "--json"], beat).ok()
        wait_until(lambda: is_known(other, "shared"), "the owner to be back", 30)
        assert note.call(("other", 3), {}) == 3
        assert host.call("read") == [("other", 1), ("other", 2), ("other", 3)]
        os.kill(host.call("pid"), signal.SIGKILL)
        with pytest.raises(errors.ActorDied):
            note.call(("other", 4), {})
    finally:
        pl.shutdown()
        paceline.end()


def is_known(session: _native.Session, name: str) -> bool:
    try:
        return session.find_actor(name, 0) is not None
    except _native.Unreached:
        return False


MAKER = """
import sys
sys.path[:0] = {path!r}
import paceline as pl
from paceline import _detached
from paceline._functions import pack
from test_guests import build, function
with pl.connect({address!r}) as cluster:
    session = cluster._connected()
    options = {{"name": "kept", "restarts": 0, "cpus": 0}}
    identity = _detached.create(session, pack(build)[0], "build", (), {{}}, options, b"a diary")
    assert function(session.visit(identity), "note").call(("maker", 0), {{}}) == 1
"""


def test_a_detached_actor_outlives_its_maker_and_its_own_program(daemons: Daemons) -> None:
    with daemons.script(MAKER) as maker:
        done = maker.wait(60)
        assert done.returncode == 0, done.transcript()
    with pl.connect(daemons.address) as cluster:
        session = cluster._connected()
        found = session.find_actor("kept")
        assert found is not None
        assert found[1] == b"a diary"
        guest = session.visit(found[0])
        assert function(guest, "read").call((), {}) == [("maker", 0)]
        [listed] = daemons.paceline.status()["actors"]
        assert (listed["name"], listed["program"]) == ("kept", "actor.kept")
        first = pid_of(guest)
        [keeper] = daemons.keepers()
        os.kill(keeper, signal.SIGKILL)
        # It is built anew, and whoever visits it is led there.
        wait_until(lambda: pid_of(guest) not in (0, first), "another one", 30)
        assert function(guest, "read").call((), {}) == []
        session.actor_gone(found[0], "it has done its work")
        wait_until(lambda: session.find_actor("kept", 0) is None, "the end of the actor", 30)
        wait_until(lambda: daemons.keepers() == [], "the end of its program", 30)


def pid_of(guest: _native.Guest) -> int:
    try:
        return int(function(guest, "pid").call((), {}))
    except errors.ActorDied:
        return 0


BOX = """
import sys
sys.path[:0] = {path!r}
import paceline as pl

@pl.remote(cpus=0)
class Box:
    def __init__(self, start):
        self.number = start
    def add(self, step):
        self.number += step
        return self.number

with pl.connect({address!r}):
    box = Box.options(name="box", detached=True)(10)
    assert box.add(1) == 11
    try:
        Box.options(name="box", detached=True)(0)
    except pl.ActorRefused:
        print("one is enough")
"""


def test_detached_actors_of_the_users_own_classes(daemons: Daemons) -> None:
    with daemons.script(BOX) as maker:
        done = maker.wait(60)
        assert done.returncode == 0, done.transcript()
        assert done.stdout.split() == ["one", "is", "enough"]
    with pl.connect(daemons.address):
        box = pl.get_actor("box")
        assert box.add(1) == 12
        assert box.number == 12
        pl.destroy(box)
        wait_until(lambda: not is_there("box"), "the end of the actor", 30)


def is_there(name: str) -> bool:
    try:
        pl.get_actor(name)
    except errors.NoSuchActor:
        return False
    return True

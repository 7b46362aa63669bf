"""Detached actors when things go wrong: their constructor, their keeper, their node, the head."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kept
import paceline as pl
from paceline import _detached
from support import wait_until
from support.daemons import Commands
from support.processes import is_dead
from support.scripts import Running, start_script

BEAT = {"PACELINE_HEARTBEAT": "300ms", "PACELINE_HEAD_LOST": "4s"}
SECONDS = 30.0


@pytest.fixture
def paceline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    for name, value in BEAT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "home"))
    # What is pickled by reference must be found where keepers run.
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent), *sys.path])
    paceline = Commands(tmp_path / "home")
    try:
        yield paceline
    finally:
        pl.shutdown()
        paceline.end()


def started(paceline: Commands, *nodes: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """A head that is no node, and these nodes; this program is connected."""
    head = paceline.start("--no-node", **BEAT)
    joined = {name: paceline.join(head["address"], name, "--cpus", "2", **BEAT) for name in nodes}
    pl.connect(head["address"])
    return head, joined


def in_time(call: Callable[[], Any], what: str) -> Any:
    """What a call returns once it does."""
    found: list[Any] = []

    def tried() -> bool:
        try:
            found.append(call())
        except (pl.ActorDied, pl.ActorUnavailable):
            return False
        return True

    wait_until(tried, what, SECONDS)
    return found[-1]


def keeper(paceline: Commands) -> int:
    [pid] = [each.pid for each in paceline.processes() if "paceline._detached" in each.command]
    return pid


def start_again(paceline: Commands, head: dict[str, Any]) -> None:
    """Kill the head, and have another one in its place."""
    os.kill(head["pid"], signal.SIGKILL)
    wait_until(lambda: is_dead(head["pid"]), "the head to be gone")
    port = head["address"].rpartition(":")[2]
    paceline.run(["start", "--port", port, "--no-node", "--json"], BEAT).ok()


def home_of(paceline: Commands, name: str) -> str:
    """The node that an actor is on."""

    def place() -> Any:
        [place] = [actor["place"] for actor in paceline.status()["actors"] if actor["name"] == name]
        return place

    return str(wait_until(place, "the actor to have a place")["node"])


def test_what_its_constructor_raises_is_raised_at_its_maker(paceline: Commands) -> None:
    started(paceline, "a")
    fails = pl.remote(cpus=0)(kept.Fails).options(name="box", detached=True)
    with pytest.raises(kept.Odd, match="no such data") as caught:
        fails("data")
    assert isinstance(caught.value.__cause__, pl.RemoteTraceback)
    assert "in __init__" in str(caught.value.__cause__)
    with pytest.raises(kept.Odd):
        fails.submit("data").result(SECONDS)
    dies = pl.remote(cpus=0)(kept.Dies).options(name="box", detached=True)
    with pytest.raises(pl.ActorDied, match="its slot died, and it is not rebuilt"):
        dies()
    # The name is free again.
    box: Any = pl.remote(cpus=0)(kept.Box).options(name="box", detached=True)(3)
    assert box.add(1) == 4
    wait_until(lambda: len([each for each in paceline.processes() if "_detached" in each.command]) == 1, "one keeper")


def test_its_keeper_dies_in_the_middle_of_a_call(paceline: Commands, tmp_path: Path) -> None:
    started(paceline, "a")
    box: Any = pl.remote(cpus=0)(kept.Box).options(name="box", detached=True)(3)
    first = box.pid()
    running = box.hold.submit(str(tmp_path / "begun"))
    behind = box.add.submit(1)
    wait_until((tmp_path / "begun").exists, "the call to begin")
    os.kill(keeper(paceline), signal.SIGKILL)
    with pytest.raises(pl.ActorDied) as caught:
        running.result(SECONDS)
    assert caught.value.ran
    assert in_time(lambda: behind.result(SECONDS), "what had not begun") == 4
    assert box.pid() != first
    assert not Path(f"/proc/{first}").exists(), "never two at a time"


def test_its_node_is_lost(paceline: Commands) -> None:
    _, nodes = started(paceline, "a", "b")
    box: Any = pl.remote(cpus=0)(kept.Box).options(name="box", detached=True)(3)
    assert box.add(1) == 4
    lost, first = home_of(paceline, "box"), box.pid()
    os.kill(nodes[lost]["pid"], signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{first}").exists(), "its process to be gone")
    began = time.monotonic()
    assert in_time(lambda: box.add(10), "another one") == 13
    assert time.monotonic() - began < 15
    assert home_of(paceline, "box") != lost
    assert pl.get_actor("box") == box


def test_the_head_starts_again_in_the_middle_of_calls(paceline: Commands, tmp_path: Path) -> None:
    head, _ = started(paceline, "a")
    box: Any = pl.remote(cpus=0)(kept.Box).options(name="box", detached=True)(3)
    first = box.pid()
    running = box.hold.submit(str(tmp_path / "begun"))
    wait_until((tmp_path / "begun").exists, "the call to begin")
    start_again(paceline, head)
    behind = box.add.submit(1)
    (tmp_path / "begun.enough").touch()
    assert running.result(SECONDS) == "held"
    assert behind.result(SECONDS) == 4
    assert box.pid() == first, "nothing that runs needs the head"
    wait_until(lambda: is_there("box"), "the head to know it again", SECONDS)
    assert pl.get_actor("box").add(1) == 5
    pl.destroy(box)
    wait_until(lambda: not is_there("box"), "the end of the actor", SECONDS)


def test_its_maker_is_gone(paceline: Commands) -> None:
    head, _ = started(paceline, "a")
    script = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import kept
        import paceline as pl
        pl.connect({head["address"]!r})
        box = pl.remote(cpus=0)(kept.Box).options(name="box", detached=True)(3)
        assert box.add(1) == 4
        other = pl.remote(cpus=0)(kept.Box).options(name="other")(3)
        print(other.add(1), flush=True)
        import time
        time.sleep(60)
    """
    with start_script(script, env={"PACELINE_HOME": str(paceline.home), **BEAT}) as maker:
        wait_until(maker.output, "what it has made", SECONDS, maker.errors)
        other: Any = pl.get_actor("other")
        assert other.add(1) == 5
        maker.send_signal(signal.SIGKILL)
        with pytest.raises(pl.ActorDied, match=r"has ended|its slot died"):
            wait_until(lambda: other.add(1) < 0, "the end of what was not detached", SECONDS)
        assert pl.get_actor("box").add(1) == 5
        with pytest.raises(pl.NoSuchActor):
            pl.get_actor("other")


def test_a_head_that_starts_again_hears_of_actors_by_their_owners(paceline: Commands) -> None:
    head, _ = started(paceline, "a")
    box: Any = pl.remote(cpus=0)(kept.Box).options(name="box")(3)
    assert box.add(1) == 4
    start_again(paceline, head)
    wait_until(lambda: is_there("box"), "the head to know it again", SECONDS)
    assert pl.get_actor("box").add(1) == 5


def test_a_name_that_nobody_has_is_told_at_once(paceline: Commands) -> None:
    started(paceline, "a")
    began = time.monotonic()
    with pytest.raises(pl.NoSuchActor):
        pl.get_actor("nobody")
    assert time.monotonic() - began < 0.5 * 0.3, "half a heartbeat"


MAKES = """
    import sys
    sys.path.insert(0, PATH)
    import kept
    import paceline as pl
    pl.connect(ADDRESS)
    print("makes", flush=True)
    try:
        pl.remote(cpus=CPUS)(kept.Box).options(name="box", detached=True)(3)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def maker_of(paceline: Commands, address: str, cpus: int) -> Running:
    """A program that makes a detached actor."""
    path = str(Path(__file__).parent)
    script = MAKES.replace("PATH", repr(path)).replace("ADDRESS", repr(address)).replace("CPUS", str(cpus))
    return start_script(script, env={"PACELINE_HOME": str(paceline.home), **BEAT})


def state_of(paceline: Commands, program: str) -> str | None:
    states = {each["program"]: each["state"] for each in paceline.status()["programs"]}
    return states.get(program)


def assert_nothing_came(paceline: Commands, address: str, node: str) -> None:
    """Nothing of an actor that nobody has comes with a node that it could be on."""
    wait_until(lambda: state_of(paceline, "actor.box") in (None, "ended"), "the end of its program", SECONDS)
    paceline.join(address, node, "--cpus", "2", **BEAT)
    pl.connect(address)
    box: Any = pl.remote(cpus=0)(kept.Box).options(name="box", detached=True)(5)
    assert box.add(1) == 6, "the name was free"


def test_ctrl_c_ends_the_making_of_one_whose_program_cannot_start(paceline: Commands) -> None:
    head = paceline.start("--no-node", **BEAT)
    with maker_of(paceline, head["address"], cpus=0) as maker:
        wait_until(lambda: state_of(paceline, "actor.box") == "waiting", "its program", SECONDS, maker.errors)
        maker.send_signal(signal.SIGINT)
        wait_until(lambda: "interrupted" in maker.output(), "the end of the wait", 5, maker.errors)
        maker.wait().ok()
    assert_nothing_came(paceline, head["address"], "a")


def test_ctrl_c_ends_the_making_of_one_whose_constructor_waits_for_cpus(paceline: Commands) -> None:
    head = paceline.start("--no-node", **BEAT)
    paceline.join(head["address"], "a", "--cpus", "1", **BEAT)
    paceline("submit", "--name", "hog", "--cpus", "1", "--", "sleep", "200").ok()
    wait_until(lambda: state_of(paceline, "hog") == "running", "what has the CPU", SECONDS)
    with maker_of(paceline, head["address"], cpus=1) as maker:
        wait_until(lambda: paceline.status()["actors"], "the head to know it", SECONDS, maker.errors)
        maker.send_signal(signal.SIGINT)
        wait_until(lambda: "interrupted" in maker.output(), "the end of the wait", 5, maker.errors)
        maker.wait().ok()
    assert_nothing_came(paceline, head["address"], "b")


def test_one_that_is_late_never_comes_and_its_maker_hears_what_it_waited_for(
    paceline: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = paceline.start("--no-node", **BEAT)
    pl.connect(head["address"])
    with monkeypatch.context() as patch:
        patch.setattr(_detached, "START", 1.0)
        with pytest.raises(pl.ActorRefused, match=r"still waited for .*no node is here, and is ended"):
            pl.remote(cpus=0)(kept.Box).options(name="box", detached=True)(3)
    assert_nothing_came(paceline, head["address"], "a")


def is_there(name: str) -> bool:
    try:
        pl.get_actor(name)
    except (pl.NoSuchActor, pl.PacelineError):
        return False
    return True

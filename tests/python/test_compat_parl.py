"""Remote classes of PARL, after a changed import line."""

from __future__ import annotations

import logging
import os
import signal
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import paceline as pl
import paceline.compat.parl as parl
from paceline.compat.parl import _link
from paceline.compat.parl.remote import client, exceptions
from paceline.compat.parl.remote.master import Master
from paceline.compat.parl.remote.worker import Worker
from paceline.compat.parl.utils import SerializeError, get_free_tcp_port
from support import run_script, wait_until
from support.daemons import Commands
from support.processes import MARKER


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    """A home of its own, and nothing left of what was started in it."""
    commands = Commands(tmp_path / "home")
    monkeypatch.setenv("PACELINE_HOME", str(commands.home))
    monkeypatch.setenv(MARKER, commands.marker)
    yield commands
    client.disconnect()
    commands.end()


@pytest.fixture
def master(home: Commands) -> Iterator[Master]:
    """A master with two workers of two CPUs, and this process connected to it."""
    master = Master(get_free_tcp_port())
    workers = [Worker(f"localhost:{master.port}", 2) for _ in range(2)]
    parl.connect(f"localhost:{master.port}")
    yield master
    client.disconnect()
    for worker in workers:
        worker.exit()
    master.exit()
    home.assert_nothing_left()


class Plain:
    """What the remote classes of these tests are."""

    def __init__(self, start: int = 0) -> None:
        self.count = start
        self.internal_lock = "a name of PARL's own"
        self.GLOBAL_CLIENT = "another"

    def add(self, step: int = 1) -> int:
        self.count += step
        return self.count

    def pid(self) -> int:
        return os.getpid()

    def nap(self, seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    def fail(self, words: str = "no") -> None:
        raise ValueError(words)

    def leave(self) -> None:
        raise SystemExit(3)

    def crash(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def odd(self) -> Any:
        return threading.Lock()

    def grow(self, size: int) -> int:
        self.data = bytearray(b"x") * size
        return len(self.data)

    def shadow(self) -> None:
        self.add = 5  # type: ignore[assignment,method-assign]

    def missing(self) -> Any:
        return self.no_such_thing  # type: ignore[attr-defined]

    def devices(self) -> str | None:
        return os.environ.get("CUDA_VISIBLE_DEVICES")


Actor: Any = parl.remote_class(Plain)
Later: Any = parl.remote_class(wait=False)(Plain)


@pytest.mark.usefixtures("master")
class TestObjects:
    def test_methods_run_in_a_process_of_their_own(self) -> None:
        actor = Actor(start=10)
        assert actor.add() == 11
        assert actor.add(step=5) == 16
        assert actor.pid() != os.getpid()
        assert Actor().pid() != actor.pid()

    def test_attributes(self) -> None:
        """Read and set, new ones and such that have names of the proxy's own."""
        actor = Actor(3)
        assert (actor.count, actor.internal_lock, actor.GLOBAL_CLIENT) == (3, "a name of PARL's own", "another")
        actor.count = 7
        assert (actor.count, actor.add()) == (7, 8)
        actor.fresh = [1, 2]
        assert actor.fresh == [1, 2]
        actor.grow(3)
        assert actor.data == b"xxx"

    def test_an_attribute_wins_over_a_method(self) -> None:
        actor = Actor()
        actor.shadow()
        assert actor.add == 5
        with pytest.raises(TypeError, match="not callable"):
            actor.add()

    def test_reserved_names(self) -> None:
        with pytest.raises(AssertionError, match="reserved name in xparl"):
            Actor(_xparl_start=1)
        actor = Actor()
        with pytest.raises(AssertionError, match="_xparl_thing"):
            actor._xparl_thing = 1

    def test_the_plain_class(self) -> None:
        assert Actor._original is Plain
        assert Actor._original(4).add() == 5

    def test_an_object_ends_with_its_first_exception(self, master: Master) -> None:
        actor = Actor()
        assert master.cpu_num == 3
        with pytest.raises(exceptions.RemoteError) as raised:
            actor.fail("a bad thing")
        assert str(raised.value).startswith("[Error occurred in xparl, when calling function `fail`]:\na bad thing")
        assert "traceback:\n" in str(raised.value)
        assert "raise ValueError(words)" in str(raised.value)
        with pytest.raises(exceptions.RemoteError, match="disconncted with the remote instance"):
            actor.add()
        with pytest.raises(exceptions.RemoteError, match="disconncted"):
            _ = actor.count
        wait_until(lambda: master.cpu_num == 4, "its CPU to be free")
        assert Actor().add() == 1

    def test_a_constructor_that_fails(self, master: Master) -> None:
        @parl.remote_class
        class Bad:
            def __init__(self) -> None:
                raise KeyError("nothing here")

        with pytest.raises(exceptions.RemoteError, match=r"`__init__`(.|\n)*nothing here(.|\n)*traceback"):
            Bad()
        wait_until(lambda: master.cpu_num == 4, "its CPU to be free")

    def test_names_that_are_not_there(self) -> None:
        with pytest.raises(exceptions.RemoteAttributeError, match="no_such_method"):
            Actor().no_such_method()
        with pytest.raises(exceptions.RemoteAttributeError, match="no_such_thing"):
            Actor().missing()

    def test_what_cannot_be_sent(self) -> None:
        actor = Actor()
        with pytest.raises(SerializeError):
            actor.add(threading.Lock())
        assert actor.add() == 1, "the object goes on"
        with pytest.raises(exceptions.RemoteSerializeError):
            actor.odd()
        with pytest.raises(exceptions.RemoteError, match="disconncted"):
            actor.add()
        with pytest.raises(exceptions.RemoteSerializeError):
            Actor(threading.Lock())

    @pytest.mark.parametrize("ending", ["leave", "crash"])
    def test_an_object_whose_process_ends(self, ending: str, master: Master) -> None:
        actor = Actor()
        began = time.monotonic()
        with pytest.raises(exceptions.RemoteError):
            getattr(actor, ending)()
        assert time.monotonic() - began < 5
        with pytest.raises(exceptions.RemoteError, match="disconncted"):
            actor.add()
        wait_until(lambda: master.cpu_num == 4, "its CPU to be free")
        assert Actor().add() == 1

    def test_forgetting_it_frees_its_slot(self, master: Master) -> None:
        actor = Actor()
        assert (master.cpu_num, client.get_global_client().actor_num.value) == (3, 1)
        del actor
        wait_until(lambda: master.cpu_num == 4, "its CPU to be free")
        assert client.get_global_client().actor_num.value == 0

    def test_more_objects_than_slots_one_after_the_other(self) -> None:
        for number in range(10):
            assert Actor(number).add() == number + 1
        actors = [Actor() for _ in range(4)]
        assert len({actor.pid() for actor in actors}) == 4

    def test_threads(self) -> None:
        """Calls of one object come one after the other, those of several side by side."""
        actors = [Actor() for _ in range(4)]
        counts: list[int] = []
        threads = [threading.Thread(target=lambda: counts.append(actors[0].add())) for _ in range(20)]
        threads += [threading.Thread(target=actor.nap, args=(0.5,)) for actor in actors[1:]]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert sorted(counts) == list(range(1, 21))
        assert time.monotonic() - began < 1.4

    def test_decorated_classes_are_plain_inside_an_object(self) -> None:
        @parl.remote_class
        class Outer:
            def inner(self) -> tuple[int, int]:
                actor = Actor(1)
                return actor.pid(), os.getpid()

        inside, outside = Outer().inner()
        assert inside == outside

    def test_no_room(self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        actors = [Actor() for _ in range(4)]
        monkeypatch.setattr(_link, "PATIENCE", 1.0)
        monkeypatch.setattr(_link, "EVERY", 0.4)
        with caplog.at_level(logging.WARNING, "parl"), pytest.raises(exceptions.ResourceError, match="try again later"):
            Actor()
        assert "No vacant cpu/gpu resources at the moment" in caplog.text
        assert [actor.add() for actor in actors] == [1] * 4
        del actors[0]
        monkeypatch.setattr(_link, "PATIENCE", 20.0)
        assert Actor().add() == 1

    def test_a_constructor_may_take_its_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        @parl.remote_class
        class Slow:
            def __init__(self) -> None:
                time.sleep(2)
                self.ready = True

        Actor().add()
        monkeypatch.setattr(_link, "PATIENCE", 1.5)
        monkeypatch.setattr(_link, "EVERY", 0.4)
        assert Slow().ready

    def test_too_many_gpus_or_gpus_that_are_not_there(self) -> None:
        with pytest.raises(Exception, match="not allowed to request GPU resource from a CPU cluster"):
            parl.remote_class(n_gpu=1)(Plain)()
        with pytest.raises(Exception, match="request 9 GPUs, but rejected"):
            parl.remote_class(n_gpu=9)(Plain)()

    def test_too_much_memory(self, master: Master) -> None:
        kind = parl.remote_class(max_memory=200)(Plain)
        actor = kind()
        assert actor.grow(50_000_000) == 50_000_000
        with pytest.raises(exceptions.RemoteError, match=r"disconncted(.|\n)*memory"):
            actor.grow(500_000_000)
        wait_until(lambda: master.cpu_num == 4, "its CPU to be free")


@pytest.mark.usefixtures("master")
class TestFutures:
    def test_calls_return_at_once(self) -> None:
        began = time.monotonic()
        actor = Later(5)
        future = actor.nap(0.5)
        behind = actor.add()
        assert time.monotonic() - began < 0.4
        assert future.empty()
        with pytest.raises(exceptions.FutureObjectEmpty, match="currently unavailable"):
            future.get_nowait()
        with pytest.raises(exceptions.FutureObjectEmpty):
            future.get(timeout=0.01)
        assert future.get() == 0.5
        assert behind.get(timeout=20) == 6
        actor.destroy()

    def test_a_value_is_taken_once(self) -> None:
        future = Later().add()
        assert future.get() == 1
        with pytest.raises(exceptions.FutureGetRepeatedlyError):
            future.get()
        with pytest.raises(AssertionError):
            Later().add().get(timeout=0)

    def test_attributes(self) -> None:
        actor = Later(2)
        actor.add()
        assert actor.count == 3, "read after the calls before it"
        actor.count = 10
        assert actor.add().get() == 11
        actor.grow(2)
        assert actor.data == b"xx", "an attribute that the call before has made"
        actor.shadow().get()
        assert actor.add == 5

    def test_a_failure(self, master: Master, caplog: pytest.LogCaptureFixture) -> None:
        actor = Later()
        future = actor.fail("a bad thing")
        behind = actor.add()
        with caplog.at_level(logging.ERROR, "parl"), pytest.raises(exceptions.FutureFunctionError) as raised:
            future.get()
        assert "when calling the future function `fail`" in str(raised.value)
        with pytest.raises(exceptions.FutureFunctionError):
            behind.get()
        with pytest.raises(exceptions.FutureFunctionError, match="`fail`"):
            actor.add()
        with pytest.raises(exceptions.FutureFunctionError):
            _ = actor.count
        with pytest.raises(exceptions.FutureGetRepeatedlyError):
            future.get()
        wait_until(lambda: "a bad thing" in caplog.text, "the error to be told")
        wait_until(lambda: master.cpu_num == 4, "its CPU to be free")

    def test_a_constructor_that_fails(self) -> None:
        @parl.remote_class(wait=False)
        class Bad:
            def __init__(self) -> None:
                raise KeyError("nothing here")

            def run(self) -> None: ...

        bad = Bad()
        with pytest.raises(exceptions.FutureFunctionError, match="`__init__`"):
            bad.run().get()
        with pytest.raises(exceptions.FutureFunctionError, match="`__init__`"):
            bad.run()

    def test_no_room_and_a_slow_constructor(self, monkeypatch: pytest.MonkeyPatch) -> None:
        actors = [Later() for _ in range(4)]
        assert [actor.add().get() for actor in actors] == [1] * 4
        monkeypatch.setattr(_link, "PATIENCE", 1.5)
        waits = Later().add()
        with pytest.raises(exceptions.FutureFunctionError, match="`__init__`") as raised:
            waits.get(timeout=30)
        assert isinstance(raised.value.__cause__, pl.NoResources)
        actors.pop().destroy()

        @parl.remote_class(wait=False)
        class Slow:
            def __init__(self) -> None:
                time.sleep(3)

            def run(self) -> str:
                return "in the end"

        assert Slow().run().get(timeout=30) == "in the end"

    def test_destroy_and_forgetting(self, master: Master) -> None:
        actor = Later()
        assert actor.add().get() == 1
        assert master.cpu_num == 3
        actor.destroy()
        wait_until(lambda: master.cpu_num == 4, "its CPU to be free")
        future = Later(4).add()
        assert future.get() == 5, "a future keeps its object"
        del future
        wait_until(lambda: master.cpu_num == 4, "its CPU to be free")

    def test_objects_work_side_by_side(self) -> None:
        actors = [Later() for _ in range(4)]
        for actor in actors:
            actor.add().get()
        began = time.monotonic()
        assert [future.get() for future in [actor.nap(0.5) for actor in actors]] == [0.5] * 4
        assert time.monotonic() - began < 1.4


def test_the_decorator_says_what_it_does_not_take() -> None:
    with pytest.raises(AssertionError, match="Argument `n_cpu` is not supported"):
        parl.remote_class(n_cpu=1)
    with pytest.raises(AssertionError, match="Only class can be decorated"):
        parl.remote_class(lambda: None)


def test_not_connected(home: Commands) -> None:
    with pytest.raises(AssertionError, match="have you connected to the cluster"):
        Actor()


def test_gpus(home: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_FAKE_GPUS", "4x16GB")
    master = Master(get_free_tcp_port(), device="gpu")
    worker = Worker(f"localhost:{master.port}", gpu="0,1,2")
    parl.connect(f"localhost:{master.port}")
    assert master.gpu_num == 3
    kind = parl.remote_class(n_gpu=2)(Plain)
    two = kind()
    one = parl.remote_class(n_gpu=1)(Plain)()
    assert sorted(f"{two.devices()},{one.devices()}".split(",")) == ["0", "1", "2"]
    assert master.gpu_num == 0
    with pytest.raises(Exception, match="not allowed to request CPU resource from a GPU cluster"):
        Actor()
    del two, one
    client.disconnect()
    worker.exit()
    master.exit()
    home.assert_nothing_left()


def test_child_processes_have_clients_of_their_own(master: Master) -> None:
    text = f"""
    import multiprocessing, os
    import paceline.compat.parl as parl

    @parl.remote_class
    class Actor:
        def pid(self):
            return os.getpid()

    def child(number):
        return Actor().pid()

    parl.connect("localhost:{master.port}")
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pids = pool.map(child, range(2), 1)
    pids.append(Actor().pid())
    print(len(pids), os.getpid() in pids)
    """
    assert run_script(textwrap.dedent(text)).ok().stdout == "3 False\n"


def test_an_object_is_made_in_the_module_of_its_class(master: Master) -> None:
    """The slot may import that module, and does not make another one there."""
    module = f"""
    import os
    import paceline.compat.parl as parl

    @parl.remote_class
    class Actor:
        def pid(self):
            return os.getpid()

    parl.connect("localhost:{master.port}")
    actor = Actor()

    def here():
        return actor.pid()
    """
    text = """
    import os, module, paceline as pl
    print(module.here() != os.getpid(), module.Actor().pid() != module.actor.pid())
    """
    done = run_script(textwrap.dedent(text), files={"module.py": module}).ok()
    assert done.stdout == "True True\n"


def test_when_the_client_is_killed_its_objects_end(master: Master) -> None:
    text = f"""
    import os, signal
    import paceline.compat.parl as parl
    parl.connect("localhost:{master.port}")
    class Actor:
        pass
    actors = [parl.remote_class(Actor)() for _ in range(3)]
    os.kill(os.getpid(), signal.SIGKILL)
    """
    assert run_script(textwrap.dedent(text)).returncode == -signal.SIGKILL
    wait_until(lambda: master.cpu_num == 4, "its CPUs to be free")


def test_a_program_may_simply_end(master: Master) -> None:
    text = f"""
    import paceline.compat.parl as parl
    parl.connect("localhost:{master.port}")

    class Plain:
        def add(self, x):
            return x + 1

    one, two = parl.remote_class(Plain)(), parl.remote_class(wait=False)(Plain)()
    print(one.add(1), two.add(2).get())
    """
    done = run_script(textwrap.dedent(text)).ok()
    assert (done.stdout, done.stderr) == ("2 3\n", "")
    wait_until(lambda: master.cpu_num == 4, "its CPUs to be free")


def test_errors_are_those_of_paceline_underneath(master: Master) -> None:
    actor = Actor()
    with pytest.raises(exceptions.RemoteError) as raised:
        actor.crash()
    assert isinstance(raised.value.__cause__, pl.PacelineError)

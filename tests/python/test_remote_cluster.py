"""Clusters at an address: real daemons on this machine, reached as if they were far away, over a network that fails."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import paceline as pl
from support.daemons import Commands
from support.programs import built
from support.proxies import Proxy
from support.scripts import start_script
from support.waiting import wait_until

# Silence counts after three of them.
BEAT = "300ms"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@dataclass
class Far:
    """A head and nodes, each node behind a proxy that clients have to go through."""

    paceline: Commands
    directory: Path
    head: dict[str, Any]
    door: Proxy
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    proxies: dict[str, Proxy] = field(default_factory=dict)
    homes: dict[str, Commands] = field(default_factory=dict)

    @property
    def key(self) -> Path:
        return self.paceline.home / "clusters/default/key"

    def join(self, name: str, cpus: int = 1) -> None:
        home = Commands(self.directory / name, self.paceline.marker)
        token = self.paceline("token", "--json").ok().json["token"]
        port, proxy = free_port(), Proxy()
        proxy.lead_to(f"127.0.0.1:{port}")
        arguments = ["--node-name", name, "--node-port", str(port), "--advertise", proxy.address, "--token", token]
        told = home("join", self.head["address"], *arguments, "--cpus", str(cpus), "--json", PACELINE_HEARTBEAT=BEAT)
        self.nodes[name], self.proxies[name], self.homes[name] = dict(told.ok().json), proxy, home
        wait_until(lambda: name in self.paceline.nodes(), f"node {name}")

    def connect(self, **options: Any) -> pl.Cluster:
        """Through the proxy, with the key in hand."""
        return pl.connect(self.door.address, key_file=self.key, **options)

    def end(self) -> None:
        pl.shutdown()
        for proxy in (self.door, *self.proxies.values()):
            proxy.close()
        self.paceline.end()


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Far]:
    """Two nodes of one CPU, nothing of which can be reached by the short ways of one machine."""
    monkeypatch.setenv("PACELINE_LOCAL", "off")
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "client"))
    monkeypatch.setenv("PACELINE_HEARTBEAT", BEAT)
    paceline = Commands(tmp_path / "home")
    head = paceline.start("--no-node", PACELINE_HEARTBEAT=BEAT, PACELINE_CLIENT_LOST="4s")
    far = Far(paceline, tmp_path, head, Proxy(head["address"]))
    try:
        far.join("a")
        far.join("b")
        yield far
    finally:
        far.end()


@pytest.fixture
def near(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A cluster of this user on this machine, of two CPUs."""
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "near"))
    paceline = Commands(tmp_path / "near")
    try:
        yield paceline.start("--cpus", "2")
    finally:
        pl.shutdown()
        paceline.end()


@pl.remote
def square(x: int) -> int:
    return x * x


@pl.remote
def whereabouts(_: object = None) -> tuple[int, str]:
    time.sleep(0.05)
    return os.getpid(), os.getcwd()


@pl.remote
def note(path: str, number: int, size: int = 0) -> tuple[int, bytes]:
    """Leaves a mark for each time it runs."""
    with open(path, "a") as file:
        file.write(f"{number}\n")
    time.sleep(0.002)
    return number, b"x" * size


@pl.remote
def slow(path: str, seconds: float) -> int:
    mark = Path(path)
    mark.with_suffix(".new").write_text(str(os.getpid()))
    mark.with_suffix(".new").rename(mark)
    time.sleep(seconds)
    return os.getpid()


@pl.remote
def outer(numbers: list[int]) -> list[int]:
    return square.map(numbers)


@pl.remote
def shout(text: str) -> None:
    print(text)
    print(text.upper(), file=sys.stderr)


@pl.remote
def fail() -> None:
    raise ValueError("on purpose")


def counts(path: Path) -> dict[str, int]:
    lines = path.read_text().split()
    return {line: lines.count(line) for line in set(lines)}


# What is near


def test_by_its_address_alone_on_the_same_machine(near: dict[str, Any]) -> None:
    with pl.connect(near["address"]) as cluster:
        assert square.map(range(50)) == [x * x for x in range(50)]
        assert cluster.cpus == 2
        assert cluster.address == near["address"]
        [client] = cluster.status()["clients"]
        assert client["link"] == "unix"
        assert {directory for _, directory in whereabouts.map(range(4))} == {os.getcwd()}, "the client's own directory"
    with pytest.raises(pl.ClusterClosed):
        cluster.status()


def test_what_runs_here_is_found(near: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with pl.connect("auto"):
        assert square(3) == 9
    monkeypatch.setenv("PACELINE_ADDRESS", near["address"])
    with pl.connect() as cluster:
        assert cluster.address == near["address"]
        assert square(4) == 16
        cluster.disconnect()
        cluster.close()
        pl.disconnect()


def test_a_forked_child_has_a_client_of_its_own(near: dict[str, Any]) -> None:
    with pl.connect(near["address"]) as cluster:
        assert square(2) == 4
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                os._exit(0 if square(5) == 25 and len(cluster.status()["clients"]) == 2 else 3)
            os._exit(4)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert square(6) == 36, "the parent's goes on"


def test_a_client_that_is_killed_here_is_known_to_be_gone_at_once(near: dict[str, Any], tmp_path: Path) -> None:
    mark = tmp_path / "running"
    script = f"""
        import time, paceline as pl
        def long():
            open({str(mark)!r}, "w").close()
            time.sleep(300)
        with pl.connect({near["address"]!r}):
            pl.remote(long)()
    """
    with start_script(script) as client:
        wait_until(mark.exists, "the task to run", 30)
        client.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        with pl.connect(near["address"]) as cluster:
            wait_until(lambda: cluster.status()["leases"] == [], "its lease to end", 10, cluster.status)
            assert time.monotonic() - killed < 5, "much sooner than one that is only out of reach"


def test_a_cluster_that_is_stopped_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "home"))
    paceline = Commands(tmp_path / "home")
    try:
        up = paceline.start("--cpus", "1")
        cluster = pl.connect(up["address"])
        assert square(3) == 9
        paceline("stop").ok()
        wait_until(lambda: _is_closed(cluster), "the client to hear of it")
    finally:
        pl.shutdown()
        paceline.end()


def _is_closed(cluster: pl.Cluster) -> bool:
    try:
        cluster.status()
    except pl.PacelineError:
        return True
    return False


# Getting in


@pytest.mark.parametrize("address", ["nonsense", "host:0", "http://host:7077", "host:port", ":7077", "a b:1"])
def test_nonsense_is_refused_before_anything_is_looked_up(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def lookup(*_: object, **__: object) -> None:
        raise AssertionError("looked up")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    with pytest.raises(pl.PacelineError, match="not an address") as caught:
        pl.connect(address)
    assert "HOST:PORT" in str(caught.value)


def test_a_dead_address_is_explained_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    address = f"127.0.0.1:{free_port()}"
    started = time.monotonic()
    with pytest.raises(pl.ConnectionFailed) as caught:
        pl.connect(address)
    assert time.monotonic() - started < 10
    assert address in str(caught.value)
    assert caught.value.address == address
    assert "running" in (caught.value.hint or "")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        with pytest.raises(pl.ConnectionFailed, match="did not answer in time"):
            pl.connect(f"127.0.0.1:{silent.getsockname()[1]}", key_file=_some_key(tmp_path))
        assert time.monotonic() - started < 10


def _some_key(directory: Path) -> Path:
    path = directory / "some-key"
    path.write_text("ab" * 32)
    path.chmod(0o600)
    return path


def test_nobody_comes_in_without_the_right_key(far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(pl.ConnectionFailed, match=far.door.address) as caught:
        pl.connect(far.door.address)
    assert "PACELINE_KEY" in (caught.value.hint or "")
    with pytest.raises(pl.ConnectionFailed, match="does not take our key"):
        pl.connect(far.door.address, key_file=_some_key(tmp_path))
    with pytest.raises(pl.ConnectionFailed, match="key"):
        pl.connect(far.door.address, key_file=tmp_path / "nowhere")
    with pytest.raises(pl.PacelineError, match="give one"):
        pl.connect(far.door.address, key_file=far.key, password="x")
    monkeypatch.setenv("PACELINE_KEY", far.key.read_text().strip())
    with pl.connect(far.door.address):
        assert square(3) == 9
    monkeypatch.setenv("PACELINE_KEY", str(far.key))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    with pl.connect(far.door.address) as cluster:
        assert square(4) == 16
        assert "PACELINE_KEY" not in pl.remote(lambda: list(os.environ))()
        assert len(cluster.nodes) == 2


def test_a_password_lets_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "client"))
    secret = tmp_path / "password"
    secret.write_text("correct horse\n")
    secret.chmod(0o600)
    paceline = Commands(tmp_path / "home")
    try:
        up = paceline.start("--cpus", "1", "--password-file", str(secret))
        with pytest.raises(pl.ConnectionFailed, match="password"):
            pl.connect(up["address"], password="wrong")
        with pl.connect(up["address"], password="correct horse"):
            assert square(3) == 9
    finally:
        paceline.end()


def test_other_versions_are_refused_with_both_sides_named(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = sys.version_info
    monkeypatch.setattr(sys, "version_info", (ours[0], ours[1] + 1, 0, "final", 0))
    with pytest.raises(
        pl.ConnectionFailed, match=rf"Python {ours[0]}\.{ours[1] + 1}\.0.*Python {ours[0]}\.{ours[1]}\."
    ):
        far.connect()


def test_another_patch_level_is_only_mentioned(
    far: Far, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = sys.version_info
    monkeypatch.setattr(sys, "version_info", (ours[0], ours[1], ours[2] + 1, "final", 0))
    with far.connect():
        monkeypatch.undo()
    assert f"{ours[0]}.{ours[1]}.{ours[2] + 1}" in capsys.readouterr().err


# Work


def test_work_on_two_nodes(far: Far, capfd: pytest.CaptureFixture[str]) -> None:
    with far.connect() as cluster:
        assert square.map(range(200)) == [x * x for x in range(200)]
        places = set(whereabouts.map(range(20), chunksize=1))
        assert len({pid for pid, _ in places}) >= 2, "both nodes"
        assert all("/paceline-node-" in directory and "/clients/" in directory for _, directory in places), "of its own"
        assert {lease["link"] for lease in cluster.status()["leases"]} == {"tcp+tls"}
        assert outer([1, 2, 3]) == [1, 4, 9], "tasks of tasks"
        with pytest.raises(ValueError, match="on purpose"):
            fail()
        shout("hello there")
        large = bytes(range(256)) * (1 << 14)
        assert pl.remote(lambda data: data[::-1])(large) == large[::-1]
    out, err = capfd.readouterr()
    assert "hello there" in out
    assert "HELLO THERE" in err
    far.paceline("stop").ok()
    wait_until(lambda: not any(Path(directory).exists() for _, directory in places), "the directories to go")


class Witness:
    """Says which process reads it."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __reduce__(self) -> tuple[Any, ...]:
        return witnessed, (self.data,)


def witnessed(data: bytes) -> tuple[int, bytes]:
    return os.getpid(), data


@pl.remote
def passed_on(witness: Any) -> tuple[int, int, Witness]:
    reader, data = witness
    return os.getpid(), reader, Witness(data)


def test_what_tasks_send_is_neither_carried_nor_read_by_the_head(far: Far) -> None:
    head = far.head["pid"]

    def carried() -> int:
        fields = dict(line.split(": ") for line in Path(f"/proc/{head}/io").read_text().splitlines())
        return int(fields["rchar"]) + int(fields["wchar"])

    with far.connect():
        assert square(3) == 9
        before = carried()
        for _ in range(4):
            slot, reader, (here, data) = passed_on(Witness(bytes(8 << 20)))
            assert reader == slot
            assert here == os.getpid()
            assert len(data) == 8 << 20
        assert carried() - before < 1 << 20, "64 MB went by"


def test_references_where_no_store_is_shared(far: Far) -> None:
    with far.connect():
        ref = pl.put([1, 2, 3])
        assert pl.get(ref) == [1, 2, 3]
        assert pl.remote(sum)(ref) == 6
        assert pl.remote(lambda box: sum(box["deep"][0]))({"deep": [ref]}) == 6
        kept = pl.remote(sorted).options(keep=True).submit([3, 1, 2])
        assert pl.remote(max).submit(kept).result() == 3
        found = kept.result()
        assert isinstance(found, pl.Ref)
        assert pl.get(found) == [1, 2, 3]
        array = bytearray(b"abc")
        written = pl.put(array)
        array[0] = 0
        pl.get(written)[1] = 0
        assert pl.get(written) == b"abc"


def test_a_rust_program_connects(far: Far, near: dict[str, Any]) -> None:
    program = built("connect_to")
    done = subprocess.run([program, near["address"]], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "2 CPUs\n328350\n"
    environment = {**os.environ, "PACELINE_KEY": str(far.key)}
    done = subprocess.run([program, far.door.address], capture_output=True, text=True, timeout=30, env=environment)
    assert (done.stdout, done.returncode) == ("2 CPUs\n328350\n", 0), done.stderr
    done = subprocess.run([program, "nonsense"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert "NoAddress" in done.stderr


def test_two_clients_share(far: Far) -> None:
    script = f"""
        import paceline as pl
        with pl.connect({far.door.address!r}, key_file={str(far.key)!r}) as cluster:
            print(sum(pl.remote(lambda x: x).map(range(1000))), len(cluster.status()["clients"]))
    """
    with far.connect(), start_script(script) as other:
        assert sum(square.map(range(100))) == sum(x * x for x in range(100))
        assert other.wait(40).ok().stdout.split()[0] == "499500"


# Failures


def test_the_death_of_a_slot_is_heard_within_a_second(far: Far, tmp_path: Path) -> None:
    with far.connect():
        mark = tmp_path / "running"
        future = slow.options(retries=0).submit(str(mark), 60.0)
        wait_until(mark.exists, "the task to run")
        os.kill(int(mark.read_text()), signal.SIGKILL)
        killed = time.monotonic()
        with pytest.raises(pl.SlotDied, match="signal 9"):
            future.result(10)
        assert time.monotonic() - killed < 1


def test_tasks_of_a_node_that_is_lost_run_again(far: Far, tmp_path: Path) -> None:
    with far.connect() as cluster:
        marks = [tmp_path / "one", tmp_path / "two"]
        futures = [slow.submit(str(mark), 3.0) for mark in marks]
        wait_until(lambda: all(mark.exists() for mark in marks), "both to run")
        os.kill(far.nodes["a"]["pid"], signal.SIGKILL)
        far.proxies["a"].cut()
        assert len({future.result(30) for future in futures}) == 1, "both ended on the other node"
        assert [node["name"] for node in cluster.nodes] == ["b"]
        far.join("c")
        assert square.map(range(50)) == [x * x for x in range(50)], "a node that comes is used"


def test_a_client_that_is_killed_frees_everything(far: Far, tmp_path: Path) -> None:
    mark = tmp_path / "running"
    script = f"""
        import time, paceline as pl
        def long():
            open({str(mark)!r}, "w").close()
            time.sleep(300)
        with pl.connect({far.door.address!r}, key_file={str(far.key)!r}):
            futures = [pl.remote(long).submit() for _ in range(2)]
            futures[0].result()
    """
    with start_script(script) as client:
        wait_until(mark.exists, "the task to run", 30)
        client.send_signal(signal.SIGKILL)
        wait_until(lambda: far.paceline.status()["leases"] == [], "its leases to end", 20, far.paceline.status)
    with far.connect():
        assert square(3) == 9


def test_the_link_to_the_head_breaks_and_comes_back(far: Far, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with far.connect() as cluster:
        assert note(str(log), 0) == (0, b"")
        future = slow.submit(str(tmp_path / "mark"), 2.0)
        wait_until((tmp_path / "mark").exists, "the task to run")
        for cut in range(3):
            assert far.door.cut(reset=cut % 2 == 0) == 1
            assert square(cut) == cut * cut
            wait_until(lambda: far.door.open == 1, "another link")
        far.door.refuse()
        far.door.cut()
        assert [note(str(log), number)[0] for number in range(1, 20)] == list(range(1, 20)), (
            "leases work without a head"
        )
        far.door.refuse(False)
        assert isinstance(future.result(20), int)
        wait_until(lambda: far.door.open == 1, "another link")
        assert len(cluster.nodes) == 2
        assert square.map(range(100)) == [x * x for x in range(100)]
    assert set(counts(log).values()) == {1}, "nothing ran twice"


def test_a_head_that_falls_silent_is_asked_again(far: Far) -> None:
    with far.connect():
        assert square(3) == 9
        far.door.stall()
        before = far.door.accepted
        wait_until(lambda: far.door.accepted > before, "another link", 20)
        far.door.stall(False)
        assert square.map(range(100)) == [x * x for x in range(100)]


@pytest.mark.parametrize("size", [0, 30_000])
def test_data_links_break_in_the_middle_and_nothing_is_lost(far: Far, tmp_path: Path, size: int) -> None:
    log = tmp_path / "log"
    count = 400
    with far.connect():
        arguments = [(str(log), number, size) for number in range(count)]
        futures = [note.submit(*each) for each in arguments]
        for round_ in range(6):
            for proxy in far.proxies.values():
                proxy.cut_after(5_000 + 20_000 * round_) if round_ % 2 else proxy.cut()
            time.sleep(0.15)
        assert [future.result(40) for future in futures] == [(number, b"x" * size) for number in range(count)]
        assert sum(proxy.cuts for proxy in far.proxies.values()) >= 4
    ran = counts(log)
    assert len(ran) == count, "all ran"
    assert set(ran.values()) == {1}, "none ran twice"


def test_a_stalled_data_link_goes_on_where_it_was(far: Far, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with far.connect():
        assert note(str(log), -1) == (-1, b"")
        for proxy in far.proxies.values():
            proxy.stall()
        futures = [note.submit(str(log), number) for number in range(50)]
        time.sleep(0.5)
        for proxy in far.proxies.values():
            proxy.stall(False)
        assert [future.result(20)[0] for future in futures] == list(range(50))
    assert set(counts(log).values()) == {1}


def test_what_cannot_be_reached_is_reached_through_another_node(far: Far) -> None:
    far.proxies["a"].refuse()
    with far.connect() as cluster:
        futures = [whereabouts.submit(number) for number in range(40)]
        pids = {future.result(40)[0] for future in futures}
        wait_until(lambda: _links(cluster) >= {"relayed"}, "a relayed link", 20, cluster.status)
        assert pids


def _links(cluster: pl.Cluster) -> set[str]:
    # The links are those of leases, which end when there is no work.
    whereabouts.map(range(8), chunksize=1)
    return {lease["link"] for lease in cluster.status()["leases"]}

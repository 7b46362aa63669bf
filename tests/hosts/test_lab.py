"""The hosts themselves: apart where they should be, joined where they should be, and gone afterwards."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from lab import Capture, Host, Lab
from support.processes import pids, process, processes_of
from support.waiting import wait_until

pytestmark = pytest.mark.slow

ECHO = """
import socket
server = socket.create_server(("", 5000))
print("listens", flush=True)
while True:
    connection, _ = server.accept()
    while data := connection.recv(65536):
        connection.sendall(data)
"""

TALK = """
import socket, sys
connection = socket.create_connection((sys.argv[1], 5000))
connection.settimeout(10)
connection.sendall(b"hello")
print(connection.recv(10).decode(), flush=True)
try:
    connection.recv(1)
except OSError as error:
    print(type(error).__name__, flush=True)
"""


def round_trip(source: Host, target: Host) -> float | None:
    """Milliseconds of one ping; None if it is not answered."""
    done = source.run("ping", "-n", "-c", "1", "-W", "1", target.address)
    found = re.search(r"time=([\d.]+)", done.stdout)
    return float(found[1]) if found else None


def network_namespaces() -> set[str]:
    found = set()
    for pid in pids():
        try:
            found.add(os.readlink(f"/proc/{pid}/ns/net"))
        except OSError:
            pass
    return found


def test_hosts_reach_each_other_by_address_and_by_name(lab: Lab) -> None:
    a, b = lab.host("a"), lab.host("b")
    assert round_trip(a, b) is not None
    a.run("ping", "-n", "-c", "1", "-W", "1", "b").ok()
    assert a.run("hostname").stdout == "a\n"
    assert b.run("python", "-c", "import socket; print(socket.gethostname())").stdout == "b\n"


def test_hosts_share_no_files_processes_or_sockets(lab: Lab) -> None:
    a, b = lab.host("a"), lab.host("b")
    for directory in ("/tmp", "/run", "/dev/shm", "/root", "/var/tmp"):
        a.run("touch", f"{directory}/mark").ok()
        assert b.run("test", "-e", f"{directory}/mark").returncode == 1
        assert not Path(f"{directory}/mark").exists()
    assert a.run("cat", "/etc/machine-id").stdout != b.run("cat", "/etc/machine-id").stdout
    a.script("import socket, time; s = socket.socket(socket.AF_UNIX); s.bind('\\0mark'); s.listen(); time.sleep(60)")
    wait_until(lambda: a.traces().sockets, "the socket of a")
    assert not b.traces().sockets
    assert "script" in a.run("ps", "-e", "-o", "args").stdout
    assert "script" not in b.run("ps", "-e", "-o", "args").stdout


def test_the_machine_is_read_only_for_hosts(lab: Lab) -> None:
    a = lab.host("a")
    here = Path(__file__).resolve()
    assert a.run("touch", str(here.parent / "mark")).returncode != 0
    assert a.run("touch", "/usr/mark").returncode != 0
    # And yet the same Python with the same packages.
    assert a.run("python", "-c", "import paceline; print(paceline.__name__)").ok().stdout == "paceline\n"


def test_traces_name_what_was_left(lab: Lab) -> None:
    a = lab.host("a")
    assert not a.traces()
    a.run("touch", "/tmp/left").ok()
    server = a.script(ECHO)
    server.said("listens")
    traces = a.traces()
    assert traces.files == ("/tmp/left",)
    assert traces.listeners == ("tcp port 5000",)
    assert len(traces.processes) == 1
    server.end()
    a.run("rm", "/tmp/left").ok()
    wait_until(lambda: not a.traces(), "nothing to be left", state=a.traces)


def test_an_unplugged_host_is_silent(lab: Lab) -> None:
    a, b, c = lab.host("a"), lab.host("b"), lab.host("c")
    with lab.networks["lan"].unplugged(b):
        assert round_trip(a, b) is None
        assert round_trip(a, c) is not None
    wait_until(lambda: round_trip(a, b) is not None, "b to be back")


def test_a_cut_is_between_two_hosts(lab: Lab) -> None:
    a, b, c = lab.host("a"), lab.host("b"), lab.host("c")
    with lab.networks["lan"].cut(a, b):
        assert round_trip(a, b) is None
        assert round_trip(b, a) is None
        assert round_trip(a, c) is not None
        assert round_trip(c, b) is not None
    # The question who has the address was lost as well, and is asked again after a second.
    wait_until(lambda: round_trip(a, b) is not None, "b to be back")


def test_one_way_lets_the_other_way_through(lab: Lab) -> None:
    a, b = lab.host("a"), lab.host("b")
    a.run("ping", "-n", "-c", "1", "b").ok()  # who has which hardware address is known from here on
    with Capture(b) as seen, lab.networks["lan"].one_way(b, a):
        assert round_trip(a, b) is None
    # The question came in, the answer went out and was lost.
    requests = [frame for frame in seen.frames if frame[12:14] == b"\x08\x00" and frame[34] == 8]
    answers = [frame for frame in seen.frames if frame[12:14] == b"\x08\x00" and frame[34] == 0]
    assert requests
    assert answers


def test_two_networks_meet_only_in_a_host_of_both(lab: Lab) -> None:
    lab.network("left")
    lab.network("right")
    a, middle, b = lab.host("a", "left"), lab.host("middle", "left", "right"), lab.host("b", "right")
    assert round_trip(a, middle) is not None
    b.run("ping", "-n", "-c", "1", "-W", "1", "middle").ok()
    assert a.run("ping", "-n", "-c", "1", "-W", "1", b.address).returncode != 0


def test_the_share_of_lost_packets_is_as_asked(lab: Lab) -> None:
    a, b = lab.host("a"), lab.host("b")
    with lab.networks["lan"].lossy(10):
        said = a.run("ping", "-n", "-q", "-c", "1000", "-i", "0.002", "-W", "1", b.address).stdout
    found = re.search(r"(\d+) received", said)
    assert found, said
    # Both ways count: 81 % of 1,000 come back; six standard deviations are 7.5 %.
    assert 735 <= int(found[1]) <= 885, said


def test_a_slow_network_delays_both_ways(lab: Lab) -> None:
    lab.network("far", delay=0.04)
    a, b = lab.host("a", "far"), lab.host("b", "far")
    round_trip(a, b)  # with the question who has the address
    times = sorted(one for one in (round_trip(a, b) for _ in range(5)) if one is not None)
    assert len(times) == 5
    assert 80 <= times[0] <= times[2] <= 100
    b.script(ECHO).said("listens")
    began = time.monotonic()
    echo = """
    import socket
    connection = socket.create_connection(("b", 5000))
    connection.sendall(bytes(100_000))
    left = 100_000
    while left:
        left -= len(connection.recv(65536))
    """
    a.python(echo).ok()
    assert time.monotonic() - began > 0.24  # one round trip to connect, two at least for so many bytes


def test_a_reset_ends_connections_at_both_ends(lab: Lab) -> None:
    a, b = lab.host("a"), lab.host("b")
    b.script(ECHO).said("listens")
    talk = a.script(TALK, b.address)
    talk.said("hello")
    b.reset_connections(a.address)
    assert "ConnectionResetError" in talk.wait(5).ok().stdout


def test_a_capture_has_what_crossed(lab: Lab) -> None:
    a, b = lab.host("a"), lab.host("b")
    b.script(ECHO).said("listens")
    with Capture(a) as seen:
        talk = a.script(TALK, b.address)
        talk.said("hello")
        talk.end()
    assert b"hello" in seen
    assert b"never said" not in seen
    assert seen.missed == 0


def test_a_stopped_process_goes_on(lab: Lab) -> None:
    a = lab.host("a")
    counting = a.script("import time\nwhile True: print('.', end='', flush=True); time.sleep(0.001)")
    wait_until(lambda: len(counting.output()) > 10, "it to count")
    a.stop(counting.pid)
    wait_until(lambda: (one := process(counting.pid)) is not None and one.state == "T", "it to stand still")
    before = len(counting.output())
    assert len(counting.output()) == before
    a.go_on(counting.pid)
    wait_until(lambda: len(counting.output()) > before, "it to go on")


def test_the_power_goes_without_a_word(lab: Lab) -> None:
    a, b = lab.host("a"), lab.host("b")
    b.script(ECHO).said("listens")
    talk = a.script(TALK, b.address)
    talk.said("hello")
    with Capture(a) as seen:
        lab.power_off(b)
        assert not processes_of(b.marker)
    assert not [frame for frame in seen.frames if frame[12:14] == b"\x08\x00" and frame[23] == socket.IPPROTO_TCP]
    assert not talk.ended()


def test_exit_codes_and_signals_come_through(lab: Lab) -> None:
    a = lab.host("a")
    assert a.run("sh", "-c", "exit 7").returncode == 7
    sleeping = a.start("sleep", "60")
    os.kill(sleeping.pid, signal.SIGKILL)
    assert sleeping.wait(5).returncode == -signal.SIGKILL


def test_nothing_is_left(able: None) -> None:
    namespaces, links = network_namespaces(), subprocess.check_output(["ip", "-o", "link"])
    with Lab() as lab:
        lab.network("lan")
        lab.network("far", delay=0.01)
        hosts = [lab.host("a", "lan", "far"), lab.host("b", "lan"), lab.host("c", "far")]
        for host in hosts:
            # A process that nothing but its host's end can reach, and a parent that has forgotten it.
            host.shell("setsid -f sleep 600").ok()
            host.run("touch", "/tmp/left").ok()
        assert network_namespaces() > namespaces
    markers = [host.marker for host in hosts]
    wait_until(lambda: not any(map(processes_of, markers)), "their processes to be gone")
    wait_until(lambda: network_namespaces() <= namespaces, "their networks to be gone")
    assert subprocess.check_output(["ip", "-o", "link"]) == links
    assert not lab.directory.exists()
    assert not Path("/tmp/left").exists()


def test_hosts_end_with_the_process_that_made_them(able: None) -> None:
    script = """
    import os, sys, time
    sys.path[:0] = sys.argv[1:]
    from lab import Lab
    lab = Lab()
    host = lab.host("a")
    host.start("sleep", "600")
    print(host.marker, lab.directory, flush=True)
    time.sleep(600)
    """
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "python")]
    maker = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *folders], stdout=subprocess.PIPE, text=True
    )
    assert maker.stdout is not None
    marker, directory = maker.stdout.readline().split()
    wait_until(lambda: len(processes_of(marker)) >= 2, "the host and its command")
    maker.kill()
    maker.wait()
    maker.stdout.close()
    wait_until(lambda: not processes_of(marker), "everything to be gone", state=lambda: processes_of(marker))
    subprocess.run(["rm", "-r", directory], check=True)

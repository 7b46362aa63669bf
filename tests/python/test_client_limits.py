"""Limits on what one client may make a head remember: settings of the head, named by the error that refuses."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import run_script
from support.daemons import Commands
from support.processes import process
from support.waiting import wait_until
from support.wire import CLIENT_TO_HEAD, Client, ask, frame, heartbeat, hello, integer


@pytest.fixture
def paceline(tmp_path: Path) -> Iterator[Commands]:
    commands = Commands(tmp_path / "home")
    yield commands
    commands.end()


SCRIPT = """
    import paceline as pl

    @pl.remote
    class Counter:
        def __init__(self):
            self.count = 0

        def add(self):
            self.count += 1
            return self.count

    @pl.remote
    def one():
        return 1

    def outcome(call):
        try:
            return call()
        except pl.PacelineError as error:
            return f"{type(error).__name__}: {error}"

    if __name__ == "__main__":
        with pl.connect("auto"):
            BODY
            print("then", one())
"""


def said(paceline: Commands, body: str, **settings: str) -> str:
    """What a script prints whose head has these settings."""
    paceline.start("--cpus", "2", **settings)
    text = SCRIPT.replace("BODY", body)
    done = run_script(text, env={"PACELINE_HOME": str(paceline.home)}).ok()
    paceline("stop").ok()
    paceline.assert_nothing_left()
    assert "then 1" in done.stdout, "the client goes on"
    return done.stdout


def test_actors_above_the_limit_are_refused_by_its_name(paceline: Commands) -> None:
    body = """first = Counter.options(name="a", cpus=0)()
            print(first.add())
            print(outcome(lambda: Counter.options(name="b", cpus=0)().add()))"""
    out = said(paceline, body, PACELINE_MAX_ACTORS="1")
    assert out.startswith("1\n")
    assert "max_actors" in out


def test_groups_above_the_limit_are_refused_by_its_name(paceline: Commands) -> None:
    body = "print(outcome(lambda: pl.group(3, cpus=0.1)))"
    assert "max_group_members" in said(paceline, body, PACELINE_MAX_GROUP_MEMBERS="2")


def test_kinds_of_slots_above_the_limit_are_refused_by_its_name(paceline: Commands) -> None:
    paceline.start("--cpus", "2", PACELINE_MAX_SHAPES="1")
    body = """kinds = [pl.remote(abs).options(memory=f"{size}MB").submit(-size) for size in (100, 101)]
            print(outcome(lambda: [kind.result() for kind in kinds]))
            raise SystemExit"""
    out = run_script(SCRIPT.replace("BODY", body), env={"PACELINE_HOME": str(paceline.home)}).ok().stdout
    assert "the head gives no slot with" in out
    assert "max_shapes of the head" in out
    assert "PACELINE_MAX_SHAPES" in out
    assert "no node can ever" not in out


@pytest.mark.parametrize("value", ["0", "many", "-1"])
def test_limits_that_are_no_numbers_are_refused_at_the_start(paceline: Commands, value: str) -> None:
    told = paceline("start", "--port", "0", PACELINE_MAX_SHAPES=value)
    assert told.code == 2
    assert "max_shapes" in told.err
    paceline.assert_nothing_left()


def unix_socket(paceline: Commands) -> str:
    record = json.loads((paceline.home / "clusters/default/cluster.json").read_text())
    return str(record["unix"])


def test_client_that_reads_no_answers_is_dropped(paceline: Commands) -> None:
    paceline.start("--no-node", PACELINE_MAX_UNREAD_BYTES="1M")
    programs = integer(9)
    # Each is answered with more bytes than it has itself: so are far more than the socket and the head may keep.
    questions = b"".join(ask(number, programs) for number in range(1000))
    with Client(unix_socket(paceline)) as asker:
        asker.socket.sendall(hello(1))
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            asker.socket.sendall(questions * 200)
    assert paceline.nodes() == [], "the head answers others"


def test_unfinished_messages_of_a_client_end_no_other_link(paceline: Commands) -> None:
    paceline.start("--cpus", "1", "--node-name", "own", PACELINE_HEARTBEAT="200ms")
    # Nearly all of four messages of the greatest length, which together are more than may wait.
    part = frame(CLIENT_TO_HEAD, bytes(16 << 20))[:-1]
    with contextlib.ExitStack() as stack:
        for _ in range(6):
            link = stack.enter_context(Client(unix_socket(paceline)))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                link.socket.sendall(part)
        quiet = stack.enter_context(Client(unix_socket(paceline)))
        quiet.socket.sendall(hello(7))
        for beat in range(5):
            quiet.socket.sendall(heartbeat(1 << 40 | beat))
            quiet.wait_for(integer(1 << 40 | beat))
            time.sleep(0.2)
        assert paceline.nodes() == ["own"]


MANY_BYTES = """
    import paceline as pl

    @pl.remote(cpus=0)
    class Box:
        def __init__(self, data):
            self.size = len(data)

    with pl.connect("auto"):
        for number in range(3):
            assert Box.options(name=f"box{number}", detached=True)(bytes(8 << 20)).size == 8 << 20
"""


def test_node_that_is_to_run_many_bytes_of_programs_stays(paceline: Commands) -> None:
    limit = {"PACELINE_MAX_UNREAD_BYTES": "1M"}
    head = paceline.start("--cpus", "1", "--node-name", "own", **limit)
    run_script(MANY_BYTES, env={"PACELINE_HOME": str(paceline.home)}).ok()
    assert paceline.nodes() == ["own"]
    os.kill(head["pid"], signal.SIGTERM)
    wait_until(lambda: process(head["pid"]) is None, "the head to end")
    paceline.start("--cpus", "1", "--node-name", "own", **limit)

    def programs() -> list[str]:
        return [program["state"] for program in paceline.status()["programs"]]

    wait_until(lambda: programs() == ["running"] * 3, "all of them to run again", 20, programs)
    assert paceline.nodes() == ["own"]


STATUS_CLIENTS = 2500


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_open_status_makes_messages_of_others_no_dearer(paceline: Commands) -> None:
    """What is told of a cluster is collected once, not as often as anybody says anything meanwhile."""
    # Each client is a descriptor here and one in the head, which inherits the limit.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * STATUS_CLIENTS)), hard))
    patient = {"PACELINE_HEARTBEAT": "20s", "PACELINE_MAX_CLIENT_LINKS": str(2 * STATUS_CLIENTS)}
    head = paceline.start("--no-node", **patient)
    node = paceline.join(head["address"], "a", "--cpus", "1", "--token", head["token"], **patient)
    unix = unix_socket(paceline)
    costs = []
    with contextlib.ExitStack() as stack:
        for number in range(STATUS_CLIENTS):
            stack.enter_context(Client(unix)).socket.sendall(hello(1000 + number))
        one = stack.enter_context(Client(unix))
        one.socket.sendall(hello(1))
        # A status waits for the node, which is there and does not answer.
        os.kill(node["pid"], signal.SIGSTOP)
        stack.callback(os.kill, node["pid"], signal.SIGCONT)
        for turn, status in enumerate([b"", ask(1, integer(0))]):
            one.socket.sendall(status)
            before = cpu_seconds(head["pid"])
            for beat in range(4000):
                # One by one, so that each is an arrival of its own.
                one.socket.sendall(heartbeat(1 << 40 | turn << 20 | beat))
                one.wait_for(integer(1 << 40 | turn << 20 | beat))
            costs.append(cpu_seconds(head["pid"]) - before)
    quiet, asked = costs
    assert asked < 3 * quiet + 0.1, f"{asked:.2f} s of CPU time instead of {quiet:.2f} s"


def resident(pid: int) -> int:
    """Bytes that a process has in memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) << 10


@pytest.mark.parametrize(
    ("make", "field"),
    [
        ("one.options(placement=pl.Placement(labels={'zone': long}))()", "labels"),
        ("one.options(resources={long: 1})()", "name of a resource"),
        ("one.options(env={'LONG': long})()", "variables of a program"),
        ("Counter.options(name=long)().add()", "name of an actor"),
        ("pl.get_actor(long)", "name of an actor"),
    ],
)
def test_what_is_too_long_is_an_error_before_it_is_sent(paceline: Commands, make: str, field: str) -> None:
    body = f"""long = "x" * 10_000_000
            try:
                {make}
            except Exception as error:
                print(type(error).__name__, str(error)[-500:])"""
    out = said(paceline, body)
    assert field in out, out
    assert "too long: 1000000" in out, out


def test_bytes_above_the_limit_are_refused_by_its_name_and_the_head_does_not_grow(paceline: Commands) -> None:
    # No node has the resource, so nothing is started; but the head keeps each program that was declared.
    body = """told = set()
            futures = []
            for number in range(300):
                env = {"NUMBER": str(number), "LONG": "x" * 900_000}
                futures.append(one.options(env=env, resources={"none": 1}, wait=5).submit())
            for future in futures:
                told.add(outcome(future.result)[:300])
            print(*sorted(told), sep="\\n")"""
    head = paceline.start("--cpus", "2", PACELINE_MAX_CLIENT_STATE="20M")["pid"]
    before = resident(head)
    text = SCRIPT.replace("BODY", body)
    done = run_script(text, env={"PACELINE_HOME": str(paceline.home)}).ok()
    grown = resident(head) - before
    paceline("stop").ok()
    paceline.assert_nothing_left()
    assert "max_client_state" in done.stdout, done.stdout
    assert grown < 120 << 20, f"the head has {grown >> 20} MiB more"


TASKS = """
    import paceline as pl

    @pl.remote
    def one():
        return 1

    @pl.remote
    def nests_then_keeps():
        first = one()
        try:
            return first, pl.get(pl.put(b"x" * 100))
        except pl.LimitReached as error:
            return first, str(error)

    @pl.remote
    def keeps_then_nests():
        reference = pl.put(b"x" * 100)
        try:
            return len(pl.get(reference)), one()
        except pl.LimitReached as error:
            return len(pl.get(reference)), str(error)

    if __name__ == "__main__":
        with pl.connect("auto"):
            print(TASK())
            print("then", sum(pl.map(lambda x: x, range(10))))
"""


@pytest.mark.parametrize(("task", "got"), [("nests_then_keeps", "(1, "), ("keeps_then_nests", "(100, ")])
def test_links_of_a_slot_above_the_limit_are_refused_by_its_name(paceline: Commands, task: str, got: str) -> None:
    paceline.start("--cpus", "2", PACELINE_MAX_SLOT_LINKS="1")
    done = run_script(TASKS.replace("TASK()", f"{task}()"), env={"PACELINE_HOME": str(paceline.home)}).ok()
    paceline("stop").ok()
    paceline.assert_nothing_left()
    assert done.stdout.startswith(got), done.stdout
    assert "max_slot_links" in done.stdout
    assert "\nthen 45" in done.stdout, "other tasks go on"


def test_links_of_a_machine_above_the_limit_are_refused_and_the_command_line_gets_in(paceline: Commands) -> None:
    body = """import subprocess, sys
            print(one())
            second = "import paceline as pl\\n@pl.remote\\ndef f():\\n    return 1\\n"
            second += "with pl.connect('auto'):\\n    print(f())\\n"
            done = subprocess.run([sys.executable, "-c", second], capture_output=True, text=True)
            print(done.stdout, done.stderr[-600:])"""
    out = said(paceline, body, PACELINE_MAX_CLIENT_LINKS="1")
    assert "max_client_links" in out, out

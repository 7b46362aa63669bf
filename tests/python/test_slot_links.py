"""What code in a slot may do with the links of its process: nothing to the cluster, and no harm to its client."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import run_script
from support.daemons import Commands
from support.processes import process
from support.wire import NEST, SLOT_TO_NODE, ask, frame, integer

# A number that is in no other message.
NUMBER = 0x77777777


@pytest.fixture
def paceline(tmp_path: Path) -> Iterator[Commands]:
    commands = Commands(tmp_path / "home")
    yield commands
    commands.end()


# The sockets of this process whose other end a process has made, or holds, with this number.
SOCKETS = """
    import os, socket, stat, struct, sys, time
    import paceline as pl

    def sockets_of(pid):
        found = {}
        for number in map(int, os.listdir("/proc/self/fd")):
            try:
                status = os.fstat(number)
                if stat.S_ISSOCK(status.st_mode) and status.st_ino not in found:
                    found[status.st_ino] = socket.socket(fileno=os.dup(number))
            except OSError:
                pass
        unix = [one for one in found.values() if one.family == socket.AF_UNIX]
        peer = lambda one: struct.unpack("3i", one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        return [one for one in unix if peer(one) == pid]
"""

ASK = """
    @pl.remote
    def asked(node, nest, question, number):
        # As a slot does when its task uses the cluster: its node is given the other end of a new link to the head.
        [control] = sockets_of(node)
        ours, theirs = socket.socketpair()
        control.setblocking(True)
        socket.send_fds(control, [nest], [theirs.fileno()])
        theirs.close()
        ours.settimeout(20)
        ours.sendall(question)
        answer = b""
        while number not in answer:
            more = ours.recv(65536)
            if not more:
                break
            answer += more
        return answer

    if __name__ == "__main__":
        with pl.connect("auto"):
            node, *rest = sys.argv[1:]
            print(asked(int(node), *map(bytes.fromhex, rest)))
"""

QUESTIONS = {
    "drain": integer(4) + b"\x01a",
    "stop": integer(5),
    "token": integer(6) + b"\x01",
    "stop head": integer(7),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_question_of_a_task_that_is_not_for_tasks_is_refused(paceline: Commands, question: str) -> None:
    up = paceline.start("--cpus", "1", "--node-name", "a")
    words = [frame(SLOT_TO_NODE, integer(NEST)), ask(NUMBER, QUESTIONS[question]), integer(NUMBER)]
    arguments = [str(up["pid"]), *(word.hex() for word in words)]
    done = run_script(SOCKETS + ASK, args=arguments, env={"PACELINE_HOME": str(paceline.home)}).ok()
    assert "pl1-" not in done.stdout, "the task has a token"
    assert "a task may not ask this" in done.stdout
    assert "question of a task refused" in paceline("logs", "head").ok().out
    assert process(up["pid"]) is not None
    assert paceline.nodes() == ["a"]


SEND_TWO = """
    @pl.remote
    def send_two(client, path):
        pipe = os.open(path, os.O_RDWR)
        sockets = list(sockets_of(client))
        with open(path + ".sent", "w") as sent:
            sent.write(str(len(sockets)))
        for data in sockets:
            socket.send_fds(data, [b"P"], [pipe, pipe])
        os.close(pipe)

    def left(path):
        links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        return sum(os.path.lexists(link) and os.readlink(link) == path for link in links)

    if __name__ == "__main__":
        [path] = sys.argv[1:]
        with pl.connect("auto"):
            try:
                send_two(os.getpid(), path)
            except pl.PacelineError as error:
                print(type(error).__name__)
            until = time.monotonic() + 5
            while left(path) and time.monotonic() < until:
                time.sleep(0.01)
            print("left", left(path))
"""


def test_second_descriptor_of_a_message_is_not_kept(paceline: Commands, tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    paceline.start("--cpus", "1")
    done = run_script(SOCKETS + SEND_TWO, args=[str(path)], env={"PACELINE_HOME": str(paceline.home)}).ok()
    assert int((tmp_path / "pipe.sent").read_text()) > 0, "nothing was sent"
    assert done.stdout.endswith("left 0\n"), done.transcript()

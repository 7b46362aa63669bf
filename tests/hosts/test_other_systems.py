"""Programs of other systems on several hosts, by the commands that they have there."""

from __future__ import annotations

import re
import shutil
import signal

from lab import Host, Lab
from support.waiting import wait_until

CW = "paceline.compat.cluster_workers"
DC = "paceline.compat.distributed_computing"
KEY = "/srv/key"


def give(host: Host, source: Host, path: str) -> None:
    """Copy a key, as users do with scp."""
    shutil.copy(source.files / path[1:], host.files / KEY[1:])
    (host.files / KEY[1:]).chmod(0o600)


def test_cluster_workers(lab: Lab) -> None:
    head, node, alice = lab.host("head"), lab.host("node"), lab.host("alice")
    master = head.start("python", "-u", "-m", f"{CW}.master", "--bind", "0.0.0.0", "--key-file", KEY)
    master.said("workers: 0")
    give(node, head, KEY)
    give(alice, head, KEY)
    workers = [node.start("python", "-m", f"{CW}.worker", "head", "--key-file", KEY) for _ in range(2)]
    master.said("workers: 2")
    done = alice.python(
        """
        import socket
        import paceline.compat.cluster_workers as cw

        found = {}
        with cw.ClientThread(found.__setitem__, "head", key_file="/srv/key") as client:
            for number in range(20):
                client.submit(number, lambda x: (x * x, socket.gethostname()), number)
        print([value for value, _ in (found[number] for number in range(20))] == [x * x for x in range(20)])
        print({host for _, host in found.values()})
        """
    ).ok()
    assert done.stdout == "True\n{'node'}\n"
    workers[0].send_signal(signal.SIGINT)
    master.said("workers: 1")
    master.send_signal(signal.SIGINT)
    assert workers[1].wait().stdout == "connection to master closed\n"
    master.wait()
    lab.assert_nothing_left()


def test_distributed_computing(lab: Lab) -> None:
    """A node is powered off in the middle of a map, another one joins: every result is there, and every update."""
    variables = {"PACELINE_PASSWORD": "open sesame", "PACELINE_FAKE_GPUS": "2x16GB"}
    head, first, second, alice = (lab.host(name) for name in ("head", "first", "second", "alice"))
    server = head.start("python", "-m", f"{DC}.start_node", "--head", "--server-only", env=variables)
    server.said("To start a worker node")
    first.start("python", "-m", f"{DC}.start_node", "-a", "head", env=variables).said("pool client")
    script = alice.script(
        """
        import itertools, os, socket, time
        from paceline.compat.distributed_computing.api import Pool, WorkerInterface

        class Worker(WorkerInterface):
            def __init__(self, base):
                self.base = base
                self.updates = 0
            def run(self, x):
                time.sleep(0.01)
                return self.base + x, self.updates, socket.gethostname()
            def handle_update(self):
                self.updates += 1

        with Pool(Worker, {"args": [100]}, "open sesame", "head", min_workers=2) as pool:
            print("workers", pool.get_workers_count(), flush=True)
            found = []

            def jobs():  # until only the node that comes later does any
                for x in itertools.count():
                    if len(found) > 100 and {host for *_, host in found[-100:]} == {"second"}:
                        return
                    yield {"args": [x]}

            for number, result in enumerate(pool.imap(jobs())):
                found.append(result)
                if number == 20:
                    pool.update_workers({})
                    print("under way", flush=True)
            print([value for value, *_ in found] == list(range(100, 100 + len(found))))
            print(sorted({host for *_, host in found}), {updates for _, updates, _ in found[-50:]})
        """
    )
    script.said("under way")
    second.start("python", "-m", f"{DC}.start_node", "-a", "head", env=variables).said("pool client")
    lab.power_off(first)
    done = script.wait(60).ok()
    assert done.stdout.splitlines()[-2:] == ["True", "['first', 'second'] {1}"]
    server.send_signal(signal.SIGINT)
    server.wait()
    lab.assert_nothing_left(head, second, alice)


def test_parl(lab: Lab) -> None:
    head, node = lab.host("head"), lab.host("node")
    xparl = ("python", "-m", "paceline.compat.parl")
    said = head.run(*xparl, "start", "--port", "6006", "--cpu_num", "0", "--bind", "0.0.0.0").ok().stdout
    token = re.search(r"PACELINE_TOKEN=(\S+)", said)
    assert token, said
    connect = (*xparl, "connect", "--address", "head:6006", "--cpu_num", "2")
    node.run(*connect, env={"PACELINE_TOKEN": token[1]}).ok()
    wait_until(lambda: "2 vacant cpus" in head.run(*xparl, "status").ok().stdout, "the worker")
    done = head.python(
        """
        import socket
        import paceline.compat.parl as parl

        parl.connect("localhost:6006")

        @parl.remote_class(wait=False)
        class Actor:
            def where(self, x):
                return x, socket.gethostname()

        actors = [Actor() for _ in range(2)]
        print([future.get() for future in [actor.where(x) for x, actor in enumerate(actors)]])
        """
    ).ok()
    assert done.stdout == "[(0, 'node'), (1, 'node')]\n"
    head.run(*xparl, "stop").ok()
    lab.assert_nothing_left()

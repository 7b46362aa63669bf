"""Code and files on hosts that share nothing with the client's."""

from __future__ import annotations

import textwrap

import pytest

from lab import Lab
from lab.cluster import Cluster
from lab.host import Host
from support.waiting import wait_until

NODE_FILES = "tmp"


@pytest.fixture
def far_node(lab: Lab) -> Cluster:
    """A head that runs nothing, one node on `node1`, and a client's host, `alice`."""
    made = Cluster(lab, lab.host("head"), "--cpus", "0")
    made.join(lab.host("node1"))
    made.give_key(lab.host("alice"))
    made.wait_for_nodes("node1")
    return made


def write(host: Host, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = host.files / "srv" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def left(host: Host) -> list[str]:
    """The directories of clients on a node."""
    return [str(path) for path in (host.files / NODE_FILES).glob("paceline-node-*/clients/*")]


PROJECT = {
    "project/helper.py": "import socket\ndef where():\n    return socket.gethostname(), __file__\n",
    "project/package/__init__.py": "from .inner.deep import Model\n",
    "project/package/base.py": "FACTOR = 3\n",
    "project/package/inner/__init__.py": "",
    "project/package/inner/deep.py": """
        from ..base import FACTOR

        class Model:
            def __init__(self, value):
                self.value = value

            def scaled(self):
                return self.value * FACTOR
        """,
    "project/data/deep/table.csv": "1,2,3\n",
    "project/run.py": """
        import os
        import socket
        import helper
        from package import Model
        import paceline as pl

        def scale(model):
            import package.base
            assert socket.gethostname() == "node1"
            return Model(model.scaled() + package.base.FACTOR)

        @pl.remote
        class Counter:
            def __init__(self, model):
                self.model = model
            def value(self):
                return self.model.scaled(), open("data/deep/table.csv").read()

        files = ["data"] if os.path.exists("data") else ()
        with pl.connect("head:7077", key_file="/srv/key", files=files, env={"WHO": "alice"}):
            host, file = pl.remote(helper.where)()
            assert host == "node1" and file.endswith("/root/srv/project/helper.py"), (host, file)
            assert pl.remote(scale)(Model(5)).scaled() == 54
            assert pl.remote(lambda: os.environ["WHO"])() == "alice"
            assert pl.remote(os.getcwd)().endswith(os.getcwd())
            if files:
                assert Counter(Model(2)).value() == (6, "1,2,3\\n")
                os.rename("data", "gone")
                assert Counter(Model(2)).value() == (6, "1,2,3\\n")
                os.rename("gone", "data")
        print("good")
        """,
}


def test_a_package_and_a_script_from_another_directory(far_node: Cluster, lab: Lab) -> None:
    alice, node = lab.hosts["alice"], lab.hosts["node1"]
    write(alice, PROJECT)
    for directory in ("/srv/project", "/home"):
        done = alice.run("python", "/srv/project/run.py", directory=directory, timeout=60)
        assert done.ok().stdout == "good\n", done.transcript()
    wait_until(lambda: not left(node), "the node to remove the clients' directories", 10, lambda: left(node))


KERNEL = """
    import sys, time
    import jupyter_client

    manager = jupyter_client.KernelManager(kernel_name="python3", connection_file="/srv/notes/kernel.json")
    manager.start_kernel(cwd="/srv/notes")
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)

    def cell(code):
        message = client.execute(code)
        shown = ""
        while True:
            reply = client.get_iopub_msg(timeout=60)
            if reply["parent_header"].get("msg_id") != message:
                continue
            kind, content = reply["msg_type"], reply["content"]
            if kind == "execute_result":
                shown = content["data"]["text/plain"]
            elif kind == "error":
                sys.exit("\\n".join(content["traceback"]))
            elif kind == "status" and content["execution_state"] == "idle":
                return shown

    cell("import paceline as pl, socket, beside; cluster = pl.connect('head:7077', key_file='/srv/key')")
    cell("class Thing:\\n    factor = 2\\n    def __init__(self, value):\\n        self.value = value")
    cell("class Special(Thing):\\n    def twice(self):\\n        return self.value * self.factor + beside.ONE")
    cell("@pl.remote\\ndef use(thing):\\n    return thing.twice(), socket.gethostname()")
    print(cell("use(Special(4))"))
    cell("class Special(Thing):\\n    def twice(self):\\n        return -self.value")
    print(cell("use(Special(4))"))
    cell("open('fresh.py', 'w').write('VALUE = 7')")
    cell("import fresh\\n@pl.remote\\ndef late():\\n    return fresh.VALUE")
    print(cell("late()"))
    cell("cluster.close()")
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    """


def test_classes_of_a_notebook(far_node: Cluster, lab: Lab) -> None:
    alice = lab.hosts["alice"]
    write(alice, {"notes/beside.py": "ONE = 1\n", "drive.py": KERNEL})
    done = alice.run("python", "/srv/drive.py", directory="/srv", timeout=90).ok()
    assert done.stdout.splitlines() == ["(9, 'node1')", "(-4, 'node1')", "7"]


FULL = """
    import os
    import paceline as pl

    with open("large.bin", "wb") as file:
        file.write(os.urandom(8 << 20))
    with pl.connect("head:7077", key_file="/srv/key", files=["large.bin"]):
        try:
            pl.remote(len)("ab")
        except pl.FilesNotDelivered as error:
            print("refused:", error)
    os.remove("large.bin")
    with pl.connect("head:7077", key_file="/srv/key"):
        print(pl.remote(len)("ab"))
    """


def test_a_full_disk_is_said_and_the_node_goes_on(far_node: Cluster, lab: Lab) -> None:
    alice, node = lab.hosts["alice"], lab.hosts["node1"]
    node.run("mount", "-o", "remount,size=4m", "/tmp").ok()
    write(alice, {"full.py": FULL})
    done = alice.run("python", "full.py", directory="/srv", timeout=60).ok()
    assert "could not be delivered" in done.stdout, done.transcript()
    assert "No space left" in done.stdout or "no storage space" in done.stdout, done.transcript()
    assert "node1" in done.stdout
    assert done.stdout.splitlines()[-1] == "2", done.transcript()

"""In a notebook: a real Jupyter kernel, driven as a front end drives it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jupyter_client
import pytest

from support import Run, assert_nothing_left, leftovers, wait_until
from support import processes as proc
from support.scripts import prepare

# What other packages have to say about themselves.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

LIMIT = 30.0


@dataclass
class Cell:
    """What a cell showed."""

    text: str = ""
    shown: dict[str, Any] = field(default_factory=dict)
    error: str = ""


@dataclass
class Notebook:
    manager: Any
    client: Any
    run: Run

    def execute(self, code: str) -> Cell:
        """Run a cell to its end."""
        return self.finish(self.client.execute(code))

    def finish(self, message: str, until: str = "") -> Cell:
        """Collect what a cell shows until it has ended, or until it has shown `until`, maybe after its end."""
        cell = Cell()
        deadline = time.monotonic() + LIMIT
        while True:
            left = deadline - time.monotonic()
            assert left > 0, f"the cell does not end; it showed {cell}"
            reply = self.client.get_iopub_msg(timeout=left)
            if reply["parent_header"].get("msg_id") != message:
                continue
            kind, content = reply["msg_type"], reply["content"]
            if kind == "stream":
                cell.text += content["text"]
            elif kind in ("execute_result", "display_data"):
                cell.shown |= content["data"]
            elif kind == "error":
                cell.error = content["ename"]
            elif kind == "status" and content["execution_state"] == "idle" and not until:
                return cell
            if until and until in cell.text:
                return cell

    def others(self) -> list[proc.Process]:
        """Our processes besides the kernel itself."""
        return [one for one in proc.processes_of(self.run.marker) if "paceline" in one.command]


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    run, environment = prepare("")
    environment |= {"JUPYTER_RUNTIME_DIR": str(run.directory), "IPYTHONDIR": str(run.directory / "ipython")}
    manager = jupyter_client.KernelManager(kernel_name="python3", connection_file=str(run.directory / "kernel.json"))
    manager.start_kernel(env=environment, cwd=str(run.directory))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=LIMIT)
        yield Notebook(manager, client, run)
    finally:
        client.stop_channels()
        if manager.has_kernel:
            manager.shutdown_kernel(now=True)
        proc.end_all(run.marker)


SETUP = """
import os, time
import paceline as pl
cluster = pl.connect(cpus=2)
"""


def test_cells(notebook: Notebook) -> None:
    """Functions of cells, redefined ones, output, interrupts and the look of `status`, as one would use them."""
    assert notebook.execute(SETUP).error == ""
    assert notebook.execute("@pl.remote\ndef f(x):\n    return x + offset\noffset = 1").error == ""
    assert notebook.execute("f(1), f.map([1, 2])").shown["text/plain"] == "(2, [2, 3])"
    # A cell that is run again with other content.
    notebook.execute("@pl.remote\ndef f(x):\n    return x * 100 + offset")
    assert notebook.execute("f(1), f.map([1, 2])").shown["text/plain"] == "(101, [101, 201])"
    notebook.execute("offset = 5")
    assert notebook.execute("f(1)").shown["text/plain"] == "105"

    talk = "@pl.remote\ndef talk(word):\n    print('says', word)\ntalk('hello'); talk.submit('again').result()"
    # A line may come a moment after the value; it belongs to its cell all the same.
    text = notebook.finish(notebook.client.execute(talk), until="says again\n").text
    assert "] says hello\n" in text
    assert text.startswith("[slot ")

    shown = notebook.execute("cluster.status()").shown
    assert "<table>" in shown["text/html"]
    # Whether one slot has run it all or both have is a matter of moments.
    assert {"ready", "leased", "warm"} & set(re.findall(r"<td>([a-z]+)</td>", shown["text/html"]))


def test_interrupt(notebook: Notebook) -> None:
    notebook.execute(SETUP)
    nap = "@pl.remote\ndef nap(s):\n    open(f'began{s}', 'w').close()\n    time.sleep(s)\n    return s\nnap(0)"
    assert notebook.execute(nap).error == ""
    for number, call in enumerate(["nap(60)", "nap.map([61, 62], chunksize=1)", "nap.submit(63).result()"]):
        message = notebook.client.execute(call)
        began = notebook.run.directory / f"began{60 + number + (number > 1)}"
        wait_until(began.exists, f"{call} to run")
        at = time.monotonic()
        notebook.manager.interrupt_kernel()
        assert notebook.finish(message).error == "KeyboardInterrupt"
        assert notebook.execute("nap(0)").shown["text/plain"] == "0"
        assert time.monotonic() - at < 3, call


@pytest.mark.parametrize("how", ["restart", "shutdown", "kill"])
def test_the_end_of_a_kernel_leaves_nothing(notebook: Notebook, how: str) -> None:
    notebook.execute(SETUP)
    notebook.execute("nap = pl.remote(time.sleep); nap(0); future = nap.submit(60)")
    before = {one.pid for one in notebook.others()}
    assert len(before) >= 3, "a zygote and slots"
    if how == "restart":
        notebook.manager.restart_kernel()
        notebook.client.wait_for_ready(timeout=LIMIT)
        gone(before)
        assert notebook.execute(SETUP + "pl.remote(abs)(-3)").shown["text/plain"] == "3"
        before = {one.pid for one in notebook.others()}
    notebook.manager.shutdown_kernel(now=how == "kill")
    gone(before)
    theirs = {"ipython", "kernel.json", "script.py", "tmp"}
    assert {path.name for path in notebook.run.directory.iterdir()} <= theirs
    wait_until(lambda: not leftovers(notebook.run), "everything to be gone", 3, lambda: leftovers(notebook.run))
    assert_nothing_left(notebook.run)


def gone(pids: set[int]) -> None:
    wait_until(lambda: not [pid for pid in pids if proc.process(pid)], "zygote and slots to end", 5)


def test_the_kernel_is_this_build(notebook: Notebook) -> None:
    """Else all of the above is about something else."""
    import paceline

    shown = notebook.execute("import paceline; paceline.__file__").shown["text/plain"]
    assert os.path.samefile(shown.strip("'"), paceline.__file__)

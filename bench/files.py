"""A project of 2,000 files on a node that has none of them: how long is it from `connect` to the first result?

The node is a daemon on this machine that is reached as if it were far away, so everything is sent. The bar is on the
second time. "At once" is a second program that starts right after the first has ended; "later", one that starts once
the node has seen that nothing of the first is left, and can give its files to the next.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from harness import Must, Plan, Row, Samples

FILES = 2000
SCRIPT = """
import time
import project.m1
import paceline as pl

def last():
    import project.m0 as m
    return m.VALUE

begin = time.perf_counter()
with pl.connect():
    assert pl.remote(last)() == {generation}
    print(time.perf_counter() - begin)
"""


class Far:
    """A cluster that shares no file with the client."""

    def __init__(self, folder: Path) -> None:
        from paceline._cli import program

        self.folder, self.program = folder, program()
        self.store = folder / "store"
        self.store.mkdir()
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PACELINE_")}
        self.environment = ours | {"PACELINE_HOME": str(folder / "home"), "PACELINE_PYTHON": sys.executable}
        self.environment |= {"TMPDIR": str(self.store), "XDG_CACHE_HOME": str(folder / "cache")}
        self.address = json.loads(self.command("start", "--cpus", "2", "--port", "0", "--json"))["address"]

    def command(self, *arguments: str) -> str:
        command = [self.program, *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True).stdout

    def client(self, script: Path) -> float:
        """Seconds to the first result."""
        key = self.folder / "home/clusters/default/key"
        far = {"PACELINE_LOCAL": "off", "PACELINE_ADDRESS": self.address, "PACELINE_KEY": str(key)}
        far["PACELINE_HOME"] = str(self.folder / "client")
        done = subprocess.run(
            [sys.executable, str(script)], env=self.environment | far, capture_output=True, text=True, timeout=60
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        return float(done.stdout)

    def is_tidy(self) -> bool:
        """Whether the files of the last client wait for the next one."""
        return bool(list(self.store.glob("paceline-node-*/left/*/root"))) and not list(
            self.store.glob("paceline-node-*/clients/*")
        )

    def wait_until_tidy(self) -> None:
        late = time.monotonic() + 30
        while not self.is_tidy():
            if time.monotonic() > late:
                raise RuntimeError("the node did not put the files of the last client aside")
            time.sleep(0.01)


def write_project(folder: Path, files: int, generation: int) -> Path:
    lines = "\n".join(f"# line {number} of {generation}" for number in range(100))
    package = folder / "project"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    for number in range(files):
        path = package / f"m{number}.py"
        path.write_text(f"VALUE = {generation}\nNUMBER = {number}\n{lines}\n")
    main = folder / "main.py"
    main.write_text(SCRIPT.format(generation=generation))
    return main


def run(plan: Plan) -> Iterator[Row]:
    if plan.peers_only:
        return
    files = plan.size(FILES, least=100)
    first: list[float] = []
    at_once: list[float] = []
    later: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        far = Far(Path(folder))
        try:
            for generation in range(1 if plan.smoke else 3):
                main = write_project(Path(folder) / "code", files, generation)
                # What was written just now may still change: it is hashed again each time.
                time.sleep(0 if plan.smoke else 3)
                first.append(far.client(main) * 1e3)
                at_once.append(far.client(main) * 1e3)
                far.wait_until_tidy()
                for _ in range(1 if plan.smoke else 3):
                    later.append(far.client(main) * 1e3)
                    far.wait_until_tidy()
        finally:
            far.command("stop", "--all")
    what = f"connect to first result, {files:,} files"
    yield Row("files", f"{what}, the second time, later", Samples("ms", later), must=Must("<=", 500, of="figure"))
    yield Row("files", f"{what}, the second time, at once", Samples("ms", at_once))
    yield Row("files", f"{what}, the first time", Samples("ms", first))

"""Code and files on machines that do not have them: a daemon on this machine that is reached as if it were far away."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import paceline as pl
from support.daemons import Commands
from support.waiting import wait_until

LIMIT = 40.0


class Far:
    """A cluster whose only node keeps what clients bring below `store`, and a project of a user's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.store = folder / "store"
        self.store.mkdir()
        self.paceline = Commands(folder / "home")
        self.address = self.start()

    def start(self) -> str:
        return str(self.paceline.start("--cpus", "2", TMPDIR=str(self.store))["address"])

    def environment(self, **more: str) -> dict[str, str]:
        far = {
            "PACELINE_LOCAL": "off",
            "PACELINE_HOME": str(self.folder / "client"),
            "PACELINE_KEY": str(self.paceline.home / "clusters/default/key"),
            "PACELINE_ADDRESS": self.address,
            "XDG_CACHE_HOME": str(self.folder / "cache"),
        }
        return self.paceline.environment(**{**far, **more})

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = self.project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))

    def start_script(self, name: str = "main.py", cwd: Path | None = None, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(self.project / name)],
            env=self.environment(**more),
            cwd=cwd or self.project,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, name: str = "main.py", cwd: Path | None = None, **more: str) -> Any:
        """What a script has printed, as JSON."""
        out, err = self.start_script(name, cwd, **more).communicate(timeout=LIMIT)
        assert out, err
        return json.loads(out)

    def directories(self) -> list[Path]:
        """Those of clients."""
        return sorted(self.store.glob("paceline-node-*/clients/*"))

    def kept(self) -> list[Path]:
        return sorted(self.store.glob("paceline-node-*/cache/*"))

    def left(self) -> list[Path]:
        """Files of clients that have gone, for others that bring the same."""
        return [path for path in self.store.glob("paceline-node-*/left/*/root/**/*") if path.is_file()]

    def is_delivered(self, path: str) -> bool:
        return path.startswith(str(self.store))


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Far]:
    far = Far(tmp_path)
    yield far
    far.paceline.end()


HELPER = "def where():\n    return __file__\n"


def test_modules_and_packages_beside_the_script_are_there(far: Far) -> None:
    """A script started from another directory, a package with relative imports, a module that is imported late."""
    far.write(
        {
            "helper.py": HELPER,
            "late.py": "VALUE = 11\n",
            "package/__init__.py": "from .inner import deep\n",
            "package/words.txt": "seven",
            "package/inner/__init__.py": "from ..other import base\ndef deep():\n    return base() + 1\n",
            "package/other.py": (
                "import pathlib\ndef base():\n"
                "    return len(pathlib.Path(__file__).with_name('words.txt').read_text())\n"
            ),
            "main.py": """
                import json, os
                import helper, package
                import paceline as pl

                class Thing:
                    def __init__(self, value):
                        self.value = value

                def late(thing):
                    import late
                    return late.VALUE + thing.value, os.getcwd()

                with pl.connect():
                    late, directory = pl.remote(late)(Thing(1))
                    print(json.dumps([pl.remote(helper.where)(), pl.remote(package.deep)(), late, directory]))
                """,
        }
    )
    elsewhere = far.folder / "elsewhere"
    elsewhere.mkdir()
    for cwd in (far.project, elsewhere):
        file, deep, late, directory = far.run(cwd=cwd)
        assert (deep, late) == (6, 12)
        assert far.is_delivered(file)
        assert file.endswith("/root" + str(far.project / "helper.py"))
        assert far.is_delivered(directory)
        assert directory.endswith(str(cwd))
    wait_until(lambda: not far.directories(), "the directories to be removed", 20)


def test_additions_to_the_path_and_editable_installs_go_along(far: Far) -> None:
    far.write(
        {
            "../lib/added.py": HELPER,
            "../src/edited/__init__.py": "from edited.core import where\n",
            "../src/edited/core.py": HELPER,
            "../src/setup.py": "raise SystemExit\n",
            "main.py": """
                import importlib.util, json, os, sys
                sys.path.append(os.path.abspath("../lib"))

                class Finder:
                    '''As editable installs have one.'''
                    @staticmethod
                    def find_spec(name, path=None, target=None):
                        if name == "edited":
                            file = os.path.abspath("../src/edited/__init__.py")
                            return importlib.util.spec_from_file_location(
                                name, file, submodule_search_locations=[os.path.dirname(file)])

                sys.meta_path.append(Finder)
                import added, edited
                import paceline as pl

                with pl.connect():
                    print(json.dumps([pl.remote(added.where)(), pl.remote(edited.where)()]))
                """,
        }
    )
    added, edited = far.run()
    assert far.is_delivered(added)
    assert added.endswith("/lib/added.py")
    assert far.is_delivered(edited)
    assert edited.endswith("/src/edited/core.py")


def test_what_is_loaded_later_follows(far: Far) -> None:
    far.write(
        {
            "main.py": """
                import json, os, sys
                import paceline as pl

                with pl.connect():
                    assert pl.remote(len)("ab") == 2
                    with open("fresh.py", "w") as file:
                        file.write("def where():\\n    return __file__\\n")
                    import fresh
                    print(json.dumps(pl.remote(fresh.where)()))
                """,
        }
    )
    assert far.is_delivered(far.run())


FILES = """
    import glob, json, os
    import paceline as pl

    def look():
        found = sorted(path for path in glob.glob("**", recursive=True) if os.path.isfile(path) and "main" not in path)
        folders = sorted(path for path in glob.glob("**", recursive=True) if os.path.isdir(path))
        return [found, folders, open("data/a.txt").read()]

    with pl.connect(files=["data", "*.cfg"]):
        for path in os.environ.get("DELETE", "").split():
            pl.remote(len)("")
            os.remove(path)
        print(json.dumps(pl.remote(look)()))
    """


def test_files_keep_their_places_and_changes_are_noticed(far: Far) -> None:
    far.write(
        {
            "main.py": FILES,
            "data/a.txt": "one",
            "data/deep/b.txt": "two",
            "data/junk.log": "x",
            "x.cfg": "",
            ".gitignore": "*.log\n",
        }
    )
    (far.project / "data/empty").mkdir()
    found, folders, text = far.run()
    assert found == ["data/a.txt", "data/deep/b.txt", "x.cfg"]
    assert folders == ["data", "data/deep", "data/empty"]
    assert text == "one"
    kept = len(far.kept())
    far.write({"data/a.txt": "another"})
    assert far.run(DELETE="data/a.txt")[2] == "another", "what was delivered is there after it was deleted here"
    assert len(far.kept()) == kept + 2, "of all files only the one that changed, and the list, were sent again"


def test_files_that_are_not_there_are_an_error_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "x.log").write_text("")
    for names, says in (
        (["nothing"], "not there"),
        (["*.csv"], r"\*.csv"),
        ([str(tmp_path)], "absolute"),
        (["*.log"], "gitignore"),
    ):
        with pytest.raises(pl.NoSuchFiles, match=says):
            pl.connect(cpus=1, files=names)
    with pl.connect(cpus=1, files=["x.log"]):
        assert pl.remote(os.path.exists)("x.log")


ENDLESS = """
    import sys, time
    import helper
    import paceline as pl

    cluster = pl.connect()
    print(pl.remote(helper.where)(), flush=True)
    time.sleep(600)
    """


def test_the_directory_goes_when_client_or_node_is_killed(far: Far) -> None:
    far.write({"helper.py": HELPER, "main.py": ENDLESS})
    script = far.start_script()
    assert script.stdout is not None
    assert far.is_delivered(script.stdout.readline().strip())
    [directory] = far.directories()
    assert directory.stat().st_mode & 0o777 == 0o700
    assert directory.parent.parent.stat().st_mode & 0o777 == 0o700
    script.kill()
    script.communicate()
    wait_until(lambda: not far.directories(), "the directory of the killed client to be removed", 30)
    script = far.start_script()
    assert script.stdout is not None
    assert far.is_delivered(script.stdout.readline().strip())
    script.kill()
    script.communicate()
    for process in far.paceline.processes():
        with contextlib.suppress(ProcessLookupError):  # a slot ends with its zygote
            os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: not far.paceline.processes(), "the killed node to be gone")
    [left] = far.store.glob("paceline-node-*")
    far.start()
    wait_until(lambda: not left.exists(), "what the killed node left to be removed", 20)
    far.paceline("stop", "--all").ok()
    wait_until(lambda: list(far.store.glob("paceline-*")) == [], "the node to leave nothing", 20)


def test_a_module_that_something_else_has_the_name_of_is_an_error(far: Far) -> None:
    far.write(
        {
            "keyword.py": "kwlist = []\niskeyword = set().__contains__\ndef where():\n    return __file__\n",
            "main.py": """
                import json, sys
                sys.modules.pop("keyword", None)
                sys.path.insert(0, sys.path[0])
                import importlib.util
                import keyword
                assert "project" in keyword.__file__
                import paceline as pl

                with pl.connect():
                    try:
                        print(json.dumps(["ran", pl.remote(keyword.where)()]))
                    except pl.FilesNotDelivered as error:
                        print(json.dumps(["refused", str(error)]))
                """,
        }
    )
    how, text = far.run()
    assert how == "refused"
    assert "module keyword" in text
    assert str(far.store) in text
    assert "hint" in text


def test_a_project_of_two_thousand_files_is_sent_once(far: Far) -> None:
    lines = "\n".join(f"# line {number}" for number in range(100))
    far.write({f"pkg/m{number}.py": f"VALUE = {number}\n{lines}\n" for number in range(2000)})
    far.write(
        {
            "pkg/__init__.py": "",
            "main.py": """
                import json, os, time
                import pkg.m7
                import paceline as pl

                def value():
                    import pkg.m1999
                    return pkg.m1999.VALUE

                def spoil():
                    folder = os.path.dirname(pkg.__file__)
                    with open(f"{folder}/m1999.py", "r+") as file:
                        file.write("VALUE = 'spoilt'")
                    open(f"{folder}/new.py", "w").close()

                began = time.perf_counter()
                with pl.connect():
                    got = pl.remote(value)()
                    took = time.perf_counter() - began
                    if os.environ.get("SPOIL"):
                        pl.remote(spoil)()
                    file = pl.remote(lambda: pkg.m7.__file__)()
                print(json.dumps([got, took, file]))
                """,
        }
    )
    old = time.time() - 100
    for path in (far.project / "pkg").iterdir():
        os.utime(path, (old, old))
    assert far.run()[0] == 1999
    kept = far.kept()
    wait_until(lambda: far.left() and not far.directories(), "the first client's processes to be gone", 20)
    made = {path.stat().st_ino for path in far.left()}
    value, took, file = far.run(SPOIL="1")
    assert value == 1999
    assert far.kept() == kept, "nothing is sent again"
    assert far.is_delivered(file)
    print(f"connected to the first result in {took:.2f} s")

    # What a task has written is nobody's but its client's.
    wait_until(lambda: len(far.left()) == len(made) - 1 and not far.directories(), "what was written to be removed", 20)
    assert len(made & {path.stat().st_ino for path in far.left()}) > 1900, "the files are those of the first client"
    written = [path.name for path in far.left() if path.name in ("m1999.py", "new.py")]
    assert written == [], "LE-1"
    assert far.run()[0] == 1999


def test_variables_are_set_for_every_task(tmp_path: Path) -> None:
    with pl.connect(cpus=1, env={"MODEL": "small", "OMP_NUM_THREADS": "7"}):
        assert pl.remote(lambda: (os.environ["MODEL"], os.environ["OMP_NUM_THREADS"]))() == ("small", "7")
    with pytest.raises(TypeError, match="env="):
        pl.connect(cpus=1, env={"A": 1})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="env="):
        pl.connect(cpus=1, env={"A=B": ""})
    assert "MODEL" not in os.environ


def test_variables_reach_other_machines(far: Far) -> None:
    far.write(
        {
            "main.py": """
                import json, os
                import paceline as pl

                with pl.connect(env={"MODEL": "small"}):
                    print(json.dumps(pl.remote(lambda: os.environ["MODEL"])()))
                """,
        }
    )
    assert far.run() == "small"


def test_variables_of_groups_and_pools() -> None:
    """All processes of one have them, and others do not."""

    def model() -> str | None:
        return os.environ.get("MODEL")

    class Worker:
        def __init__(self, env: str) -> None:
            self.env = env

        def run(self, _item: int) -> tuple[str, str | None]:
            return self.env, model()

    with pl.connect(cpus=2):
        with pl.group(2, env={"MODEL": "group"}) as group:
            assert group.run(model) == ["group", "group"]
        with pl.Executor(2, env={"MODEL": "executor"}) as executor:
            assert executor.submit(model).result() == "executor"
        with pl.Pool(1, env={"MODEL": "pool"}) as pool:
            assert pool.apply(model) == "pool"
        decorated: Any = pl.remote(env={"MODEL": "workers"})(Worker)
        with pl.WorkerPool(decorated, env="the constructor's", slots=1) as workers:
            assert workers.map([1]) == [("the constructor's", "workers")]
        assert pl.remote(model)() is None
        with pytest.raises(TypeError, match="env="):
            pl.group(1, env={"A": 1})  # type: ignore[dict-item]


def test_variables_of_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are there before the interpreter starts, and other tasks do not see them."""

    @pl.remote(env={"MODEL": "large", "PYTHONHASHSEED": "5"})
    def hashed() -> tuple[str, int, int]:
        return os.environ["MODEL"], hash("paceline"), os.getpid()

    @pl.remote(env={"MODEL": "tiny"})
    class Holder:
        def model(self) -> str:
            return os.environ["MODEL"]

    monkeypatch.setenv("PYTHONHASHSEED", "5")
    command = [sys.executable, "-c", "print(hash('paceline'))"]
    expected = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    monkeypatch.delenv("PYTHONHASHSEED")
    with pl.connect(cpus=2):
        model, value, process = hashed()
        assert (model, value) == ("large", expected)
        assert pl.remote(lambda: os.environ.get("MODEL"))() is None
        assert Holder().model() == "tiny"
        plain = hashed.options(env=None)
        assert pl.remote(os.getpid)() != process
        with pytest.raises(KeyError):
            plain()
        nested = pl.remote(lambda: pl.remote(os.getpid)(), env={"MODEL": "nested"})
        assert isinstance(nested(), int), "such a task submits tasks like any other"
    with pytest.raises(TypeError, match="env="):
        pl.remote(env={"A": 1})(len)


def test_on_one_machine_nothing_travels(far: Far) -> None:
    far.write(
        {
            "helper.py": HELPER,
            "main.py": """
                import json, os
                import helper
                import paceline as pl

                with pl.connect():
                    print(json.dumps([pl.remote(helper.where)(), pl.remote(os.getcwd)()]))
                """,
        }
    )
    file, directory = far.run(PACELINE_LOCAL="on")
    assert (file, directory) == (str(far.project / "helper.py"), str(far.project))
    assert far.directories() == []


def test_packages_that_differ_are_told(tmp_path: Path) -> None:
    from paceline._slot.packages import differences

    for name in ("numpy-2.0.1", "Foo_Bar-1"):
        (tmp_path / f"{name}.dist-info").mkdir()
    theirs = ["numpy 1.26.4", "foo_bar 1", "torch 2.3"]
    assert differences(theirs, [str(tmp_path)]) == [
        "numpy is 2.0.1 here and 1.26.4 at the client",
        "torch 2.3 is not installed here",
    ]

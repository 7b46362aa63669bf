"""What slots do in Python: find the client's surroundings, load, and leave in good order."""

import json
import os

import pytest

from paceline import _slot
from support import run_script
from test_import import HEAVY


def test_bind_sets_directory_path_and_environment() -> None:
    run_script(
        """
        import os, sys
        from paceline import _slot
        os.environ["OMP_NUM_THREADS"] = "7"
        os.environ["OTHER"] = "old"
        os.mkdir("there")
        there = os.path.abspath("there")
        path = [there, *sys.path]
        _slot.bind(there, path, {"OTHER": "new"}, counts={"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})
        assert os.getcwd() == there
        assert sys.path == path
        assert (os.environ["OMP_NUM_THREADS"], os.environ["MKL_NUM_THREADS"], os.environ["OTHER"]) == ("7", "1", "new")
        """
    ).ok()


def test_a_directory_that_is_gone_is_said_and_no_more() -> None:
    done = run_script("from paceline import _slot, errors; _slot.bind('/no/such/place', [], {})").ok()
    assert done.stderr == "paceline: cannot enter /no/such/place: No such file or directory\n"


def test_finish_does_what_an_interpreter_does_at_its_end() -> None:
    done = run_script(
        """
        import atexit, os, sys, threading, time
        from paceline import _slot
        started = threading.Event()
        def late():
            started.set()
            time.sleep(0.05)
            print("thread")
        threading.Thread(target=late).start()
        started.wait()
        atexit.register(lambda: print("handler"))
        atexit.register(lambda: 1 / 0)
        _slot.finish()
        os._exit(0)
        """
    ).ok()
    assert done.stdout == "thread\nhandler\n"
    assert "ZeroDivisionError" in done.stderr


def test_finish_survives_closed_output() -> None:
    """SL-2"""
    done = run_script("import os, sys\nfrom paceline import _slot\nsys.stdout.close()\n_slot.finish()\nos._exit(0)")
    assert done.returncode == 0


def test_this_process_is_no_slot() -> None:
    assert _slot.number is None


def test_a_slot_is_lean() -> None:
    """SL-1"""
    done = run_script(
        """
        import paceline as pl
        def loaded():
            import sys
            return sorted(sys.modules)
        import json
        with pl.connect(cpus=1):
            print(json.dumps(pl.remote(loaded)()))
        """
    ).ok()
    assert not set(json.loads(done.stdout)) & set(HEAVY)


def test_user_code_sees_what_it_would_see_in_the_client() -> None:
    done = run_script(
        """
        import json, os, sys
        import beside
        import paceline as pl
        def facts():
            import os, sys
            flags = {name: getattr(sys.flags, name) for name in dir(sys.flags) if name.islower() and name[0] != "n"}
            return [sys.argv, os.getcwd(), sys.executable, sys.prefix, sys.warnoptions, sys._xoptions,
                    sys.getfilesystemencoding(), __debug__, __name__, os.environ.get("MINE"),
                    {k: v for k, v in flags.items() if isinstance(v, (int, bool))}]
        os.environ["MINE"] = "set"
        with pl.connect(cpus=1):
            assert pl.remote(facts)() == facts(), (pl.remote(facts)(), facts())
            path = pl.remote(lambda: sys.path)()
            assert path == [os.path.abspath(entry) for entry in sys.path], (path, sys.path)
            assert pl.remote(beside.where)() == beside.where()
            os.mkdir("elsewhere"); os.chdir("elsewhere"); sys.path.insert(0, os.getcwd())
            assert pl.remote(lambda: (os.getcwd(), sys.path[0]))() == (os.getcwd(), os.getcwd())
        """,
        args=["one", "two words"],
        interpreter=["-O", "-X", "utf8", "-W", "ignore::ResourceWarning"],
        files={"beside.py": "def where():\n    return __file__\n"},
    )
    done.ok()


def test_a_file_in_the_directory_cannot_stand_in_for_paceline_or_the_standard_library() -> None:
    names = ("paceline", "gc", "threading", "types", "functools", "_slot")
    run_script(
        """
        import sys
        sys.path.pop(0)
        import paceline as pl
        with pl.connect(cpus=1):
            assert pl.remote(abs)(-1) == 1
        """,
        files={f"{name}.py": "raise SystemExit('imported by mistake')" for name in names},
    ).ok()


def test_thread_counts() -> None:
    done = run_script(
        """
        import os
        import paceline as pl
        with pl.connect(cpus=2):
            read = pl.remote(lambda: (os.environ["OMP_NUM_THREADS"], os.environ["MKL_NUM_THREADS"]))
            print(*read())
        print("OMP_NUM_THREADS" in os.environ)
        """,
        env={"OMP_NUM_THREADS": None, "MKL_NUM_THREADS": "5"},
    ).ok()
    assert done.stdout == "1 5\nFalse\n"


def test_threads_and_exit_handlers_of_tasks_end_with_the_slot() -> None:
    run_script(
        """
        import paceline as pl
        def leave_a_mark(path):
            import atexit, threading, time
            def late():
                time.sleep(0.1)
                open(path + ".thread", "w").close()
            threading.Thread(target=late).start()
            atexit.register(lambda: open(path + ".exit", "w").close())
        with pl.connect(cpus=1):
            pl.remote(leave_a_mark)("mark")
        import os, time
        until = time.monotonic() + 5
        while not (os.path.exists("mark.exit") and os.path.exists("mark.thread")):
            assert time.monotonic() < until, os.listdir()
            time.sleep(0.01)
        """
    ).ok()


@pytest.mark.parametrize("text", ["x", os.sep])
def test_references_are_resolved(text: str) -> None:
    function = _slot.load(_slot.REFERENCE + b"os.path\0basename")
    assert function(f"a/{text}") == os.path.basename(f"a/{text}")

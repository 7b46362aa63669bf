"""Functions go from one interpreter to another. Each script sends some to a plain second interpreter and calls them."""

import pytest

from support import run_script

HARNESS = """
import subprocess, sys, os, _pickle

LOADER = '''
import sys, _pickle
from paceline import _slot
directory, path, payload, args, text = _pickle.load(sys.stdin.buffer)
_slot.bind(directory, path, {})
before = set(sys.modules)
function = _slot.load(payload)
result = function(*_pickle.loads(args))
if text:
    result = eval(text)
from paceline._pickling import dumps
sys.stdout.buffer.write(dumps(result, "result"))
'''

def pack(function):
    from paceline._functions import encode
    from paceline._pickling import Reach
    return encode(function, Reach(None))

def elsewhere(function, *args, text=None):
    from paceline._pickling import dumps
    message = (os.getcwd(), [os.path.abspath(p) for p in sys.path], pack(function), dumps(args), text)
    done = subprocess.run([sys.executable, "-c", LOADER], input=_pickle.dumps(message), stdout=subprocess.PIPE)
    assert done.returncode == 0, "the loader failed"
    return _pickle.loads(done.stdout)
"""

CASES = {
    "closures, defaults and keyword defaults": """
        def make(factor, *, offset):
            def scale(x, y=factor, *, z=offset):
                return x * factor + y + z + offset
            return scale
        assert elsewhere(make(10, offset=1), 2) == 20 + 10 + 1 + 1
        assert elsewhere(lambda: "lambda") == "lambda"
    """,
    "a function that names itself": """
        def factorial(n):
            return 1 if n == 0 else n * factorial(n - 1)
        assert elsewhere(factorial, 10) == 3628800
    """,
    "a local function that names itself": """
        def outer():
            def fibonacci(n):
                return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)
            return fibonacci
        assert elsewhere(outer(), 10) == 55
    """,
    "functions that name each other": """
        def even(n):
            return True if n == 0 else odd(n - 1)
        def odd(n):
            return False if n == 0 else even(n - 1)
        assert elsewhere(even, 10) is True and elsewhere(odd, 10) is False
    """,
    "helpers share one namespace": """
        count = 0
        def step():
            global count
            count += 1
        def run(times):
            for _ in range(times):
                step()
            return count, step.__globals__ is run.__globals__
        assert elsewhere(run, 3) == (3, True)
        assert count == 0
    """,
    "closures share their cells": """
        def counter():
            count = 0
            def up():
                nonlocal count
                count += 1
            def get():
                return count
            return up, get
        up, get = counter()
        def use():
            up(); up()
            return get()
        assert elsewhere(use) == 2
    """,
    "an empty cell": """
        def outer():
            def early():
                try:
                    return later
                except NameError:
                    return "empty"
            if 0:
                later = 1
            return early
        assert elsewhere(outer()) == "empty"
    """,
    "only what is named travels": """
        import threading
        lock = threading.Lock()
        class Thing:
            lock = "attribute"
        def use(text):
            class Local:
                lock = text
            return Local.lock
        assert elsewhere(use, "fine") == "fine"
    """,
    "submodules are imported": """
        import xml.dom.minidom
        def parse():
            return xml.dom.minidom.parseString("<a/>").documentElement.tagName
        assert elsewhere(parse) == "a"
        def nested():
            return (lambda: xml.dom.minidom.parseString("<b/>"))().documentElement.tagName
        assert elsewhere(nested) == "b"
    """,
    "everything a function carries": """
        import functools
        class Secret: ...
        def plain(a: int, b: "text", c: Secret = None) -> list:
            "what it does"
        @functools.wraps(plain)
        def wrapper(*args):
            return wrapper
        wrapper.extra = [1, 2]
        wrapper.__qualname__ = "Some.where"
        text = ("[function.__name__, function.__qualname__, function.__doc__, function.__module__, function.extra,"
                " function.__wrapped__.__name__, sorted(function.__annotations__), result is function,"
                " function.__wrapped__.__annotations__['b']]")
        assert elsewhere(wrapper, text=text) == ["plain", "Some.where", "what it does", "__main__", [1, 2], "plain",
                                                 ["a", "b", "return"], True, "text"]
        assert pack(wrapper)[:1] == b"P"
    """,
    "annotations need no cloudpickle": """
        import dataclasses
        @dataclasses.dataclass
        class Settings:
            x: int = 1
        def use(settings: Settings, many: list[Settings]) -> Settings:
            return 5
        assert pack(use)[:1] == b"P"
        assert elsewhere(use, 1, 2) == 5
        assert "cloudpickle" not in sys.modules
    """,
    "plain functions need no cloudpickle on either side": """
        import math
        from collections import OrderedDict
        scale = 3
        table = {"a": (1, 2.5), "b": OrderedDict(x=1)}
        def helper(x):
            return math.sqrt(x) * scale
        text = "[name in sys.modules for name in ('cloudpickle', 'pickle', 'typing', 'logging')]"
        assert elsewhere(lambda: (helper(4), table), text=text) == [False] * 4
        assert "cloudpickle" not in sys.modules
    """,
    "classes of the main script": """
        class Base:
            def name(self):
                return "base"
        class Point(Base):
            def __init__(self, x):
                self.x = x
            def name(self):
                return "point of " + super().name() + helper()
        def helper():
            return "!"
        def move(point):
            assert isinstance(point, Point)
            return Point(point.x + 1), point.name()
        moved, name = elsewhere(move, Point(1))
        assert type(moved) is Point and moved.x == 2 and name == "point of base!"
        assert pack(move)[:1] == b"C"
    """,
    "enumerations, type variables and named tuples of the main script": """
        import collections, enum, typing
        class Colour(enum.Enum):
            RED = 1
        Pair = collections.namedtuple("Pair", "a b")
        T = typing.TypeVar("T")
        def use(colour):
            assert colour is Colour.RED and T.__name__ == "T"
            return Pair(colour, [Colour.RED])
        pair = elsewhere(use, Colour.RED)
        assert type(pair) is Pair and pair.a is Colour.RED and pair.b == [Colour.RED]
    """,
    "a cached function": """
        import functools
        @functools.lru_cache(maxsize=7)
        def fibonacci(n):
            return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)
        assert elsewhere(fibonacci, 60) == 1548008755920
        assert elsewhere(lambda: fibonacci(50) and fibonacci.cache_parameters()["maxsize"]) == 7
        assert pack(fibonacci)[:1] == b"P"
    """,
    "callables that are no functions": """
        import functools, math
        import numpy
        class Adder:
            def __init__(self, n):
                self.n = n
            def __call__(self, x):
                return self.n + x
            def method(self, x):
                return self.n * x
            @classmethod
            def made(cls, n):
                return cls(n).n
            @staticmethod
            def static(x):
                return -x
        assert elsewhere(math.sqrt, 16) == 4
        assert elsewhere(functools.partial(pow, 2), 5) == 32
        assert elsewhere(functools.partial(lambda x, y: x - y, 1), 5) == -4
        assert elsewhere(Adder(3), 4) == 7
        assert elsewhere(Adder(3).method, 4) == 12
        assert elsewhere(Adder.made, 4) == 4
        assert elsewhere(Adder.static, 4) == -4
        assert elsewhere(numpy.add, 1, 2) == 3
        assert elsewhere("a b".split) == ["a", "b"]
        assert elsewhere(int, "7") == 7
    """,
    "async functions and generators": """
        import asyncio
        async def answer():
            return 42
        def numbers():
            yield from (1, 2)
        assert elsewhere(lambda: (asyncio.run(answer()), list(numbers()))) == (42, [1, 2])
    """,
    "what can be imported goes by name": """
        import beside, json
        assert pack(json.dumps) == b"Rjson\\0dumps"
        assert pack(beside.plain) == b"Rbeside\\0plain"
        assert pack(beside.Holder.method) == b"Rbeside\\0Holder.method"
        assert elsewhere(beside.plain, 1) == ("beside", 1)
        assert elsewhere(lambda: beside.plain(2)) == ("beside", 2)
        assert elsewhere(beside.make_local(), 3) == ("beside local", 3)
        assert pack(beside.make_local())[:1] == b"P"
    """,
    "a decorated name is seen through": """
        import beside
        assert pack(beside.decorated) == pack(beside.decorated.original) == b"Rbeside\\0decorated"
        assert elsewhere(beside.decorated, 4) == ("decorated", 4)
        assert elsewhere(beside.Holder.remote_method.original, None, 5) == ("method", 5)
        original = beside.decorated.original
        assert elsewhere(lambda: original(6)) == ("decorated", 6)
    """,
    "remote functions are carried": """
        import beside
        import paceline as pl
        @pl.remote(retries=1)
        def mine(n):
            return 0 if n == 0 else 1 + mine.original(n - 1)
        assert elsewhere(mine, 3) == 3
        assert elsewhere(lambda: mine.original(4)) == 4
        assert elsewhere(lambda f: (f.original(5), f._options["retries"], repr(f)), mine) == (
            5, 1, "<paceline.RemoteFunction __main__.mine>")
        assert elsewhere(lambda f: f is beside.decorated, beside.decorated)
        assert elsewhere(lambda f: f.original is beside.decorated.original, beside.decorated.options(priority=1))
        def both(f):
            return f is mine
        assert not elsewhere(both, 1)
        assert elsewhere(lambda pair: pair[0] is pair[1], (mine, mine))
    """,
    "modules made by hand and modules without a file": """
        import types
        module = types.ModuleType("by_hand")
        exec("def inside(x): return helper(x)\\ndef helper(x): return x + 1", module.__dict__)
        sys.modules["by_hand"] = module
        assert elsewhere(module.inside, 1) == 2
        del sys.modules["by_hand"]
        assert elsewhere(lambda: module.inside(1)) == 2
    """,
}

BESIDE = """
    import paceline as pl

    def plain(x):
        return "beside", x

    @pl.remote
    def decorated(x):
        return "decorated", x

    def make_local():
        return lambda x: ("beside local", x)

    class Holder:
        def method(self):
            return 1

        @pl.remote
        def remote_method(self, x):
            return "method", x
"""


@pytest.mark.parametrize("case", CASES)
def test_elsewhere(case: str) -> None:
    from textwrap import dedent

    run_script(HARNESS + dedent(CASES[case]), files={"beside.py": BESIDE}).ok()


def test_what_cannot_be_sent_is_named() -> None:
    done = run_script(
        HARNESS
        + """
import threading
import paceline as pl
state = {"deep": [threading.Lock()]}
def helper():
    return state
def function():
    return helper()
try:
    pack(function)
except pl.FunctionNotSerializable as error:
    print(error)
    print(error.path, type(error.__cause__).__name__)
"""
    ).ok()
    assert done.stdout.splitlines() == [
        "cannot send state (a global that helper uses)['deep'][0], which is a _thread.lock: "
        "TypeError: cannot pickle '_thread.lock' object",
        "hint: locks, open files, sockets, generators and the like belong to one process: make it inside the function",
        "state (a global that helper uses)['deep'][0] TypeError",
    ]


def test_reach_covers_every_function_that_travels() -> None:
    """FU-2"""
    done = run_script(
        """
        from paceline._functions import encode
        from paceline._pickling import Reach
        missing = object()
        class Thing:
            def method(self):
                return in_method
        in_method = 1
        in_default = 2
        in_table = 3
        def helper():
            return deep, not_there
        deep = 4
        table = {"f": lambda: in_table}
        def outer(closed):
            def function(x=lambda: in_default):
                return helper(), closed, table, Thing, (lambda: nested)()
            return function
        nested = 5
        reach = Reach(missing)
        encode(outer("closed"), reach)
        names = {name: value for space, name, value in reach.globals if space is globals()}
        assert names["helper"] is helper and names["Thing"] is Thing
        assert {"in_method", "in_default", "in_table", "deep", "nested", "table"} <= set(names)
        assert names["not_there"] is missing
        assert [value for cell, value in reach.cells] == ["closed"]
        assert len(names) == len(reach.globals)
        """
    )
    done.ok()

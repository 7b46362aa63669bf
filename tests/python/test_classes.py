"""Classes of the main script, there and back."""

from textwrap import dedent

import pytest

from support import run_script

PRELUDE = """
import paceline as pl
from paceline._slot import classes

scale = 2

class Point:
    unit = "m"
    def __init__(self, x):
        self.x = x
    def scaled(self):
        return self.x * scale, self.unit
    def other(self):
        return Other(self.x)

class Other(Point):
    def back(self):
        return Point(self.x)

@pl.remote
def scaled(point):
    return point.scaled()

@pl.remote
def moved(point):
    return Point(point.x + 1)

@pl.remote
def identity(value):
    return value

pl.connect(cpus=1)
"""

CASES = {
    "a class that comes home is untouched": """
        import pickle
        pickle.loads(pickle.dumps(Point(0)))  # the standard library notes something in the class
        before = dict(vars(Point))
        for point in (moved(Point(1)), identity(Point(2)), identity([Point(3)])[0], identity(Point)(2)):
            assert type(point) is Point
        assert dict(vars(Point)) == before
        assert Point.scaled.__globals__ is globals()
        scale = 7
        assert Point(1).scaled() == (7, "m")
    """,
    "what is set in a class is noticed": """
        assert scaled(Point(1)) == (2, "m")
        Point.unit = "km"
        assert scaled(Point(1)) == (2, "km")
        Point.scaled = lambda self: "replaced"
        assert scaled(Point(1)) == "replaced"
        assert identity(Other(1)).scaled() == "replaced" and scaled(Other(1)) == "replaced"
    """,
    "a global that methods use is noticed": """
        assert scaled(Point(3)) == (6, "m")
        scale = 5
        assert scaled(Point(3)) == (15, "m")
        Other = Point
        assert pl.remote(lambda p: type(p.other()).__name__)(Point(1)) == "Point"
    """,
    "classes that name each other": """
        there = pl.remote(lambda p: p.other().back())(Point(4))
        assert type(there) is Point and there.x == 4
        assert type(identity(Point(1)).other()) is Other
        assert isinstance(identity(Other(1)), Point)
    """,
    "a class made in a slot": """
        def make():
            class Local:
                def __init__(self, x):
                    self.x = x
                def double(self):
                    return Local(2 * self.x)
            return Local(5)
        made = pl.remote(make)()
        again = identity(made)
        assert type(again) is type(made) and again.double().x == 10
        assert type(pl.remote(lambda m: m.double())(again)) is type(made)
    """,
    "a class is built once": """
        import cloudpickle.cloudpickle as inner
        count = 0
        original = inner._class_getstate
        def counting(kind):
            global count
            count += 1
            return original(kind)
        inner._class_getstate = counting
        moved.map([Point(1)] * 3)
        count = 0
        moved.map([Point(x) for x in range(100)], chunksize=1)
        for x in range(10):
            moved(Point(x))
        assert count == 0, count
        # In the slot too: the class stays the same object, and with it what was set there.
        mark = pl.remote(lambda p: setattr(type(p), "mark", 1))
        seen = pl.remote(lambda p: hasattr(type(p), "mark"))
        seen(Point(1)), mark(Point(1))
        assert seen(Point(1))
        assert not hasattr(Point, "mark")
    """,
    "the register is bounded": """
        classes.LIMIT = 10
        for number in range(50):
            kind = type(f"Kind{number}", (), {"number": number})
            copy = identity(kind())
            assert type(copy) is kind and copy.number == number
        assert len(classes._by_class) == len(classes._by_token) == 10
    """,
    "dataclasses, enumerations, slots, abstract classes, exceptions and generics": """
        import abc, dataclasses, enum, typing
        @dataclasses.dataclass(frozen=True, order=True)
        class Data:
            x: int
            y: "list[Data]" = dataclasses.field(default_factory=list)
        @dataclasses.dataclass(slots=True)
        class Slim:
            x: int
            y: int = 5
        class Colour(enum.IntFlag):
            RED = 1
            BLUE = 2
        class Slotted:
            __slots__ = ("a",)
        class Abstract(abc.ABC):
            @abc.abstractmethod
            def run(self): ...
        class Concrete(Abstract):
            def run(self):
                return super().run, __class__
        class Wrong(ValueError):
            def __init__(self, code, text):
                super().__init__(text)
                self.code = code
        T = typing.TypeVar("T")
        class Box(typing.Generic[T]):
            value: T
        slotted = Slotted()
        slotted.a = Colour.RED | Colour.BLUE
        data = Data(1, [Data(2)])
        values = identity([data, Colour.RED, slotted, Concrete(), Box(), Box[int], Slim(1)])
        assert values[0] == data and values[1] is Colour.RED and values[2].a == 3 and type(values[2]) is Slotted
        assert values[3].run()[1] is Concrete and isinstance(values[3], Abstract)
        assert type(values[4]) is Box and values[5].__origin__ is Box
        assert values[6] == Slim(1) and not hasattr(values[6], "__dict__")
        assert not pl.remote(lambda slim: hasattr(slim, "__dict__"))(Slim(2))
        def fail(data):
            raise Wrong(7, str(data.x))
        try:
            pl.remote(fail)(data)
        except Wrong as error:
            assert (error.code, error.args) == (7, ("1",))
    """,
    "many threads": """
        from concurrent.futures import ThreadPoolExecutor
        def work(number):
            for _ in range(20):
                point = moved(Point(number))
                assert type(point) is Point and point.x == number + 1
            return True
        with ThreadPoolExecutor(20) as executor:
            assert all(executor.map(work, range(20)))
    """,
}


@pytest.mark.parametrize("case", CASES)
def test_classes(case: str) -> None:
    """KL-1, KL-2, KL-3"""
    run_script(PRELUDE + dedent(CASES[case])).ok()

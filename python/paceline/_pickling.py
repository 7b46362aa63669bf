"""Pickles what plain pickle cannot: functions and classes of the main script, lambdas, closures.

Owns: taking functions apart (`_slot.rebuild` puts them together) and the order of attempts: the C pickler
with our own way for functions first, because it is quick and needs no import; cloudpickle for what that
cannot do, above all classes of the main script. The core calls `dumps` only after plain pickle failed or
named `__main__`.

* PI-1: what another process can import goes by reference, everything else by value.
* PI-2: functions that share globals, cells or code here share them there, within one pickle.
* PI-3: safe in any number of threads: nothing but the register of classes outlives a call.
"""

from __future__ import annotations

import _pickle
import marshal
import sys
from io import BytesIO

from paceline import _names
from paceline._slot import rebuild

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CellType, CodeType, FunctionType, ModuleType
    from typing import Any, Literal

    from paceline._native import Collector
else:
    from paceline._names import CodeType
    from paceline._slot.rebuild import CellType, FunctionType

    ModuleType = type(sys)


plainly = False
"""Whether results that plain pickle refuses are refused: the rule of `multiprocessing.Pool`, in its slots."""


class Unfit(Exception):
    """Our pickler meets something that is for cloudpickle to do."""


def dumps(
    value: object,
    root: Literal["args", "call", "result", "value"] | None = None,
    buffers: Collector | None = None,
) -> bytes:
    """Pickle a value that plain pickle cannot, or raise the error that names the part to blame.

    `root` says what the value is: the tuple of arguments (`args`), that tuple with the keywords (`call`),
    what a function returned (`result`), or a single argument (`value`). `buffers` collects large buffers, which
    are not in the pickle then.
    """
    try:
        if plainly and root == "result":
            _pickle.dumps(value, 5)
        return encode(value, buffers)
    except Exception as error:
        # A batch of a stream sends what came before the value to blame.
        salvage = getattr(type(value), "_pl_salvage", None)
        salvaged: bytes | None = salvage(value) if salvage is not None else None
        if salvaged is not None:
            return salvaged
        from paceline._explain import explain

        raise explain(value, error, root) from error


def encode(value: object, buffers: Collector | None = None) -> bytes:
    """Pickle a value by our own pickler, or else by cloudpickle. Raises whatever the latter raises."""
    file = BytesIO()
    try:
        Pickler(file, buffers=buffers).dump(value)
    except Exception:
        # Whatever went wrong, cloudpickle has the last word on it.
        from paceline._cloudpickling import CloudPickler

        if buffers is not None:
            buffers.clear()
        file = BytesIO()
        CloudPickler(file, buffers=buffers).dump(value)
    return file.getvalue()


class Pickler(_pickle.Pickler):
    """The C pickler, with functions by value. With a `reach` it pickles a function, and raises `Unfit` at a class."""

    def __init__(self, file: BytesIO, reach: Reach | None = None, buffers: Collector | None = None) -> None:
        super().__init__(file, 5, buffer_callback=buffers)
        self._parts = Parts(reach)
        self._classes = reach is None

    def reducer_override(self, value: Any) -> Any:
        reduced = self._parts.reduce(value)
        if reduced is not NotImplemented:
            return reduced
        if isinstance(value, type):
            if value.__module__ != "builtins" and not _class_by_reference(value):
                return self._class(value)
        elif getattr(value, "__module__", None) in _names.MAIN and not _carries_its_class(value):
            raise Unfit(value)  # such as a TypeVar: pickle would send its name only
        return NotImplemented

    def _class(self, kind: type) -> Any:
        if not self._classes:
            raise Unfit(kind)
        from paceline._cloudpickling import definition
        from paceline._slot import classes

        return classes.defined, definition(kind)


class Reach:
    """What the functions that were sent by value name:

    the globals and cells whose change makes them stale.
    """

    def __init__(self, missing: object) -> None:
        self.missing = missing
        self.globals: list[tuple[dict[str, Any], str, object]] = []
        self.cells: list[tuple[CellType, object]] = []
        self._seen: set[tuple[int, str]] = set()

    def note(self, function: FunctionType, names: tuple[str, ...]) -> None:
        space = function.__globals__
        for name in names:
            if (id(space), name) not in self._seen:
                self._seen.add((id(space), name))
                self.globals.append((space, name, space.get(name, self.missing)))
        for cell in function.__closure__ or ():
            if (id(cell), "") not in self._seen:
                self._seen.add((id(cell), ""))
                self.cells.append((cell, content(cell, self.missing)))


class Parts:
    """Takes functions and modules apart, for one pickle."""

    def __init__(self, reach: Reach | None = None) -> None:
        self._reach = reach
        self._namespaces: dict[int, _Namespace] = {}
        self._cells: dict[int, _Cell] = {}

    def reduce(self, value: Any) -> Any:
        """What `reducer_override` should answer, if the value is ours to do. NotImplemented otherwise."""
        kind = type(value)
        if kind is FunctionType:
            return self._function(value)
        if isinstance(value, type) and rebuild.plain_class(found := _names.lookup(*_named(value))) is not found:
            reference = function_reference(value)
            return NotImplemented if reference is None else (rebuild.original, reference)
        if kind is CodeType:
            return marshal.loads, (marshal.dumps(value),)
        if isinstance(value, ModuleType):
            return _module(value)
        if kind.__name__ == "_lru_cache_wrapper":
            return _cached(value)
        return NotImplemented

    def _function(self, function: FunctionType) -> Any:
        reference = function_reference(function)
        if reference is not None:
            direct = _names.lookup(*reference) is function
            return NotImplemented if direct else (rebuild.original, reference)
        code = function.__code__
        names = _names.global_names(code)
        if self._reach is not None:
            self._reach.note(function, names)
        space = self._namespaces.get(id(function.__globals__))
        if space is None:
            space = self._namespaces[id(function.__globals__)] = _Namespace(function.__globals__)
        cells, contents = self._closure(function)
        state = (
            space.take(names),
            _submodules(function, names),
            contents,
            _attributes(function),
            function.__dict__,
        )
        return rebuild.function, (code, space, function.__name__, cells), state, None, None, rebuild.fill

    def _closure(self, function: FunctionType) -> tuple[tuple[_Cell, ...] | None, tuple[tuple[_Cell, Any], ...]]:
        """Empty cells for the new function, and what to put into those that this pickle meets for the first time."""
        if function.__closure__ is None:
            return None, ()
        empty: list[_Cell] = []
        contents: list[tuple[_Cell, Any]] = []
        for cell in function.__closure__:
            stand_in = self._cells.get(id(cell))
            if stand_in is None:
                stand_in = self._cells[id(cell)] = _Cell(cell)
                value = content(cell, stand_in)
                if value is not stand_in:
                    contents.append((stand_in, value))
            empty.append(stand_in)
        return tuple(empty), tuple(contents)


class _Namespace:
    """Stands for a `__globals__` in the pickle, which gets only the names that functions ask for."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names
        self._taken: set[str] = set()

    def take(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Those of the names that exist and have not been taken before."""
        wanted = [name for name in names if name not in self._taken and name != "__builtins__"]
        new = {name: self._names[name] for name in wanted if name in self._names}
        self._taken.update(new)
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        name, package, file = (self._names.get(key) for key in ("__name__", "__package__", "__file__"))
        return rebuild.namespace, (_text(name) or "__main__", _text(package), _text(file))


class _Cell:
    """Stands for a closure's cell in the pickle.

    Holds the original, so that its identity is not taken by another.
    """

    def __init__(self, cell: CellType) -> None:
        self._cell = cell

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild.cell, ()


def _named(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__


def function_reference(function: FunctionType | type) -> tuple[str, str] | None:
    """Module and name under which another process finds this function or class, also where the name is decorated."""
    module = function.__module__
    found = rebuild.plain(_names.lookup(module, function.__qualname__))
    if found is function and _names.importable(module):
        return module, function.__qualname__
    return None


def content(cell: CellType, empty: object) -> object:
    """What is in a cell, or `empty`."""
    try:
        return cell.cell_contents
    except ValueError:
        return empty


def _carries_its_class(value: object) -> bool:
    """Whether `__module__` says where the class is, and not where to find this very object.

    Remote functions have the names of what they wrap, and know how to pickle themselves.
    """
    kind = type(value)
    return kind.__module__.startswith("paceline.") or (
        kind.__module__ in _names.MAIN and "__module__" not in getattr(value, "__dict__", ())
    )


def _class_by_reference(kind: type) -> bool:
    return _names.lookup(kind.__module__, kind.__qualname__) is kind and _names.importable(kind.__module__)


def _module(module: ModuleType) -> Any:
    if sys.modules.get(module.__name__) is module and _names.importable(module.__name__):
        return rebuild.module, (module.__name__,)
    return NotImplemented


def _cached(wrapper: Any) -> Any:
    """`functools.lru_cache` pickles by name, which does not help where the name cannot be imported."""
    if _names.lookup(wrapper.__module__, wrapper.__qualname__) is wrapper and _names.importable(wrapper.__module__):
        return NotImplemented
    parameters = wrapper.cache_parameters()
    return rebuild.cached, (wrapper.__wrapped__, parameters["maxsize"], parameters["typed"])


def _submodules(function: FunctionType, names: tuple[str, ...]) -> tuple[str, ...]:
    space = function.__globals__
    values = [space.get(name) for name in names]
    values += [content(cell, None) for cell in function.__closure__ or ()]
    packages = {value.__name__ for value in values if isinstance(value, ModuleType) and hasattr(value, "__path__")}
    if not packages:
        return ()
    return tuple(_names.submodules(packages, _names.attribute_names(function.__code__)))


def _attributes(function: FunctionType) -> dict[str, Any]:
    """Attributes that differ from what the code alone gives a new function."""
    code = function.__code__
    attributes: dict[str, Any] = {
        "__defaults__": function.__defaults__,
        "__kwdefaults__": function.__kwdefaults__,
        "__annotations__": _annotations(function),
    }
    attributes = {name: value for name, value in attributes.items() if value}
    if function.__qualname__ != code.co_qualname:
        attributes["__qualname__"] = function.__qualname__
    if function.__module__ != function.__globals__.get("__name__"):
        attributes["__module__"] = function.__module__
    first = code.co_consts[0] if code.co_consts else None
    if function.__doc__ != (first if isinstance(first, str) else None):
        attributes["__doc__"] = function.__doc__
    return attributes


def _annotations(function: FunctionType) -> dict[str, Any]:
    """The annotations that go by reference. Nobody's class is sent for the sake of a type hint."""
    try:
        annotations = function.__annotations__
    except Exception:
        return {}  # since Python 3.14 they are evaluated now, and may name what does not exist
    return {name: value for name, value in annotations.items() if _plain(value)}


def _plain(value: object) -> bool:
    if value is None or isinstance(value, str) or (type(value) is type and value.__module__ == "builtins"):
        return True
    try:
        Pickler(BytesIO(), Reach(None)).dump(value)
    except Exception:
        return False
    return True


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None

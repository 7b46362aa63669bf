"""Which global names a piece of code reads, and which of them another process can import.

Owns: reading bytecode, and the judgement "importable". Everything here is a question; nothing is changed.

* NA-1: a name that is only an attribute (`x.name`) is not a global, even if a global of that name exists.
* NA-2: a module counts as importable if an import in a fresh process with our `sys.path` would find the same
  file.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, ModuleType
    from typing import Any
else:
    CodeType = type((lambda: None).__code__)

MAIN = ("__main__", "__mp_main__")


def global_names(code: CodeType) -> tuple[str, ...]:
    """Names of globals that this code and the code nested in it reads, each once.

    >>> def example():
    ...     return [print(len.__doc__) for _ in range(3)]
    >>> sorted(global_names(example.__code__))
    ['len', 'print', 'range']
    """
    return tuple(dict.fromkeys(name for part in _nested(code) for name in _read(part)))


def attribute_names(code: CodeType) -> set[str]:
    """Every name that this code and the code nested in it mentions."""
    return {name for part in _nested(code) for name in part.co_names}


def submodules(packages: set[str], names: set[str]) -> list[str]:
    """Loaded submodules of `packages` that can be reached through attributes called `names`, as in `os.path`."""
    found: list[str] = []
    frontier = list(packages)
    while frontier:
        package = frontier.pop()
        inner = [f"{package}.{name}" for name in names if f"{package}.{name}" in sys.modules]
        found += inner
        frontier += inner
    return sorted(found)


def lookup(module_name: str | None, qualified_name: str) -> Any:
    """What the loaded module of this name holds under a dotted name. None when there is no such thing."""
    if module_name is None or "<locals>" in qualified_name:
        return None
    value: Any = sys.modules.get(module_name)
    for part in qualified_name.split("."):
        value = getattr(value, part, None)
    return value


def importable(module_name: str | None) -> bool:
    """Whether a slot that imports this module gets what we have."""
    module = sys.modules.get(module_name) if module_name is not None else None
    if module is None or module_name is None or module_name in MAIN:
        return False
    if getattr(getattr(module, "__spec__", None), "_initializing", False):
        return False  # a slot that imports it would run, and wait for, the very lines that we are at
    known = _judged.get(module_name)
    if known is None or known[0] is not module:
        known = _judged[module_name] = (module, _findable(module_name, module))
    return known[1] and not _by_value_on_request(module_name)


_judged: dict[str, tuple[ModuleType, bool]] = {}


def _findable(name: str, module: ModuleType) -> bool:
    if name in sys.builtin_module_names:
        return True
    ours = getattr(module, "__spec__", None)
    if ours is None:
        return False
    parent = sys.modules.get(name.rpartition(".")[0]) if "." in name else None
    path = getattr(parent, "__path__", None)
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(name, path)
        except Exception:
            continue  # a finder of somebody's that asks for more than we know
        if spec is not None:
            return bool(spec.origin == ours.origin)
    # Some packages put modules into `sys.modules` by themselves (`os.path`). An import of the parent brings
    # them back.
    return parent is not None and importable(parent.__name__)


def _by_value_on_request(name: str) -> bool:
    # Another thread may be in the middle of importing cloudpickle: then nobody has asked it for anything yet.
    listed = getattr(sys.modules.get("cloudpickle"), "list_registry_pickle_by_value", None)
    asked: set[str] = listed() if listed is not None else set()
    return any(name == module or name.startswith(module + ".") for module in asked)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _read(code: CodeType) -> Iterator[str]:
    """Names of the global reads in one code object, without `dis`, which takes long to import."""
    if not _shifts:
        yield from code.co_names
        return
    instructions = code.co_code
    extended = 0
    for position in range(0, len(instructions), 2):
        operation = instructions[position]
        argument = instructions[position + 1] | extended
        if operation == _extended_arg:
            extended = argument << 8
            continue
        extended = 0
        shift = _shifts.get(operation)
        if shift is not None:
            yield code.co_names[argument >> shift]


def _known_operations() -> tuple[dict[int, int], int]:
    """Operations that read a global, with how far their argument is shifted; and the one that widens arguments."""
    from opcode import opmap

    shifts = {"LOAD_GLOBAL": 1, "LOAD_NAME": 0, "LOAD_FROM_DICT_OR_GLOBALS": 0, "DELETE_GLOBAL": 0}
    return {opmap[name]: shift for name, shift in shifts.items() if name in opmap}, opmap["EXTENDED_ARG"]


def _understood() -> bool:
    """Whether this interpreter's bytecode is as we think:

    one of the future may number names in another way.
    """
    probe = (lambda: first_name(second_name.attribute)).__code__  # type: ignore[name-defined]  # noqa: F821
    try:
        return list(_read(probe)) == ["first_name", "second_name"]
    except (IndexError, KeyError):
        return False


_shifts, _extended_arg = _known_operations()
if not _understood():
    _shifts = {}  # then every name mentioned counts as a global: more is sent than needed, never less

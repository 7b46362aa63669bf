"""Which names a function depends on, and what a slot can import."""

import sys
import types
from collections.abc import Callable
from typing import Any

from paceline import _names

value = 1
attribute = 2


def names_of(function: Callable[..., Any]) -> set[str]:
    return set(_names.global_names(function.__code__))


def test_globals_are_found_in_nested_code() -> None:
    def outer() -> object:
        def inner() -> object:
            return [value for _ in range(3)]

        class Local:
            field = attribute

        return inner, Local, lambda: sys

    # a class body reads its module's name, and a nested `def` its annotations
    assert names_of(outer) == {"value", "range", "attribute", "sys", "__name__", "object"}


def test_attributes_and_imports_are_no_globals() -> None:
    """NA-1"""

    def function(thing: Any) -> object:
        import value

        return thing.attribute, value

    assert names_of(function) == set()


def test_arguments_beyond_one_byte() -> None:
    lines = "\n".join(f"    name_{number}.attribute_{number}" for number in range(300))
    space: dict[str, Any] = {}
    exec(f"def long():\n{lines}", space)
    assert names_of(space["long"]) == {f"name_{number}" for number in range(300)}


def test_a_deleted_global_is_needed_and_a_stored_one_is_not() -> None:
    space: dict[str, Any] = {}
    exec("def function():\n global first, second\n del first\n second = 1", space)
    assert names_of(space["function"]) == {"first"}


def test_unknown_bytecode_means_every_name(monkeypatch: Any) -> None:
    monkeypatch.setattr(_names, "_shifts", {})
    assert names_of(lambda thing: thing.attribute + value) == {"attribute", "value"}


def test_submodules_are_followed_through_attributes() -> None:
    import xml.dom.minidom

    assert xml.dom.minidom
    assert _names.submodules({"xml"}, {"dom", "minidom", "parse", "etree"}) >= ["xml.dom", "xml.dom.minidom"]
    assert _names.submodules({"xml"}, {"minidom"}) == []


def test_importable() -> None:
    """NA-2"""
    import os.path

    made = types.ModuleType("made_up")
    sys.modules["made_up"] = made
    try:
        assert os.path
        for name in ("sys", "json", "os.path", "xml.dom", "pytest", __name__):
            __import__(name)
            assert _names.importable(name), name
        for other in (None, "__main__", "__mp_main__", "made_up", "never_loaded"):
            assert not _names.importable(other), other
    finally:
        del sys.modules["made_up"]


def test_a_module_that_moved_is_not_importable(tmp_path: Any, monkeypatch: Any) -> None:
    (tmp_path / "fleeting_module.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("fleeting_module")
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(tmp_path)])
    assert not _names.importable("fleeting_module")


def test_a_module_that_is_being_imported_is_not_importable(tmp_path: Any, monkeypatch: Any) -> None:
    (tmp_path / "busy_module.py").write_text("from paceline._names import importable\nduring = importable(__name__)\n")
    monkeypatch.syspath_prepend(tmp_path)
    import busy_module  # type: ignore[import-not-found]

    assert busy_module.during is False
    assert _names.importable("busy_module")

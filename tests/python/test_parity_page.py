"""The page of capabilities: every row is there once, and every test it names exists."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "parity.md"
ROWS = 251
# A row begins with its number; the table of status words in the introduction does not.
ROW = re.compile(r"^\| (\d+) \|(.*)\|$", re.MULTILINE)
NAMED = re.compile(r"`([\w/.]+)::(\w+)`")
RUST_TEST = re.compile(r"#\[test\]\s*(?:#\[[^\]]*\]\s*)*fn\s+(\w+)")


def rows() -> list[tuple[int, list[str]]]:
    """Number, and the cells after it."""
    return [(int(number), [cell.strip() for cell in rest.split("|")]) for number, rest in ROW.findall(PAGE.read_text())]


@functools.cache
def names_in(file: str) -> frozenset[str]:
    path = ROOT / (file if "/" in file else f"tests/python/{file}")
    text = path.read_text() if path.is_file() else ""
    if path.suffix == ".rs":
        return frozenset(RUST_TEST.findall(text))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = (node.name for node in ast.walk(ast.parse(text)) if isinstance(node, functions))
    return frozenset(name for name in found if name.startswith("test_"))


def test_every_row_once_and_in_order() -> None:
    assert [number for number, _ in rows()] == list(range(1, ROWS + 1))


def test_every_row_has_a_status_and_what_belongs_to_it() -> None:
    for number, cells in rows():
        assert len(cells) == 3, f"row {number}: {cells}"
        capability, status, shown = cells
        assert capability, f"row {number} says nothing"
        if status == "`not yet`":
            assert not shown, f"row {number} is not there yet, but {shown} shows it"
        else:
            assert re.fullmatch(r"`done`|`partly`: .+", status), f"row {number}: {status}"
            assert NAMED.sub("", shown).strip(", ") == "", f"row {number}: {shown}"
            assert NAMED.search(shown), f"row {number} names no test"


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED.findall(PAGE.read_text()))))
def test_what_is_named_exists(file: str, name: str) -> None:
    assert name in names_in(file)

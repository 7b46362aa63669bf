"""How the state of a cluster is shown.

Owns: the look of `Cluster.status()`, as text and as HTML. What is in it comes from the core.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


class Status(dict[str, "Any"]):
    """A dictionary that prints as a small report.

    >>> Status(cpus=2, nodes=[{"name": "here", "slots": 2}])
    cpus: 2
    nodes:
      name  slots
      here      2
    """

    def __repr__(self) -> str:
        return "\n".join(_lines(self, ""))

    def _repr_html_(self) -> str:
        return _table(self)


def _lines(values: Mapping[str, Any], indent: str) -> list[str]:
    lines: list[str] = []
    for name, value in values.items():
        if isinstance(value, dict) and value:
            lines += [f"{indent}{name}:", *_lines(value, indent + "  ")]
        elif _is_table(value):
            lines += [f"{indent}{name}:", *_columns(value, indent + "  ")]
        else:
            lines.append(f"{indent}{name}: {_cell(value)}")
    return lines


def _is_table(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(row, dict) for row in value)


def _columns(rows: Sequence[Mapping[str, Any]], indent: str) -> list[str]:
    """A table. Tables within its rows stand below them."""
    heads = [head for head in _heads(rows) if not any(_is_table(row.get(head)) for row in rows)]
    cells = [heads, *([_cell(row.get(head, "")) for head in heads] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(heads))]
    right = [all(isinstance(row.get(head, 0), (int, float)) for row in rows) for head in heads]
    lines = []
    for row, texts in zip(({}, *rows), cells, strict=True):
        padded = (
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(texts, widths, right, strict=True)
        )
        lines.append((indent + "  ".join(padded)).rstrip())
        lines += _lines({name: value for name, value in row.items() if name not in heads}, indent + "  ")
    return lines


def _heads(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(head for row in rows for head in row))


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_cell(inner)}" for name, inner in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_cell(inner) for inner in value)
    return "-" if value is None else str(value)


def _table(values: Mapping[str, Any]) -> str:
    rows = "".join(f"<tr><th>{_escape(name)}</th><td>{_html(value)}</td></tr>" for name, value in values.items())
    return f"<table>{rows}</table>"


def _html(value: Any) -> str:
    if isinstance(value, dict) and value:
        return _table(value)
    if not _is_table(value):
        return _escape(_cell(value))
    heads = _heads(value)
    rows = [[_html(row.get(head, "")) for head in heads] for row in value]
    head = "".join(f"<th>{_escape(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

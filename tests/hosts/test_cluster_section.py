"""The README's section on several machines, line by line, by somebody who can read and copy but not think."""

from __future__ import annotations

import re
from pathlib import Path

from lab import Host, Lab

README = Path(__file__).resolve().parents[2] / "README.md"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTED = re.compile(r"PACELINE_TOKEN=(\S+) paceline join \S+")


def blocks() -> list[tuple[str, str]]:
    section = re.search(r"^## On several machines\n(.*?)^## ", README.read_text(), re.MULTILINE | re.DOTALL)
    assert section
    return BLOCK.findall(section[1])


def commands(text: str) -> tuple[str, list[str]]:
    """Where a block is for, by its first line, and its commands."""
    first, *rest = text.splitlines()
    return first.removeprefix("# on "), rest


def printed_token(said: str) -> str:
    found = PRINTED.search(said)
    assert found, said
    return found[1]


def test_the_section_line_by_line(lab: Lab) -> None:
    head, node1, node2 = lab.host("head"), lab.host("node1"), lab.host("node2")
    joined: list[Host] = []
    outputs: dict[str, str] = {}
    for language, text in blocks():
        if language == "python":
            (node1.files / "root/program.py").write_text(text)
            continue
        where, lines = commands(text)
        for line in lines:
            if where == "head":
                done = head.shell(line).ok()
            elif where.startswith("each other machine"):
                assert line == "PACELINE_TOKEN=... paceline join head:7077"
                node1.shell(line.replace("...", printed_token(outputs["paceline start --bind 0.0.0.0"]))).ok()
                done = node2.shell(line.replace("...", printed_token(head.shell("paceline token").ok().stdout))).ok()
                joined += [node1, node2]
            else:
                assert where == "any of them"
                done = node1.shell(line).ok()
            outputs[line] = done.stdout + done.stderr
    assert joined
    assert outputs["python program.py"].strip() == "['head', 'node1', 'node2']"
    assert "default" in outputs["paceline status"]
    (node1.files / "root/program.py").unlink()
    lab.assert_nothing_left()

"""Lines of slots on the caller's terminal."""

import io
import sys

import pytest

from paceline._output import emit


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_each_line_has_the_prefix(capsys: pytest.CaptureFixture[str]) -> None:
    emit(3, 1, b"one\ntwo\n")
    emit(12, 2, b"three\n")
    captured = capsys.readouterr()
    assert captured.out == "[slot 3] one\n[slot 3] two\n"
    assert captured.err == "[slot 12] three\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (b"no end", "[slot 1] no end\n"),
        (b"\n", "[slot 1] \n"),
        (b"a\n\nb\n", "[slot 1] a\n[slot 1] \n[slot 1] b\n"),
        ("grün\n".encode(), "[slot 1] grün\n"),
        (b"\xff\n", "[slot 1] \N{REPLACEMENT CHARACTER}\n"),
    ],
)
def test_odd_text(capsys: pytest.CaptureFixture[str], text: bytes, shown: str) -> None:
    emit(1, 1, text)
    assert capsys.readouterr().out == shown


def test_the_prefix_is_dim_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", Terminal())
    emit(1, 1, b"x\n")
    monkeypatch.setenv("NO_COLOR", "1")
    emit(1, 1, b"y\n")
    assert isinstance(sys.stdout, Terminal)
    assert sys.stdout.getvalue() == "\x1b[2m[slot 1] \x1b[0mx\n[slot 1] y\n"


def test_a_target_that_cannot_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    emit(1, 1, "grün\n".encode())
    assert raw.getvalue() == b"[slot 1] gr\\xfcn\n"


def test_no_target_and_a_closed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", closed)
    emit(1, 1, b"x\n")
    emit(1, 2, b"x\n")

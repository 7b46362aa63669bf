"""The progress bar."""

import io
import itertools
from types import SimpleNamespace

import pytest

from paceline import _progress
from paceline._progress import Bar, total_of


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class AsciiTerminal(Terminal):
    encoding = "ascii"


@pytest.fixture
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock takes a second."""
    ticks = itertools.count(100)
    monkeypatch.setattr(_progress, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))


def test_a_line_at_each_tenth() -> None:
    stream = io.StringIO()
    with Bar("work", 1000, stream) as bar:
        for done in range(1, 1001):
            bar(done)
    assert stream.getvalue().splitlines() == [f"work: {n}/1000 ({n // 10} %)" for n in range(100, 1001, 100)]


def test_lines_of_an_unknown_total() -> None:
    stream = io.StringIO()
    with Bar("work", None, stream) as bar:
        for done in range(1, 1001):
            bar(done)
    assert stream.getvalue() == "work: 1\nwork: 10\nwork: 100\nwork: 1000\n"


@pytest.mark.usefixtures("slow_clock")
def test_the_bar_on_a_terminal() -> None:
    stream = Terminal()
    with Bar("work", 200, stream) as bar:
        bar(50)
        bar(200)
    drawn = stream.getvalue().split("\r\x1b[2K")
    assert drawn[1].startswith("work   0 % ▕ ")
    assert drawn[2].startswith("work  25 % ▕████████ ")
    assert drawn[2].endswith("▏ 50/200, 2.0 s, 25.0/s, 6.0 s left")
    assert drawn[-1].endswith("200/200, 4.0 s, 50.0/s\n")
    assert all(len(line) <= 80 for line in drawn)


@pytest.mark.usefixtures("slow_clock")
def test_the_bar_without_unicode() -> None:
    stream = AsciiTerminal()
    with Bar("work", 2, stream) as bar:
        bar(1)
    assert "[####" in stream.getvalue()
    assert stream.getvalue().isascii()


@pytest.mark.usefixtures("slow_clock")
def test_the_bar_of_an_unknown_total() -> None:
    stream = Terminal()
    with Bar("work", None, stream) as bar:
        bar(7)
    assert "work: 7 items, " in stream.getvalue()


def test_it_is_not_drawn_too_often() -> None:
    stream = Terminal()
    with Bar("work", 100_000, stream) as bar:
        for done in range(10_000):
            bar(done)
    assert stream.getvalue().count("\r") < 100


def test_a_stream_that_is_gone() -> None:
    stream = Terminal()
    with Bar("work", 10, stream) as bar:
        bar(1)
        stream.isatty()
        stream.close()
        bar(10)


@pytest.mark.parametrize(("items", "total"), [([1, 2], 2), (range(5), 5), (iter([1]), None)])
def test_total(items: object, total: int | None) -> None:
    assert total_of(items) == total  # type: ignore[arg-type]


@pytest.mark.parametrize(("seconds", "text"), [(3.21, "3.2 s"), (61, "1:01"), (3723, "1:02:03")])
def test_times(seconds: float, text: str) -> None:
    assert _progress._clock(seconds) == text


@pytest.mark.parametrize(("rate", "text"), [(0.5, "0.5/s"), (250.4, "250/s"), (2500, "2.5 k/s"), (3e6, "3.0 M/s")])
def test_rates(rate: float, text: str) -> None:
    assert _progress._rate(rate) == text

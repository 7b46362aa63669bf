"""`make demo`: a tour of the Mandelbrot set, computed in tiles by an embedded cluster and drawn as they come back.

While a picture grows, a tile has the colour of the slot that computed it; when it is complete it takes its own colours.
Without a terminal the first picture is drawn once, in plain characters.
"""

from __future__ import annotations

import colorsys
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import paceline as pl

# Where the tour stops: centre, width of the view, most iterations.
STOPS = {
    "the whole set": (-0.65 + 0.0j, 3.2, 120),
    "seahorse valley": (-0.7478 + 0.1095j, 0.012, 300),
    "a spiral": (-0.76125 - 0.08478j, 0.0009, 500),
}
SECONDS = float(os.environ.get("PACELINE_DEMO_SECONDS", "6"))
TILE_COLUMNS, TILE_LINES = 6, 3

Place = tuple[int, int, int, int]  # column, line, columns, lines; a character is two points high
View = tuple[complex, float, int]  # upper left corner, distance of two points, most iterations
Depths = list[list[float]]  # row by row, 0 far outside to 1 inside
Colour = tuple[int, int, int]


@pl.remote
def compute(tile: tuple[Place, View, int]) -> tuple[Place, int, Depths, int, float]:
    """One tile with `samples` x `samples` samples a point: its depths, its slot, its iterations, its CPU time."""
    begin = time.thread_time()
    (column, line, columns, lines), (corner, step, limit), samples = tile
    depths, iterations = [], 0
    for y in range(line * 2, (line + lines) * 2):
        row = []
        for x in range(column, column + columns):
            counted = 0
            for sample in range(samples * samples):
                right, down = x + sample % samples / samples, y + sample // samples / samples
                point = corner + complex(right * step, -down * step)
                z, count = 0j, 0
                while count < limit and z.real * z.real + z.imag * z.imag < 4.0:
                    z = z * z + point
                    count += 1
                counted += count
            row.append(counted / (limit * samples * samples))
            iterations += counted
        depths.append(row)
    return (column, line, columns, lines), os.getpid(), depths, iterations, time.thread_time() - begin


@pl.remote
def nothing(x: int) -> int:
    return x


def colour(hue: float, saturation: float, value: float) -> Colour:
    red, green, blue = colorsys.hsv_to_rgb(hue % 1.0, saturation, min(1.0, value))
    return int(red * 255), int(green * 255), int(blue * 255)


def slot_colour(number: int, depth: float) -> Colour:
    # Steps of the golden ratio keep the hues of any number of slots apart.
    return colour(0.55 + number * 0.618034, 0.75, 0.1 if depth >= 1 else 0.1 + 0.9 * depth**0.4)


def own_colour(depth: float) -> Colour:
    return (8, 8, 24) if depth >= 1 else colour(0.62 + 0.9 * depth**0.5, 0.8 - 0.4 * depth, 0.2 + 1.4 * depth**0.45)


@dataclass
class Canvas:
    """The picture, on the screen if there is one."""

    columns: int
    lines: int
    live: bool
    depths: Depths = field(default_factory=list)

    def places(self) -> list[Place]:
        """The tiles, from the middle outwards."""
        made = [
            (column, line, min(TILE_COLUMNS, self.columns - column), min(TILE_LINES, self.lines - line))
            for line in range(0, self.lines, TILE_LINES)
            for column in range(0, self.columns, TILE_COLUMNS)
        ]
        middle = complex(self.columns, self.lines * 2) / 2
        return sorted(made, key=lambda place: abs(complex(place[0] + 3, place[1] * 2 + 3) - middle))

    def view(self, centre: complex, width: float, limit: int) -> View:
        step = width / self.columns
        return centre + complex(-width / 2, step * self.lines), step, limit

    def clear(self) -> None:
        self.depths = [[0.0] * self.columns for _ in range(self.lines * 2)]
        if self.live:
            dots = "\x1b[38;5;236m" + "·" * self.columns + "\x1b[0m"
            sys.stdout.write("\x1b[2J\x1b[H" + "\r\n".join([dots] * self.lines))

    def add(self, place: Place, depths: Depths, paint: Callable[[float], Colour]) -> None:
        column, line, columns, _ = place
        for y, row in enumerate(depths):
            self.depths[line * 2 + y][column : column + columns] = row
        self.draw(place, paint)

    def draw(self, place: Place, paint: Callable[[float], Colour]) -> None:
        """Two points to a character: the upper one is its foreground, the lower one its background."""
        if not self.live:
            return
        column, line, columns, lines = place
        out = []
        for at in range(line, line + lines):
            out.append(f"\x1b[{at + 1};{column + 1}H")
            upper, lower = self.depths[at * 2], self.depths[at * 2 + 1]
            for x in range(column, column + columns):
                up, down = ";".join(map(str, paint(upper[x]))), ";".join(map(str, paint(lower[x])))
                out.append(f"\x1b[38;2;{up}m\x1b[48;2;{down}m▀")
        sys.stdout.write("".join(out) + "\x1b[0m")

    def finish(self) -> None:
        """Every point in its own colour."""
        self.draw((0, 0, self.columns, self.lines), own_colour)

    def say(self, text: str) -> None:
        if self.live:
            sys.stdout.write(f"\x1b[{self.lines + 1};1H\x1b[K{text}")
            sys.stdout.flush()

    def plain(self) -> Iterator[str]:
        """The picture in characters."""
        for upper, lower in zip(self.depths[::2], self.depths[1::2], strict=True):
            means = ((a + b) / 2 for a, b in zip(upper, lower, strict=True))
            yield "".join(" .:-=+*#%@"[min(9, int(mean**0.5 * 10))] for mean in means).rstrip()


@dataclass
class Tour:
    """What has been done so far, and by whom."""

    canvas: Canvas
    tiles: dict[int, int] = field(default_factory=dict)
    iterations: int = 0
    cpu: float = 0.0
    wall: float = 0.0

    def stop(self, name: str) -> None:
        """A quick sketch first; it tells how many samples there is time for."""
        self.canvas.clear()
        view = self.canvas.view(*STOPS[name])
        before = self.cpu
        self.draw(name, view, 1)
        affordable = SECONDS / len(STOPS) * len(self.tiles) / (self.cpu - before)
        self.draw(name, view, max(2, min(16, int(affordable**0.5))))
        self.canvas.finish()

    def draw(self, name: str, view: View, samples: int) -> None:
        places = self.canvas.places()
        begin, before, iterations = time.perf_counter(), self.wall, 0
        for done, tile in enumerate(compute.imap_unordered((place, view, samples) for place in places), 1):
            place, slot, depths, count, cpu = tile
            self.tiles[slot] = self.tiles.get(slot, 0) + 1
            number = list(self.tiles).index(slot)
            self.canvas.add(place, depths, lambda depth, number=number: slot_colour(number, depth))  # type: ignore[misc]
            self.iterations += count
            iterations += count
            self.cpu += cpu
            elapsed = time.perf_counter() - begin
            self.wall = before + elapsed
            speed = f"{iterations / elapsed / 1e6:.0f} million iterations a second"
            self.canvas.say(f"{name}: {done} of {len(places)} tiles, {speed}   {self.shares()}")
        if not self.canvas.live and samples > 1:
            print(f"{name}: {len(places)} tiles in {elapsed:.1f} s, {speed}", flush=True)

    def shares(self) -> str:
        """Tiles by slot, each in its colour."""
        shown = []
        for number, done in enumerate(list(self.tiles.values())[:8]):
            red, green, blue = slot_colour(number, 0.6)
            mark = f"\x1b[38;2;{red};{green};{blue}m■\x1b[0m " if self.canvas.live else ""
            shown.append(f"{mark}slot {number + 1}: {done}")
        return "  ".join(shown) + (" ..." if len(self.tiles) > 8 else "")


def main() -> None:
    live = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    columns, lines = shutil.get_terminal_size((80, 30))
    canvas = Canvas(max(24, min(columns, 108)), max(9, min(lines - 7, 42)), live)

    begin = time.perf_counter()
    with pl.connect():
        nothing(0)
        first = time.perf_counter() - begin
        tour = Tour(canvas)
        try:
            if live:
                sys.stdout.write("\x1b[?25l\x1b[?7l")
            for name in STOPS:
                tour.stop(name)
                if not live and name == "the whole set":
                    print(*canvas.plain(), sep="\n")
        finally:
            if live:
                sys.stdout.write(f"\x1b[0m\x1b[?25h\x1b[?7h\x1b[{canvas.lines + 1};1H\x1b[K")
        calls = 100_000
        begin = time.perf_counter()
        assert nothing.map(range(calls), chunksize=1) == list(range(calls))
        rate = calls / (time.perf_counter() - begin)

    slots = len(tour.tiles)
    print(f"first result after {first * 1e3:.0f} ms")
    print(f"{sum(tour.tiles.values())} tiles, {slots} slots busy {tour.cpu / tour.wall / slots:.0%}   {tour.shares()}")
    print(f"and when there is nothing to compute: {rate:,.0f} calls a second")


if __name__ == "__main__":
    main()

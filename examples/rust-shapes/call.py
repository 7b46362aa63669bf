"""Rust functions from Python: `cargo build --release` here, then `python call.py target/release/shapes`."""

import sys

import paceline as pl

pl.connect(cpus=2)
shapes = pl.program(sys.argv[1] if len(sys.argv) > 1 else "target/release/shapes")

area = shapes.function("area")
print("one call:", area(2.0, 3.0))
print("many:", area.starmap([(n, n) for n in range(5)]))
print("a struct is a dict:", shapes.function("grow")({"name": "small", "radius": 1.0}, 3))

try:
    shapes.function("side")(-9.0)
except pl.RemoteError as error:
    print("an Err is an exception:", error.message)

# Both languages run in slots of one cluster and share its CPUs.
python = pl.remote(lambda side: side**2)
rust = shapes.function("side")
print("and back again:", [rust(python(side)) for side in (1.0, 2.0, 3.0)])

"""Rust programs that tests call. `make programs` builds them."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def built(name: str) -> str:
    """The path of a program, which must have been built."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    for folder in ("debug", "debug/examples"):
        path = ROOT / target / folder / name
        if path.exists():
            return str(path)
    raise FileNotFoundError(f"{name} is not under {ROOT / target}/debug: run `make programs`, or `make test-python`")

"""A type checker sees what users see."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_the_typed_example(tmp_path: Path) -> None:
    example = Path(__file__).with_name("typed_example.py")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path}", str(example)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr

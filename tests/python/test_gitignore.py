"""What `.gitignore` leaves out, compared with git itself."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from paceline._gitignore import Ignored

NAMES = ("a", "b", "build", "x.log", "y.py", "d d", ".h")
PIECES = ("*", "**", "a", "b", "build", "*.log", "?.py", "[ab]", "[!a]", "x.log", ".h", "b*")


def lines(chance: random.Random) -> str:
    made = []
    for _ in range(chance.randint(1, 4)):
        line = "/".join(chance.choice(PIECES) for _ in range(chance.randint(1, 3)))
        before = chance.choice(("", "", "", "/", "!", "!/"))
        made.append(before + line + chance.choice(("", "", "/")))
    return "\n".join([*made, "# a remark", ""]) + "\n"


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("seed", range(30))
def test_git_says_the_same(seed: int, tmp_path: Path) -> None:
    """GI-1, GI-2"""
    chance = random.Random(seed)
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    for _ in range(25):
        path = tmp_path.joinpath(*(chance.choice(NAMES) for _ in range(chance.randint(1, 4))))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        except OSError:
            pass  # one of its folders is a file
    (tmp_path / ".gitignore").write_text(lines(chance))
    inner = [Path(folder) for folder, _, _ in os.walk(tmp_path) if ".git" not in folder]
    if len(inner) > 1:
        (inner[-1] / ".gitignore").write_text(lines(chance))
    files = [str(path) for path in tmp_path.rglob("*") if path.is_file() and ".git/" not in str(path)]
    command = ["git", "check-ignore", "--stdin", "-z", "--no-index"]
    asked = subprocess.run(command, input="\0".join(files), capture_output=True, text=True, cwd=tmp_path)
    theirs = {path for path in asked.stdout.split("\0") if path}
    ignored = Ignored(str(tmp_path))
    assert {path for path in files if ignored(path, False)} == theirs

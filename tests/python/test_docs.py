"""Every example in the documentation runs: doc strings, and the Python blocks of the text files."""

import os
import pkgutil
import re
from pathlib import Path

import pytest

import paceline
from support import assert_nothing_left, run_script
from support.programs import built

ROOT = Path(__file__).resolve().parents[2]
# A block after the comment is shown, not run: another machine, a fragment, a thing that never ends.
BLOCK = re.compile(r"(^<!-- not run -->\n)?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

MODULES = {"paceline", *(module.name for module in pkgutil.walk_packages(paceline.__path__, "paceline."))}
TEXTS = sorted(path for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")) if "```python" in path.read_text())

DOCTEST = """
import doctest, importlib, sys
module = importlib.import_module(sys.argv[1])
failed, tried = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
sys.exit(f"{failed} of {tried} examples failed" if failed else None)
"""


@pytest.mark.parametrize("module", sorted(MODULES - {"paceline._native"}))
def test_doc_strings(module: str) -> None:
    done = run_script(DOCTEST, args=[module])
    assert done.returncode == 0, done.transcript()
    assert_nothing_left(done)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_text(path: Path) -> None:
    """The blocks of one file are one script, as a reader types them in."""
    blocks = [code for mark, code in BLOCK.findall(path.read_text()) if not mark]
    programs = os.path.dirname(built("shapes"))
    done = run_script("\n".join(blocks), env={"PATH": os.pathsep.join([programs, os.environ["PATH"]])}).ok()
    assert_nothing_left(done)

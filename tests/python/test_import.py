"""What an import costs, and what it gives."""

import json
from typing import Any

import pytest

import paceline as pl
from support import run_script

# What takes long to import, and that most programs need only later or never.
HEAVY = ["numpy", "asyncio", "logging", "concurrent.futures", "cloudpickle", "socket", "typing", "pickle", "subprocess"]


def modules_after(code: str) -> set[str]:
    """Modules that this code adds to those of a bare interpreter."""
    text = f"import sys\nbefore = set(sys.modules)\n{code}\nimport json\nprint(json.dumps(sorted(new)))"
    found = run_script(text.replace("import json", "new = set(sys.modules) - before; import json")).ok()
    return set(json.loads(found.stdout))


def test_the_package_alone() -> None:
    assert modules_after("import paceline") == {"paceline"}


@pytest.mark.parametrize(
    "code",
    [
        "import paceline as pl; pl.remote(len); pl.connect",
        "import paceline as pl; pl.NotConnected, pl.errors, pl.__version__",
        "import paceline._slot.zygote",
    ],
)
def test_what_is_used_pulls_in_nothing_heavy(code: str) -> None:
    assert not modules_after(code) & set(HEAVY)


@pytest.mark.parametrize("name", pl.__all__)
def test_every_public_name(name: str) -> None:
    assert getattr(pl, name) is not None
    assert name in dir(pl)


def test_an_unknown_name() -> None:
    module: Any = pl
    with pytest.raises(AttributeError, match="module 'paceline' has no attribute 'Polo'"):
        _ = module.Polo


def test_star_import() -> None:
    run_script("from paceline import *; assert remote and map([1].count, [1], engine='serial') == [1]").ok()


def test_every_module_says_what_it_owns() -> None:
    import importlib
    import pkgutil

    for module in pkgutil.walk_packages(pl.__path__, "paceline."):
        if module.name != "paceline._native":
            assert importlib.import_module(module.name).__doc__, module.name

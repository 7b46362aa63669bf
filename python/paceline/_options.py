"""Options of slots that are kept: pools, groups, executors and actors.

Owns: which options of `remote` say what a slot must have, and which how a call is run. `_remote` has the options
themselves, their defaults and what is wrong with them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

NEEDS = ("cpus", "gpus", "memory", "resources", "placement", "env")
LIMITS = ("wait", "retries", "retry_on", "timeout", "priority")

# A call that runs at most once, and for as long as it takes.
ONCE: dict[str, Any] = {"wait": None, "retries": 0, "retry_on": (), "timeout": None, "priority": 0}


def needs(given: Mapping[str, Any]) -> dict[str, Any]:
    """What a slot must have, of options as users give them, as the core's pools and groups take it.

    >>> needs({"cpus": 2})["cpus"]
    2.0
    """
    return _some(given, NEEDS)


def limits(given: Mapping[str, Any]) -> dict[str, Any]:
    """How calls are run in such slots, as the core's functions take it.

    >>> limits({"timeout": 5})["timeout"]
    5.0
    """
    return _some(given, LIMITS)


def _some(given: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    from paceline import _remote

    shipped = _remote.shipped(_remote._checked({**_remote.DEFAULTS, **given}))
    return {name: shipped[name] for name in names if name in shipped}

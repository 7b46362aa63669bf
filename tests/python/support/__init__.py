"""Helpers for tests on real processes. `from support import run_script, wait_until` and so on."""

from support.leftovers import Footprint, Leftovers, assert_nothing_left, footprint, leftovers
from support.packages import needs_package
from support.scripts import Completed, Run, Running, ScriptTimeout, run_script, start_script
from support.waiting import wait_until

__all__ = [
    "Completed",
    "Footprint",
    "Leftovers",
    "Run",
    "Running",
    "ScriptTimeout",
    "assert_nothing_left",
    "footprint",
    "leftovers",
    "needs_package",
    "run_script",
    "start_script",
    "wait_until",
]

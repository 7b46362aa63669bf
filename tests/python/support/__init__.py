"""Helpers for tests on real processes. `from support import run_script, wait_until` and so on."""

from support.leftovers import Footprint, Leftovers, assert_nothing_left, footprint, leftovers
from support.packages import needs_package
from support.scripts import Completed, Run, Running, ScriptTimeout, run_script, start_script
from support.terminal import CTRL_C, CTRL_Z, Terminal, in_terminal, shell_in_terminal
from support.waiting import wait_until

__all__ = [
    "CTRL_C",
    "CTRL_Z",
    "Completed",
    "Footprint",
    "Leftovers",
    "Run",
    "Running",
    "ScriptTimeout",
    "Terminal",
    "assert_nothing_left",
    "footprint",
    "in_terminal",
    "leftovers",
    "needs_package",
    "run_script",
    "shell_in_terminal",
    "start_script",
    "wait_until",
]

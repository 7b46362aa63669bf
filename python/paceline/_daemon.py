"""What an interpreter tells the daemon that is going to run slots with it."""

from __future__ import annotations

import sys

from paceline._native import __version__


def tell() -> None:
    """Print, as JSON, how a zygote is started, which Python and Paceline this is, and how many CPUs may be used."""
    import json

    from paceline._cluster import zygote_command
    from paceline._machine import usable_cpus

    sys.argv[:] = [""]  # slots have no command line of their own
    facts = {
        "command": zygote_command(),
        "python": list(sys.version_info[:3]),
        "paceline": __version__,
        "cpus": usable_cpus(),
    }
    print(json.dumps(facts))

"""`python -m paceline.compat.cluster_workers.worker [HOST]`: a worker in the foreground, with one job at a time."""

from __future__ import annotations

import argparse
import os
import sys

from paceline._daemons import start_node
from paceline.compat._addresses import joined, key_here
from paceline.compat.cluster_workers.mp import NAME, PORT
from paceline.errors import PacelineError


def main(arguments: list[str] | None = None) -> int:
    """Run a worker until its master goes, or Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m paceline.compat.cluster_workers.worker", description=__doc__)
    parser.add_argument("host", nargs="?", default="localhost", metavar="HOST", help="where the master is; localhost")
    parser.add_argument("--port", type=int, default=PORT, help="the master's port, 5494")
    parser.add_argument("--slurm", action="store_true", help="find the master by Slurm: not there yet")
    parser.add_argument("--key-file", help="a copy of the master's key, if it is on another machine")
    options = parser.parse_args(arguments)
    if options.slurm:
        parser.error("--slurm is not there yet: name the master's host")
    # Several workers on a machine are several nodes, and each needs a name of its own.
    name = f"{os.uname().nodename}-{os.getpid()}"
    address = joined(options.host, options.port)
    try:
        key = options.key_file or key_here(address, NAME)
        node = start_node(address, name=NAME, node_name=name, port=0, cpus=1, key_file=key)
    except PacelineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    with node:
        try:
            node.wait()
        except KeyboardInterrupt:
            return 130
    print("connection to master closed", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

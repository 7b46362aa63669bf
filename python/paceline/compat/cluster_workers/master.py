"""`python -m paceline.compat.cluster_workers.master`: a master in the foreground, which counts its workers."""

from __future__ import annotations

import argparse

from paceline._cluster import connect
from paceline._daemons import start_head
from paceline.compat._addresses import PRESENT
from paceline.compat.cluster_workers.mp import NAME, PORT

# How often workers are counted.
EVERY = 0.2


def main(arguments: list[str] | None = None) -> int:
    """Run a master until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m paceline.compat.cluster_workers.master", description=__doc__)
    parser.add_argument("--port", type=int, default=PORT, help="5494")
    parser.add_argument("--bind", help="the address to listen on; 127.0.0.1, and 0.0.0.0 is every interface")
    parser.add_argument("--key-file", help="the key that workers and clients on other machines must have a copy of")
    options = parser.parse_args(arguments)
    with start_head(name=NAME, port=options.port, bind=options.bind, cpus=0, key_file=options.key_file) as head:
        count = -1
        with connect(head.address, name="master") as cluster:
            try:
                while not head.wait(EVERY):
                    nodes = [node for node in cluster.nodes if node["state"] in PRESENT]
                    found = sum(int(node["total"].get("cpus", 0)) for node in nodes)
                    if found != count:
                        count = found
                        print(f"workers: {count}", flush=True)
            except KeyboardInterrupt:
                return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""`python -m paceline.compat.distributed_computing.start_node`: a node, or with `--head` a server, until Ctrl-C."""

from __future__ import annotations

import argparse
import os
import socket
import sys

from paceline.compat.distributed_computing import _nodes
from paceline.errors import PacelineError

COMMAND = "python -m paceline.compat.distributed_computing.start_node"


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for until it ends, or Ctrl-C."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument(
        "-r", "--password", help="the pool's password; better in PACELINE_PASSWORD, where nobody sees it"
    )
    parser.add_argument("-d", "--head", action="store_true", help="run a pool server, and a node beside it")
    parser.add_argument("-s", "--server-only", action="store_true", help="with --head: no node")
    parser.add_argument("-a", "--address", help="where the pool server is")
    parser.add_argument("-p", "--port", type=int, default=_nodes.DEFAULT_PORT, help="the pool server's port, 6379")
    parser.add_argument("-m", "--max-gpus", type=int, help="at most so many workers on this machine")
    parser.add_argument("-n", "--name", help="ignored, as it always was")
    options = parser.parse_args(arguments)
    if options.server_only and not options.head:
        return _refused("server-only is only relevant for head nodes")
    if not options.head and options.address is None:
        return _refused("head or address must be provided")
    password = options.password
    if password is not None:
        print(
            "warning: everybody on this machine can read a password on a command line\n"
            "hint: leave out --password and set PACELINE_PASSWORD",
            file=sys.stderr,
        )
    else:
        password = os.environ.get("PACELINE_PASSWORD") or parser.error("--password or PACELINE_PASSWORD must be given")
    try:
        return _run(options, password)
    except PacelineError as error:
        return _refused(str(error))


def _run(options: argparse.Namespace, password: str) -> int:
    if not options.head:
        terminate, wait = _nodes.start_node(password, options.address, options.port, options.max_gpus)
    elif options.server_only:
        terminate, wait = _nodes.start_server(password, options.port)
    else:
        terminate, wait = _nodes.start_head_node(password, options.port, options.max_gpus)
    if options.head and _nodes._started:
        port = (_nodes._started[-1].address or "").rpartition(":")[2]
        stars = _cyan("*" * 90)
        print(f"{stars}\nTo start a worker node, type:\n{COMMAND} -p {port} -a {_address()}\n{stars}")
    sys.stdout.flush()
    try:
        wait()
    except KeyboardInterrupt:
        terminate()
        wait()
        return 130
    return 0


def _refused(words: str) -> int:
    print(f"error: {words}", file=sys.stderr)
    return 2


def _cyan(text: str) -> str:
    return f"\x1b[36m{text}\x1b[0m" if sys.stdout.isatty() else text


def _address() -> str:
    """An address of this machine by which others reach it. Sends nothing: only routes are looked up."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        try:
            route.connect(("192.0.2.1", 9))
            return str(route.getsockname()[0])
        except OSError:
            return socket.gethostname()


if __name__ == "__main__":
    raise SystemExit(main())

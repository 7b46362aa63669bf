"""`xparl`, as `python -m paceline.compat.parl start | connect | status | stop`. On the command line of Paceline.

There is no monitor page and no log server yet, so their ports are taken and not used.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys

from paceline._cli import environment, program
from paceline._daemons import _home
from paceline.compat._addresses import key_here, known
from paceline.compat.parl.remote.names import name_at
from paceline.compat.parl.utils import get_ip_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

COMMAND = "python -m paceline.compat.parl"

STARTED = """
            # The Parl cluster is started at {address}.

            # {worker}

        ## If you want to check cluster status, please call:

            {command} status

        ## If you want to add more CPU resources, please call:

            {command} connect --address {join}

        ## If you want to add more GPU resources, please call:

            {command} connect --address {join} --gpu 0,1,2,...

        ## If you want to shutdown the cluster, please call:

            {command} stop
"""


def main(arguments: list[str] | None = None) -> int:
    """Do what the arguments say."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options) or 0)
    except _Refused as error:
        print(f"Exception: {error}", file=sys.stderr)
        return 1


class _Refused(Exception):
    pass


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="xparl", description="Clusters for remote classes.")
    commands = parser.add_subparsers(required=True, metavar="start | connect | status | stop")
    start = commands.add_parser("start", help="a master, and a worker on this machine")
    start.set_defaults(run=_start)
    start.add_argument("--port", required=True, help="the master's port")
    start.add_argument("--debug", action="store_true", help="log everything")
    start.add_argument("--cpu_num", type=_count, help="CPUs of the local worker; all, and 0 is no worker")
    start.add_argument("--gpu_cluster", action="store_true", help="the local worker has GPUs, not CPUs")
    start.add_argument("--gpu", default="", help="ids of its GPUs, with commas; only with --gpu_cluster")
    start.add_argument("--bind", help="the address to listen on: 127.0.0.1, and 0.0.0.0 is every interface")
    start.add_argument("--monitor_port", help="taken, and not used")
    start.add_argument("--log_server_port_range", default="8000-9000", type=_range, help="taken, and not used")
    join = commands.add_parser("connect", help="a worker on this machine, for a master elsewhere")
    join.set_defaults(run=_connect)
    join.add_argument("--address", required=True, help="HOST:PORT of the master")
    join.add_argument("--cpu_num", type=_count, help="CPUs of the worker; all by default")
    join.add_argument("--gpu", default="", help="ids of GPUs, with commas: it has these, and no CPUs")
    join.add_argument("--log_server_port_range", default="8000-9000", type=_range, help="taken, and not used")
    commands.add_parser("status", help="what the clusters of this machine have").set_defaults(run=_status)
    commands.add_parser("stop", help="end the clusters and workers of this machine").set_defaults(run=_stop)
    return parser


def _start(options: argparse.Namespace) -> None:
    port, name = options.port, name_at(options.port)
    if _is_taken(port):
        raise _Refused(f"The master address localhost:{port} is already in use.")
    gpus = _gpus(options.gpu) if options.gpu_cluster else "0"
    arguments = ["start", "--name", name, "--port", port, "--gpus", gpus]
    if options.cpu_num is not None and not options.gpu_cluster:
        arguments += ["--cpus", str(options.cpu_num)]
    if options.gpu_cluster and not options.gpu:
        arguments += ["--no-node"]
    arguments += ["--bind", options.bind] * (options.bind is not None) + ["--debug"] * options.debug
    told = _run(*arguments, "--json")
    cpus = _local(name)
    worker = (
        f"A local worker with {cpus} is connected to the cluster." if told.get("node") else "There is no local worker."
    )
    host = get_ip_address() if options.bind else "localhost"
    print(STARTED.format(address=f"localhost:{port}", worker=worker, command=COMMAND, join=f"{host}:{port}"))
    if options.bind and told.get("token"):
        print(f"        ## On another machine, set PACELINE_TOKEN={told['token']} before: it is good for one worker.\n")


def _connect(options: argparse.Namespace) -> None:
    address = known(options.address)
    name = name_at(address.rpartition(":")[2])
    key = key_here(address, name)
    node = f"{os.uname().nodename}-{os.getpid()}"
    arguments = ["join", address, "--name", name, "--node-name", node, "--node-port", "0"]
    arguments += ["--gpus", _gpus(options.gpu)] + (["--key-file", key] if key else [])
    if options.cpu_num and not options.gpu:
        arguments += ["--cpus", str(options.cpu_num)]
    try:
        _run(*arguments, "--json")
    except _Refused as error:
        raise _Refused(
            "Worker can not connect to the master node, please check if the input address "
            f"{options.address} is correct.\n{error}"
        ) from None


def _status(options: argparse.Namespace) -> None:
    found = [cluster for cluster in _clusters() if cluster["cluster"]["name"].startswith(name_at(""))]
    for cluster in found:
        print(f"            # {_line(cluster)}\n")
    if not found:
        print("No active cluster is found.")


def _line(cluster: dict[str, Any]) -> str:
    port = cluster["cluster"]["name"].removeprefix(name_at(""))
    if "nodes" not in cluster:
        return f"Can not connect to cluster localhost:{port}, please try later."
    cpus = gpus = used_cpus = used_gpus = 0
    for node in cluster["nodes"]:
        total, free = node["total"], node["free"]
        gpus += int(free.get("gpus", 0))
        used_gpus += int(total.get("gpus", 0)) - int(free.get("gpus", 0))
        if not total.get("gpus"):
            cpus += int(free.get("cpus", 0))
            used_cpus += int(total.get("cpus", 0)) - int(free.get("cpus", 0))
    return (
        f"Cluster localhost:{port} has {used_cpus} used cpus, {cpus} vacant cpus, "
        f"{used_gpus} used_gpus, {gpus} vacant_gpus."
    )


def _stop(options: argparse.Namespace) -> None:
    """Only what `xparl` has started, and only of this user."""
    directory = os.path.join(_home(), "clusters")
    for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else []:
        if name.startswith(name_at("")):
            _run("stop", "--name", name)


def _clusters() -> list[dict[str, Any]]:
    return list(_run("status", "--json").get("clusters", []))


def _local(name: str) -> str:
    for cluster in _clusters():
        if cluster["cluster"]["name"] == name:
            for node in cluster.get("nodes", []):
                gpus = int(node["total"].get("gpus", 0))
                return f"{gpus} GPUs" if gpus else f"{int(node['total']['cpus'])} CPUs"
    return "no CPUs"


def _run(*arguments: str) -> dict[str, Any]:
    """Run `paceline`, and return what it said as JSON."""
    done = subprocess.run(
        [program(), *arguments], env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    told: dict[str, Any] = {}
    if done.stdout.startswith("{"):
        told = json.loads(done.stdout)
    # Of several clusters some may not have answered, and each says so.
    if "clusters" not in told and (done.returncode != 0 or "error" in told):
        raise _Refused(told.get("error") or done.stderr.strip() or f"paceline ended with exit code {done.returncode}")
    return told


def _gpus(ids: str) -> str:
    return f"{ids.rstrip(',')}," if ids else "0"


def _is_taken(port: str) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", int(port)))
        except OSError:
            return True
    return False


def _count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise argparse.ArgumentTypeError("cpu_num must not be negative")
    return count


def _range(text: str) -> str:
    start, _, end = text.partition("-")
    if not (start.isdigit() and end.isdigit()):
        raise argparse.ArgumentTypeError("The input log_server_port_range should be `start-end` format.")
    if int(start) > int(end):
        raise argparse.ArgumentTypeError("Start port number must be smaller than the end port number.")
    return text


if __name__ == "__main__":
    raise SystemExit(main())

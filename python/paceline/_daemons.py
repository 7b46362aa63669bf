"""Heads and nodes as processes of this machine, started from Python.

Owns: the processes that `start_head`, `start_node` and `local_cluster` start, and their handles. Does not own: what
they do, which the command line's program decides.

* DN-1: a daemon ends with the program that started it, however that ends, unless it was started `detached`.
* DN-2: a function that starts one returns when it serves, or raises what it said when it does not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time

from paceline._cli import environment, program
from paceline.errors import PacelineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Any

    from paceline._cluster import Cluster

# How long a daemon may take to end before it is killed.
_GRACE = 15.0


class Daemon:
    """A head or a node that this program has started.

    In a `with` statement it ends with the block.
    """

    def __init__(self, told: dict[str, Any], process: subprocess.Popen[str] | None) -> None:
        self._told = told
        self._process = process

    @property
    def name(self) -> str:
        """The cluster's name on this machine."""
        return str(self._told["name"])

    @property
    def address(self) -> str | None:
        """The head's address, for `connect`, `start_node` and `paceline join`."""
        address = self._told.get("address")
        return None if address is None else str(address)

    @property
    def node(self) -> str | None:
        """The node's name; None for a head without one."""
        node = self._told.get("node")
        return None if node is None else str(node)

    @property
    def token(self) -> str | None:
        """Lets one machine join, within ten minutes."""
        token = self._told.get("token")
        return None if token is None else str(token)

    @property
    def pid(self) -> int:
        """The process."""
        return int(self._told["pid"])

    def is_running(self) -> bool:
        """Whether the process still lives."""
        if self._process is not None:
            return self._process.poll() is None
        return _is_alive(self.pid)

    def terminate(self) -> None:
        """Let it end: a head stops its cluster, a node finishes what it runs for a moment. Harmless when repeated."""
        if self._process is not None:
            _close(self._process)
            if self._process.poll() is None:
                self._process.terminate()
        elif _is_alive(self.pid):
            if self._told.get("role") == "node":
                os.kill(self.pid, 15)
            else:
                # The signal would end the head alone, and its cluster would wait for the next.
                command = [program(), "stop", "--name", self.name]
                subprocess.run(command, env=environment(), stdin=subprocess.DEVNULL, capture_output=True)

    def kill(self) -> None:
        """End it at once, and with it everything it started. Nobody is told."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
        elif _is_alive(self.pid):
            os.kill(self.pid, 9)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended. False if it has not within `timeout` seconds."""
        if self._process is not None:
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                return False
            _close(self._process)
            return True
        end = None if timeout is None else time.monotonic() + timeout
        while _is_alive(self.pid):
            if end is not None and time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        self.terminate()
        if not self.wait(_GRACE):
            self.kill()
            self.wait(_GRACE)

    def __del__(self) -> None:
        process = getattr(self, "_process", None)
        if process is not None and process.returncode is None:
            try:
                self.terminate()
                process.wait(_GRACE)
            except Exception:
                pass  # it is gone, or hangs; or Python ends, and the modules that this needs have ended before it

    def __repr__(self) -> str:
        what = "node" if self._told.get("role") == "node" else "head"
        state = "running" if self.is_running() else "ended"
        return f"<paceline.Daemon: {what} of {self.name!r} at {self.address}, {state}>"


def start_head(
    *,
    name: str = "default",
    port: int | None = None,
    bind: str | None = None,
    cpus: float | None = None,
    gpus: float | str | None = None,
    memory: str | None = None,
    resources: Mapping[str, float] | None = None,
    labels: Mapping[str, str] | None = None,
    key_file: str | os.PathLike[str] | None = None,
    password_file: str | os.PathLike[str] | None = None,
    detached: bool = False,
    foreground: bool = False,
    debug: bool = False,
) -> Daemon:
    """Start a head and, unless `cpus` is 0, a node on this machine, as `paceline start` does.

    It ends with this program, or lives on if `detached`. With `foreground` the call blocks until the cluster is
    stopped. `port=0` takes any free port.

    >>> import paceline as pl
    >>> with pl.start_head(name="doc-head", port=0, cpus=1) as head:
    ...     head.is_running(), pl.is_head_running("doc-head")
    (True, True)
    >>> pl.is_head_running("doc-head")
    False
    """
    arguments = ["start", "--name", name]
    arguments += _arguments(port=port, bind=bind, cpus=cpus, gpus=gpus, memory=memory)
    arguments += _arguments(resources=resources, labels=labels, key_file=key_file, password_file=password_file)
    return _start(arguments, detached, foreground, debug, {})


def start_node(
    address: str,
    *,
    token: str | None = None,
    name: str | None = None,
    node_name: str | None = None,
    bind: str | None = None,
    port: int | None = None,
    cpus: float | None = None,
    gpus: float | str | None = None,
    memory: str | None = None,
    resources: Mapping[str, float] | None = None,
    labels: Mapping[str, str] | None = None,
    key_file: str | os.PathLike[str] | None = None,
    password_file: str | os.PathLike[str] | None = None,
    detached: bool = False,
    foreground: bool = False,
    debug: bool = False,
) -> Daemon:
    """Let this machine join the cluster whose head is at `address`, as `paceline join` does.

    It ends with this program, or lives on if `detached`. With `foreground` the call blocks until the node has left.

    >>> import paceline as pl
    >>> with pl.start_head(name="doc-node", port=0, cpus=0) as head:
    ...     with pl.start_node(head.address, cpus=1, port=0) as node:
    ...         node.is_running()
    True
    """
    arguments = ["join", address]
    arguments += _arguments(name=name, node_name=node_name, bind=bind, node_port=port, cpus=cpus, gpus=gpus)
    arguments += _arguments(memory=memory, resources=resources, labels=labels)
    arguments += _arguments(key_file=key_file, password_file=password_file)
    secrets = {} if token is None else {"PACELINE_TOKEN": token}
    return _start(arguments, detached, foreground, debug, secrets)


class LocalCluster:
    """A head and several nodes, each a process of its own on this machine. Made by `local_cluster`."""

    def __init__(self, head: Daemon, nodes: Sequence[Daemon], home: tempfile.TemporaryDirectory[str] | None) -> None:
        self.head = head
        self.nodes = list(nodes)
        self._home = home
        self._count = len(self.nodes)

    @property
    def address(self) -> str:
        """The head's address."""
        return self.head.address or ""

    def connect(self, **options: Any) -> Cluster:
        """Connect this program to it, as `paceline.connect` does."""
        from paceline._cluster import connect

        if self._home is not None and "key_file" not in options:
            options["key_file"] = os.path.join(self._home.name, "clusters", self.head.name, "key")
        return connect(self.address, **options)

    def add_node(self, cpus: float = 2, **options: Any) -> Daemon:
        """Another node."""
        self._count += 1
        name = f"node{self._count}"
        arguments = ["join", self.address, "--node-port", "0", "--node-name", name, *_arguments(cpus=cpus, **options)]
        variables = {} if self._home is None else {"PACELINE_HOME": self._home.name}
        self.nodes.append(_start(arguments, False, False, False, variables))
        return self.nodes[-1]

    def terminate(self) -> None:
        """Let all of it end."""
        self.head.terminate()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all of it has ended. False if something has not within `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        for daemon in [self.head, *self.nodes]:
            if not daemon.wait(None if end is None else max(0.0, end - time.monotonic())):
                return False
        return True

    def close(self) -> None:
        """End all of it, and wait for that."""
        self.head._end()
        for node in self.nodes:
            if not node.wait(2.0):
                node._end()
        if self._home is not None:
            self._home.cleanup()

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def local_cluster(
    nodes: int = 3, cpus: float = 2, *, name: str = "local", gpus: float | None = None, memory: str | None = None
) -> LocalCluster:
    """A cluster of several nodes on this machine, for tests: they are processes that talk as machines would.

    It has a state directory of its own, so it never meets another cluster.

    >>> import paceline as pl
    >>> with pl.local_cluster(nodes=2, cpus=1) as cluster:
    ...     [node.node for node in cluster.nodes]
    ['node1', 'node2']
    """
    if nodes < 1:
        raise ValueError(f"nodes must be at least 1, not {nodes}")
    # Its own home, so that nothing of it is mixed with the clusters of this user.
    home = tempfile.TemporaryDirectory(prefix="paceline-", ignore_cleanup_errors=True)
    apart = {"PACELINE_HOME": home.name}
    try:
        head = _start(["start", "--name", name, "--port", "0", "--cpus", "0"], False, False, False, apart)
    except BaseException:
        home.cleanup()
        raise
    cluster = LocalCluster(head, [], home)
    try:
        for _ in range(nodes):
            cluster.add_node(cpus, gpus=gpus, memory=memory)
    except BaseException:
        cluster.close()
        raise
    return cluster


def is_head_running(name: str = "default") -> bool:
    """Whether a head of this name runs on this machine.

    >>> import paceline as pl
    >>> pl.is_head_running("no-such-cluster")
    False
    """
    return _is_locked(os.path.join(_home(), "clusters", name, "head.lock"))


def is_node_running(name: str = "default") -> bool:
    """Whether a node of the cluster of this name runs on this machine.

    >>> import paceline as pl
    >>> pl.is_node_running("no-such-cluster")
    False
    """
    directory = os.path.join(_home(), "clusters", name, "nodes")
    try:
        files = os.listdir(directory)
    except OSError:
        return False
    return any(file.endswith(".lock") and _is_locked(os.path.join(directory, file)) for file in files)


def _start(arguments: list[str], detached: bool, foreground: bool, debug: bool, variables: Mapping[str, str]) -> Daemon:
    command = [program(), *arguments, "--json"] + ["--debug"] * debug
    env = {**environment(), **variables}
    role = "node" if arguments[0] == "join" else "head"
    if foreground:
        return _foreground([*command, "--foreground"], env, role)
    if detached:
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return Daemon({"role": role, **_heard(done.stdout, done.stderr, done.returncode)}, None)
    # The end of its standard input is the end of this program (DN-1).
    process = subprocess.Popen(
        [*command, "--foreground", "--lifeline"],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if not debug else None,
        text=True,
        start_new_session=True,
    )
    return _serving(process, role)


def _serving(process: subprocess.Popen[str], role: str) -> Daemon:
    """Wait for the first thing it prints (DN-2)."""
    assert process.stdout is not None
    text = ""
    try:
        for line in process.stdout:
            text += line
            if line.startswith("}"):
                break
        told = json.loads(text) if text else {}
    except ValueError:
        told = {}
    if "pid" not in told:
        words = process.stderr.read() if process.stderr is not None else ""
        code = process.wait()
        _close(process)
        _close_outputs(process)
        _heard(text, words, code)
    _close_outputs(process)
    return Daemon({"role": role, **told}, process)


def _close(process: subprocess.Popen[str]) -> None:
    """Let go of its lifeline."""
    if process.stdin is not None:
        try:
            process.stdin.close()
        except OSError:
            pass


def _close_outputs(process: subprocess.Popen[str]) -> None:
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _foreground(command: list[str], env: Mapping[str, str], role: str) -> Daemon:
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    daemon = _serving(process, role)
    try:
        process.wait()
    except KeyboardInterrupt:
        daemon._end()
        raise
    return daemon


def _heard(text: str, words: str, code: int) -> dict[str, Any]:
    """What the program told, or the error that it told of."""
    try:
        told = json.loads(text)
    except ValueError:
        told = {}
    if code == 0 and "error" not in told:
        return dict(told)
    message = told.get("error") or words.strip() or f"the program ended with exit code {code}"
    raise PacelineError(message, hint=told.get("hint"))


def _arguments(**options: Any) -> list[str]:
    """Options as the command line has them."""
    found: list[str] = []
    for name, value in options.items():
        if value is None:
            continue
        if isinstance(value, dict):
            value = ",".join(f"{key}={inner}" for key, inner in value.items())
        found += ["--" + name.replace("_", "-"), os.fspath(value) if isinstance(value, os.PathLike) else str(value)]
    return found


def _home() -> str:
    """Where this user's clusters are kept; as the program has it."""
    if os.environ.get("PACELINE_HOME"):
        return os.environ["PACELINE_HOME"]
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "paceline")


def _is_locked(path: str) -> bool:
    """Whether a daemon has this lock. It is looked at and not taken, so that nobody who starts finds it taken."""
    import fcntl
    import struct

    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # C's `struct flock`: the whole file, and no process.
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        found = fcntl.fcntl(file, fcntl.F_OFD_GETLK, asked)
    except OSError:
        return False
    finally:
        os.close(file)
    return bool(struct.unpack_from("h", found)[0] != fcntl.F_UNLCK)


def _is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


if sys.platform != "linux":  # pragma: no cover
    raise ImportError("heads and nodes run on Linux only")

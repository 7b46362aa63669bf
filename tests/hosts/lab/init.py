"""The first process of a host: makes the host out of fresh namespaces, then reaps until it is told to end.

Started as `unshare --net --mount --pid --uts --ipc --fork --kill-child python -I init.py CONFIG`, so it is process 1 of
its own pid namespace. With it every process of the host dies, the mounts and the network go with the last of them, and
so nothing of a host can outlive it. It ends when its standard input closes: when the testing process ends, however.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT = 1, 2, 4, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18

# What every host has for itself, empty at first. Everything else of the file system is shared and read-only.
OWN = {
    "/tmp": "1777",
    "/var/tmp": "1777",
    "/run": "755",
    "/dev/shm": "1777",
    "/home": "755",
    "/root": "700",
    "/srv": "755",
}

libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    if libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mounting {source} on {target}: {os.strerror(number)}")


def copy_of_etc() -> None:
    """/etc of its own: a host has its own machine-id, name and list of names, whether or not this machine has them."""
    copy = "/run/etc"
    # Some files there are readable by nobody but their owner, some are links to nowhere.
    shutil.copytree("/etc", copy, symlinks=True, ignore_dangling_symlinks=True)
    mount(copy, "/etc", "", MS_BIND)


def keep(paths: list[str]) -> list[tuple[str, int]]:
    """Hold on to what will be hidden under a directory of the host's own: the sources may well be below /tmp."""
    hidden = [path for path in paths if any(path.startswith(own + "/") for own in OWN)]
    outermost = [path for path in hidden if not any(path.startswith(other + "/") for other in hidden)]
    return [(path, os.open(path, os.O_PATH | os.O_DIRECTORY)) for path in sorted(set(outermost))]


def build(config: dict[str, object]) -> None:
    kept = keep([str(path) for path in config["visible"]])  # type: ignore[attr-defined]
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    for path, mode in OWN.items():
        if os.path.isdir(path):
            mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, f"mode={mode}")
    mount("proc", "/proc", "proc", 0)
    for path, descriptor in kept:
        os.makedirs(path, exist_ok=True)
        mount(f"/proc/self/fd/{descriptor}", path, "", MS_BIND | MS_REC)
        mount("none", path, "", MS_REMOUNT | MS_BIND | MS_RDONLY)
        os.close(descriptor)
    copy_of_etc()
    mount("none", "/", "", MS_REMOUNT | MS_BIND | MS_RDONLY)
    name = str(config["name"])
    socket.sethostname(name)
    for file, text in {"hostname": f"{name}\n", "machine-id": f"{config['machine_id']}\n", "hosts": ""}.items():
        target = f"/etc/{file}"
        if os.path.lexists(target):
            os.unlink(target)
        with open(target, "w") as out:
            out.write(text)
    # The XDG directory that every account soon has; what programs keep is below it.
    os.makedirs(os.path.expanduser("~/.local/state"))
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def reap() -> None:
    """Wait for children that are nobody else's until standard input closes."""
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
        if 0 in ready and not os.read(0, 1):
            os._exit(0)


def main() -> None:
    build(json.loads(sys.argv[1]))
    os.chdir("/")
    os.write(1, b"ready\n")
    os.close(1)
    reap()


if __name__ == "__main__":
    main()

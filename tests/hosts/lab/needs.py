"""Whether this machine can make hosts, and why not."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess

PROGRAMS = ("ip", "ss", "nft", "ping", "ps", "nsenter", "unshare")
HINT = "scripts/install-hosts-packages installs what is missing on Debian"

# Where they are on Debian, whatever the user's path says.
os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])

TRIAL = (
    "ip link add trial0 type veth peer name trial1 && ip link add trial2 type bridge && "
    "nft add table bridge t && nft add chain bridge t c '{ type filter hook forward priority 0; }' && "
    "nft add rule bridge t c numgen random mod 100 '<' 10 drop"
)


@functools.cache
def why_not() -> str | None:
    """None if hosts can be made here; otherwise the reason."""
    if os.geteuid() != 0:
        return "hosts need root: they are namespaces of their own"
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"hosts need {', '.join(missing)}; {HINT}"
    done = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "sh", "-c", TRIAL],
        capture_output=True,
        text=True,
        timeout=30,
    )
    if done.returncode != 0:
        return f"no namespaces, links or filters here: {done.stderr.strip() or f'exit code {done.returncode}'}"
    return None

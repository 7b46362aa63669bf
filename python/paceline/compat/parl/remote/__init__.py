"""What PARL has under `parl.remote`: `client`, `exceptions`, `master` and `worker`, beside the decorator."""

from __future__ import annotations

from paceline.compat.parl.remote import client, exceptions, master, worker
from paceline.compat.parl.remote.client import connect
from paceline.compat.parl.remote.remote_decorator import remote_class

__all__ = ["client", "connect", "exceptions", "master", "remote_class", "worker"]

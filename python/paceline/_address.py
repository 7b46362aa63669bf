"""Where a cluster is, and what lets this program in.

Owns: what `connect` was told of a cluster at an address, and how that becomes a session. Does not own: sockets, keys
and proofs, which are the core's.

* AD-1: a text that is no address is refused before anything is looked up or opened.
* AD-2: nothing that proves anything is shown, printed or sent to slots.
"""

from __future__ import annotations

import os
import sys

from paceline.errors import ConnectionFailed, PacelineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from paceline._cluster import Limits
    from paceline._files import Wanted
    from paceline._native import Session


class Target:
    """A cluster at an address, and how to get in. Connects as often as it is asked: forked children do, too."""

    def __init__(self, address: str, name: str | None, password: str | None, key_file: str | None) -> None:
        from paceline._native import parse_address

        if not isinstance(address, str):
            raise TypeError(f"an address is a text such as 'host:7077', not {type(address).__name__}")
        if password is not None and key_file is not None:
            raise PacelineError("password= and key_file= are two ways in: give one", hint="leave out one of them")
        try:
            self.address: str = parse_address(address)
        except ValueError as error:
            raise PacelineError(str(error), hint="write HOST:PORT as 'paceline start' shows it") from None
        self._name = name
        self._password = password
        self._key_file = key_file

    def __repr__(self) -> str:
        return f"<address {self.address}>"

    def connect(
        self,
        directory: str,
        path: list[str],
        environment: dict[str, str],
        files: Callable[[], Wanted],
        limits: Limits,
    ) -> Session:
        """A session there. Raises `ConnectionFailed`."""
        from paceline import _native

        try:
            return _native.Session.remote(
                address=self.address,
                name=self._name or _program_name(),
                password=self._password,
                key_file=self._key_file,
                python=sys.version_info[:3],
                directory=directory,
                path=path,
                # Nobody knows which nodes the calls of tasks go to: there references take their values along.
                environment={**environment, "PACELINE_OBJECTS_BY_VALUE": "yes"},
                files=files,
                **limits,
            )
        except _native.Unreached as error:
            message, hint = error.args
            raise ConnectionFailed(message, address=self.address, hint=hint or None) from None


def status(session: Session, address: str) -> dict[str, Any]:
    """How the cluster stands, as its head tells it."""
    import json

    from paceline import _native

    try:
        told: dict[str, Any] = json.loads(session.cluster_status())
    except _native.Unreached as error:
        raise ConnectionFailed(f"{address}: {error.args[0]}", address=address) from None
    return told


def _program_name() -> str:
    """What a program is called in the status of the cluster unless it says so itself."""
    script = os.path.basename(sys.argv[0]) if sys.argv else ""
    return f"{script or 'python'} on {os.uname().nodename or 'localhost'}"

"""Errors of code and files that are to be on other machines."""

from __future__ import annotations

from paceline.errors._base import PacelineError


class FilesNotDelivered(PacelineError):
    """The code of this program is not on the machine where a task of it should run, or something else has its name."""

    code = "files-not-delivered"


class NoSuchFiles(PacelineError, ValueError):
    """`connect(files=...)` names what is not there, or what cannot be delivered."""

    code = "no-such-files"

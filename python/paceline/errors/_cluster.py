"""Errors of the cluster as a whole: who is connected, and whom nobody can reach."""

from __future__ import annotations

from paceline.errors._base import PacelineError
from paceline.errors._wording import task_name


class NotConnected(PacelineError):
    """A remote function was used without a cluster to run it on."""

    code = "not-connected"
    hint = "call paceline.connect() first"

    def __init__(self, message: str = "not connected to a cluster", *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)


class ClusterClosed(PacelineError):
    """The cluster was closed before the task had ended, or is used after its end."""

    code = "cluster-closed"

    def __init__(self, message: str = "the cluster is closed", *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)


class ClusterStopped(ClusterClosed):
    """The cluster was stopped, by `paceline stop` or a signal to its head, before the task had ended.

    `by` says who stopped it.
    """

    code = "cluster-stopped"

    def __init__(self, by: str = "somebody", *, task: int = 0, function: str = "") -> None:
        self.by = by
        self.task = task
        self.function = function
        ended = f"{task_name(task, function)} ended with the cluster, which" if task or function else "the cluster"
        super().__init__(
            f"{ended} was stopped by {by}",
            hint="start it again with paceline start, connect again, and submit what had not ended",
        )


class LimitReached(PacelineError):
    """A limit of the cluster kept the task from running. `why` says which; limits are settings of head and nodes."""

    code = "limit-reached"
    hint = "use fewer at a time, or start the cluster with a higher limit (docs/cli.md lists them)"

    def __init__(self, why: str = "a limit was reached", *, task: int = 0, function: str = "") -> None:
        self.why = why
        self.task = task
        self.function = function
        did_not_run = f"{task_name(task, function)} did not run: " if task or function else ""
        super().__init__(f"{did_not_run}{why}")


class ConnectionFailed(PacelineError, ConnectionError):
    """A cluster could not be reached, or did not let this program in. `address` is where it was looked for."""

    code = "connection-failed"

    def __init__(self, message: str = "", *, address: str = "", hint: str | None = None) -> None:
        self.address = address
        super().__init__(message, hint=hint)


class HeadLost(PacelineError):
    """The task waited for the head of the cluster, which was out of reach for too long.

    Tasks that run in slots go on without the head; what waits for a slot ends with this after 60 seconds.
    """

    code = "head-lost"

    def __init__(self, *, task: int = 0, function: str = "", after: float = 0.0) -> None:
        self.task = task
        self.function = function
        self.after = after
        super().__init__(
            f"{task_name(task, function)} waited for the head of the cluster, which was out of reach for {after:g} s",
            hint="is the head running and reachable? see paceline status; then submit the task again",
        )

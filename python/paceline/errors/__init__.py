"""Every error that Paceline raises by itself.

Owns the tree under `PacelineError`: each class has a stable `code` for programs, a `hint` for people, and
fields that say what happened. Errors of user code are not here: they reach the caller as what they are, with
a `RemoteTraceback` as their cause.

* ER-1: every error survives pickling with all its fields, whatever its constructor takes.
"""

from __future__ import annotations

from paceline.errors._actors import ActorDied, ActorRefused, ActorUnavailable, HistoryFull, NoSuchActor
from paceline.errors._base import PacelineError
from paceline.errors._base import _restore as _restore
from paceline.errors._cluster import (
    ClusterClosed,
    ClusterStopped,
    ConnectionFailed,
    HeadLost,
    LimitReached,
    NotConnected,
)
from paceline.errors._encodings import DamagedData, EncodingError, PickleRefused, UnknownEncoding
from paceline.errors._ends import GroupLost, NodeLost, OutOfMemory, PoisonTask, PoolBroken, SlotDied, TaskTimeout
from paceline.errors._files import FilesNotDelivered, NoSuchFiles
from paceline.errors._objects import ObjectLost, OwnerLost, StoreFull
from paceline.errors._programs import NoSuchFunction, ProgramNotStarted, WrongArguments
from paceline.errors._room import GroupClosed, NestingTooDeep, NoResources, NoSuchHardware, QueueFull
from paceline.errors._values import UNREADABLE as UNREADABLE
from paceline.errors._values import (
    ArgumentNotSerializable,
    FunctionNotSerializable,
    RemoteError,
    RemoteTraceback,
    ResultNotSerializable,
    SerializationError,
)

__all__ = [
    "ActorDied",
    "ActorRefused",
    "ActorUnavailable",
    "ArgumentNotSerializable",
    "ClusterClosed",
    "ClusterStopped",
    "ConnectionFailed",
    "DamagedData",
    "EncodingError",
    "FilesNotDelivered",
    "FunctionNotSerializable",
    "GroupClosed",
    "GroupLost",
    "HeadLost",
    "HistoryFull",
    "LimitReached",
    "NestingTooDeep",
    "NoResources",
    "NoSuchActor",
    "NoSuchFiles",
    "NoSuchFunction",
    "NoSuchHardware",
    "NodeLost",
    "NotConnected",
    "ObjectLost",
    "OutOfMemory",
    "OwnerLost",
    "PacelineError",
    "PickleRefused",
    "PoisonTask",
    "PoolBroken",
    "ProgramNotStarted",
    "QueueFull",
    "RemoteError",
    "RemoteTraceback",
    "ResultNotSerializable",
    "SerializationError",
    "SlotDied",
    "StoreFull",
    "TaskTimeout",
    "UnknownEncoding",
    "WrongArguments",
]

# Users, and pickles, know each error as `paceline.errors.X`, whichever file it is in.
for _name in (*__all__, "_restore"):
    globals()[_name].__module__ = __name__

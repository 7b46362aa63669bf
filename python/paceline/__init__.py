"""Paceline: run Python work on a pool of processes, on this machine and beyond.

    import paceline as pl

    pl.connect()

    @pl.remote
    def square(x):
        return x * x

    square.map(range(10))

Importing this module costs next to nothing: every name below is loaded when it is first used.
"""

import sys

TYPE_CHECKING = False  # spelled out, because importing `typing` takes longer than all of this module

if TYPE_CHECKING:
    from paceline import errors as errors
    from paceline._actor import Actor, destroy, get_actor
    from paceline._actor_class import ActorClass
    from paceline._broadcast import Answer, broadcast
    from paceline._cancelling import cancel
    from paceline._cluster import Cluster, connect, disconnect, shutdown, status
    from paceline._current import Current, current
    from paceline._daemons import (
        Daemon,
        LocalCluster,
        is_head_running,
        is_node_running,
        local_cluster,
        start_head,
        start_node,
    )
    from paceline._executor import Executor
    from paceline._export import export
    from paceline._future import Future
    from paceline._group import Group, group
    from paceline._map import map
    from paceline._named_array import NamedArray
    from paceline._native import __version__
    from paceline._objects import Ref, get, put
    from paceline._placement import Placement
    from paceline._pool import Pool
    from paceline._program import Program, program
    from paceline._remote import RemoteFunction, remote
    from paceline._stream import Stream
    from paceline._submitter import Submitter
    from paceline._waiting import as_completed, wait
    from paceline._workers import WorkerPool, call
    from paceline.errors import (
        ActorDied,
        ActorRefused,
        ActorUnavailable,
        ArgumentNotSerializable,
        ClusterClosed,
        ClusterStopped,
        ConnectionFailed,
        DamagedData,
        EncodingError,
        FilesNotDelivered,
        FunctionNotSerializable,
        GroupClosed,
        GroupLost,
        HeadLost,
        HistoryFull,
        LimitReached,
        NestingTooDeep,
        NodeLost,
        NoResources,
        NoSuchActor,
        NoSuchFiles,
        NoSuchFunction,
        NoSuchHardware,
        NotConnected,
        ObjectLost,
        OutOfMemory,
        OwnerLost,
        PacelineError,
        PickleRefused,
        PoisonTask,
        PoolBroken,
        ProgramNotStarted,
        QueueFull,
        RemoteError,
        RemoteTraceback,
        ResultNotSerializable,
        SerializationError,
        SlotDied,
        StoreFull,
        TaskTimeout,
        UnknownEncoding,
        WrongArguments,
    )

__all__ = [
    "Actor",
    "ActorClass",
    "ActorDied",
    "ActorRefused",
    "ActorUnavailable",
    "Answer",
    "ArgumentNotSerializable",
    "Cluster",
    "ClusterClosed",
    "ClusterStopped",
    "ConnectionFailed",
    "Current",
    "Daemon",
    "DamagedData",
    "EncodingError",
    "Executor",
    "FilesNotDelivered",
    "FunctionNotSerializable",
    "Future",
    "Group",
    "GroupClosed",
    "GroupLost",
    "LocalCluster",
    "HeadLost",
    "HistoryFull",
    "LimitReached",
    "NamedArray",
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
    "Placement",
    "PoisonTask",
    "PoolBroken",
    "Pool",
    "Program",
    "ProgramNotStarted",
    "QueueFull",
    "Ref",
    "RemoteError",
    "RemoteFunction",
    "RemoteTraceback",
    "ResultNotSerializable",
    "SerializationError",
    "SlotDied",
    "StoreFull",
    "Stream",
    "Submitter",
    "TaskTimeout",
    "UnknownEncoding",
    "WorkerPool",
    "WrongArguments",
    "__version__",
    "as_completed",
    "broadcast",
    "call",
    "cancel",
    "connect",
    "current",
    "destroy",
    "disconnect",
    "errors",
    "export",
    "get",
    "get_actor",
    "group",
    "is_head_running",
    "is_node_running",
    "local_cluster",
    "map",
    "program",
    "put",
    "remote",
    "shutdown",
    "start_head",
    "start_node",
    "status",
    "wait",
]

# Where each name lives. What is not listed is an error class.
_HOMES = {
    "Actor": "_actor",
    "ActorClass": "_actor_class",
    "Answer": "_broadcast",
    "Stream": "_stream",
    "broadcast": "_broadcast",
    "destroy": "_actor",
    "get_actor": "_actor",
    "Cluster": "_cluster",
    "Current": "_current",
    "Daemon": "_daemons",
    "LocalCluster": "_daemons",
    "cancel": "_cancelling",
    "current": "_current",
    "Executor": "_executor",
    "Future": "_future",
    "Group": "_group",
    "NamedArray": "_named_array",
    "Placement": "_placement",
    "Pool": "_pool",
    "Program": "_program",
    "Ref": "_objects",
    "get": "_objects",
    "put": "_objects",
    "RemoteFunction": "_remote",
    "Submitter": "_submitter",
    "WorkerPool": "_workers",
    "__version__": "_native",
    "as_completed": "_waiting",
    "call": "_workers",
    "connect": "_cluster",
    "disconnect": "_cluster",
    "export": "_export",
    "group": "_group",
    "is_head_running": "_daemons",
    "is_node_running": "_daemons",
    "local_cluster": "_daemons",
    "map": "_map",
    "program": "_program",
    "remote": "_remote",
    "shutdown": "_cluster",
    "start_head": "_daemons",
    "start_node": "_daemons",
    "status": "_cluster",
    "wait": "_waiting",
}

if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = "paceline." + _HOMES.get(name, "errors")
        __import__(home)
        value = sys.modules[home] if name == "errors" else getattr(sys.modules[home], name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__

"""The names of PARL's cluster: classes whose objects live on a cluster, and `xparl`.

    import paceline.compat.parl as parl

    parl.connect("localhost:6006")

    @parl.remote_class
    class Actor: ...

An object is a Paceline actor, the master a head, a worker a node, a job a slot. What a program observes is that of
PARL: an object ends with its first exception and leaves its slot, a future's value can be taken once, and inside a
remote object decorated classes are plain ones. `python -m paceline.compat.parl` is `xparl`.
"""

from __future__ import annotations

from paceline.compat.parl import remote, utils
from paceline.compat.parl.remote.client import connect
from paceline.compat.parl.remote.remote_decorator import remote_class

__all__ = ["connect", "remote", "remote_class", "utils"]

"""Actors that outlive the program that makes them.

A detached actor is owned by a small program of its own, which is submitted to the cluster as `paceline submit` would
submit it: its record is in the head's journal before `create` returns, it runs once, and it is started again when it is
known that it has ended with its node. That program opens the pool that the actor is, and lets others visit it; whoever
made the actor is one of them.

* DA-1: the record is all that the actor is built from; nothing of its maker is needed again.
* DA-2: the program ends with the actor, and the actor with the program.
* DA-3: the loss of a node is made good whatever `restarts` says, be it the program's or the actor's.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from paceline._native import Session

# More often than nodes are lost.
RESTARTS = 1_000_000
# What its program is called; the head knows it by this, too.
PREFIX = "actor."
# How long an actor may take to be known after its program was accepted.
START = 60.0
# Between two attempts to submit the program of an actor whose name is about to be free.
AGAIN_PAUSE = 0.02


def create(
    session: Session,
    payload: bytes,
    shown: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: dict[str, Any],
    about: bytes,
) -> bytes:
    """Have an actor built that needs nobody, and say what it is visited by. Raises `ActorRefused` if none can be.

    `payload` constructs it with these arguments. When it returns, the record is in the journal and the actor is known
    to the cluster; its constructor may still run, or have failed, which whoever calls the actor is told.
    """
    import _pickle
    import os
    import sys
    import time

    from paceline import errors
    from paceline._actor_home import look_for
    from paceline._pickling import dumps

    name = options["name"]
    if look_for(session, name, 0.0) is not None:
        raise errors.ActorRefused(f"an actor of the name {name} is there already: give this one another name")
    identity = os.urandom(16)
    call = dumps((args, kwargs), "call")
    pool = {"restarts": options["restarts"], **_needs(options)}

    def submit() -> None:
        session.submit_program(
            PREFIX + name,
            ["{python}", "-m", "paceline._detached"],
            directory=os.getcwd(),
            variables=[],
            input=_pickle.dumps((list(sys.path), name, identity, payload, shown, call, pool, about)),
            restarts=RESTARTS,
        )

    began = time.monotonic()
    while True:
        try:
            submit()
            break
        except errors.ActorRefused as refused:
            # The program of an earlier one of this name may be about to end, as that has, until its end is in the
            # journal; or somebody else's is to come.
            taken = "is there already" in str(refused)
            late = time.monotonic() - began >= START
            if not taken or late or look_for(session, name, START) is not None:
                raise
            time.sleep(AGAIN_PAUSE)
    began = time.monotonic()
    found = look_for(session, name, START)
    # If it is gone already, it has failed, and the first call says how.
    late = found is None and time.monotonic() - began >= START
    if late or (found is not None and found[0] != identity):
        raise errors.ActorRefused(f"the actor {name} was not to be started: `paceline logs {PREFIX}{name}` says why")
    return identity


def _needs(options: dict[str, Any]) -> dict[str, Any]:
    from paceline import _remote

    asked = {name: options[name] for name in _remote.DEFAULTS if name in options}
    return _remote.slot_needs(_remote.shipped(_remote._checked({**_remote.DEFAULTS, **asked})))


def main() -> None:
    """The program that owns the actor."""
    import _pickle
    import sys
    from concurrent.futures import CancelledError

    path, *rest = _pickle.loads(sys.stdin.buffer.read())
    sys.path[:] = [*path, *(entry for entry in sys.path if entry not in path)]
    name, identity, payload, shown, packed, pool_options, about = rest
    args, kwargs = _pickle.loads(packed)
    import paceline as pl

    with pl.connect() as cluster:
        session = cluster._connected()
        pool = session.pool(1, eager=True, once=True, identity=identity, owner_program=PREFIX + name, **pool_options)
        pool.prepare(payload, shown, args, kwargs)
        try:
            pool.host(identity, name=name, about=about, program=PREFIX + name)
            pool.ended()
        except pl.ActorRefused as refused:
            # Another one was quicker. Who waits for this one hears of it, and so does who looks into the log.
            session.actor_gone(identity, str(refused))
            print(refused, file=sys.stderr)
        except CancelledError:
            print(f"the actor {name} was destroyed", file=sys.stderr)
        except pl.PacelineError as broken:
            print(f"the actor {name} has ended: {broken}", file=sys.stderr)


if __name__ == "__main__":
    main()

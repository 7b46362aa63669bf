"""Actors that outlive the program that makes them.

A detached actor is owned by a small program of its own, which is submitted to the cluster as `paceline submit` would
submit it: its record is in the head's journal before `create` returns, it runs once, and it is started again when it is
known that it has ended with its node. That program opens the pool that the actor is, and lets others visit it; whoever
made the actor is one of them.

* DA-1: the record is all that the actor is built from; nothing of its maker is needed again.
* DA-2: the program ends with the actor, and the actor with the program.
* DA-3: the loss of a node is made good whatever `restarts` says, be it the program's or the actor's.
* DA-4: a maker that does not wait for it any more, because it is late or was interrupted, ends the program: no actor
  comes later that nobody has.
"""

from __future__ import annotations

from paceline import errors

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
# How long the head may take, in seconds, to say that it ends the program of an actor that nobody waits for any more.
SAID_WITHIN = 1.0
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

    from paceline._actor_home import asked, look_for
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
        others = asked(session, name, session.actor_comes)
        try:
            submit()
            break
        except errors.ActorRefused as refused:
            # The program of an earlier one of this name may be about to end, as that has, until its end is in the
            # journal; or somebody else's is to come.
            taken = "is there already" in str(refused)
            if not (taken or others):
                # The head may only have been too slow to say that it has accepted the program.
                session.stop_program(PREFIX + name, SAID_WITHIN)
            late = time.monotonic() - began >= START
            if not taken or late or look_for(session, name, START) is not None:
                raise
            time.sleep(AGAIN_PAUSE)
        except BaseException:
            # It may have been accepted, unless another one of the name was.
            if not others:
                session.stop_program(PREFIX + name, SAID_WITHIN)
            raise
    began = time.monotonic()
    try:
        found = look_for(session, name, START)
    except BaseException:
        session.stop_program(PREFIX + name, SAID_WITHIN)
        raise
    if found is not None and found[0] != identity:
        raise errors.ActorRefused(f"the actor {name} was not to be started: `paceline logs {PREFIX}{name}` says why")
    # If it is gone already, it has failed, and the first call says how.
    if found is None and time.monotonic() - began >= START:
        raise _given_up(session, name)
    return identity


def _given_up(session: Session, name: str) -> errors.ActorRefused:
    """The error for an actor that has not come in time. Its program is ended, for it would come later."""
    program = PREFIX + name
    why = _what_it_waits_for(session, program)
    failed = session.stop_program(program)
    end = "and is ended" if failed is None else f"and could not be ended ({failed})"
    hint = f"`paceline logs {program}` has what it printed"
    if failed is not None:
        hint = f"`paceline stop --program {program}` ends it, or it may start later and make the actor"
    return errors.ActorRefused(
        f"the actor {name} was not there after {START:g} s: its program, {program}, {why}, {end}", hint=hint
    )


def _what_it_waits_for(session: Session, program: str) -> str:
    """What the head says of a program that has not made its actor known."""
    import json

    from paceline._native import Unreached

    try:
        told = json.loads(session.cluster_status())["programs"]
    except Unreached as error:
        return f"has not said that it is ({error.args[0]})"
    entry: dict[str, Any] = next((entry for entry in told if entry["program"] == program), {})
    if entry.get("state") == "waiting":
        return f"still waited for {entry['why']}" if entry.get("why") else "still waited to be started"
    where = f" on node {entry['node']}" if entry.get("node") else ""
    return f"was {entry.get('state', 'lost')}{where} and had not said that the actor is there"


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
        try:
            # Before its constructor is sent: another one of the name may live.
            session.claim_actor(identity, name=name, about=about, program=PREFIX + name)
            pool = session.pool(
                1, eager=True, once=True, identity=identity, owner_program=PREFIX + name, **pool_options
            )
            pool.prepare(payload, shown, args, kwargs)
            pool.host(identity)
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

"""The process that slots are forked from.

Owns: the loop of forking. It imports paceline and nothing of the user's, has one thread, and is the parent of
all slots of one node, so that nothing of ours turns up among the user's own children.
"""

from __future__ import annotations

import gc
import os
import sys

from paceline import _slot
from paceline._native import Zygote, slot_main

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from paceline._native import Birth

WARM = ("cloudpickle", "paceline._slot.classes", "paceline._slot.objects", "paceline._slot.pools")
"""What most slots come to need, with all that these import in turn. A slot that has it from its zygote is spared tens
of milliseconds, and shares the memory."""

IDLE = 0.05
"""The first slots must not wait for that: it is imported when nothing was asked for this many seconds..."""

MANY = max(16, 2 * (os.cpu_count() or 1))
"""...or when so many slots were forked that there are likely to be more."""

FAILED = 70  # EX_SOFTWARE: the slot itself went wrong, not the user's code


def main() -> None:
    """Fork slots until the node is gone.

    Arguments: where paceline is, the client's own ones, the node's descriptor.
    """
    descriptor = int(sys.argv[-1])
    sys.argv[:] = sys.argv[2:-1] or [""]
    zygote = Zygote(descriptor)
    _freeze()
    cold, forked = True, 0
    while not zygote.ended:
        birth = zygote.next(IDLE if cold else None)
        if cold and not zygote.ended and (birth is None or forked >= MANY):
            cold = False
            _warm_up()
        if birth is None:
            continue
        try:
            pid = os.fork()
        except OSError as error:
            # The node waits a little and asks again.
            zygote.not_forked(birth, error.errno or 0)
            continue
        if pid == 0:
            _live(zygote, birth)
        zygote.forked(birth, pid)
        birth.close()
        forked += 1


def _freeze() -> None:
    # What is here now is never garbage; without this the first collection in each slot would copy all its pages.
    gc.collect()
    gc.freeze()


def _warm_up() -> None:
    for name in WARM:
        try:
            __import__(name)
        except Exception:
            pass  # a slot that needs it says so, where somebody hears it
    _freeze()


def _live(zygote: Zygote, birth: Birth) -> NoReturn:
    """Be a slot. Never returns into the zygote's loop, whatever happens."""
    status = FAILED
    try:
        _slot.number = birth.slot
        for stream in (sys.stdout, sys.stderr):
            # The zygote's own output is no terminal; the lines a slot prints should be seen when they are
            # printed.
            if stream is not None:
                stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        slot_main(zygote, birth)
        status = 0
    except BaseException as error:
        _slot._complain(error)
    finally:
        try:
            _slot.finish()
        finally:
            os._exit(status)

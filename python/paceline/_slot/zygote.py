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

FAILED = 70  # EX_SOFTWARE: the slot itself went wrong, not the user's code


def main() -> None:
    """Fork slots until the node is gone.

    Arguments: where paceline is, the client's own ones, the node's descriptor.
    """
    descriptor = int(sys.argv[-1])
    sys.argv[:] = sys.argv[2:-1] or [""]
    zygote = Zygote(descriptor)
    # What is here now is never garbage; without this the first collection in each slot would copy all its
    # pages.
    gc.collect()
    gc.freeze()
    while (birth := zygote.next()) is not None:
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

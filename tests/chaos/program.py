"""A submitted program: lives for some seconds, and ends well. Run as `python -m chaos.program ID SECONDS`."""

from __future__ import annotations

import sys
import time

from chaos import history
from chaos.workload import Copy, begin


def main() -> None:
    program, seconds = sys.argv[1], float(sys.argv[2])
    copy = Copy(program, "program")
    run = begin(program, whole=program, copy=copy.name)
    time.sleep(seconds)
    history.write("end", id=program, run=run, whole=program, copy=copy.name)


if __name__ == "__main__":
    main()

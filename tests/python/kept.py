"""Classes of detached actors: the material of test_detached.py.

A module of its own, so that slots and keepers import it and nothing of pytest.
"""

import os
import signal
import time


class Odd(Exception):
    """Its constructor cannot be called with its own `args`."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(what)
        self.code = code


class Box:
    def __init__(self, start: int) -> None:
        self.number = start

    def add(self, step: int) -> int:
        self.number += step
        return self.number

    def pid(self) -> int:
        return os.getpid()

    def hold(self, path: str) -> str:
        open(path, "x").close()
        until = time.monotonic() + 60
        while not os.path.exists(f"{path}.enough") and time.monotonic() < until:
            time.sleep(0.005)
        return "held"


class Fails:
    def __init__(self, what: str) -> None:
        raise Odd(f"no such {what}", 7)


class Dies:
    def __init__(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

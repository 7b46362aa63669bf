"""What goes wrong in a slot comes back as what it was; a slot that dies is named and replaced."""

import os
import signal

import paceline as pl

pl.connect(cpus=2)


@pl.remote
def divide(a: int, b: int) -> float:
    return a / b


@pl.remote(retries=0)
def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@pl.remote
def square(x: int) -> int:
    return x * x


try:
    divide(1, 0)
except ZeroDivisionError as error:
    print("the function's own error:", repr(error))
    print("with the remote traceback as its cause:", "in divide" in str(error.__cause__))

try:
    crash()
except pl.SlotDied as error:
    print("SlotDied:", error)

print("still running:", square(7))

"""The whole of it: connect, mark a function, call it."""

import paceline as pl

pl.connect()  # a cluster of this machine's CPUs; nothing to start, nothing left behind


@pl.remote
def square(x: int) -> int:
    return x * x


print("one call:", square(7))
print("a hundred calls:", sum(square.map(range(100))))
print("here, without a slot:", square.original(7))

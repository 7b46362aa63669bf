"""An endless input: `imap` pulls from it only as far ahead as the results are taken."""

import itertools

import paceline as pl

pl.connect()


@pl.remote
def prime(n: int) -> int | None:
    """`n` if it is a prime number."""
    return n if all(n % d for d in range(3, int(n**0.5) + 1, 2)) else None


odd_numbers = itertools.count(1_000_001, 2)  # never ends
found = (n for n in prime.imap(odd_numbers) if n is not None)
print("first five primes above a million:", ", ".join(map(str, itertools.islice(found, 5))))

"""Submit now, collect later: real `concurrent.futures` futures, which can be awaited too."""

import asyncio
import time

import paceline as pl

pl.connect(cpus=2)


@pl.remote
def slow_square(x: int) -> int:
    time.sleep(0.01 * (5 - x % 5))
    return x * x


futures = {slow_square.submit(x): x for x in range(10)}
done_first = [futures[future] for future in pl.as_completed(futures)]
print("in order of completion:", *done_first)
print("slowest:", done_first[-1])
print("all done:", sum(future.result() for future in futures))


async def main() -> None:
    both = await asyncio.gather(slow_square.submit(3), slow_square.submit(4))
    print("awaited:", *both)


asyncio.run(main())

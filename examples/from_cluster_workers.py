"""A program for cluster-workers: millions of jobs could go through it, and it keeps none of them.

The one line that changed: it was `import cw`.
"""

import paceline.compat.cluster_workers as cw


def collatz(start: int) -> int:
    """How many steps it takes to get to one."""
    steps = 0
    while start != 1:
        start = start // 2 if start % 2 == 0 else 3 * start + 1
        steps += 1
    return steps


best = (0, 0)


def completed(jobid: int, steps: int) -> None:
    """Called for one job at a time, so that nothing needs a lock."""
    global best
    best = max(best, (steps, jobid))


with cw.allocate(2):  # a master and two workers on this machine
    with cw.ClientThread(completed) as client:
        for start in range(1, 10_001):
            client.submit(start, collatz, start)
    print("longest way below 10,000: from {1} in {0} steps".format(*best))

    with cw.ClusterExecutor() as executor:
        print("the first ten:", *executor.map(collatz, range(1, 11)))
        try:
            executor.submit(collatz, None).result()  # type: ignore[arg-type]
        except cw.RemoteException as error:
            print("a job that fails:", str(error).splitlines()[-1])

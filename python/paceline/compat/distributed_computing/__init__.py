"""The names of distributed-computing: a pool of workers, one for each GPU of every node, that are updated between jobs.

    from paceline.compat.distributed_computing.api import Pool, WorkerInterface

`api` has all of it; `python -m paceline.compat.distributed_computing.start_node` is the command.
"""

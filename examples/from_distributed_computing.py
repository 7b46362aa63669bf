"""A program for distributed-computing: one worker for each GPU, that learn from each other's results as they come.

The one line that changed: it was `from distributed_computing.api import ...`. The head node, here started in Python, is
otherwise that of `python -m paceline.compat.distributed_computing.start_node --head` (it was `start_node --head`).
"""

import math
import os

os.environ["PACELINE_FAKE_GPUS"] = "2x16GB"  # this example has to run where there are none

from paceline.compat.distributed_computing.api import Pool, WorkerInterface, start_head_node

PORT = 16379


class Search(WorkerInterface):
    """Evaluates settings, and gives up early on those that cannot be better than what others have found."""

    def __init__(self, points: list[float]) -> None:
        self.points = points  # what takes long to prepare is prepared once, in each worker
        self.best = math.inf

    def run(self, slope: float, offset: float = 0.0) -> tuple[float, float, bool]:
        error = 0.0
        for x in self.points:
            error += (3 * x + 1 - slope * x - offset) ** 2
            if error > self.best:
                return slope, error, True
        return slope, error, False

    def handle_update(self, error: float) -> None:
        self.best = min(self.best, error)


terminate, wait = start_head_node("open sesame", port=PORT)

settings = [{"args": [step / 10], "kwargs": {"offset": 1.0}} for step in range(60)]
results = []
with Pool(Search, {"args": [[x / 100 for x in range(100)]]}, "open sesame", server_port=PORT, min_workers=2) as pool:
    print("workers:", pool.get_workers_count(), "on", pool.get_nodes_count(), "node")
    for result in pool.imap_unordered(settings):
        results.append(result)
        pool.update_workers({"args": [result[1]]})
    print("in order:", [slope for slope, *_ in pool.map(settings[:5])])

print("results:", len(results))
print("best slope:", min(results, key=lambda result: result[1])[0])
print("given up early:", any(early for *_, early in results))
terminate()
wait()

"""A program for PARL's cluster: simulators that live in processes of their own, and learn by their samples.

The lines that changed: it was `import parl`, and `from parl...` likewise. The cluster, here made in Python, otherwise
is that of `python -m paceline.compat.parl start --port 6006` (it was `xparl start`).
"""

# mypy: disable-error-code="attr-defined"
import random

import paceline.compat.parl as parl
from paceline.compat.parl.remote.exceptions import FutureGetRepeatedlyError, RemoteError
from paceline.compat.parl.remote.master import Master
from paceline.compat.parl.remote.worker import Worker
from paceline.compat.parl.utils import get_free_tcp_port


@parl.remote_class(wait=False)
class Simulator:
    """A bandit with arms of unknown worth, and a value for each of them that its samples give."""

    def __init__(self, seed: int, worths: list[float]) -> None:
        self.random = random.Random(seed)
        self.worths = worths
        self.values = [0.0] * len(worths)

    def sample(self, values: list[float], count: int) -> list[tuple[int, float]]:
        """Play mostly the arm that looks best, and return what each play was worth."""
        self.values = values
        found = []
        for _ in range(count):
            greedy = self.random.random() > 0.2
            arm = values.index(max(values)) if greedy else self.random.randrange(len(values))
            found.append((arm, self.worths[arm] + self.random.gauss(0, 0.1)))
        return found


@parl.remote_class
class Judge:
    """Waits for each call, and ends with its first exception, as objects do there."""

    def verdict(self, values: list[float]) -> str:
        return f"arm {values.index(max(values))} is best"


port = get_free_tcp_port()
master = Master(port)
worker = Worker(f"localhost:{port}", cpu_num=4)
parl.connect(f"localhost:{port}")

values, plays = [0.0] * 5, [0] * 5
simulators = [Simulator(seed, [0.1, 0.4, 0.2, 0.9, 0.3]) for seed in range(3)]
for _ in range(20):
    # All of them play at the same time.
    for future in [simulator.sample(values, 50) for simulator in simulators]:
        for arm, worth in future.get():
            plays[arm] += 1
            values[arm] += (worth - values[arm]) / plays[arm]
print("plays:", sum(plays))
print("what a simulator knows:", len(simulators[0].values), "values")

future = simulators[0].sample(values, 1)
future.get()
try:
    future.get()
except FutureGetRepeatedlyError:
    print("a value is taken once")
for simulator in simulators:
    simulator.destroy()

judge = Judge()
print("verdict:", judge.verdict(values))
try:
    judge.verdict([])
except RemoteError as error:
    print("failed:", str(error).splitlines()[0])
try:
    judge.verdict(values)
except RemoteError as error:
    print("and gone:", str(error).splitlines()[1])
print("on the same machine, without a cluster:", Judge._original().verdict([1, 0]))

parl.remote.client.disconnect()
worker.exit()
master.exit()

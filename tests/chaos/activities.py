"""What clients do with tasks, maps, pools, objects, groups and programs."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import paceline as pl
from chaos import workload
from chaos.activity import Activity
from chaos.actors import DetachedActor, NamedActor, UnnamedActor, VisitedActor

if TYPE_CHECKING:
    from chaos.client import Client

square = pl.remote(workload.square)
fail = pl.remote(workload.fail)
parent = pl.remote(workload.parent)
item = pl.remote(workload.item)
digest = pl.remote(workload.digest)
make = pl.remote(workload.make)

# How clients reach the cluster.
ADDRESS = "head:7077"
KEY = "/srv/key"
TESTS = Path(__file__).resolve().parents[1]


# How many tasks may be under way, and for how many seconds a step waits for the oldest.
MAX_OPEN_TASKS = 20
STEP_TIME = 0.5


class Tasks(Activity):
    """Tasks in small batches: some that fail by themselves, some that may not be repeated, some with children."""

    def __init__(self, client: Client, rng: random.Random) -> None:
        super().__init__(client, rng)
        self.open: list[Any] = []

    def step(self) -> None:
        self.open += [
            future for future in (self._submit() for _ in range(self.rng.randint(1, 6))) if future is not None
        ]
        settled = self.client.settle(self.open[:6], STEP_TIME)
        self.open = [future for future in self.open if not future.done()]
        if len(self.open) > MAX_OPEN_TASKS:
            self.client.settle(self.open)
        elif not settled:
            self.client.stopping.wait(0.1)

    def _submit(self) -> Any:
        number, seconds = self.rng.randrange(1000), self.rng.choice([0.0, 0.01, 0.05, 0.3])
        retries = self.rng.choice([0, 3, 3, 3])
        shape = self.rng.random()
        if shape < 0.1:
            failing = fail.options(retries=retries)
            return self.client.submit("fail", lambda call: failing.submit(call, number), retries=retries, value=number)
        about = {"retries": retries, "value": workload.value_of(number)}
        if shape < 0.25:
            wait = self.rng.random() < 0.5
            nested = parent.options(retries=retries)
            return self.client.submit("task", lambda call: nested.submit(call, number, wait), **about)
        plain = square.options(retries=retries)
        return self.client.submit("task", lambda call: plain.submit(call, number, seconds), **about)

    def attempt(self) -> bool:
        number = self.rng.randrange(1000)
        about = {"retries": 3, "value": workload.value_of(number)}
        return self.client.settle([self.client.submit("task", lambda call: square.submit(call, number, 0.0), **about)])


class Maps(Activity):
    """Maps whose values come as they end: each must come, and once."""

    pause = 1.0

    def attempt(self) -> bool:
        size = self.rng.randint(5, 40)
        return self.client.do("map", lambda call: self._map(call, size), value="each once") is not None

    def _map(self, call: str, size: int) -> str:
        left = [workload.value_of(number) for number in range(size)]
        for got in item.imap_unordered([(f"{call}#{number}", number) for number in range(size)], chunksize=1):
            if got["value"] not in left:
                return f"{got} was not asked for, or came before"
            left.remove(got["value"])
        return f"without {left}" if left else "each once"


class Pools(Activity):
    """Pools that live for a while: jobs and updates in one order."""

    def __init__(self, client: Client, rng: random.Random) -> None:
        super().__init__(client, rng)
        self.made = 0

    def attempt(self) -> bool:
        self.made += 1
        name = f"{self.client.label}.pool.{self.made}"
        pool = self.client.do("pool", lambda _: pl.WorkerPool(workload.Worker, name, slots=2), pool=name)
        if pool is None:
            return False
        futures: list[Any] = []
        updates = 0
        for _ in range(self.rng.randint(2, 12)):
            for _ in range(self.rng.randint(0, 2)):
                update = self.client.submit("update", _update(pool, updates + 1), pool=name, number=updates + 1)
                futures.append(update)
                if update is None:
                    break
                updates += 1
            for _ in range(self.rng.randint(1, 4)):
                number, seconds = self.rng.randrange(1000), self.rng.choice([0.0, 0.02, 0.2])
                about = {"retries": 3, "value": workload.value_of(number), "pool": name, "updates": updates}
                futures.append(self.client.submit("job", _job(pool, number, seconds), **about))
            if self.rng.random() < 0.5:
                self.client.settle(futures)
        succeeded = self.client.settle(futures)
        self.client.do("close", lambda _: pool.close(), pool=name)
        return succeeded


def _update(pool: Any, number: int) -> Any:
    return lambda _: pool.update(number)


def _job(pool: Any, number: int, seconds: float) -> Any:
    return lambda call: pool.submit(call, number, seconds)


class Objects(Activity):
    """Objects that this client puts, and such that tasks make: both must be what they were, wherever they are used."""

    def attempt(self) -> bool:
        seed, size = self.rng.randrange(1 << 30), self.rng.choice([1_000, 100_000, 600_000, 2_000_000])
        wanted = workload.digest_of(workload.bytes_of(seed, size))
        own = self.rng.random() < 0.5
        if own:
            ref = self.client.do("put", lambda _: pl.put(workload.bytes_of(seed, size)))
        else:
            kept = make.options(keep=True)
            # It may run again at any time: whenever its value is lost and somebody needs it.
            ref = self.client.submit("make", lambda call: kept.submit(call, seed, size))
        if ref is None:
            return False
        used = [
            self.client.submit("digest", lambda call: digest.submit(call, ref), retries=3, value=wanted)
            for _ in range(self.rng.randint(1, 3))
        ]
        succeeded = self.client.settle(used)
        if not own:
            if not self.client.settle([ref]):
                return False
            ref = ref.result()
        got = self.client.do("get", lambda _: workload.digest_of(pl.get(ref)), own=own, value=wanted)
        return succeeded and got is not None


class Groups(Activity):
    """Groups of two or three: all members or none."""

    pause = 3.0

    def attempt(self) -> bool:
        size = self.rng.randint(2, 3)
        about = {"size": size, "value": str(list(range(size)))}
        return self.client.do("group", lambda call: self._meet(call, size), **about) is not None

    def _meet(self, call: str, size: int) -> str:
        with pl.group(size, cpus=1, wait=20) as group:
            return str([got["value"] for got in group.run(workload.meet, call, self.rng.choice([0.1, 0.5]))])


class SubmitFailed(pl.PacelineError):
    """`paceline submit` has failed; its exit code is part of the code."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        super().__init__(f"exit code {done.returncode}: {done.stderr.strip()}")
        self.code = f"submit-{done.returncode}"


class Programs(Activity):
    """Programs that the cluster runs by itself, submitted by the command line."""

    pause = 3.0

    def attempt(self) -> bool:
        seconds, restarts = self.rng.choice([0.2, 1.0, 3.0]), self.rng.choice([0, 30, 30])
        name = f"{self.client.label}-{self.rng.randrange(1 << 30)}".replace(".", "-")
        about = {"program": name, "restarts": restarts}
        return self.client.do("program", lambda call: _submit(call, name, seconds, restarts), **about) is not None


def _submit(call: str, name: str, seconds: float, restarts: int) -> str:
    """Runs `paceline submit`. Records of several pages need room on the head's disk, even if its last page has some."""
    where = ["--address", ADDRESS, "--key-file", KEY, "--env", f"PYTHONPATH={TESTS}"]
    flags = ["--name", name, "--restarts", str(restarts), "--cpus", "0.5", "--cwd", "/srv"]
    padding = ["--env", f"PADDING={'x' * 10_000}"]
    command = [sys.executable, "-m", "chaos.program", call, str(seconds)]
    done = subprocess.run(
        ["paceline", "submit", *where, *flags, *padding, "--", *command], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise SubmitFailed(done)
    return done.stdout.strip()


# The first runs in the main thread of the client, where a Ctrl-C arrives.
ACTIVITIES: list[type[Activity]] = [
    Tasks,
    Maps,
    Pools,
    Objects,
    Groups,
    Programs,
    NamedActor,
    UnnamedActor,
    VisitedActor,
    DetachedActor,
]

"""The program of a client: uses everything that the cluster offers, and writes down what it asked and what it got.

Run as `python -m chaos.client NAME INCARNATION SEED REST`. It goes on until the file `STOP` is there, lets all
it has begun come to an end within `REST` seconds, asks each kind of work once more, which must succeed now, and leaves.

* CL-1: each operation has an id, a `submit` record before it is made, and an `outcome` record when it has ended.
* CL-2: an operation that has not ended in time has a `pending` record: nothing may hang.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import paceline as pl
from chaos import history
from chaos.activities import ACTIVITIES, ADDRESS, KEY
from chaos.activity import Activity
from chaos.checker import PENDING_CODE

STOP = "/srv/stop"
# What ends with a client that is interrupted.
INTERRUPTED_CODE = 130


class Client:
    """Makes operations and writes their histories."""

    def __init__(self, name: str, incarnation: int, seed: int, rest: float) -> None:
        self.name = name
        self.label = f"{name}.{incarnation}"
        self.rest = rest
        self.seed = f"{seed}/{self.label}"
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._count = 0
        self._pending: dict[str, tuple[str, Any]] = {}

    def submit(self, kind: str, action: Callable[[str], Any], **about: Any) -> Any:
        """Makes an operation that gives a future; returns the future, or None if it was refused."""
        call = self._begin(kind, about)
        try:
            future = action(call)
        except BaseException as error:
            self._end(call, error=error)
            if not isinstance(error, (pl.PacelineError, OSError, CancelledError)):
                raise
            return None
        with self._lock:
            if call in self._pending:
                self._pending[call] = (kind, future)
        future.add_done_callback(lambda ended: self._on_done(call, ended))
        return future

    def do(self, kind: str, action: Callable[[str], Any], **about: Any) -> Any:
        """Makes an operation that blocks; returns its value, or None if it failed."""
        call = self._begin(kind, about)
        try:
            value = action(call)
        except BaseException as error:
            self._end(call, error=error)
            if not isinstance(error, (pl.PacelineError, OSError, CancelledError)):
                raise
            return None
        self._end(call, value=value)
        return value

    def settle(self, futures: list[Any], within: float | None = None) -> bool:
        """Waits for futures, however they end, at most for so many seconds; returns whether all have a value."""
        self._wait(futures, None if within is None else history.now() + within)
        return all(future is not None and future.done() and _succeeded(future) for future in futures)

    def _wait(self, futures: list[Any], until: float | None) -> None:
        for future in futures:
            while future is not None:
                try:
                    future.exception(timeout=1.0 if until is None else max(0.0, min(1.0, until - history.now())))
                except TimeoutError:
                    if self.expired() or (until is not None and history.now() >= until):
                        return
                    continue
                except CancelledError:
                    pass
                break

    def expired(self) -> bool:
        """Returns whether the time to come to rest is over."""
        return self.stopping.is_set() and history.now() > self.deadline

    def _begin(self, kind: str, about: dict[str, Any]) -> str:
        with self._lock:
            self._count += 1
            call = f"{self.label}.{self._count}"
            self._pending[call] = (kind, None)
        history.write("submit", id=call, kind=kind, **about)
        return call

    def _on_done(self, call: str, future: Any) -> None:
        try:
            value = future.result(timeout=0)
        except BaseException as error:
            self._end(call, error=error)
        else:
            self._end(call, value=value)

    def _end(self, call: str, value: Any = None, error: BaseException | None = None) -> None:
        with self._lock:
            self._pending.pop(call, None)
        if error is None:
            said = value if isinstance(value, (dict, str, int)) else None
            history.write("outcome", id=call, ok=True, value=said)
            return
        text = f"{type(error).__name__}: {error}"[:400]
        code, ran = getattr(error, "code", None), getattr(error, "ran", None)
        arguments = list(error.args) if type(error).__name__ == "Expected" else None
        kind = type(error).__name__
        history.write("outcome", id=call, ok=False, error=kind, code=code, ran=ran, text=text, arguments=arguments)

    def watch(self) -> None:
        """Waits until the run is to end."""
        while not os.path.exists(STOP):
            time.sleep(0.05)
        self.deadline = history.now() + self.rest
        self.stopping.set()

    def run(self) -> int:
        """Runs all activities at the same time until the end; returns the exit code."""
        history.write("started", client=self.name, label=self.label)
        if self._connect() is None:
            return 1
        history.write("connected", client=self.name)
        threading.Thread(target=self.watch, daemon=True).start()
        activities = [kind(self, random.Random(f"{self.seed}/{kind.__name__}")) for kind in ACTIVITIES]
        # The first runs in the main thread, where a Ctrl-C arrives.
        threads = [threading.Thread(target=self._repeat, args=(one,), daemon=True) for one in activities[1:]]
        for thread in threads:
            thread.start()
        self._repeat(activities[0])
        while not self.stopping.is_set():
            time.sleep(0.05)
        for thread in threads:
            thread.join(max(0.0, self.deadline - history.now()))
        while self._pending and not self.expired():
            time.sleep(0.02)
        with self._lock:
            pending = dict(self._pending)
        for call, (kind, future) in pending.items():
            history.write("pending", id=call, kind=kind, why=_explained(future))
        history.write("finished", client=self.name, pending=len(pending))
        return PENDING_CODE if pending else 0

    def _connect(self) -> Any:
        """Connects, as often as it takes: the head may be away when this program begins."""
        while not os.path.exists(STOP):
            try:
                return pl.connect(ADDRESS, key_file=KEY, name=self.label)
            except pl.PacelineError as error:
                history.write("unconnected", client=self.name, code=error.code, text=str(error)[:400])
                time.sleep(0.3)
        return None

    def _repeat(self, activity: Activity) -> None:
        try:
            while not self.stopping.is_set():
                activity.step()
            while not activity.finish():
                if self.expired():
                    history.write("unrecovered", client=self.name, activity=type(activity).__name__)
                    return
                time.sleep(0.3)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            text = traceback.format_exc()[-3000:]
            history.write("crashed", client=self.name, activity=type(activity).__name__, text=text)


def _succeeded(future: Any) -> bool:
    return not future.cancelled() and future.exception(timeout=0) is None


def _explained(future: Any) -> str:
    try:
        return str(future.explain()) if future is not None else "it has not returned"
    except Exception as error:
        return f"no explanation: {type(error).__name__}: {error}"


def main() -> None:
    name, incarnation, seed, rest = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    client = Client(name, incarnation, seed, rest)
    try:
        code = client.run()
    except KeyboardInterrupt:
        history.write("interrupted", client=name)
        sys.exit(INTERRUPTED_CODE)
    if code:
        # Threads that hang would keep the interpreter.
        os._exit(code)
    pl.shutdown()
    history.write("closed", client=name)


if __name__ == "__main__":
    main()

"""Runs one plan against one cluster, and says whether every history is a good one.

`python -m chaos.run --seed 1 --minutes 10`, or `make chaos SEED=1 MINUTES=10`. The exit code is 0 if
nothing was found, 1 if something was, and 2 if the run could not be made. What every process wrote stays in
`target/chaos` if something was found.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from chaos import checker, plan
from chaos.arena import Arena
from chaos.faults import Faults
from chaos.history import Record, now
from chaos.plan import CLIENTS, HEAD, NODES
from chaos.report import load, report, summary
from lab.host import ROOT
from lab.lab import Lab
from lab.needs import why_not

RESULTS = ROOT / "target" / "chaos"
# How long everything may take to come to rest after the last fault.
REST_TIME = 60.0
# How long programs that were accepted may take to be through after that.
PROGRAMS_TIME = 60.0
# How long a stopped cluster may take to be gone.
GONE_TIME = 15.0
POLL_INTERVAL = 0.05
# So often programs that have ended are written down.
WATCH_INTERVAL = 20.0


def run(seed: int, seconds: float, results: Path) -> list[Record]:
    """Makes one run and returns everything that was written."""
    faults = plan.make(seed, seconds)
    with Lab() as lab:
        arena = Arena(lab, seed, REST_TIME, results)
        try:
            arena.start()
            arena.writer.write("run", seed=seed, seconds=seconds, wall=time.time())
            executed = Faults(arena, faults, now())
            with _watched_programs(arena):
                while executed.poll():
                    arena.poll()
                    time.sleep(POLL_INTERVAL)
            _rest(arena)
            _end(arena)
        finally:
            arena.save()
        return arena.histories()


def _rest(arena: Arena) -> None:
    """Lets everything come to rest: all nodes are back, clients end, programs are through."""
    arena.writer.write("quiet")
    for service in arena.services.values():
        service.resume()
    if not arena.wait_for_nodes(REST_TIME):
        arena.writer.write("absent", nodes=arena.nodes_up(), status=arena.status())
    for client in CLIENTS:
        arena.services[client].wanted = False
        (arena.hosts[client].files / "srv" / "stop").touch()
    deadline = now() + REST_TIME + 15
    while any(arena.services[client].alive for client in CLIENTS) and now() < deadline:
        arena.poll()
        time.sleep(POLL_INTERVAL)
    for client in CLIENTS:
        service = arena.services[client]
        if service.alive:
            service.abort()
            arena.writer.write("hung", service=client)
        service.poll()
    deadline = now() + PROGRAMS_TIME
    status = arena.status()
    while now() < deadline and (status is None or _unfinished(status)):
        arena.poll()
        time.sleep(0.3)
        status = arena.status()
    arena.writer.write("rested", status=status)


@contextlib.contextmanager
def _watched_programs(arena: Arena) -> Iterator[None]:
    """Writes down again and again which programs have ended: the head forgets all but the last ones."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(WATCH_INTERVAL):
            programs = (arena.status() or {}).get("programs", ())
            arena.writer.write("programs", ended=[one for one in programs if one["state"] == "ended"])

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _unfinished(status: Record) -> bool:
    programs = (one for one in status.get("programs", ()) if not one["program"].startswith("actor."))
    return any(one["state"] != "ended" for one in programs)


def _end(arena: Arena) -> None:
    """Stops the cluster: nothing of it is left on any host."""
    arena.save()
    for name in (HEAD, *NODES):
        arena.services[name].wanted = False
        arena.services[name].expect("stopped")
    done = arena.hosts[HEAD].run("paceline", "stop", timeout=60)
    arena.writer.write("stopped", code=done.returncode, text=done.transcript()[-600:])
    try:
        arena.lab.assert_nothing_left(within=GONE_TIME)
    except AssertionError as error:
        arena.writer.write("left", text=str(error)[:4000])
    for log in sorted(arena.results.glob("*.log*")):
        for line in log.read_text(errors="replace").splitlines():
            if "panicked" in line:
                arena.writer.write("panicked", where=log.name, text=line[:400])


def main() -> None:
    parser = argparse.ArgumentParser(description="A cluster under faults, and a check of every history.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--keep", action="store_true", help="keep histories and logs, whatever was found")
    parser.add_argument("--check", type=Path, help="only check the histories in this directory again")
    args = parser.parse_args()
    if args.check is not None:
        records = load(args.check)
        violations = checker.check(records)
        print(report(args.seed, args.minutes, records, violations))
        sys.exit(bool(violations))
    reason = why_not()
    if reason is not None:
        print(f"chaos cannot run here: {reason}", file=sys.stderr)
        sys.exit(2 if os.environ.get("CI") == "true" else 0)
    results = RESULTS / f"seed-{args.seed}-{time.strftime('%H%M%S')}"
    results.mkdir(parents=True)
    print(f"the plan of seed {args.seed}:\n{plan.describe(plan.make(args.seed, args.minutes * 60))}", flush=True)
    records = run(args.seed, args.minutes * 60, results)
    violations = checker.check(records)
    print(summary(records))
    if violations:
        print(report(args.seed, args.minutes, records, violations))
        print(f"histories and logs are in {results}")
        sys.exit(1)
    print("no violation")
    if not args.keep:
        with contextlib.suppress(OSError):
            shutil.rmtree(results)


if __name__ == "__main__":
    main()

"""Carries out the faults of a plan on a cluster of real processes.

Owns: how a fault is made, and how it ends. `plan` says which and when. Every fault is written down when it begins
and when it ends, with the process it befell.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import heapq
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from chaos.history import now
from chaos.plan import HEAD, Fault
from support.processes import Process

if TYPE_CHECKING:
    from chaos.arena import Arena

# Within a cut: when the head is killed, and how long it is away; when the node's daemon stands still, and for how long.
CUT_RESTART = (1.0, 1.0)
CUT_STALL = (1.0, 3.5)
BALLAST = ".ballast"


class Faults:
    """The faults of one run: `poll` begins and ends those that are due."""

    def __init__(self, arena: Arena, plan: list[Fault], began: float) -> None:
        self.arena = arena
        self.plan = plan
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0
        # What the network does just now.
        self._dropped: dict[int, list[tuple[str, str]]] = {}
        self._delay = self._loss = 0.0
        for number, fault in enumerate(plan):
            self._at(began + fault.at, functools.partial(self._begin, number, fault))

    def _at(self, time: float, action: Callable[[], object]) -> None:
        self._count += 1
        heapq.heappush(self._due, (time, self._count, action))

    def poll(self) -> bool:
        """Does what is due; returns whether anything is left to do."""
        while self._due and self._due[0][0] <= now():
            heapq.heappop(self._due)[2]()
        return bool(self._due)

    def _begin(self, number: int, fault: Fault) -> None:
        handler = HANDLERS[fault.kind]
        what = handler(self, number, fault)
        fields = {"kind": fault.kind, "target": fault.target, "other": fault.other, "what": str(what or "")}
        self.arena.writer.write("fault", number=number, seconds=fault.seconds, amount=fault.amount, **fields)
        if fault.seconds:
            self._at(now() + fault.seconds, lambda: self.arena.writer.write("mended", number=number, **fields))

    # Processes

    def _slot(self, fault: Fault) -> Process | None:
        """Returns one of the processes that run work on a node: slots, programs, and what they have started."""
        host = self.arena.hosts[fault.target]
        return _choice(fault, [one for one in host.processes() if one.name != "paceline" and one.parent != host.init])

    def _zygote(self, fault: Fault) -> Process | None:
        """Returns one of the processes that slots are forked from: they are nobody's children."""
        host = self.arena.hosts[fault.target]
        return _choice(fault, [one for one in host.processes() if one.name != "paceline" and one.parent == host.init])

    def _kill(self, victim: Process | None) -> str:
        if victim is None:
            return "nobody is there"
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim.pid, signal.SIGKILL)
        return str(victim)

    def _stop(self, victim: Process | None, fault: Fault) -> str:
        if victim is None:
            return "nobody is there"
        host = self.arena.hosts[fault.target]
        with contextlib.suppress(ProcessLookupError):
            host.stop(victim.pid)
            self._at(now() + fault.seconds, lambda: self._go_on(fault.target, victim.pid))
        return str(victim)

    def _go_on(self, host: str, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.arena.hosts[host].go_on(pid)

    def _kill_slot(self, number: int, fault: Fault) -> str:
        return self._kill(self._slot(fault))

    def _kill_zygote(self, number: int, fault: Fault) -> str:
        return self._kill(self._zygote(fault))

    def _stop_slot(self, number: int, fault: Fault) -> str:
        return self._stop(self._slot(fault), fault)

    def _stop_zygote(self, number: int, fault: Fault) -> str:
        return self._stop(self._zygote(fault), fault)

    def _kill_service(self, number: int, fault: Fault) -> None:
        self.arena.services[fault.target].send(signal.SIGKILL, "killed", fault.seconds)

    def _interrupt_client(self, number: int, fault: Fault) -> None:
        self.arena.services[fault.target].send(signal.SIGINT, "interrupted", fault.seconds)

    def _stop_service(self, number: int, fault: Fault) -> None:
        service = self.arena.services[fault.target]
        service.pause()
        self._at(now() + fault.seconds, service.resume)

    def _stop_host(self, number: int, fault: Fault) -> str:
        """Has a whole host stand still, as a virtual machine that is moved."""
        host, service = self.arena.hosts[fault.target], self.arena.services[fault.target]
        victims = [one.pid for one in host.processes()]
        service.pause()
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                host.stop(pid)

        def resume() -> None:
            service.resume()
            for pid in victims:
                self._go_on(fault.target, pid)

        self._at(now() + fault.seconds, resume)
        return f"{len(victims)} processes"

    def _drain_node(self, number: int, fault: Fault) -> None:
        service = self.arena.services[fault.target]
        service.expect("drained")
        self.arena.hosts[HEAD].start("paceline", "node", "drain", fault.target)
        pid = service.pid

        def give_up() -> None:
            # As whoever has waited long enough would.
            if service.alive and service.pid == pid:
                service.send(signal.SIGKILL, "killed", 0.0)

        self._at(now() + fault.seconds, give_up)

    # The network

    def _apply(self) -> None:
        pairs = [pair for pairs in self._dropped.values() for pair in pairs]
        self.arena.set_network(self._delay, int(self._loss), pairs)

    def _drop(self, number: int, fault: Fault, pairs: list[tuple[str, str]]) -> None:
        self._dropped[number] = pairs
        self._apply()

        def mend() -> None:
            del self._dropped[number]
            self._apply()

        self._at(now() + fault.seconds, mend)

    def _cut_host(self, number: int, fault: Fault) -> None:
        others = [name for name in self.arena.hosts if name != fault.target]
        if fault.other:
            others = [fault.other]
        self._drop(number, fault, [pair for one in others for pair in ((fault.target, one), (one, fault.target))])

    def _cut_one_way(self, number: int, fault: Fault) -> None:
        self._drop(number, fault, [(fault.target, fault.other)])

    def _cut_restart(self, number: int, fault: Fault) -> None:
        self._cut_host(number, fault)
        after, down = CUT_RESTART
        head = self.arena.services[HEAD]
        self._at(now() + after, lambda: head.send(signal.SIGKILL, "killed", down))

    def _cut_stall(self, number: int, fault: Fault) -> None:
        self._cut_host(number, fault)
        after, seconds = CUT_STALL
        service = self.arena.services[fault.target]
        self._at(now() + after, service.pause)
        self._at(now() + after + seconds, service.resume)

    def _change(self, fault: Fault, name: str) -> None:
        setattr(self, name, fault.amount)
        self._apply()

        def mend() -> None:
            setattr(self, name, 0.0)
            self._apply()

        self._at(now() + fault.seconds, mend)

    def _slow_down(self, number: int, fault: Fault) -> None:
        self._change(fault, "_delay")

    def _lose(self, number: int, fault: Fault) -> None:
        self._change(fault, "_loss")

    def _reset(self, number: int, fault: Fault) -> None:
        self.arena.hosts[fault.target].reset_connections(self.arena.hosts[fault.other].address)

    # Disks

    def _fill(self, fault: Fault, directory: Path) -> str:
        """Fills the file system of a host's directory until there is no room for a byte."""
        path = directory / BALLAST
        written = 0
        with contextlib.suppress(FileNotFoundError), path.open("wb", buffering=0) as file:
            for size in (1 << 20, 4096, 1):
                try:
                    while True:
                        written += file.write(b"\0" * size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
        self._at(now() + fault.seconds, lambda: path.unlink(missing_ok=True))
        return f"{written} bytes"

    def _fill_state(self, number: int, fault: Fault) -> str:
        return self._fill(fault, self.arena.hosts[fault.target].files / "root")

    def _fill_temporary(self, number: int, fault: Fault) -> str:
        return self._fill(fault, self.arena.hosts[fault.target].files / "tmp")


def _choice(fault: Fault, found: list[Process]) -> Process | None:
    return sorted(found, key=lambda one: one.pid)[int(fault.pick * len(found))] if found else None


HANDLERS: dict[str, Callable[[Faults, int, Fault], str | None]] = {
    "kill-slot": Faults._kill_slot,
    "kill-zygote": Faults._kill_zygote,
    "kill-node": Faults._kill_service,
    "kill-head": Faults._kill_service,
    "kill-client": Faults._kill_service,
    "interrupt-client": Faults._interrupt_client,
    "stop-slot": Faults._stop_slot,
    "stop-zygote": Faults._stop_zygote,
    "stop-node": Faults._stop_service,
    "stop-head": Faults._stop_service,
    "stop-client": Faults._stop_service,
    "stop-host": Faults._stop_host,
    "cut-host": Faults._cut_host,
    "cut-pair": Faults._cut_host,
    "cut-one-way": Faults._cut_one_way,
    "cut-long": Faults._cut_host,
    "cut-restart": Faults._cut_restart,
    "cut-stall": Faults._cut_stall,
    "delay": Faults._slow_down,
    "loss": Faults._lose,
    "reset": Faults._reset,
    "fill-state": Faults._fill_state,
    "fill-temporary": Faults._fill_temporary,
    "drain-node": Faults._drain_node,
}

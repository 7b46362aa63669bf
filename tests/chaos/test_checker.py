"""The checker finds each thing that must not happen, and nothing in a history that is good."""

from __future__ import annotations

from typing import Any

import pytest

from chaos import checker
from chaos.history import Record

ALICE, BOB, NODE1, NODE2 = "alice/5/aa", "bob/5/bb", "node1/9/cc", "node2/9/dd"


def record(t: float, process: str, event: str, **fields: Any) -> Record:
    return {"t": t, "event": event, "process": process, **fields}


def submit(t: float, call: str, kind: str, **fields: Any) -> Record:
    return record(t, ALICE, "submit", id=call, kind=kind, **fields)


def value(t: float, call: str, got: Any) -> Record:
    return record(t, ALICE, "outcome", id=call, ok=True, value=got)


def error(t: float, call: str, name: str, code: str | None = None, **fields: Any) -> Record:
    about = {"error": name, "code": code, "ran": None, "text": name, "arguments": None, **fields}
    return record(t, ALICE, "outcome", id=call, ok=False, **about)


def run(t: float, call: str, name: str, process: str = NODE1, seconds: float = 0.1, **fields: Any) -> list[Record]:
    begin = record(t, process, "begin", id=call, run=name, **fields)
    return [begin, record(t + seconds, process, "end", id=call, run=name)]


FINISHED = record(100, ALICE, "finished", client="alice", pending=0)
TASK = submit(1, "a.1", "task", retries=3, value=5)
TASK_RUN = run(1.1, "a.1", "r1")
TASK_VALUE = value(2, "a.1", {"run": "r1", "value": 5})

CALL = {"whole": "w", "copy": "c1", "caller": ALICE, "count": 1}


def call_run(t: float, call: str, sequence: int, process: str = NODE1, **fields: Any) -> list[Record]:
    return run(t, call, f"run-{call}-{t}", process, **{**CALL, "sequence": sequence, **fields})


def alive(t: float, copy: str, process: str) -> Record:
    return record(t, process, "alive", whole="w", copy=copy)


def rested(**program: Any) -> Record:
    return record(90, "run", "rested", status={"programs": [program] if program else []})


PROGRAM = submit(1, "a.1", "program", program="p", restarts=0)
ACCEPTED = value(2, "a.1", "p")
LASTING = submit(1, "a.1", "program", program="p", restarts=9)
JOB = submit(5, "a.3", "job", retries=3, value=5, pool="q", updates=2)
JOB_VALUE = value(6, "a.3", {"run": "r1", "value": 5})
GROUP = submit(1, "a.1", "group", size=2, value="[0, 1]")
GROUP_VALUE = value(3, "a.1", "[0, 1]")
DETACHED = [
    submit(1, "a.1", "create", whole="d", detached=True),
    value(2, "a.1", None),
]

BAD: dict[str, tuple[str, list[Record]]] = {
    "two outcomes": ("outcome", [TASK, *TASK_RUN, TASK_VALUE, value(3, "a.1", {"run": "r1", "value": 5})]),
    "no outcome": ("outcome", [TASK, *TASK_RUN, FINISHED]),
    "no outcome in time": ("outcome", [TASK, record(99, ALICE, "pending", id="a.1", kind="task", why="it waits")]),
    "failure after all faults": (
        "outcome",
        [record(1, ALICE, "unrecovered", client="alice", activity="Tasks")],
    ),
    "wrong value": ("value", [TASK, *TASK_RUN, value(2, "a.1", {"run": "r1", "value": 6})]),
    "value of no run": ("value", [TASK, *TASK_RUN, value(2, "a.1", {"run": "r2", "value": 5})]),
    "value of a task that fails": ("value", [submit(1, "a.1", "fail", retries=0, value=5), value(2, "a.1", 5)]),
    "error without a code": ("error", [TASK, error(2, "a.1", "ValueError")]),
    "another exception of the user": (
        "error",
        [submit(1, "a.1", "fail", retries=0, value=5), error(2, "a.1", "Expected", arguments=[6])],
    ),
    "cancelled by nobody": ("error", [TASK, error(2, "a.1", "CancelledError")]),
    "client crashed": ("error", [record(1, ALICE, "crashed", client="alice", activity="Tasks", text="trace")]),
    "more runs than retries": (
        "repeat",
        [submit(1, "a.1", "task", retries=0, value=5), *run(1.1, "a.1", "r0"), *TASK_RUN, TASK_VALUE],
    ),
    "run long after the value": ("repeat", [TASK, *TASK_RUN, TASK_VALUE, *run(40, "a.1", "r2", NODE2)]),
    "actor call twice": ("actor-once", [*call_run(1, "a.1", 1), *call_run(2, "a.1", 1, NODE1)]),
    "actor call that has not run, and has": (
        "actor-once",
        [submit(0, "a.1", "call"), *call_run(1, "a.1", 1), error(2, "a.1", "ActorDied", "actor-died", ran=False)],
    ),
    "actor call to an actor out of reach": (
        "actor-once",
        [submit(0, "a.1", "call"), *call_run(1, "a.1", 1), error(2, "a.1", "ActorUnavailable", "actor-unavailable")],
    ),
    "actor call with a value of no run": (
        "actor-once",
        [submit(0, "a.1", "call"), value(2, "a.1", {"run": "r", "copy": "c1", "value": 1})],
    ),
    "actor calls out of order": ("actor-order", [*call_run(1, "a.2", 2), *call_run(2, "a.1", 1)]),
    "two copies of an actor": (
        "one-copy",
        [alive(1, "c1", NODE1), alive(2, "c2", NODE2), alive(3, "c1", NODE1), alive(4, "c2", NODE2)],
    ),
    "a copy within the time of another": (
        "one-copy",
        [alive(1, "c1", NODE1), alive(2, "c2", NODE2), alive(3, "c2", NODE2), alive(4, "c1", NODE1)],
    ),
    "a third copy beside the first": (
        "one-copy",
        [alive(1, "c1", NODE1), alive(2, "c2", NODE2), alive(3, "c3", NODE2), alive(4, "c1", NODE1)],
    ),
    "program that never ran": ("lost", [PROGRAM, ACCEPTED, rested(program="p", node="node1", reason="node-lost")]),
    "program that the head forgot": ("lost", [PROGRAM, ACCEPTED, rested()]),
    "program that never ended": ("lost", [LASTING, ACCEPTED, run(3, "a.1", "r1")[0], rested()]),
    "program that ran too often": ("lost", [PROGRAM, *run(3, "a.1", "r1"), *run(5, "a.1", "r2")]),
    "detached actor that is gone": (
        "lost",
        [
            *DETACHED,
            submit(50, "a.2", "find", whole="d"),
            error(51, "a.2", "NoSuchActor", "no-such-actor"),
        ],
    ),
    "job without an update": ("update", [JOB, *run(5.1, "a.3", "r1", updates=[1]), JOB_VALUE]),
    "updates out of order": ("update", [JOB, *run(5.1, "a.3", "r1", pool="q", updates=[2, 1]), JOB_VALUE]),
    "update twice": ("update", [JOB, *run(5.1, "a.3", "r1", pool="q", updates=[1, 1, 2]), JOB_VALUE]),
    "update during a job": (
        "update",
        [
            JOB,
            run(5.1, "a.3", "r1", pool="q", updates=[1, 2])[0],
            record(5.5, NODE1, "end", id="a.3", run="r1", changed=True),
            JOB_VALUE,
        ],
    ),
    "object of other bytes": (
        "value",
        [submit(1, "a.1", "get", own=True, value="digest"), value(2, "a.1", "other digest")],
    ),
    "object lost by its owner": (
        "object",
        [submit(1, "a.1", "get", own=True, value="digest"), error(2, "a.1", "ObjectLost", "object-lost")],
    ),
    "group without a member": ("group", [GROUP, *run(2, "a.1", "r0", rank=0, size=2), GROUP_VALUE]),
    "group member twice": (
        "group",
        [GROUP, *run(2, "a.1", "r0", rank=0, size=2), *run(2, "a.1", "r1", NODE2, rank=0, size=2)],
    ),
    "group in one process": (
        "group",
        [GROUP, *run(2, "a.1", "r0", rank=0, size=2), *run(2.5, "a.1", "r1", rank=1, size=2), GROUP_VALUE],
    ),
    "head that ended by itself": (
        "process",
        [record(5, "run", "exited", service="head", code=1, expected=None, text="")],
    ),
    "head that ended when its disk was full": (
        "process",
        [
            record(3, "run", "launched", service="head"),
            record(4, "run", "fault", kind="fill-state", seconds=3.0),
            record(5.5, "run", "exited", service="head", code=1, expected=None, text=""),
        ],
    ),
    "node that crashed": ("process", [record(5, "run", "exited", service="node1", code=-11, expected=None, text="")]),
    "node that ended by a defect of its own": (
        "process",
        [record(5, "run", "exited", service="node1", code=70, expected=None, text="")],
    ),
    "panic": ("process", [record(5, "run", "panicked", where="head.log", text="panicked at")]),
    "client that does not end": ("process", [record(5, "run", "hung", service="alice")]),
    "node that does not come back": ("process", [record(5, "run", "absent", nodes=["node1"], status=None)]),
    "something left": ("left", [record(5, "run", "left", text="a file")]),
    "cluster that cannot be stopped": ("left", [record(5, "run", "stopped", code=7, text="it took too long")]),
}


@pytest.mark.parametrize("name", BAD)
def test_checker_bad_history_is_flagged(name: str) -> None:
    rule, records = BAD[name]
    found = checker.check(records)
    assert {one.rule for one in found} == {rule}, found


def test_checker_every_rule_has_a_bad_history() -> None:
    assert checker.__doc__ is not None
    named = {line.split("`")[1] for line in checker.__doc__.splitlines() if line.startswith("* CK-")}
    assert named == {rule for rule, _ in BAD.values()}


GOOD: dict[str, list[Record]] = {
    "task": [TASK, *TASK_RUN, TASK_VALUE, FINISHED],
    "task that ran again": [TASK, run(1.05, "a.1", "r0")[0], *TASK_RUN, TASK_VALUE, *run(4, "a.1", "r2", NODE2)],
    "task that failed": [TASK, error(2, "a.1", "NodeLost", "node-lost"), FINISHED],
    "task of a client that was killed": [TASK, *TASK_RUN],
    "task that fails by itself": [
        submit(1, "a.1", "fail", retries=0, value=5),
        error(2, "a.1", "Expected", arguments=[5]),
    ],
    "interrupted client": [TASK, error(2, "a.1", "CancelledError"), record(3, ALICE, "interrupted", client="alice")],
    "actor calls": [
        *call_run(1, "a.1", 1),
        *call_run(2, "a.2", 2, count=2),
        *call_run(1.5, "b.1", 1, caller=BOB, count=3),
    ],
    "actor call that had begun": [
        submit(0, "a.1", "call"),
        call_run(1, "a.1", 1)[0],
        error(2, "a.1", "ActorDied", "actor-died", ran=True),
    ],
    "copies one after the other": [alive(1, "c1", NODE1), alive(2, "c1", NODE1), alive(2.1, "c2", NODE2)],
    "program": [PROGRAM, ACCEPTED, *run(3, "a.1", "r1"), rested(program="p")],
    "program that was about to begin on a node that was killed": [
        record(0, "run", "run", wall=1000.0),
        PROGRAM,
        ACCEPTED,
        record(3, "run", "exited", service="node1", code=-9, expected="killed", text=""),
        rested(program="p", node="node1", reason="node-lost", ended=1003),
    ],
    "program that was killed before it could say anything": [PROGRAM, ACCEPTED, rested(program="p", reason="signal")],
    "detached actor": [*DETACHED, submit(50, "a.2", "find", whole="d"), value(51, "a.2", None)],
    "job": [JOB, *run(5.1, "a.3", "r1", pool="q", updates=[1, 2, 3]), JOB_VALUE],
    "group": [GROUP, *run(2, "a.1", "r0", rank=0, size=2), *run(2, "a.1", "r1", NODE2, rank=1, size=2), GROUP_VALUE],
    "group that was lost": [
        GROUP,
        *run(2, "a.1", "r0", rank=0, size=2),
        error(3, "a.1", "GroupLost", "group-lost"),
    ],
    "head that was killed": [record(5, "run", "exited", service="head", code=-9, expected="killed", text="")],
    "head that was started while its disk was full": [
        record(4, "run", "fault", kind="fill-state", seconds=3.0),
        record(5, "run", "launched", service="head"),
        record(5.5, "run", "exited", service="head", code=1, expected=None, text=""),
    ],
    "node without its head": [record(5, "run", "exited", service="node1", code=0, expected=None, text="")],
}


@pytest.mark.parametrize("name", GOOD)
def test_checker_good_history_is_not_flagged(name: str) -> None:
    assert checker.check(sorted(GOOD[name], key=lambda one: one["t"])) == []

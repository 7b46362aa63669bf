"""Reads what every process wrote and says what must not have happened. Pure: records in, violations out.

* CK-1 `outcome`: each operation of a client that came to its end has exactly one outcome, and in time.
* CK-2 `value`: a value is the one that the arguments give, made by a run that is on record.
* CK-3 `error`: what is not a value is a typed error of Paceline, or the user's own exception where one was to come.
* CK-4 `repeat`: a task runs at most once and `retries` times more, and never long after its value has arrived.
* CK-5 `actor-once`: a call of an actor runs at most once, and never if its outcome says that it has not run.
* CK-6 `actor-order`: calls of one caller to one actor begin in the order in which they were submitted.
* CK-7 `one-copy`: of an actor or a program there is never more than one copy at a time.
* CK-8 `lost`: a detached actor and a program that were accepted are not lost; the program runs to its end.
* CK-9 `update`: a job finds all updates that were accepted before it, in their order, and none comes during it.
* CK-10 `object`: an object has the bytes that were put, and its owner never loses it.
* CK-11 `group`: a call of a group that succeeded ran once in each member, in processes of their own; none ran twice.
* CK-12 `process`: no process ends but for a fault, none panics, none hangs.
* CK-13 `left`: nothing is left on any host.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from chaos.history import Record
from chaos.plan import CLIENT_LOST, HEAD_LOST, HEARTBEAT

# A node that nobody can reach goes on with what it was given for so long, and no longer.
STALE_RUN_TIME = HEAD_LOST + CLIENT_LOST + 4 * HEARTBEAT


@dataclass(frozen=True)
class Violation:
    """Something that must not happen. `about` names the operations, actors and programs that it is about."""

    rule: str
    text: str
    t: float
    about: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.rule} at {self.t:.3f}: {self.text}"


class History:
    """The records by what they are about."""

    def __init__(self, records: list[Record]) -> None:
        self.records = records
        self.by_event: dict[str, list[Record]] = defaultdict(list)
        for record in records:
            self.by_event[record["event"]].append(record)
        self.submits = {record["id"]: record for record in self.by_event["submit"]}
        self.outcomes = _grouped(self.by_event["outcome"], "id")
        self.begins = _grouped(self.by_event["begin"], "id")
        self.ends = {(record["id"], record["run"]): record for record in self.by_event["end"]}
        self.finished = {record["process"] for record in self.by_event["finished"]}

    def outcome(self, call: str) -> Record | None:
        found = self.outcomes.get(call)
        return found[0] if found else None


def _grouped(records: list[Record], name: str) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        found[record[name]].append(record)
    return found


def check(records: list[Record]) -> list[Violation]:
    """Returns all violations, by their time."""
    found = History(records)
    violations = [violation for rule in RULES for violation in rule(found)]
    return sorted(violations, key=lambda violation: violation.t)


def outcomes(found: History) -> Iterator[Violation]:
    """CK-1."""
    for call, all_outcomes in found.outcomes.items():
        if len(all_outcomes) > 1:
            text = f"{call} has {len(all_outcomes)} outcomes"
            yield Violation("outcome", text, all_outcomes[1]["t"], (call,))
    waiting = {record["id"] for record in found.by_event["pending"]}
    for record in found.by_event["pending"]:
        text = f"{record['id']} ({record['kind']}) has not ended in time: {record['why']}"
        yield Violation("outcome", text, record["t"], (record["id"],))
    for call, record in found.submits.items():
        if call not in found.outcomes and call not in waiting and record["process"] in found.finished:
            yield Violation("outcome", f"{call} ({record['kind']}) has no outcome", record["t"], (call,))
    for record in found.by_event["unrecovered"]:
        text = f"{record['activity']} of {record['client']} did not succeed, long after all faults were over"
        yield Violation("outcome", text, record["t"])


def values(found: History) -> Iterator[Violation]:
    """CK-2."""
    for call, record in found.submits.items():
        outcome = found.outcome(call)
        if outcome is None or not outcome["ok"]:
            continue
        if record["kind"] == "fail":
            yield Violation("value", f"{call} was to fail and has a value", outcome["t"], (call,))
        if "value" not in record:
            continue
        value = outcome["value"]
        got, run = (value["value"], value["run"]) if isinstance(value, dict) else (value, None)
        if got != record["value"]:
            text = f"{call} ({record['kind']}) is {got!r}, not {record['value']!r}"
            yield Violation("value", text, outcome["t"], (call,))
        if run is not None and (call, run) not in found.ends:
            yield Violation("value", f"{call} has the value of run {run}, which never ended", outcome["t"], (call,))


# How operations end in a program that was interrupted, or that ends.
INTERRUPTED = ("KeyboardInterrupt", "CancelledError", "NotConnected", "ClusterClosed")


def _interrupted(found: History, record: Record) -> bool:
    """Returns whether the process of an operation was interrupted at its terminal."""
    return any(one["process"] == record["process"] for one in found.by_event["interrupted"])


def errors(found: History) -> Iterator[Violation]:
    """CK-3."""
    for call, record in found.submits.items():
        outcome = found.outcome(call)
        if outcome is None or outcome["ok"] or (outcome["error"] in INTERRUPTED and _interrupted(found, record)):
            continue
        if record["kind"] == "fail" and outcome["error"] == "Expected":
            if outcome["arguments"] != [record["value"]]:
                yield Violation("error", f"{call} raised {outcome['text']}", outcome["t"], (call,))
        elif not outcome["code"]:
            text = f"{call} ({record['kind']}) has an error without a code: {outcome['text']}"
            yield Violation("error", text, outcome["t"], (call,))
    for record in found.by_event["crashed"]:
        yield Violation("error", f"{record['activity']} of {record['client']}: {record['text']}", record["t"])


def repeats(found: History) -> Iterator[Violation]:
    """CK-4."""
    for call, record in found.submits.items():
        if "retries" not in record:
            continue
        begins = found.begins.get(call, [])
        if len(begins) > record["retries"] + 1:
            text = f"{call} has run {len(begins)} times with retries={record['retries']}"
            yield Violation("repeat", text, begins[-1]["t"], (call,))
        outcome = found.outcome(call)
        for begin in begins:
            if outcome is not None and outcome["ok"] and begin["t"] > outcome["t"] + STALE_RUN_TIME:
                text = f"{call} began again {begin['t'] - outcome['t']:.1f} s after its value had arrived"
                yield Violation("repeat", text, begin["t"], (call,))


def actor_calls(found: History) -> Iterator[Violation]:
    """CK-5 and CK-6."""
    last: dict[tuple[str, str], Record] = {}
    for begin in found.by_event["begin"]:
        if "caller" not in begin:
            continue
        call, caller = begin["id"], (begin["caller"], begin["whole"])
        before = last.get(caller)
        if before is not None and before["id"] != call and before["sequence"] > begin["sequence"]:
            text = f"call {begin['sequence']} of {caller[0]} to {caller[1]} ran after call {before['sequence']}"
            yield Violation("actor-order", text, begin["t"], (call, before["id"]))
        last[caller] = begin
    for call, begins in found.begins.items():
        if "caller" not in begins[0]:
            continue
        if len(begins) > 1:
            text = f"{call}, a call of {begins[0]['whole']}, has run {len(begins)} times"
            yield Violation("actor-once", text, begins[1]["t"], (call, begins[0]["whole"]))
        outcome = found.outcome(call)
        if outcome is None or outcome["ok"]:
            continue
        if outcome["code"] == "actor-unavailable" or (outcome["code"] == "actor-died" and not outcome["ran"]):
            text = (
                f"{call}, a call of {begins[0]['whole']}, has run, and its outcome says it has not: {outcome['text']}"
            )
            yield Violation("actor-once", text, begins[0]["t"], (call, begins[0]["whole"]))
    for call, record in found.submits.items():
        outcome = found.outcome(call)
        if record["kind"] == "call" and outcome is not None and outcome["ok"]:
            run, copy, count = outcome["value"]["run"], outcome["value"]["copy"], outcome["value"]["value"]
            made = [one for one in found.begins.get(call, ()) if one["run"] == run]
            if not made or (call, run) not in found.ends or (made[0]["copy"], made[0]["count"]) != (copy, count):
                text = f"{call} has a value of copy {copy} that no run of it has made"
                yield Violation("actor-once", text, outcome["t"], (call,))


def copies(found: History) -> Iterator[Violation]:
    """CK-7: the time of a copy is from its first record to its last."""
    spans: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in found.records:
        if "copy" in record and "whole" in record:
            spans[record["whole"]][record["copy"]].append(record)
    for whole, by_copy in spans.items():
        ordered = sorted(by_copy.items(), key=lambda item: item[1][0]["t"])
        one, before = ordered[0]
        for other, after in ordered[1:]:
            overlap = before[-1]["t"] - after[0]["t"]
            if overlap > 0:
                text = (
                    f"{whole} lived twice for {min(overlap, after[-1]['t'] - after[0]['t']):.2f} s: copy {one} in "
                    f"{before[0]['process']} until {before[-1]['t']:.3f}, copy {other} in {after[0]['process']}"
                )
                yield Violation("one-copy", text, after[0]["t"], (whole,))
            if after[-1]["t"] > before[-1]["t"]:
                one, before = other, after


def lost_work(found: History) -> Iterator[Violation]:
    """CK-8."""
    rested = found.by_event["rested"]
    status = (rested[-1]["status"] if rested else None) or {}
    # The head forgets programs that ended long ago, so some were seen to have ended only during the run.
    seen = [record["ended"] for record in found.by_event["programs"]]
    programs = {one["program"]: one for ended in (*seen, status.get("programs", ())) for one in ended}
    created: dict[str, float] = {}
    for call, record in found.submits.items():
        outcome = found.outcome(call)
        if outcome is None:
            continue
        if record["kind"] == "create" and record.get("detached") and outcome["ok"]:
            created.setdefault(record["whole"], outcome["t"])
    for call, record in found.submits.items():
        outcome = found.outcome(call)
        if record["kind"] == "find" and "whole" in record and outcome is not None:
            known = record["t"] > created.get(record["whole"], record["t"])
            if known and outcome.get("code") == "no-such-actor":
                text = f"detached actor {record['whole']} is not to be found: {outcome['text']}"
                yield Violation("lost", text, outcome["t"], (call, record["whole"]))
        if record["kind"] != "program":
            continue
        begins = found.begins.get(call, [])
        if len(begins) > record["restarts"] + 1:
            text = f"program {call} has run {len(begins)} times with restarts={record['restarts']}"
            yield Violation("lost", text, begins[-1]["t"], (call,))
        outcome = found.outcome(call)
        if outcome is None or not outcome["ok"]:
            continue
        state = programs.get(record["program"], {"state": "unknown to the head"})
        if not begins and not _may_have_begun(found, record, state):
            text = f"program {call} was accepted and has never run: {state}"
            yield Violation("lost", text, outcome["t"], (call,))
        elif record["restarts"] and begins and not any((call, begin["run"]) in found.ends for begin in begins):
            text = f"program {call} was accepted and never ran to its end: {state}"
            yield Violation("lost", text, outcome["t"], (call,))


def _may_have_begun(found: History, record: Record, state: Record) -> bool:
    """Returns whether a program that may run once was killed, or has ended with its node, maybe before it could begin.

    If its node went on and does not know of it, it has never been there, and had to start elsewhere.
    """
    run = found.by_event["run"]
    if not record["restarts"] and state.get("reason") == "signal":
        return True
    if record["restarts"] or state.get("reason") != "node-lost" or not run or "ended" not in state:
        return False
    ended = state["ended"] - run[-1]["wall"] + run[-1]["t"]
    if ended - record["t"] > HEAD_LOST - CLOCK_STEP:
        # It was silent for so long that nobody can know, counted from what was last heard of it.
        return True
    return any(
        one["service"] == state["node"] and record["t"] < one["t"] < ended + CLOCK_STEP
        for one in found.by_event["exited"]
    )


# A daemon that ends by a defect of its own.
CRASH_EXIT_CODE = 70

# The head tells times in whole seconds.
CLOCK_STEP = 1.5


def updates(found: History) -> Iterator[Violation]:
    """CK-9."""
    accepted: dict[str, list[Record]] = defaultdict(list)
    for record in found.by_event["submit"]:
        outcome = found.outcome(record["id"])
        if record["kind"] == "update" and (outcome is None or outcome["ok"] or outcome["code"] != "history-full"):
            accepted[record["pool"]].append(record)
    for begin in found.by_event["begin"]:
        submit = found.submits.get(begin["id"])
        if "updates" not in begin or submit is None:
            continue
        got = begin["updates"]
        if got != list(range(1, len(got) + 1)):
            text = f"{begin['id']} found updates {got} of pool {begin['pool']}"
            yield Violation("update", text, begin["t"], (begin["id"],))
        elif len(got) < submit["updates"]:
            text = f"{begin['id']} was submitted after {submit['updates']} updates and found {len(got)}"
            yield Violation("update", text, begin["t"], (begin["id"],))
        end = found.ends.get((begin["id"], begin["run"]))
        if end is not None and end.get("changed"):
            yield Violation("update", f"{begin['id']} was updated while it ran", end["t"], (begin["id"],))


def objects(found: History) -> Iterator[Violation]:
    """CK-10: what a task finds is a value like others (CK-2); what the owner has put, it gets."""
    for call, record in found.submits.items():
        outcome = found.outcome(call)
        if record["kind"] != "get" or not record.get("own") or outcome is None or outcome["ok"]:
            continue
        if outcome["error"] not in INTERRUPTED:
            text = f"{call}: its owner cannot get an object: {outcome['text']}"
            yield Violation("object", text, outcome["t"], (call,))


def groups(found: History) -> Iterator[Violation]:
    """CK-11."""
    for call, record in found.submits.items():
        if record["kind"] != "group":
            continue
        begins = found.begins.get(call, [])
        ranks = [begin["rank"] for begin in begins]
        if len(set(ranks)) != len(ranks):
            yield Violation("group", f"members of {call} ran again: ranks {ranks}", begins[-1]["t"], (call,))
        outcome = found.outcome(call)
        if outcome is not None and outcome["ok"]:
            if sorted(ranks) != list(range(record["size"])):
                yield Violation("group", f"{call} succeeded and ran in ranks {ranks}", outcome["t"], (call,))
            if len({begin["process"] for begin in begins}) != len(begins):
                yield Violation("group", f"members of {call} shared a process", outcome["t"], (call,))


# How a client ends that has written down what has not come to an end (CK-1).
PENDING_CODE = 3


def _had_no_room_to_start(found: History, exited: Record) -> bool:
    """Returns whether a head was started while its disk was full: it could not write down its epoch."""
    started = [one["t"] for one in found.by_event["launched"] if one["service"] == exited["service"]]
    last = max((t for t in started if t < exited["t"]), default=0.0)
    full = [one for one in found.by_event["fault"] if one["kind"] == "fill-state"]
    return exited["service"] == "head" and any(one["t"] < last < one["t"] + one["seconds"] for one in full)


def processes(found: History) -> Iterator[Violation]:
    """CK-12. Nodes may leave by themselves: without their head they have to."""
    for record in found.by_event["exited"]:
        code, service = record["code"], record["service"]
        crashed = code < 0 or code in (CRASH_EXIT_CODE, 101, 128 + 6, 128 + 11)
        if record["expected"] is None and (crashed or not service.startswith("node")):
            if _had_no_room_to_start(found, record):
                continue
            if code == PENDING_CODE and found.by_event["pending"]:
                continue
            if code == 0 and any(one.get("client") == service for one in found.by_event["closed"]):
                continue
            text = f"{service} ended with code {code} by itself: {record['text']}"
            yield Violation("process", text, record["t"], (service,))
    for record in found.by_event["panicked"]:
        yield Violation("process", f"{record['where']}: {record['text']}", record["t"])
    for record in found.by_event["hung"]:
        yield Violation("process", f"{record['service']} did not end", record["t"])
    for record in found.by_event["absent"]:
        text = f"only {record['nodes']} were up long after the last fault; status: {record['status']}"
        yield Violation("process", text, record["t"])


def leftovers(found: History) -> Iterator[Violation]:
    """CK-13."""
    for record in found.by_event["left"]:
        yield Violation("left", record["text"], record["t"])
    for record in found.by_event["stopped"]:
        if record["code"] != 0:
            yield Violation("left", f"paceline stop failed: {record['text']}", record["t"])


RULES: list[Callable[[History], Iterator[Violation]]] = [
    outcomes,
    values,
    errors,
    repeats,
    actor_calls,
    copies,
    lost_work,
    updates,
    objects,
    groups,
    processes,
    leftovers,
]

"""What a run has found, for people: violations with the history around them, and how much was done."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from chaos import history
from chaos.checker import History, Violation
from chaos.history import Record

# How much of the history around a violation is shown.
CONTEXT_TIME = 15.0
CONTEXT_EVENTS = ("fault", "mended", "exited", "launched", "quiet")
# How many records of those that a violation is about are shown before and after it.
CONTEXT_RECORDS = 8


def context(records: list[Record], violation: Violation) -> list[Record]:
    """Returns what happened to those that a violation is about, and the faults around it."""
    around: list[Record] = []
    before: list[Record] = []
    after: list[Record] = []
    for record in records:
        if record["event"] in CONTEXT_EVENTS:
            if abs(record["t"] - violation.t) < CONTEXT_TIME:
                around.append(record)
        elif record["event"] == "born" and record["whole"] in violation.about:
            around.append(record)
        elif record["event"] != "alive" and {record.get("id"), record.get("whole")} & set(violation.about):
            (before if record["t"] <= violation.t else after).append(record)
    shown = around + before[-CONTEXT_RECORDS:] + after[:CONTEXT_RECORDS]
    return sorted(shown, key=lambda record: record["t"])


def load(directory: Path) -> list[Record]:
    """Returns the records that a run has saved."""
    return history.read(sorted((directory / "history").iterdir()))


def summary(records: list[Record]) -> str:
    """Returns how much was done, by kind, and how it ended."""
    found = History(records)
    kinds: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for call, record in found.submits.items():
        outcome = found.outcome(call)
        word = "open" if outcome is None else "value" if outcome["ok"] else outcome["code"] or outcome["error"]
        kinds[record["kind"]][word] += 1
    lines = []
    for kind, words in sorted(kinds.items()):
        counted = ", ".join(f"{word} {count}" for word, count in sorted(words.items(), key=lambda item: -item[1]))
        lines.append(f"  {kind:8} {sum(words.values()):6}: {counted}")
    copies_seen = {(record["whole"], record["copy"]) for record in found.by_event["born"]}
    wholes = {whole for whole, _ in copies_seen}
    lines.append(
        f"  {len(found.by_event['fault'])} faults, {len(copies_seen)} copies of {len(wholes)} things that exist once"
    )
    return "\n".join(lines)


def report(seed: int, minutes: float, records: list[Record], violations: list[Violation]) -> str:
    """Returns what was found, each with what happened around it."""
    parts = [f"{len(violations)} violations"]
    for rule, count in Counter(one.rule for one in violations).most_common():
        parts.append(f"  {count:5} {rule}")
    for one in violations[:20]:
        parts.append(f"\n{one}")
        parts += [f"    {_line(record)}" for record in context(records, one)]
    parts.append(f"\nmake chaos SEED={seed} MINUTES={minutes:g} makes the same plan again")
    return "\n".join(parts)


def _line(record: Record) -> str:
    rest = {name: value for name, value in record.items() if name not in ("t", "event") and value not in (None, "")}
    words = (f"{name}={str(value)[:90]}".replace("\n", " ") for name, value in rest.items())
    return f"{record['t']:.3f} {record['event']} {' '.join(words)}"

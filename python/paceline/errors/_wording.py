"""How errors name tasks, amounts and the ends of processes."""

from __future__ import annotations

# Signals that nobody dies of.
STOPPING = ("SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU")


def megabytes(size: int) -> str:
    return f"{size / 1e6:.3g}" if size < 1e9 else f"{size / 1e6:.0f}"


def task_name(task: int, function: str) -> str:
    return f"task {task} ({function})" if function else f"task {task}"


def after_attempts(attempts: int) -> str:
    return f", after {attempts} attempts" if attempts > 1 else ""


def amount(count: int) -> str:
    left, units = float(count), ["GiB", "MiB", "KiB"]
    while left >= 1024 and units:
        left, unit = left / 1024, units.pop()
    return f"{count} bytes" if count < 1024 else f"{left:.4g} {unit}"


def how_it_ended(signal: int | None, exit_code: int | None) -> str:
    if signal is not None:
        name = signal_name(signal)
        if name in STOPPING:
            return f"stopped by {name} (signal {signal}), and ended because it stood still for too long"
        return f"killed by {name} (signal {signal})" if name else f"killed by signal {signal}"
    if exit_code is not None:
        return f"ended with exit code {exit_code}"
    return "lost for an unknown reason"


def how_it_was_lost(node_lost: bool, slot: int, node: str, ending: str, out_of_memory: str) -> str:
    """What became of something that lived in a slot."""
    if node_lost:
        return f"was lost with its node {node or 'unknown'}"
    return f"died with slot {slot}{f' on {node}' if node else ''}: {ending}{memory_ran_out(out_of_memory)}"


def signal_name(number: int) -> str:
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


def memory_ran_out(out_of_memory: str) -> str:
    return {"yes": ", out of memory", "likely": ", likely out of memory"}.get(out_of_memory, "")

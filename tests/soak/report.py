"""What a run prints: its table, and what it was asked to do that came to nothing."""

from __future__ import annotations

import argparse
import os
import platform
from collections import Counter

from tests.databases.mysql_binaries import FAMILIES
from tests.soak.checking import Violation
from tests.soak.counting import Counts
from tests.soak.history import History
from tests.soak.outages import CUTS

_SHOWN_ALWAYS = ("lost", "held twice", "torn", "late mark kept", "started twice")
"""The rules that have a row of their own, also where they hold."""
_SHOWN_OF_SERVERS = ("slow return", "deadlock", "idle in transaction")


def _shown_always(asked: argparse.Namespace) -> tuple[str, ...]:
    return _SHOWN_ALWAYS if asked.database == "sqlite" else (*_SHOWN_ALWAYS, *_SHOWN_OF_SERVERS)


def unharmed(asked: argparse.Namespace, counts: Counts) -> list[str]:
    """What was done and hit nothing: such a run has shown nothing."""
    found = [
        f"{wanted} of --{word}s were asked, and {counts.faults[word]} came"
        for word, wanted in (("kill", asked.kills), ("freeze", asked.freezes), ("stop", asked.stops))
        if counts.faults[word] < wanted
    ]
    outages = counts.outages
    came = {
        "restart": outages["restart"] + outages["crash"],
        "termination": outages["termination"],
        "cut": sum(outages[cut] for cut in CUTS),
    }
    found += [
        f"{getattr(asked, f'{word}s')} of --{word}s were asked, and {came[word]} came"
        for word in came
        if came[word] < getattr(asked, f"{word}s")
    ]
    if any(came.values()) and not counts.connections_met:
        found.append("nothing that was done to the database met a connection")
    if asked.kills and not counts.repeats["kill"] and not asked.unaimed:
        found.append("no kill met a job that was held")
    hit = counts.late_ends if asked.processes > 1 else counts.repeats["freeze"] + counts.late_renewals
    if asked.freezes and not asked.control and not hit:
        found.append("no frozen job was claimed again before it woke")
    if asked.poisons and counts.repeats["poison"] < asked.poisons:
        found.append("a job that kills its process was never claimed again")
    return found


def _database_rows(asked: argparse.Namespace, counts: Counts) -> list[tuple[str, object]]:
    if asked.database == "sqlite":
        return []
    outages = counts.outages
    cuts = ", ".join(f"{outages[cut]} {cut}" for cut in CUTS if outages[cut])
    rows: list[tuple[str, object]] = [
        ("server crashes, kill -9 of it", f"{outages['restart']}, {outages['crash']}"),
        ("sessions ended by it", outages["termination"]),
        ("cuts", cuts or "none"),
        ("connections they met", counts.connections_met),
        ("server's return to first claim", _times(counts.returns)),
        ("…to the first of each process", _times(counts.returns_each)),
        ("most log lines, process and outage", counts.most_lines),
    ]
    return rows


def given_up(history: History) -> str:
    """What a server gave up for another's sake: errors 1213, of a deadlock, and 1205, of a wait that was long."""
    tried = ", ".join(f"{count} of {number}" for number, count in sorted(history.given_up.items()))
    return f"{history.broken} deadlocks in its log; tried again: {tried or 'none'}"


def _times(seconds: list[float]) -> str:
    if not seconds:
        return "none"
    return f"median {seconds[len(seconds) // 2]:.2f} s, most {seconds[-1]:.2f} s, of {len(seconds)}"


def table(
    asked: argparse.Namespace,
    store: str,
    history: History,
    counts: Counts,
    violations: list[Violation],
    took: float,
) -> str:
    """What is printed of a run."""
    rules = Counter(violation.rule for violation in violations)
    of = ", ".join
    python, system = platform.python_version(), f"{platform.system()} {platform.machine()}"
    control = f", {asked.control}" if asked.control else ""
    rows: list[tuple[str, object]] = [
        ("store", f"SQLStore on {store}{control}"),
        ("ran on", f"Python {python}, {system}, {os.cpu_count()} cores"),
        ("processes, hold, seed", f"{asked.processes}, {asked.hold:g} s, {asked.seed}"),
        ("took", f"{took:.0f} s"),
        ("pushes acknowledged", counts.acked),
        ("pushes rolled back", counts.rolled_back),
        ("pushes without an answer", f"{counts.unanswered}, {counts.unanswered_kept} of them kept"),
        ("pushes not sent", counts.refused),
        ("claims, runs", f"{counts.claims}, {counts.runs}"),
        ("ended done, failed", f"{counts.done}, {counts.failed}"),
        ("kill -9", counts.faults["kill"]),
        ("kills by a job of its own", counts.faults["poison"]),
        ("freezes past the hold", counts.faults["freeze"]),
        ("stops, the last included", counts.faults["stop"]),
        ("stalls of the loop", counts.faults["stall"]),
        *_database_rows(asked, counts),
        *([("given up by the server", given_up(history))] if asked.database in FAMILIES else []),
        ("repeats by cause", of(f"{n} {what}" for what, n in sorted(counts.repeats.items())) or "none"),
        ("late ends ignored", counts.late_ends),
        ("late renewals refused", counts.late_renewals),
        *((rule, rules.pop(rule, 0)) for rule in _shown_always(asked)),
        ("other violations", rules.total()),
    ]
    width = max(len(label) for label, _ in rows)
    return "\n".join(f"{label:<{width}}  {value}" for label, value in rows)

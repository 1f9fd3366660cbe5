"""Runs the benchmarks, one contestant after another, round by round, and prints what was seen.

    python -m tests.benchmarks [drain push start claim blocking idle …] [--rounds 5] [--folder FOLDER]

Trust the ratios, which are taken within each round, rather than the rates: other work on the machine moves these.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import __version__ as sqlalchemy_version

import fastjobs

Found = dict[str, Any]


@dataclass(frozen=True)
class Row:
    name: str
    count: int
    title: str


@dataclass(frozen=True)
class Table:
    title: str
    rows: tuple[Row, ...]
    columns: tuple[tuple[str, str, str], ...]
    """What is found, its column's title, and how it's written."""
    ratios: tuple[tuple[str, str, str, str], ...] = ()
    """Of which figure, of whom, to whom, and what that says."""
    differences: tuple[tuple[str, str, str, str], ...] = ()
    rounds: int | None = None


RATE = ("rate", "a second", ",.0f")
CPU = ("cpu_us", "CPU µs each", ".1f")

TABLES = {
    "drain": Table(
        "A loaded queue is emptied",
        (
            Row(
                "drain_raw", 20_000, "raw sqlite3, claim 100 and delete 100, one thread, fastjobs' own table"
            ),
            Row("drain_fastjobs", 20_000, "fastjobs, q.run(), 8 workers"),
            Row("drain_huey", 3_000, "huey, one thread worker"),
        ),
        (RATE, CPU, ("grown_mib", "MiB grown", ".1f")),
        (
            ("rate", "drain_fastjobs", "drain_raw", "of raw's rate"),
            ("rate", "drain_fastjobs", "drain_huey", "times huey's rate"),
        ),
        (("cpu_us", "drain_fastjobs", "drain_raw", "µs of CPU a job, less raw's"),),
    ),
    "push": Table(
        "Sixteen push at once, one job each time",
        (
            Row("push_threads", 1_600, "raw, sixteen threads that commit one by one"),
            Row("push_group", 8_000, "raw, one thread that commits what has gathered"),
            Row("push_fastjobs", 8_000, "fastjobs, sixteen tasks"),
        ),
        (RATE, CPU),
        (
            ("rate", "push_fastjobs", "push_threads", "times the threads' rate"),
            ("rate", "push_fastjobs", "push_group", "of the bare group commit's rate"),
        ),
    ),
    "start": Table(
        "From a push to its handler's start, idle queue",
        (
            Row("start_commit", 500, "the commit of one insert, in a thread"),
            Row("start_fastjobs", 500, "fastjobs"),
        ),
        (("p50_ms", "median ms", ".2f"), ("p99_ms", "p99 ms", ".2f")),
        (),
        (
            ("p50_ms", "start_fastjobs", "start_commit", "ms above the commit, median"),
            ("p99_ms", "start_fastjobs", "start_commit", "ms above the commit, p99"),
        ),
    ),
    "claim": Table(
        "A claim of 10, from the jobs alone and among 1,000,000 waiting, 100,000 failed, 100,000 not yet due",
        (Row("claim_alone", 300, "the jobs alone"), Row("claim_crowded", 300, "among the crowd")),
        (("p50_ms", "median ms", ".3f"), ("p99_ms", "p99 ms", ".2f")),
        (("p50_ms", "claim_crowded", "claim_alone", "times the claim from the jobs alone"),),
    ),
    "blocking": Table(
        "`def` handlers that block for 10 ms each, eight at a time",
        (
            Row("blocking_threads", 2_000, "raw, eight threads that sleep as often"),
            Row("blocking_fastjobs", 2_000, "fastjobs, 8 workers"),
        ),
        (RATE, ("ideal", "of the ideal", ".3f"), CPU),
        (("rate", "blocking_fastjobs", "blocking_threads", "of the bare threads' rate"),),
    ),
    "idle": Table(
        "An idle queue, poll of 1 s",
        (Row("idle", 60, "fastjobs, for 60 s"),),
        (("core", "of a core", ".4f"), ("wrote", "wrote", "d")),
        rounds=1,
    ),
}


def run(row: Row, folder: Path) -> Found | None:
    """One run in a process of its own; None where the contestant isn't installed."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.contestants", row.name, str(row.count), place],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        if "ModuleNotFoundError" in done.stderr:
            return None
        raise SystemExit(f"{row.name} failed:\n{done.stderr}")
    seen: Found = json.loads(done.stdout.splitlines()[-1])
    if not seen.get("once", True):
        raise SystemExit(f"{row.name} did not run each job exactly once")
    return seen


def spread(values: Sequence[float], form: str) -> str:
    """Least, median, most; one value alone."""
    if len(values) == 1:
        return format(values[0], form)
    return " / ".join(format(each, form) for each in (min(values), statistics.median(values), max(values)))


def show(table: Table, seen: dict[str, list[Found]]) -> None:
    """Prints the table, and its ratios."""
    print(f"\n| {table.title} | n | {' | '.join(title for _, title, _ in table.columns)} |")
    print("|---" * (len(table.columns) + 2) + "|")
    for row in table.rows:
        found = seen[row.name]
        cells = [
            spread([each[key] for each in found], form) if found and key in found[0] else "–"
            for key, _, form in table.columns
        ]
        print(
            f"| {row.title}{'' if found else ' (not run: not installed)'} | {row.count:,} | {' | '.join(cells)} |"
        )
    print()
    for key, one, other, words in table.ratios:
        pairs = [a[key] / b[key] for a, b in zip(seen[one], seen[other], strict=False)]
        if pairs:
            print(f"fastjobs: {spread(pairs, '.2f')} {words}")
    for key, one, other, words in table.differences:
        pairs = [a[key] - b[key] for a, b in zip(seen[one], seen[other], strict=False)]
        if pairs:
            print(f"fastjobs: {spread(pairs, '.2f')} {words}")


def main() -> None:
    options = argparse.ArgumentParser(
        prog="python -m tests.benchmarks", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    options.add_argument("tables", nargs="*", choices=[*TABLES, []], help="which; all by default")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--folder", type=Path, default=None, help="where the databases go: a real disk")
    chosen = options.parse_args()
    print(
        f"fastjobs {fastjobs.__version__}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version},"
        f" SQLAlchemy {sqlalchemy_version}, {platform.machine()}, {os.cpu_count()} cores,"
        f" load {os.getloadavg()[0]:.1f} at the start; synchronous=FULL; least / median / most of the rounds"
    )
    with tempfile.TemporaryDirectory(dir=chosen.folder or Path.cwd(), prefix=".bench-") as made:
        for name in chosen.tables or TABLES:
            table = TABLES[name]
            seen: dict[str, list[Found]] = {row.name: [] for row in table.rows}
            rounds = table.rounds or chosen.rounds
            for number in range(rounds):
                for row in table.rows:
                    found = run(row, Path(made))
                    if found is not None:
                        seen[row.name].append(found)
                print(f"{name}: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
            show(table, seen)


if __name__ == "__main__":
    main()

"""Empties loaded queues, one contestant after another, round by round, and prints what was seen.

python -m tests.benchmarks [--rounds 5] [--jobs 20000] [--huey-jobs 3000] [--folder FOLDER]
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
from pathlib import Path
from typing import Any

from sqlalchemy import __version__ as sqlalchemy_version

import fastjobs


def run(name: str, jobs: int, folder: Path) -> dict[str, Any] | None:
    """One run in a process of its own; None where the contestant isn't installed."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.contestants", name, str(jobs), place],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        if "ModuleNotFoundError" in done.stderr:
            return None
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if not found["once"]:
        raise SystemExit(f"{name} did not run each job exactly once")
    found["rate"] = jobs / found["seconds"]
    found["cpu_us"] = found["cpu"] / jobs * 1e6
    return found


def spread(values: Sequence[float], form: str) -> str:
    """Least, median, most."""
    return " / ".join(format(each, form) for each in (min(values), statistics.median(values), max(values)))


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--jobs", type=int, default=20_000)
    options.add_argument("--huey-jobs", type=int, default=3_000)
    options.add_argument("--folder", type=Path, default=None, help="where the databases go: a real disk")
    chosen = options.parse_args()
    jobs = {"raw": chosen.jobs, "fastjobs": chosen.jobs, "huey": chosen.huey_jobs}
    with tempfile.TemporaryDirectory(dir=chosen.folder or Path.cwd(), prefix=".bench-") as made:
        rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in jobs}
        for number in range(chosen.rounds):
            for name, count in jobs.items():
                found = run(name, count, Path(made))
                if found is not None:
                    rounds[name].append(found)
            print(f"round {number + 1} of {chosen.rounds}", file=sys.stderr, flush=True)
    print(
        f"fastjobs {fastjobs.__version__}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version},"
        f" SQLAlchemy {sqlalchemy_version}, {platform.machine()}, {os.cpu_count()} cores,"
        f" load {os.getloadavg()[0]:.1f}; synchronous=FULL, a handler that counts, each job run exactly once;"
        f" least / median / most of {chosen.rounds} rounds, one contestant after another in each"
    )
    print()
    print("| a loaded queue is emptied | jobs | jobs a second | CPU µs a job | peak MiB |")
    print("|---|---|---|---|---|")
    titles = {
        "raw": "raw sqlite3, claim 100 and delete 100, one thread, fastjobs' own table",
        "fastjobs": "fastjobs, q.run(), 8 workers",
        "huey": "huey, one thread worker",
    }
    for name, title in titles.items():
        seen = rounds[name]
        if not seen:
            print(f"| {title} | – | not run: not installed | – | – |")
            continue
        print(
            f"| {title} | {jobs[name]:,} | {spread([each['rate'] for each in seen], ',.0f')}"
            f" | {spread([each['cpu_us'] for each in seen], '.1f')}"
            f" | {statistics.median(each['rss'] for each in seen) / 1024:.0f} |"
        )
    print()
    for other in ("raw", "huey"):
        pairs = [a["rate"] / b["rate"] for a, b in zip(rounds["fastjobs"], rounds[other], strict=False)]
        if pairs:
            print(f"fastjobs to {other}, round by round: {spread(pairs, '.2f')}")
    own = [a["cpu_us"] - b["cpu_us"] for a, b in zip(rounds["fastjobs"], rounds["raw"], strict=False)]
    print(f"CPU a job less raw's: {spread(own, '.1f')} µs")


if __name__ == "__main__":
    main()

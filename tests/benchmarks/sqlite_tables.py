"""What is measured on SQLite, and where."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks import limits_tables
from tests.benchmarks.frame import CPU, RATE, Ground, Ratio, Row, Table


def _row(name: str, count: int, title: str, *, optional: bool = False) -> Row:
    return Row(name, count, title, ("tests.benchmarks.contestants", name), optional=optional)


TABLES = {
    "drain": Table(
        "A loaded queue is emptied",
        (
            _row(
                "drain_raw", 20_000, "raw sqlite3, claim 100 and delete 100, one thread, fastjobs' own table"
            ),
            _row("drain_fastjobs", 20_000, "fastjobs, q.run(), 8 workers"),
            _row("drain_huey", 3_000, "huey, one thread worker", optional=True),
        ),
        (RATE, CPU, ("grown_mib", "MiB grown", ".1f")),
        (
            Ratio("rate", "drain_fastjobs", "drain_raw", "of raw's rate"),
            Ratio("rate", "drain_fastjobs", "drain_huey", "times huey's rate"),
            Ratio("cpu_us", "drain_fastjobs", "drain_raw", "µs of CPU a job, less raw's", less=True),
        ),
    ),
    "push": Table(
        "Sixteen push at once, one job each time",
        (
            _row("push_threads", 1_600, "raw, sixteen threads that commit one by one"),
            _row("push_group", 8_000, "raw, one thread that commits what has gathered"),
            _row("push_fastjobs", 8_000, "fastjobs, sixteen tasks"),
        ),
        (RATE, CPU),
        (
            Ratio("rate", "push_fastjobs", "push_threads", "times the threads' rate"),
            Ratio("rate", "push_fastjobs", "push_group", "of the bare group commit's rate"),
        ),
    ),
    "start": Table(
        "From a push to its handler's start, idle queue",
        (
            _row("start_commit", 500, "the commit of one insert, in a thread"),
            _row("start_fastjobs", 500, "fastjobs"),
        ),
        (("p50_ms", "median ms", ".2f"), ("p99_ms", "p99 ms", ".2f")),
        (
            Ratio("p50_ms", "start_fastjobs", "start_commit", "ms above the commit, median", less=True),
            Ratio("p99_ms", "start_fastjobs", "start_commit", "ms above the commit, p99", less=True),
        ),
    ),
    "claim": Table(
        "A claim of 10, from the jobs alone and among 1,000,000 waiting, 100,000 failed, 100,000 not yet due",
        (_row("claim_alone", 300, "the jobs alone"), _row("claim_crowded", 300, "among the crowd")),
        (("p50_ms", "median ms", ".3f"), ("p99_ms", "p99 ms", ".2f")),
        (Ratio("p50_ms", "claim_crowded", "claim_alone", "times the claim from the jobs alone"),),
    ),
    "blocking": Table(
        "`def` handlers that block for 10 ms each, eight at a time",
        (
            _row("blocking_threads", 2_000, "raw, eight threads that sleep as often"),
            _row("blocking_fastjobs", 2_000, "fastjobs, 8 workers"),
        ),
        (RATE, ("ideal", "of the ideal", ".3f"), CPU),
        (Ratio("rate", "blocking_fastjobs", "blocking_threads", "of the bare threads' rate"),),
    ),
    "idle": Table(
        "An idle queue, poll of 1 s",
        (_row("idle", 60, "fastjobs, for 60 s"),),
        (("core", "of a core", ".4f"), ("wrote", "wrote", "d")),
        rounds=1,
    ),
    **limits_tables.TABLES,
}


@contextmanager
def ground(folder: Path) -> Generator[Ground]:
    """A folder on a disk, with a new one in it for each run."""

    @contextmanager
    def place() -> Generator[str]:
        with tempfile.TemporaryDirectory(dir=made) as each:
            yield each

    with tempfile.TemporaryDirectory(dir=folder, prefix=".bench-") as made:
        yield Ground(f"SQLite {sqlite3.sqlite_version}, synchronous=FULL", place)

"""What is measured on MariaDB and MySQL: the rows, and the ratios that are told."""

from __future__ import annotations

from tests.benchmarks import limits_tables
from tests.benchmarks.frame import CPU, RATE, Ratio, Row, Table
from tests.benchmarks.mysql.server import ground

__all__ = ["TABLES", "ground"]

_HERE = "tests.benchmarks.mysql"
SERVER = ("server_us", "server's CPU µs each", ".1f")
OTHERS = ("others", "cores others used", ".2f")
_GROWTH = (
    ("before_ms", "p95 ms before", ".2f"),
    ("after_ms", "p95 ms after", ".2f"),
    ("grown", "times", ".2f"),
)


def _raw(name: str, count: int, title: str) -> Row:
    return Row(f"raw_{name}", count, f"raw asyncmy, {title}", (f"{_HERE}.raw", name))


def _ours(name: str, count: int, title: str) -> Row:
    return Row(f"fastjobs_{name}", count, f"fastjobs, {title}", (f"{_HERE}.ours", name))


def _far(name: str, count: int, title: str) -> Row:
    return Row(f"far_{name}", count, f"fastjobs, from another process, {title}", (f"{_HERE}.far", name))


TABLES = {
    "drain": Table(
        "A loaded queue is emptied by one process",
        (
            _raw("drain", 20_000, "claim 100 and delete 100, one connection, fastjobs' own table"),
            _ours("drain", 20_000, "q.run(), 8 workers"),
        ),
        (RATE, CPU, SERVER, OTHERS),
        (Ratio("rate", "fastjobs_drain", "raw_drain", "of raw's rate"),),
    ),
    "push": Table(
        "Pushes, one after another",
        (_raw("push", 2_000, "INSERT, one connection"), _ours("push", 2_000, "push()")),
        (RATE, CPU, SERVER, OTHERS),
        (Ratio("rate", "fastjobs_push", "raw_push", "of raw's rate"),),
    ),
    "push-sixteen": Table(
        "Sixteen push at once, one job each time",
        (
            _raw("push_sixteen", 8_000, "sixteen tasks with a connection each, that insert one by one"),
            _ours("push_sixteen", 8_000, "sixteen tasks"),
        ),
        (RATE, CPU, SERVER, OTHERS),
        (Ratio("rate", "fastjobs_push_sixteen", "raw_push_sixteen", "times the rate of raw's connections"),),
    ),
    "push-many": Table(
        "A thousand in each push",
        (
            _raw("push_many", 50_000, "INSERT of 1,000 rows"),
            _ours("push_many", 50_000, "push_many() of 1,000"),
        ),
        (RATE, CPU, SERVER, OTHERS),
        (Ratio("rate", "fastjobs_push_many", "raw_push_many", "of raw's rate"),),
    ),
    "start": Table(
        "From a push to its handler's start, idle queue",
        (
            _raw("start", 300, "an insert and then the claim of it, two connections"),
            _ours("start", 300, "in the process"),
            _far("often", 300, "a push each 20 ms"),
            _far("seldom", 30, "a push each 1.5 s"),
        ),
        (("p50_ms", "median ms", ".2f"), ("p95_ms", "p95 ms", ".2f"), ("p99_ms", "p99 ms", ".2f")),
        (Ratio("p50_ms", "fastjobs_start", "raw_start", "times raw's median, in the process"),),
    ),
    "open-transaction": Table(
        "A claim of 10 before and after 150,000 jobs are done, beside a transaction that was open all the while",
        (
            _raw("horizon", 150_000, "by hand"),
            _ours("horizon", 150_000, "the store's claim"),
        ),
        _GROWTH,
    ),
    "idle": Table(
        "An idle queue, poll of 1 s",
        (_ours("idle", 60, "for 60 s"),),
        (
            ("core", "of a core", ".4f"),
            ("server", "the server's", ".4f"),
            ("asked", "statements a second", ".1f"),
            ("wrote", "rows written", "d"),
        ),
        rounds=1,
    ),
    **limits_tables.TABLES,
    **limits_tables.ON_SERVERS,
}

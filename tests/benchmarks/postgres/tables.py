"""What is measured on Postgres: the rows, and the ratios that are told."""

from __future__ import annotations

from functools import partial

from tests.benchmarks import limits_tables
from tests.benchmarks.frame import CPU, RATE, Ratio, Row, Table
from tests.benchmarks.postgres.environments import python_of
from tests.benchmarks.postgres.server import ground

__all__ = ["TABLES", "ground"]

_HERE = "tests.benchmarks.postgres"
SERVER = ("server_us", "server's CPU µs each", ".1f")
OTHERS = ("others", "cores others used", ".2f")
TIMES = (("p50_ms", "median ms", ".2f"), ("p99_ms", "p99 ms", ".2f"))


def _raw(name: str, count: int, title: str) -> Row:
    return Row(f"raw_{name}", count, title, (f"{_HERE}.raw", name))


def _ours(name: str, count: int, title: str) -> Row:
    return Row(f"fastjobs_{name}", count, title, (f"{_HERE}.ours", name))


def _peer(
    name: str, count: int, title: str, *, group: str = "peers", least: tuple[int, int] = (3, 11)
) -> Row:
    return Row(
        name,
        count,
        title,
        (f"{_HERE}.peers", name),
        partial(python_of, group, least),
        optional=True,
        seconds=180,
    )


TABLES = {
    "drain": Table(
        "A loaded queue is emptied by one process",
        (
            _raw(
                "drain", 50_000, "raw asyncpg, claim 100 and delete 100, one connection, fastjobs' own table"
            ),
            _ours("drain", 50_000, "fastjobs, q.run(), 8 workers"),
            _peer("pgqueuer", 20_000, "PgQueuer, batches of 1,000"),
            _peer("awa", 5_000, "awa-pg, 1,000 workers"),
            _peer("chancy", 3_000, "chancy, 200 at once, eager polling"),
            _peer("oban", 3_000, "oban, 200 at once", group="oban", least=(3, 12)),
            _peer("saq", 1_000, "SAQ, 20 at once"),
            _peer("procrastinate", 1_000, "procrastinate, 50 at once, done jobs deleted"),
        ),
        (RATE, CPU, SERVER, OTHERS),
        (
            Ratio("rate", "fastjobs_drain", "raw_drain", "of raw's rate"),
            *(
                Ratio("rate", "fastjobs_drain", name, f"times {title}'s rate")
                for name, title in (
                    ("pgqueuer", "PgQueuer"),
                    ("awa", "awa-pg"),
                    ("chancy", "chancy"),
                    ("oban", "oban"),
                    ("saq", "SAQ"),
                    ("procrastinate", "procrastinate"),
                )
            ),
        ),
    ),
    "crowd": Table(
        "The first 10,000 jobs are run, with 10,000 waiting and with 1,000,000",
        (
            _raw("crowd_few", 10_000, "raw asyncpg, claim 100 and delete 100, 10,000 waiting"),
            _ours("crowd_few", 10_000, "fastjobs, 10,000 waiting"),
            _raw("crowd_many", 10_000, "raw asyncpg, 1,000,000 waiting"),
            _ours("crowd_many", 10_000, "fastjobs, 1,000,000 waiting"),
        ),
        (RATE, CPU, SERVER, OTHERS),
        (
            Ratio("rate", "fastjobs_crowd_few", "raw_crowd_few", "of raw's rate, 10,000 waiting"),
            Ratio("rate", "fastjobs_crowd_many", "raw_crowd_many", "of raw's rate, 1,000,000 waiting"),
            Ratio(
                "rate",
                "fastjobs_crowd_many",
                "raw_crowd_many",
                "of the ratio with 10,000 that it has with 1,000,000",
                beside=("fastjobs_crowd_few", "raw_crowd_few"),
            ),
        ),
    ),
    "push": Table(
        "Pushes, one after another",
        (
            _raw("push", 3_000, "raw asyncpg, INSERT … RETURNING id, prepared, one connection"),
            _ours("push", 3_000, "fastjobs, push()"),
        ),
        (RATE, CPU, SERVER, OTHERS),
        (Ratio("rate", "fastjobs_push", "raw_push", "of raw's rate"),),
    ),
    "push-sixteen": Table(
        "Sixteen push at once, one job each time",
        (
            _raw(
                "push_sixteen",
                8_000,
                "raw asyncpg, sixteen tasks with a connection each, that insert one by one",
            ),
            _ours("push_sixteen", 8_000, "fastjobs, sixteen tasks"),
        ),
        (RATE, CPU, SERVER, OTHERS),
        (Ratio("rate", "fastjobs_push_sixteen", "raw_push_sixteen", "times the rate of raw's connections"),),
    ),
    "push-many": Table(
        "A thousand in each push",
        (
            _raw("push_many", 50_000, "raw asyncpg, INSERT … SELECT FROM unnest of 1,000"),
            _ours("push_many", 50_000, "fastjobs, push_many() of 1,000"),
        ),
        (RATE, CPU, SERVER, OTHERS),
        (Ratio("rate", "fastjobs_push_many", "raw_push_many", "of raw's rate"),),
    ),
    "start": Table(
        "From a push to its handler's start, idle queue",
        (
            _raw("start", 500, "raw asyncpg, an insert and then the claim of it, two connections"),
            _ours("start", 500, "fastjobs"),
            Row("raw_far", 300, "raw asyncpg, from another process by NOTIFY", (f"{_HERE}.far", "raw")),
            Row("fastjobs_far", 300, "fastjobs, from another process", (f"{_HERE}.far", "fastjobs")),
        ),
        TIMES,
        (
            Ratio("p50_ms", "fastjobs_start", "raw_start", "times raw's median, in the process"),
            Ratio("p99_ms", "fastjobs_start", "raw_start", "times raw's p99, in the process"),
            Ratio("p50_ms", "fastjobs_far", "raw_far", "times raw's median, from another process"),
            Ratio("p99_ms", "fastjobs_far", "raw_far", "times raw's p99, from another process"),
        ),
    ),
    "horizon": Table(
        "A claim of 10 before and after 200,000 jobs are done, beside a transaction that was open all the while",
        (
            _raw("horizon", 200_000, "raw asyncpg"),
            _ours("horizon", 200_000, "fastjobs, the store's claim"),
        ),
        (
            ("before_ms", "p95 ms before", ".2f"),
            ("after_ms", "p95 ms after", ".2f"),
            ("grown", "times", ".2f"),
        ),
    ),
    "processes": Table(
        "A loaded queue is emptied by one process, and by four",
        (
            Row("one", 50_000, "fastjobs, one process", (f"{_HERE}.processes", "one")),
            Row("four", 50_000, "fastjobs, four processes", (f"{_HERE}.processes", "four")),
        ),
        (
            RATE,
            CPU,
            SERVER,
            OTHERS,
            ("deadlocks", "deadlocks", "g"),
            ("least", "of the jobs the least busy ran", ".2f"),
        ),
        (
            Ratio("rate", "four", "one", "times the rate of one process, by four"),
            Ratio("cpu_us", "four", "one", "times the CPU a job of one process, by four"),
        ),
    ),
    **limits_tables.TABLES,
    **limits_tables.ON_SERVERS,
}

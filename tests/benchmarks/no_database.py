"""What is measured without a database."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, nullcontext

from tests.benchmarks.frame import RATE, Ground, Ratio, Row, Table


def _row(name: str, count: int, title: str, *, optional: bool = False) -> Row:
    return Row(name, count, title, ("tests.benchmarks.cron", name), optional=optional)


TABLES = {
    "cron": Table(
        "The next run of a cron expression, 14 of them, in UTC and in Paris",
        (
            _row("cron_fastjobs", 56_000, "fastjobs, Cron.next()"),
            _row("cron_croniter", 5_600, "croniter, get_next()", optional=True),
            _row("cron_cronsim", 5_600, "cronsim", optional=True),
        ),
        (RATE, ("us", "µs, median expression", ".1f"), ("most_us", "µs, slowest expression", ".0f")),
        (
            Ratio("rate", "cron_fastjobs", "cron_croniter", "times croniter's rate"),
            Ratio("rate", "cron_fastjobs", "cron_cronsim", "times cronsim's rate"),
        ),
    ),
    "carrying": Table(
        "What carriers add to a push and its run: the request's ID and the trace",
        (
            Row(
                "carrying",
                1000,
                "µs a job, of a Memory",
                ("tests.benchmarks.carrying", "carrying"),
                optional=True,
            ),
        ),
        (
            ("without", "the job without carriers", ".1f"),
            ("api", "added without an SDK", ".1f"),
            ("off", "added, sampled away", ".1f"),
            ("on", "added, recorded", ".1f"),
            ("bare", "the same spans, by the SDK alone", ".1f"),
            ("ratio", "recorded by that", ".2f"),
        ),
    ),
}


@contextmanager
def ground() -> Generator[Ground]:
    yield Ground("No database", lambda: nullcontext(""))

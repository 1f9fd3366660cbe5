"""What is measured of limits: the same on each database, and one table more where old rows may stay visible."""

from __future__ import annotations

from tests.benchmarks.frame import CPU, RATE, Ratio, Row, Table


def _row(name: str, count: int, title: str) -> Row:
    return Row(name, count, title, ("tests.benchmarks.limits", name))


_STANDING = (
    ("claim_back", "of a kind that's held back"),
    ("claim_limited", "of a kind with at_once=2 at its limit"),
    ("claim_alone", "of one held value, parked, and 10,000 of other values behind"),
    ("claim_all", "of each of the three"),
)

TABLES = {
    "limits-claim": Table(
        "A claim of others, with 100,000 due jobs ahead that can't run",
        (
            _row("claim_free", 100_000, "nothing ahead"),
            *(_row(name, 100_000, title) for name, title in _STANDING),
        ),
        (
            ("of_1_ms", "median ms of 1", ".3f"),
            ("of_10_ms", "of 10", ".3f"),
            ("of_100_ms", "of 100", ".3f"),
            ("park_us", "µs to park, once, each", ".1f"),
        ),
        tuple(
            Ratio(f"of_{size}_ms", name, "claim_free", f"times a claim of {size} with nothing ahead, {title}")
            for name, title in _STANDING
            for size in (1, 10, 100)
        ),
    ),
    "limits-push": Table(
        "Sixteen push at once, one job each time",
        (_row("push_plain", 8_000, "plain"), _row("push_unique", 8_000, "unique=True")),
        (RATE, CPU),
        (Ratio("rate", "push_plain", "push_unique", "times a plain push is a unique one"),),
    ),
    "limits-at-once": Table(
        "at_once=2, handlers of 20 ms, ten times as many waiting",
        (_row("at_once", 1_000, "one process, 4 workers"),),
        (
            RATE,
            ("ideal", "of the ideal, 20 ms each", ".3f"),
            ("by_sleep", "of what the sleeps alone would take", ".3f"),
            ("sleep_ms", "ms that asyncio.sleep(0.02) takes alone, median", ".2f"),
        ),
    ),
    "limits-throttle": Table(
        "Throttle(100, per=1), three instances, for so many seconds",
        (_row("throttle", 64, "8 workers each"),),
        (("most", "most claims in any second", "d"), ("share", "of what it allows", ".3f")),
        rounds=1,
    ),
}

ON_SERVERS = {
    "limits-horizon": Table(
        "A claim of 10 of a kind with at_once before and after 20,000 of its jobs are done, beside an open transaction",
        (_row("horizon", 20_000, "fastjobs, the store's claim"),),
        (
            ("before_ms", "p95 ms before", ".2f"),
            ("after_ms", "p95 ms after", ".2f"),
            ("grown", "times", ".2f"),
        ),
    ),
}

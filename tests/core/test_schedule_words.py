"""A schedule in plain words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from fastjobs import Cron, Every


@pytest.mark.parametrize(
    ("expr", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/1 0-23 * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("@hourly", "every hour"),
        ("5 * * * *", "at :05 of every hour"),
        ("*/45 * * * *", "at :00 and :45 of every hour"),
        ("5/15 * * * *", "at :05, :20, :35 and :50 of every hour"),
        ("10-20 * * * *", "every minute from :10 to :20 of every hour"),
        ("0 2 * * *", "at 02:00 every day"),
        ("0,30 9,17 * * *", "at 09:00, 09:30, 17:00 and 17:30 every day"),
        ("*/10 9 * * *", "every 10 minutes from 09:00 to 09:50 every day"),
        ("* 2 * * *", "every minute from 02:00 to 02:59 every day"),
        ("*/15 9-17 * * *", "every 15 minutes from 09:00 to 17:45 every day"),
        ("30 9-17 * * *", "every hour from 09:30 to 17:30 every day"),
        ("0 */2 * * *", "every 2 hours from 00:00 to 22:00 every day"),
        ("*/15 1,3 * * *", "at :00, :15, :30 and :45 of the hours 1 and 3 every day"),
        ("5/20 9-12 * * *", "at :05, :25 and :45 of the hours from 9 to 12 every day"),
        ("* 1,3 * * *", "every minute of the hours 1 and 3 every day"),
        ("0 2 * * MON-FRI", "at 02:00 on weekdays"),
        ("0 2 * * 6,7", "at 02:00 on Saturdays and Sundays"),
        ("0 2 * * 0,1", "at 02:00 on Mondays and Sundays"),
        ("0 2 * * 0-6", "at 02:00 every day"),
        ("*/15 * * * 1", "every 15 minutes on Mondays"),
        ("0 0 1 * *", "at 00:00 on the 1st of the month"),
        ("0 0 1-3,11,22,23,31 * *", "at 00:00 on the 1st, 2nd, 3rd, 11th, 22nd, 23rd and 31st of the month"),
        ("@yearly", "at 00:00 on the 1st of January"),
        ("0 0 */10 2,3 *", "at 00:00 on the 1st, 11th, 21st and 31st of February and March"),
        ("0 0 1,15 * 5", "at 00:00 on the 1st, 15th and every Friday"),
        ("0 0 13 10 5", "at 00:00 on the 13th and every Friday in October"),
        ("0 0 1-31 * 5", "at 00:00 every day"),
        ("0 0 13 * 0-6", "at 00:00 every day"),
        ("0 0 * 7 *", "at 00:00 every day in July"),
        ("* * * 7 *", "every minute every day in July"),
        ("0 12 * 6-8 1", "at 12:00 on Mondays in June, July and August"),
    ],
)
def test_an_expression_in_words(expr: str, words: str) -> None:
    assert Cron(expr).describe() == f"{words}, UTC"
    assert Cron(expr, "Europe/Paris").describe() == f"{words}, Europe/Paris"


@pytest.mark.parametrize(
    ("every", "words"),
    [
        (Every(1), "every second"), (Every(0.5), "every 0.5 seconds"), (Every(90), "every 1 minute and 30 seconds"),
        (Every(61.000001), "every 1 minute and 1.000001 seconds"), (Every(minutes=15), "every 15 minutes"),
        (Every(hours=1), "every hour"), (Every(days=1), "every day"), (Every(weeks=1), "every week"),
        (Every(days=10, hours=1), "every 1 week, 3 days and 1 hour"),
        (Every(timedelta(milliseconds=1)), "every 0.001 seconds"),
    ],
)  # fmt: skip
def test_an_interval_in_words(every: Every, words: str) -> None:
    assert every.describe() == f"{words}, UTC"


def test_expressions_of_other_times_have_other_words() -> None:
    minutes = ["*", "*/15", "5/15", "0", "5", "0,30", "*/7", "0-5", "0-9", "*/2", "1/2"]
    hours = ["*", "0", "*/2", "9-17", "9,17", "8-9", "1/2", "0-22", "9-11"]
    days = [
        "* * *",
        "1 * *",
        "* * 1",
        "1 * 1",
        "1 2 *",
        "* 2 1",
        "1 2 1",
        "* 2 *",
        "* * 1-5",
        "31 * 1-5",
        "1,15 * 5",
    ]
    seen: dict[str, tuple[datetime, ...]] = {}
    for parts in product(minutes, hours, days):
        cron = Cron(" ".join(parts))
        runs = tuple(cron.upcoming(40, datetime(2026, 1, 30, tzinfo=UTC)))
        assert seen.setdefault(cron.describe(), runs) == runs, cron

"""What the next run of a cron expression takes to find: ours, croniter's and cronsim's, on one mix of expressions.

    python -m tests.benchmarks.cron CONTESTANT COUNT PLACE

The mix is what apps write, in UTC and in a zone; what one asks for is the next run after an instant, as a scheduler
does, and no two instants are the same. Making the schedule isn't counted.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

from fastjobs import Cron

MIX = (
    "* * * * *", "*/5 * * * *", "*/15 * * * *", "0 * * * *", "0 */6 * * *", "0 2 * * *", "30 3 * * *",
    "*/10 9-17 * * MON-FRI", "0 9 * * MON-FRI", "0 0 * * 0", "0 0 1 * *", "0 0 1,15 * 5", "0 0 1 1 *", "0 0 29 2 *",
)  # fmt: skip
ZONES = ("UTC", "Europe/Paris")
Next = Callable[[datetime], object]


def ours(expr: str, zone: str) -> Next:
    return Cron(expr, zone).next


def croniters(expr: str, zone: str) -> Next:
    clock = ZoneInfo(zone)
    kept = importlib.import_module("croniter").croniter(expr, datetime.now(clock))

    def find(after: datetime) -> object:
        kept.set_current(after.astimezone(clock), force=True)
        return kept.get_next(datetime)

    return find


def cronsims(expr: str, zone: str) -> Next:
    clock, sim = ZoneInfo(zone), importlib.import_module("cronsim").CronSim
    return lambda after: next(sim(expr, after.astimezone(clock)))


CONTESTANTS = {"cron_fastjobs": ours, "cron_croniter": croniters, "cron_cronsim": cronsims}


def measure(make: Callable[[str, str], Next], count: int) -> dict[str, float]:
    """How many finds a second, and the microseconds that one takes: the median's and the slowest expression's."""
    dice = Random(1)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    each = max(count // (len(MIX) * len(ZONES)), 1)
    instants = [start + timedelta(seconds=dice.randrange(365 * 86_400)) for _ in range(each)]
    took: list[float] = []
    for zone in ZONES:
        for expr in MIX:
            find = make(expr, zone)
            began = time.perf_counter()
            for instant in instants:
                find(instant)
            took.append((time.perf_counter() - began) / each)
    took.sort()
    return {"rate": len(took) / sum(took), "us": took[len(took) // 2] * 1e6, "most_us": took[-1] * 1e6}


if __name__ == "__main__":
    print(json.dumps(measure(CONTESTANTS[sys.argv[1]], int(sys.argv[2]))))

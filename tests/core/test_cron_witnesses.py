"""Two other libraries as witnesses, in UTC: that they find the same runs, but for texts that they read otherwise.

Left out, with what they make of it:

- `a-a`: croniter takes a range of one for the whole field, and cronsim does so where it has a step.
- a `*` in a longer text of a day field beside another that is restricted: cronsim has `*/2` restrict nothing, as Vixie
  cron does, and croniter a list with a `*` in it. We have all but a plain `*` restrict.
- `1/2` in the day of the week: cronsim's week ends with a Sunday 7, so it has Sundays too, and `7/2` is these alone.
- other zones than UTC: croniter runs a fixed time twice in the hour that is shown again, and times with a `*` at the
  change that skips them; cronsim loses runs where a clock is changed by half an hour, and answers what is before the
  start where that is in the second showing.
"""

from __future__ import annotations

import importlib
import re
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from fastjobs import Cron

# They are no dependencies, and croniter has no types.
croniter: Any = importlib.import_module("croniter").croniter
CronSim: Any = importlib.import_module("cronsim").CronSim

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
FIELDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


def item(dice: Random, first: int, last: int) -> str:
    low, high = sorted((dice.randint(first, last), dice.randint(first, last)))
    step = dice.choice([1, 2, 3, 5, last - first])
    texts = [f"{low}", f"{low}", "*", "*", f"*/{step}"]
    if low < high:
        texts += [f"{low}-{high}", f"{low}-{high}/{step}"]
    if last != 7:
        texts.append(f"{low}/{step}")
    return dice.choice(texts)


def expression(dice: Random) -> str:
    """One of those that all three read alike."""
    parts: list[str] = []
    for first, last in FIELDS:
        texts = [item(dice, first, last) for _ in range(dice.choice([1, 1, 1, 2, 3]))]
        parts.append(
            texts[0] if len(texts) == 1 else ",".join(text for text in texts if "*" not in text) or "*"
        )
    if parts[2] != "*" and parts[4] != "*":
        parts[2] = re.sub(r"^\*.*", "13", parts[2])
        parts[4] = re.sub(r"^\*.*", "5", parts[4])
    elif parts[2] != "*":
        parts[3] = re.sub(r"^(2|4|6|9|11)\b.*", "3", parts[3])  # it comes round
        parts[2] = re.sub(r"^(29|3[01])\b.*", "28", parts[2])
    return " ".join(parts)


@pytest.mark.parametrize("seed", range(5))
def test_croniter_and_cronsim_find_the_same_runs_in_utc(seed: int) -> None:
    dice = Random(seed)
    for _ in range(100):
        expr = expression(dice)
        start = NEW_YEAR + timedelta(seconds=dice.randrange(4 * 365 * 86_400))
        ours = Cron(expr).upcoming(5, start)
        assert len(ours) == 5
        one = croniter(expr, start)
        assert [one.get_next(datetime) for _ in range(5)] == ours, expr
        two = CronSim(expr, start)
        assert [next(two) for _ in range(5)] == ours, expr


@pytest.mark.parametrize(
    ("expr", "ours", "croniters", "cronsims"),
    [
        ("16 9-9 * * *", "01-01 09:16", "01-01 00:16", "01-01 09:16"),
        ("0 0 * * 1-1/2", "01-05 00:00", "01-03 00:00", "01-02 00:00"),
        ("0 0 */9 * 5", "01-02 00:00", "01-02 00:00", "04-10 00:00"),
        ("0 0 13,* * 1", "01-02 00:00", "01-05 00:00", "01-02 00:00"),
        ("0 0 * * 7/2", "01-03 00:00", "01-03 00:00", "01-04 00:00"),
        ("0 0 * * 4/3", "01-08 00:00", "01-08 00:00", "01-04 00:00"),
    ],
)
def test_where_they_read_otherwise_is_as_said(expr: str, ours: str, croniters: str, cronsims: str) -> None:
    run = Cron(expr).next(NEW_YEAR)
    found = (run, croniter(expr, NEW_YEAR).get_next(datetime), next(CronSim(expr, NEW_YEAR)))
    assert [f"{each:%m-%d %H:%M}" for each in found if each] == [ours, croniters, cronsims]

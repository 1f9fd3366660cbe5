"""The sentence that says why a job isn't running, or what it is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from fastjobs.core.duration import SECOND
from fastjobs.core.job import JobState, KeptJob
from fastjobs.core.options import KindOptions, KindSettings, checked
from fastjobs.core.rate import Throttle
from fastjobs.core.why import why

NOW = 1_796_004_000_000_000  # 2026-11-30 02:00:00 UTC
MINUTE = 60 * SECOND


class Never:
    async def attempt(self, key: str) -> float:
        return 60


def options(**settings: Any) -> KindOptions:
    return checked("mail", KindSettings(**settings))  # type: ignore[typeddict-item]


def kept(state: JobState = JobState.WAITING, **more: Any) -> KeptJob:
    fields: dict[str, Any] = {
        "id": "7", "kind": "mail", "state": state, "payload": "1", "size": 1, "run_at": NOW, "created_at": NOW,
        "attempts": 0, "lost": 0, "error": None, "held_until": None, "failed_at": None, "carried": None,
        "name": None, "has_key": False, "stop_asked": False, "progress": None, "behind": None,
        "kind_held_until": 0, "kind_paused": False, "kind_held": 0, "now": NOW,
    }  # fmt: skip
    return KeptJob(**(fields | more))


PAUSED = "its kind is paused, until it's resumed: fastjobs resume QUEUE mail"
HELD = JobState.HELD
LATER = NOW + MINUTE
CASES: list[tuple[KeptJob, KindOptions | None, str]] = [
    (kept(run_at=LATER), options(), "it waits for its time, 2026-11-30 02:01:00 UTC"),
    (
        kept(run_at=LATER),
        options(rate=Throttle(5, per=1, by=str)),
        "it waits for its time, 2026-11-30 02:01:00 UTC, as pushed or as held back by its rate (5 in 1 s for"
        " each answer of its by=)",
    ),
    # As a whole it holds none of them back by a time of its own.
    (kept(run_at=LATER), options(rate=Throttle(5, per=1)), "it waits for its time, 2026-11-30 02:01:00 UTC"),
    (kept(run_at=LATER), options(rate=Never()), "it waits for its time, 2026-11-30 02:01:00 UTC"),
    (kept(run_at=LATER), None, "it waits for its time, 2026-11-30 02:01:00 UTC"),
    (
        kept(run_at=LATER, attempts=2, error="OSError: down"),
        options(),
        "it failed, and is tried again at 2026-11-30 02:01:00 UTC: OSError: down",
    ),
    (
        kept(run_at=LATER, attempts=2, error="OSError: \x1b[31m" + "x" * 500 + "\nred", kind_paused=True),
        options(),
        "it failed, and is tried again at 2026-11-30 02:01:00 UTC: OSError: \\x1b[31m"
        + "x" * (200 - 14)
        + "… (518 characters); and its kind is paused: fastjobs resume QUEUE mail",
    ),
    # A snooze before the first attempt has counted none.
    (
        kept(run_at=LATER, error="OSError: down"),
        options(),
        "it waits for its time, 2026-11-30 02:01:00 UTC",
    ),
    (
        kept(run_at=LATER, kind_paused=True),
        options(),
        "it waits for its time, 2026-11-30 02:01:00 UTC; and its kind is paused: fastjobs resume QUEUE mail",
    ),
    (kept(kind_paused=True, kind_held_until=LATER, kind_held=3), options(at_once=1), PAUSED),
    (
        kept(kind_held_until=LATER),
        options(),
        "its kind is held back until 2026-11-30 02:01:00 UTC, by its limiter",
    ),
    (
        kept(kind_held_until=NOW),
        options(),
        "it is due since 2026-11-30 02:00:00 UTC, and waits for a free worker, or for a process that runs its kind",
    ),
    (
        kept(),
        options(rate=Throttle(1, per=60)),
        "it is due since 2026-11-30 02:00:00 UTC, and waits for a free worker, for its rate (1 in 60 s),"
        " or for a process that runs its kind",
    ),
    (
        kept(),
        options(rate=Throttle(3_000, per=timedelta(days=1), by=str)),
        "it is due since 2026-11-30 02:00:00 UTC, and waits for a free worker, for its rate (3,000 in 86,400 s for"
        " each answer of its by=), or for a process that runs its kind",
    ),
    (
        kept(),
        options(rate=Throttle(1, per=0.25)),
        "it is due since 2026-11-30 02:00:00 UTC, and waits for a free worker, for its rate (1 in 0.25 s),"
        " or for a process that runs its kind",
    ),
    (
        kept(),
        options(rate=Never()),
        "it is due since 2026-11-30 02:00:00 UTC, and waits for a free worker, for its limiter, or for a process that"
        " runs its kind",
    ),
    (kept(kind_held=1), options(at_once=1), "1 of its kind runs, as many as at_once lets"),
    (kept(kind_held=2), options(at_once=2), "2 of its kind run, as many as at_once lets"),
    (
        kept(kind_held=1),
        options(at_once=2),
        "it is due since 2026-11-30 02:00:00 UTC, and waits for a free worker, or for a process that runs its kind",
    ),
    (kept(), None, "no handler of its kind here: it waits for an instance that has one"),
    (kept(kind_paused=True), None, PAUSED),
    (
        kept(JobState.PARKED, behind="41"),
        options(),
        "it waits for job 41 of the same value, which runs (one at a time)",
    ),
    (
        kept(JobState.PARKED),
        options(),
        "it waits for its turn among the jobs of the same value (one at a time)",
    ),
    (
        kept(JobState.PARKED, behind="41", kind_paused=True),
        options(),
        "it waits for job 41 of the same value, which runs (one at a time);"
        " and its kind is paused: fastjobs resume QUEUE mail",
    ),
    (
        kept(HELD, held_until=LATER, attempts=2),
        options(),
        "it runs: attempt 2, held until 2026-11-30 02:01:00 UTC",
    ),
    (
        kept(HELD, held_until=LATER, attempts=2, stop_asked=True),
        options(),
        "it was asked to stop, and runs until its handler has ended: attempt 2, held until 2026-11-30 02:01:00 UTC",
    ),
    (
        kept(HELD, held_until=NOW, attempts=2),
        options(),
        "its worker was lost: its hold ran out at 2026-11-30 02:00:00 UTC, and the next claim takes it",
    ),
    (
        kept(HELD, held_until=NOW, attempts=2, stop_asked=True),
        options(),
        "its worker was lost: its hold ran out at 2026-11-30 02:00:00 UTC, and the next claim removes it,"
        " as it's cancelled",
    ),
    (
        kept(run_at=LATER, attempts=2, error="x", stop_asked=True),
        options(),
        "it's cancelled: the next claim removes it",
    ),
    (
        kept(JobState.PARKED, behind="41", kind_paused=True, stop_asked=True),
        None,
        "it's cancelled: the next claim removes it; and its kind is paused: fastjobs resume QUEUE mail",
    ),
    (
        kept(JobState.FAILED, failed_at=NOW, attempts=10),
        options(),
        "it failed for good at 2026-11-30 02:00:00 UTC, after 10 attempts",
    ),
    (
        kept(JobState.FAILED, failed_at=NOW, attempts=1),
        None,
        "it failed for good at 2026-11-30 02:00:00 UTC, after 1 attempt",
    ),
]


@pytest.mark.parametrize(("job", "of_kind", "sentence"), CASES, ids=range(len(CASES)))
def test_a_job_says_why_it_waits_or_what_it_is(
    job: KeptJob, of_kind: KindOptions | None, sentence: str
) -> None:
    assert why(job, of_kind) == sentence

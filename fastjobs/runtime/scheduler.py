"""Pushes the runs of a queue's schedules, in a task of its own, so that busy workers delay none.

No instance leads: each pushes every run, and the store lets one win. A run is pushed ahead, as a job due at its time,
once the run before it has come round. So a run is there before its time, and where no queue runs at that time it runs
as one does again. The time is the store's alone, asked at each look, and a look is never far off: a clock that is set,
or a machine that slept, puts nothing off for long.

Two are pushed at their times instead. One that skips what is missed, as what is pushed ahead runs late. And one of a
unique kind: as a run comes round its own job still waits, and the next would be that one, so every other run be lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from fastjobs.clock import Clock
from fastjobs.core.duration import SECOND, instant, moment
from fastjobs.core.errors import StoreTimeout
from fastjobs.core.schedule import following, runs_between
from fastjobs.runtime.lines import at, say, say_error
from fastjobs.runtime.outage import Outage
from fastjobs.runtime.scheduling import Scheduled
from fastjobs.runtime.waiting import limited, pause
from fastjobs.store import ScheduleStore

LOOK = 30.0
"""Seconds after which it looks again at the latest."""
LATE = timedelta(seconds=30)
"""How late a run may be pushed where missed runs are skipped: what is later than this was missed."""
MOST = 100
"""The most missed runs of one schedule that are pushed."""
_EARLIEST = 0.001
_TELL_EVERY = 60.0
_FAR = 60 * SECOND


class Plan(NamedTuple):
    """What is to be done of one schedule at a look."""

    runs: Sequence[datetime]
    """To push, in this order."""
    again: datetime | None
    """When it's to be looked at again; None for whenever there's a look."""


class Scheduler:
    """The schedules of one running queue."""

    def __init__(
        self,
        store: ScheduleStore,
        clock: Clock,
        schedules: Sequence[Scheduled],
        poll: float,
        *,
        opened: Callable[[], Awaitable[None]],
        due_in: Callable[[float], None],
        pushed: Callable[[str, int], object] = lambda kind, count: None,
    ) -> None:
        """`opened` sees to it that the store is; `due_in` is told in how many seconds a job that was pushed is due.

        `pushed` is told of the kind of each job that was pushed, and that it's one.
        """
        self._store = store
        self._clock = clock
        self._schedules = schedules
        self._opened = opened
        self._due_in = due_in
        self._pushed = pushed
        self._outage = Outage(clock, "schedules", min(max(poll, 1.0), LOOK))
        self._since: dict[str, datetime] = {}
        """When each schedule without a run was first looked at: what came due before doesn't run."""
        self._told: dict[str, float] = {}
        """When it was last told that a schedule is bad, by the monotonic clock."""
        self._far: dict[str, int] = {}
        """The run of each schedule that was told to be far ahead."""

    async def run(self) -> None:
        """Pushes runs until it's cancelled."""
        while True:
            try:
                seconds = await self.look()
            except Exception as error:
                seconds = self._outage.failed(error)
            else:
                self._outage.over()
            await pause(self._clock, seconds)

    async def look(self) -> float:
        """Pushes what is to be pushed now, and answers in how many seconds to look again.

        An error of the store's is raised, once the other schedules have had their turn; one of a schedule's own is
        logged, and it's asked again at the next look.
        """
        await self._opened()
        asked = self._clock.monotonic()
        now = moment(await limited(self._store.now(), "the time"))
        lasts = await limited(self._store.runs([each.name for each in self._schedules]), "the last runs")
        again = now + timedelta(seconds=LOOK)
        failed: Exception | None = None
        for each in self._schedules:
            last = lasts.get(each.name)
            try:
                plan = self._plan(each, None if last is None else moment(last), now)
            except (Exception, SystemExit, asyncio.CancelledError) as error:
                # Nothing is awaited in it, so it's the schedule's own.
                self._bad(each, error)
                continue
            if plan.again is not None and plan.again < again:
                again = plan.again
            try:
                await self._push(each, plan.runs, now)
            except StoreTimeout:
                raise  # the others would wait as long, one after the other
            except Exception as error:
                failed = error
        if failed is not None:
            raise failed
        passed = self._clock.monotonic() - asked
        return max((again - now).total_seconds() - passed, _EARLIEST)

    def _plan(self, each: Scheduled, last: datetime | None, now: datetime) -> Plan:
        if last is not None and last > now:
            self._see_far(each, last, now)
            return Plan((), last)
        if each.missed == "skip":
            return self._plan_to_skip(each, last, now)
        ahead = following(each.schedule, now)
        if each.job.key is not None and last is not None:
            return Plan(runs_between(each.schedule, last, now, each.missed, MOST), ahead)
        missed = runs_between(each.schedule, last, now, "all", MOST) if each.missed == "all" else []
        return Plan(missed if ahead is None else [*missed, ahead], ahead)

    def _plan_to_skip(self, each: Scheduled, last: datetime | None, now: datetime) -> Plan:
        if last is None:
            # A clock that was set back must not put off what it comes to again.
            last = self._since[each.name] = min(self._since.get(each.name, now), now)
        since = max(last, now - LATE)
        runs = runs_between(each.schedule, since, now, "once")
        return Plan(runs, following(each.schedule, now))

    async def _push(self, each: Scheduled, runs: Sequence[datetime], now: datetime) -> None:
        for due in runs:
            run = each.run(due)
            if await limited(self._store.push_run(run), "a run"):
                self._pushed(run.job.kind, 1)
                if run.job.at is not None:
                    self._due_in(max(run.job.at - instant(now), 0) / SECOND)

    def _bad(self, each: Scheduled, error: BaseException) -> None:
        """Tells of a schedule that raised, or answered what none may: at once, and then once a minute."""
        now = self._clock.monotonic()
        if now - self._told.get(each.name, -_TELL_EVERY) >= _TELL_EVERY:
            self._told[each.name] = now
            say_error(
                "a schedule failed, and pushes nothing until it answers; the others go on",
                error,
                schedule=each.name,
                kind=each.job.kind,
            )

    def _see_far(self, each: Scheduled, last: datetime, now: datetime) -> None:
        """Tells, once, where the run that was pushed last isn't the schedule's next by far."""
        due = instant(last)
        if self._far.get(each.name) == due:
            return
        ahead = following(each.schedule, now)
        if ahead is not None and instant(ahead) + _FAR < due:
            self._far[each.name] = due
            say(
                logging.INFO,
                "a schedule goes on after the run that was pushed last: it was another schedule then, or the clock was"
                " set back. A schedule of another name begins anew",
                schedule=each.name,
                kind=each.job.kind,
                pushed=at(due),
                would_be=at(instant(ahead)),
            )

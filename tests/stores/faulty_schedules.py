"""Stores that break a rule on the runs of schedules, and the test of the suite that tells. As `faulty`, whose list it
adds to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from fastjobs.core.job import NewJob
from fastjobs.store import Run
from fastjobs.stores.memory import Memory
from tests.stores.faulty import FAULTS, told_by

__all__ = ["FAULTS"]


@told_by("test_a_run_is_a_job_due_at_its_own_time")
class RunsAtTheRunsTime(Memory):
    async def push_run(self, run: Run) -> bool:
        return await super().push_run(run._replace(job=run.job._replace(at=run.due)))


@told_by("test_a_run_due_then_or_later_is_pushed_once")
class PushesTheLastRunAgain(Memory):
    async def push_run(self, run: Run) -> bool:
        if self._runs.get(run.schedule) == run.due:
            del self._runs[run.schedule]
        return await super().push_run(run)


@told_by("test_a_run_due_then_or_later_is_pushed_once")
class GoesBack(Memory):
    async def push_run(self, run: Run) -> bool:
        if self._runs.get(run.schedule, 0) > run.due:
            self._runs[run.schedule] = run.due
        return await super().push_run(run)


@told_by("test_a_run_stays_pushed_once_its_job_is_gone")
class ForgetsRunsInTime(Memory):
    async def runs(self, schedules: Sequence[str]) -> Mapping[str, int]:
        self._forget_old()
        return await super().runs(schedules)

    async def push_run(self, run: Run) -> bool:
        self._forget_old()
        return await super().push_run(run)

    def _forget_old(self) -> None:
        day = 24 * 3600 * 1_000_000
        self._runs = {name: at for name, at in self._runs.items() if at > self._clock.now() - day}


@told_by("test_a_schedules_runs_are_its_own")
class FoldsNames(Memory):
    async def push_run(self, run: Run) -> bool:
        return await super().push_run(run._replace(schedule=run.schedule.lower()))


@told_by("test_a_schedules_runs_are_its_own")
class TellsOfAllSchedules(Memory):
    async def runs(self, schedules: Sequence[str]) -> Mapping[str, int]:
        return dict(self._runs)


@told_by("test_a_kind_may_have_several_schedules")
class KeepsRunsByKind(Memory):
    async def push_run(self, run: Run) -> bool:
        return await super().push_run(run._replace(schedule=run.job.kind))


@told_by("test_another_instance_finds_the_runs")
class KnowsItsOwnRunsAlone(Memory):
    async def runs(self, schedules: Sequence[str]) -> Mapping[str, int]:
        return {}


@told_by("test_of_several_instances_that_push_a_run_one_does")
class LooksBeforeItPushes(Memory):
    async def push_run(self, run: Run) -> bool:
        if self._runs.get(run.schedule, -1) >= run.due:
            return False
        await asyncio.sleep(0)
        await self.push([run.job])
        self._runs[run.schedule] = run.due
        return True


@told_by("test_of_different_runs_at_once_each_that_is_pushed_has_its_job")
class PushesTheJobLater(Memory):
    async def push_run(self, run: Run) -> bool:
        last = self._runs.get(run.schedule)
        if last is not None and last >= run.due:
            return False
        self._runs[run.schedule] = run.due
        await asyncio.sleep(0)
        if self._runs[run.schedule] == run.due:
            await self.push([run.job])
        return True


@told_by("test_a_run_is_never_kept_without_its_job")
class KeepsARunWhosePushFails(Memory):
    async def push_run(self, run: Run) -> bool:
        try:
            run.job.payload.encode()
        except UnicodeEncodeError:
            self._runs[run.schedule] = run.due
            raise
        return await super().push_run(run)


@told_by("test_a_run_of_a_kind_that_is_new_is_claimed_as_any_other")
class ClaimsOfOldKindsAlone(Memory):
    async def push_run(self, run: Run) -> bool:
        return await super().push_run(
            run._replace(job=run.job._replace(kind=f"{run.job.kind} of a schedule"))
        )


@told_by("test_a_run_of_a_key_that_waits_is_kept_without_a_job_of_its_own")
class PushesARunBesideTheJobThatWaits(Memory):
    async def push_run(self, run: Run) -> bool:
        return await super().push_run(run._replace(job=run.job._replace(key=None)))


@told_by("test_a_run_of_a_key_that_waits_is_kept_without_a_job_of_its_own")
class ForgetsARunWhoseKeyWaits(Memory):
    async def push_run(self, run: Run) -> bool:
        key = run.job.key
        if key is not None and (run.job.kind, key) in self._keys:
            return False
        return await super().push_run(run)


@told_by("test_a_run_never_moves_the_job_that_waits")
class MovesTheJobThatWaits(Memory):
    async def push_run(self, run: Run) -> bool:
        last = self._runs.get(run.schedule)
        if last is not None and last >= run.due:
            return False
        await self.push([run.job])
        self._runs[run.schedule] = run.due
        return True


@told_by("test_a_run_of_a_key_that_is_free_has_it")
class LetsAKeyBe(Memory):
    async def push_run(self, run: Run) -> bool:
        key = run.job.key
        free = key is not None and (run.job.kind, key) not in self._keys
        return await super().push_run(run._replace(job=run.job._replace(key=None)) if free else run)


@told_by("test_a_run_wakes_other_instances")
class WakesNobodyByARun(Memory):
    async def push_run(self, run: Run) -> bool:
        wakes, self._wakes = self._wakes, []
        try:
            return await super().push_run(run)
        finally:
            self._wakes = wakes


@told_by("test_the_stores_now_is_its_claims_now")
class TellsAnotherTime(Memory):
    async def now(self) -> int:
        return await super().now() - 1_000_000


@told_by("test_a_look_at_the_runs_writes_nothing")
class PushesAsItLooks(Memory):
    async def runs(self, schedules: Sequence[str]) -> Mapping[str, int]:
        await self.push([NewJob(kind="looked", payload="1")])
        return await super().runs(schedules)

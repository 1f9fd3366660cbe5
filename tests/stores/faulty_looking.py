"""Stores that break a promise on looks, cancels, pauses or progress, and the test of the suite that tells.

As `faulty`, whose lists it adds to, and longer than 300 lines for the same reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.core.job import FailedJob, Job, JobState, KeptJob
from fastjobs.core.marks import Done, Extend, Fail, GiveBack, HoldBack, Kept, Mark, TryAgain
from fastjobs.store import Cancelled, Extra, KindCount
from fastjobs.stores.memory import Memory
from fastjobs.stores.rows import Row, State
from tests.stores.faulty import FAULTS, TRANSACTION_FAULTS, told_by, told_in_a_transaction_by

__all__ = ["FAULTS", "TRANSACTION_FAULTS"]


def _counting(change: Callable[[KindCount], KindCount], name: str) -> type[Memory]:
    """A store that counts otherwise."""

    class Counts(Memory):
        async def counts(self, *, cap: int = 10_000) -> list[KindCount]:
            return [change(row) for row in await super().counts(cap=cap)]

    Counts.__name__ = name
    return Counts


def _showing(change: Callable[[KeptJob], KeptJob], name: str, *, pages: bool = False) -> type[Memory]:
    """A store that shows a job, and with `pages` each of a page, otherwise."""

    class Shows(Memory):
        async def job(self, id: str, *, cut: int | None = None) -> KeptJob | None:
            shown = await super().job(id, cut=cut)
            return None if shown is None or pages else change(shown)

        async def jobs(self, kind: str, state: JobState, **more: Any) -> list[KeptJob]:
            listed = await super().jobs(kind, state, **more)
            return [change(job) for job in listed] if pages else listed

    Shows.__name__ = name
    return Shows


# Failed jobs, cut


@told_by("test_a_failed_jobs_payload_is_listed_as_far_as_was_asked")
class ListsPayloadsWhole(Memory):
    async def failed(self, *, cut: int | None = None, **more: Any) -> list[FailedJob]:
        return await super().failed(**more)


@told_by("test_a_failed_jobs_payload_is_listed_as_far_as_was_asked")
class TellsTheSizeOfWhatIsLeft(Memory):
    async def failed(self, **more: Any) -> list[FailedJob]:
        return [job._replace(size=len(job.payload)) for job in await super().failed(**more)]


@told_by("test_a_job_that_was_listed_in_part_runs_again_whole")
class CutsWhatIsKept(Memory):
    async def failed(self, *, cut: int | None = None, **more: Any) -> list[FailedJob]:
        for row in self._rows.values():
            row.payload = row.payload[:cut]
        return await super().failed(cut=cut, **more)


# Counts

_CountsNoFailedJobs = _counting(lambda row: row._replace(failed=0), "CountsNoFailedJobs")
told_by("test_a_kinds_jobs_are_counted_by_where_they_stand")(_CountsNoFailedJobs)
told_by("test_no_number_goes_past_one_more_than_the_cap")(_CountsNoFailedJobs)
_CountsHeldJobsAsWaiting = _counting(
    lambda row: row._replace(waiting=row.waiting + row.held), "CountsHeldJobsAsWaiting"
)
told_by("test_a_kinds_jobs_are_counted_by_where_they_stand")(_CountsHeldJobsAsWaiting)
told_by("test_another_instance_counts_the_same")(_CountsHeldJobsAsWaiting)
told_by("test_a_job_that_waits_for_another_of_its_key_is_counted_apart")(
    _counting(
        lambda row: row._replace(waiting=row.waiting + row.parked, parked=0), "CountsParkedJobsAsWaiting"
    )
)
_TakesAllThatWaitForDue = _counting(lambda row: row._replace(due=row.waiting), "TakesAllThatWaitForDue")
told_by("test_a_job_comes_due_in_time")(_TakesAllThatWaitForDue)
told_by("test_a_kinds_jobs_are_counted_by_where_they_stand")(_TakesAllThatWaitForDue)
told_by("test_the_oldest_is_the_waiting_job_that_is_due_longest")(
    _counting(lambda row: row._replace(oldest=None), "TellsNoAge")
)
_TellsAnAgeOfNoJob = _counting(lambda row: row._replace(oldest=row.oldest or 0), "TellsAnAgeOfNoJob")
told_by("test_the_oldest_is_the_waiting_job_that_is_due_longest")(_TellsAnAgeOfNoJob)
told_by("test_a_kind_whose_jobs_are_done_is_still_listed")(_TellsAnAgeOfNoJob)
told_by("test_a_kind_that_is_held_back_says_for_how_long")(
    _counting(lambda row: row._replace(held_back=0), "TellsOfNoHoldBack")
)
told_by("test_a_pause_is_shown")(_counting(lambda row: row._replace(paused=False), "TellsOfNoPause"))


@told_by("test_no_number_goes_past_one_more_than_the_cap")
@told_by("test_the_number_of_jobs_that_wait_for_another_is_capped_too")
class CountsPastTheCap(Memory):
    async def counts(self, *, cap: int = 10_000) -> list[KindCount]:
        return await super().counts()


@told_by("test_no_number_goes_past_one_more_than_the_cap")
class StopsAtTheCap(Memory):
    async def counts(self, *, cap: int = 10_000) -> list[KindCount]:
        return await super().counts(cap=cap - 1)


@told_by("test_the_oldest_is_the_waiting_job_that_is_due_longest")
class TellsTheAgeOfTheLastPushed(Memory):
    async def counts(self, *, cap: int = 10_000) -> list[KindCount]:
        now = self._clock.now()
        due = {row.kind: now - row.run_at for row in self._rows.values() if row.state is State.WAITING}
        return [row._replace(oldest=row.oldest and due[row.kind]) for row in await super().counts(cap=cap)]


@told_by("test_a_kind_whose_jobs_are_done_is_still_listed")
class ListsKindsThatHaveJobs(Memory):
    async def counts(self, *, cap: int = 10_000) -> list[KindCount]:
        there = {row.kind for row in self._rows.values()}
        return [row for row in await super().counts(cap=cap) if row.kind in there]


@told_by("test_each_kind_is_counted_for_itself_in_the_order_of_the_names")
class ListsKindsAsADictionaryDoes(Memory):
    async def counts(self, *, cap: int = 10_000) -> list[KindCount]:
        return sorted(await super().counts(cap=cap), key=lambda row: row.kind.lower())


@told_by("test_a_lost_job_is_counted_as_held_until_a_claim_sees_it")
@told_by("test_a_lost_job_is_shown_as_held_by_a_hold_that_ran_out")
@told_by("test_a_look_writes_nothing")
class EndsHoldsAsItLooks(Memory):
    async def counts(self, *, cap: int = 10_000) -> list[KindCount]:
        self._end_holds(self._clock.now())
        return await super().counts(cap=cap)

    async def job(self, id: str, *, cut: int | None = None) -> KeptJob | None:
        self._end_holds(self._clock.now())
        return await super().job(id, cut=cut)


# One job, and pages of jobs

_AS_PUSHED = "test_a_job_shows_its_name_whether_it_has_a_key_and_what_it_carries"

told_by("test_a_job_to_try_again_shows_its_error_and_when")(
    _showing(lambda job: job._replace(error=None), "ShowsNoError")
)
told_by(_AS_PUSHED)(_showing(lambda job: job._replace(name=None), "ShowsNoName"))
told_by(_AS_PUSHED)(
    _showing(lambda job: job._replace(has_key=job.attempts == 0), "ShowsWhetherItHasItsKeyNow")
)
told_by(_AS_PUSHED)(_showing(lambda job: job._replace(carried=None), "ShowsNothingCarried"))
told_by("test_a_held_job_shows_until_when")(
    _showing(
        lambda job: job._replace(held_until=job.held_until and job.created_at + 60_000_000),
        "ShowsTheFirstHold",
    )
)
told_by("test_a_waiting_job_is_shown_as_it_was_pushed")(
    _showing(lambda job: job._replace(held_until=job.held_until or 0), "ShowsTheHoldOfOneThatWaits")
)
told_by("test_a_failed_job_shows_its_error_and_since_when")(
    _showing(
        lambda job: job._replace(state=JobState.WAITING) if job.state is JobState.FAILED else job,
        "ShowsAFailedJobAsWaiting",
    )
)
told_by("test_a_lost_job_is_shown_as_held_by_a_hold_that_ran_out")(
    _showing(lambda job: job._replace(lost=0), "ShowsNoLostWorkers")
)
told_by("test_a_job_that_waits_for_another_says_for_which")(
    _showing(
        lambda job: job._replace(state=JobState.WAITING) if job.state is JobState.PARKED else job,
        "ShowsAParkedJobAsWaiting",
    )
)
told_by("test_a_job_that_waits_for_another_says_for_which")(
    _showing(lambda job: job._replace(behind=None), "ShowsAJobBehindNone")
)
told_by("test_a_kind_that_is_held_back_says_for_how_long")(
    _showing(lambda job: job._replace(kind_held_until=0), "ShowsNoHoldBack")
)
told_by("test_a_job_whose_turn_it_is_waits_for_no_other")(
    _showing(
        lambda job: job._replace(state=JobState.PARKED) if job.state is JobState.WAITING else job,
        "ShowsAJobAsParkedForEver",
    )
)
told_by("test_a_pause_is_shown")(_showing(lambda job: job._replace(kind_paused=False), "ShowsNoPause"))
told_by("test_a_waiting_job_is_shown_as_it_was_pushed")(
    _showing(lambda job: job._replace(now=job.created_at), "ShowsNoNow")
)
told_by("test_how_many_of_a_kind_are_held_is_capped")(
    _showing(lambda job: job._replace(kind_held=job.kind_held and 1010), "ShowsAllHeldOfAKind")
)
told_by("test_a_stop_is_shown_until_the_job_is_gone")(
    _showing(lambda job: job._replace(stop_asked=False), "ShowsNoStop")
)
told_by("test_a_payload_is_shown_as_far_as_was_asked")(
    _showing(lambda job: job._replace(size=len(job.payload)), "ShowsTheSizeOfWhatIsLeft")
)
told_by("test_a_payload_is_shown_as_far_as_was_asked")(
    _showing(lambda job: job._replace(size=len(job.payload)), "ListsTheSizeOfWhatIsLeft", pages=True)
)
told_by("test_a_page_tells_of_a_job_what_is_told_of_it_alone")(
    _showing(lambda job: job._replace(kind_held=0), "ListsNoNumberOfHeldJobs", pages=True)
)
told_by("test_a_page_tells_of_a_job_what_is_told_of_it_alone")(
    _showing(lambda job: job._replace(attempts=0), "ListsNoAttempts", pages=True)
)


@told_by("test_a_job_that_waits_for_another_says_for_which")
class ShowsAJobBehindOneThatWasLost(Memory):
    async def job(self, id: str, *, cut: int | None = None) -> KeptJob | None:
        shown = await super().job(id, cut=cut)
        row = self._rows.get(id)
        if shown is None or row is None or row.alone not in self._busy or shown.state is not JobState.PARKED:
            return shown
        return shown._replace(behind=self._busy[row.alone].id)


@told_by("test_a_job_says_how_many_of_its_kind_are_held")
class CountsLostJobsOfAKindAsHeld(Memory):
    async def jobs(self, kind: str, state: JobState, **more: Any) -> list[KeptJob]:
        held = self._counts[kind]
        return [job._replace(kind_held=held) for job in await super().jobs(kind, state, **more)]


@told_by("test_a_job_says_how_many_of_its_kind_are_held")
class CountsTheHeldOfAllKinds(Memory):
    async def jobs(self, kind: str, state: JobState, **more: Any) -> list[KeptJob]:
        held = sum(row.held_until > self._clock.now() for row in self._rows.values())
        return [job._replace(kind_held=held) for job in await super().jobs(kind, state, **more)]


@told_by("test_a_job_that_is_gone_is_not_shown")
class TakesAnythingForAnId(Memory):
    async def job(self, id: str, *, cut: int | None = None) -> KeptJob | None:
        return await super().job(id if id in self._rows else max(self._rows, default=""), cut=cut)


@told_by("test_waiting_jobs_are_listed_in_the_order_they_are_due")
@told_by("test_held_jobs_are_listed_in_the_order_their_holds_end")
class ListsJobsInTheOrderOfTheirPushes(Memory):
    async def jobs(self, kind: str, state: JobState, **more: Any) -> list[KeptJob]:
        return sorted(await super().jobs(kind, state, **more), key=lambda job: int(job.id))


@told_by("test_waiting_jobs_are_listed_in_the_order_they_are_due")
class ListsJobsOfEveryKind(Memory):
    async def jobs(self, kind: str, state: JobState, **more: Any) -> list[KeptJob]:
        return [job for each in sorted(self._kinds) for job in await super().jobs(each, state, **more)]


@told_by("test_pages_of_a_kinds_jobs_have_each_once[waiting]")
@told_by("test_pages_of_a_kinds_jobs_have_each_once[held]")
class PagesJobsByTimeAlone(Memory):
    async def jobs(
        self, kind: str, state: JobState, *, after: tuple[int, str] | None = None, **more: Any
    ) -> list[KeptJob]:
        return await super().jobs(kind, state, after=after and (after[0], "9" * 18), **more)


@told_by("test_a_page_goes_on_behind_a_job_that_is_gone")
class PagesByTheJobThatWasLast(Memory):
    async def jobs(
        self, kind: str, state: JobState, *, after: tuple[int, str] | None = None, **more: Any
    ) -> list[KeptJob]:
        there = after is None or after[1] in self._rows
        return await super().jobs(kind, state, after=after, **more) if there else []


@told_by("test_failed_and_parked_jobs_are_not_listed_here")
class ListsNothingForOtherStates(Memory):
    async def jobs(self, kind: str, state: JobState, **more: Any) -> list[KeptJob]:
        listed = state in (JobState.WAITING, JobState.HELD)
        return await super().jobs(kind, state, **more) if listed else []


@told_by("test_looks_at_once_are_in_nobodys_way")
class HidesJobsWhileItLooks(Memory):
    async def counts(self, *, cap: int = 10_000) -> list[KindCount]:
        found = await super().counts(cap=cap)
        rows, self._rows = self._rows, {}
        await asyncio.sleep(0)
        self._rows = rows
        return found


# Cancels


@told_by("test_a_cancelled_job_that_waits_is_gone")
class CancelsNothing(Memory):
    def _cancel(self, id: str, now: int) -> Cancelled:
        row = self._rows.get(id)
        return Cancelled.NOT_THERE if row is None else Cancelled.REMOVED


@told_by("test_a_cancelled_job_that_waits_is_gone")
class FailsWhatIsCancelled(Memory):
    def _cancel(self, id: str, now: int) -> Cancelled:
        row = self._rows.get(id)
        if row is None or row.state is not State.WAITING:
            return super()._cancel(id, now)
        self._fail(row, now, "cancelled")
        return Cancelled.REMOVED


@told_by("test_a_failed_job_is_not_cancelled")
class DeletesFailedJobsByACancel(Memory):
    def _cancel(self, id: str, now: int) -> Cancelled:
        return Cancelled.REMOVED if self._delete(id) else super()._cancel(id, now)


@told_by("test_a_job_may_be_cancelled_through_another_instance")
@told_by("test_a_held_job_is_asked_to_stop_and_stays_held")
@told_by("test_a_held_job_keeps_others_of_its_key_waiting_until_it_ends")
class RemovesHeldJobs(Memory):
    def _cancel(self, id: str, now: int) -> Cancelled:
        row = self._rows.get(id)
        if row is None or row.state is not State.HELD:
            return super()._cancel(id, now)
        self._forget(row)
        return Cancelled.REMOVED


@told_by("test_a_cancel_says_of_each_job_what_became_of_it")
class AnswersCancelsInAnotherOrder(Memory):
    async def cancel(self, ids: Sequence[str]) -> list[Cancelled]:
        return sorted(await super().cancel(ids), key=lambda answer: answer.name)


@told_by("test_many_jobs_are_cancelled_by_one_call")
class CancelsAThousandAtMost(Memory):
    async def cancel(self, ids: Sequence[str]) -> list[Cancelled]:
        left = [Cancelled.NOT_THERE] * len(ids[1000:])
        return [*await super().cancel(ids[:1000]), *left]


@told_by("test_many_may_be_looked_after_at_once")
class LooksAfterAThousandAtMost(Memory):
    async def asked(self, held: Sequence[tuple[str, int]]) -> set[str]:
        return await super().asked(held[:1000])


@told_by("test_an_id_of_a_cancelled_job_is_never_used_again")
class UsesIdsOfTheCancelledAgain(Memory):
    def _cancel(self, id: str, now: int) -> Cancelled:
        answer = super()._cancel(id, now)
        if answer is Cancelled.REMOVED and self._numbers == int(id):
            self._numbers -= 1
        return answer


@told_by("test_a_held_job_is_asked_to_stop_and_stays_held")
@told_by("test_of_a_batch_of_extends_the_asked_are_told")
class TellsNobodyToStop(Memory):
    def _mark(self, mark: Mark, now: int) -> Kept:
        kept = super()._mark(mark, now)
        return Kept.YES if kept is Kept.STOP else kept


@told_by("test_a_held_job_is_asked_to_stop_and_stays_held")
class TellsToStopOnce(Memory):
    def _mark(self, mark: Mark, now: int) -> Kept:
        kept = super()._mark(mark, now)
        if kept is Kept.STOP:
            self._rows[mark.id].stop_asked = False
        return kept


@told_by("test_a_held_job_is_asked_to_stop_and_stays_held")
class ExtendsNoHoldThatIsToStop(Memory):
    def _mark(self, mark: Mark, now: int) -> Kept:
        row = self._rows.get(mark.id)
        if isinstance(mark, Extend) and row is not None and row.has_claim(mark.claim) and row.stop_asked:
            return Kept.STOP
        return super()._mark(mark, now)


@told_by("test_any_end_of_a_job_that_was_asked_to_stop_is_kept[Done]")
@told_by("test_any_end_of_a_job_that_was_asked_to_stop_is_kept[TryAgain]")
@told_by("test_any_end_of_a_job_that_was_asked_to_stop_is_kept[Fail]")
@told_by("test_any_end_of_a_job_that_was_asked_to_stop_is_kept[GiveBack]")
class AnswersStopToAnyMark(Memory):
    def _mark(self, mark: Mark, now: int) -> Kept:
        row = self._rows.get(mark.id)
        kept = super()._mark(mark, now)
        return Kept.STOP if kept is Kept.YES and row is not None and row.stop_asked else kept


class _ForgetsStops(Memory):
    def _hold(self, row: Row, until: int) -> Job:
        row.stop_asked = False
        return super()._hold(row, until)


class _SaysNoStop(Memory):
    def _hold(self, row: Row, until: int) -> Job:
        return super()._hold(row, until)._replace(stop_asked=False)


class _SaysAStopOnce(Memory):
    def _hold(self, row: Row, until: int) -> Job:
        job = super()._hold(row, until)
        row.stop_asked = False
        return job


_stops = (
    "test_a_stop_is_told_to_the_next_claim[TryAgain]",
    "test_a_stop_is_told_to_the_next_claim[GiveBack]",
    "test_a_stop_of_a_claim_that_was_lost_is_told_to_the_next",
    "test_a_stop_is_told_to_each_claim_until_the_job_is_gone",
    "test_a_stop_waits_for_the_end_of_a_hold_back",
)
for _test in _stops:
    for _forgets in (_ForgetsStops, _SaysNoStop, _SaysAStopOnce):
        told_by(_test)(_forgets)


@told_by("test_a_stop_is_told_to_the_next_claim[TryAgain]")
@told_by("test_a_stop_of_a_claim_that_was_lost_is_told_to_the_next")
@told_by("test_a_job_that_is_run_again_has_no_stop")
class SaysAStopToAll(Memory):
    def _hold(self, row: Row, until: int) -> Job:
        return super()._hold(row, until)._replace(stop_asked=True)


@told_by("test_a_stop_of_a_claim_that_was_lost_is_told_to_the_next")
@told_by("test_a_stop_is_told_to_each_claim_until_the_job_is_gone")
class ForgetsStopsOfTheLost(Memory):
    def _hold(self, row: Row, until: int) -> Job:
        row.stop_asked = row.stop_asked and not row.lost
        return super()._hold(row, until)


class _PutsOffTheStopped(Memory):
    def _mark(self, mark: Mark, now: int) -> Kept:
        row = self._rows.get(mark.id)
        to_stop = row is not None and row.stop_asked and row.has_claim(mark.claim)
        kept = super()._mark(mark, now)
        after = None if isinstance(mark, (Done, Fail, Extend)) else mark.after
        if to_stop and row is not None and row.state is State.WAITING and after is not None:
            self._leave(row)
            self._join(row, now + after)
        return kept


for _test in _stops[:2]:
    told_by(_test)(_PutsOffTheStopped)


@told_by("test_a_stop_waits_for_the_end_of_a_hold_back")
class ForgetsStopsAsItHoldsBack(Memory):
    def _mark(self, mark: Mark, now: int) -> Kept:
        if isinstance(mark, HoldBack):
            self._rows[mark.id].stop_asked = False
        return super()._mark(mark, now)


@told_by("test_a_job_that_is_to_be_removed_leaves_its_key_to_others")
class GivesKeysBackToTheStopped(Memory):
    def _mark(self, mark: Mark, now: int) -> Kept:
        kept = super()._mark(mark, now)
        row = self._rows.get(mark.id)
        if kept is Kept.YES and row is not None and row.stop_asked and isinstance(mark, GiveBack):
            self._take_key(row)
        return kept


@told_by("test_a_job_that_was_asked_to_stop_fails_as_any_other")
class RemovesTheStoppedThatFail(Memory):
    def _fail(self, row: Row, now: int, error: str) -> None:
        super()._fail(row, now, error)
        if row.stop_asked:
            self._forget(row)


@told_by("test_a_job_that_is_run_again_has_no_stop")
class RunsAgainToStop(Memory):
    def _run_again(self, id: str, now: int) -> bool:
        asked = id in self._rows and self._rows[id].stop_asked
        there = super()._run_again(id, now)
        if there:
            self._rows[id].stop_asked = asked
        return there


@told_by("test_a_job_that_was_asked_to_stop_fails_as_any_other")
class ShowsStopsOfTheFailed(Memory):
    async def job(self, id: str, *, cut: int | None = None) -> KeptJob | None:
        shown = await super().job(id, cut=cut)
        return None if shown is None else shown._replace(stop_asked=self._rows[id].stop_asked)


for _pages in (False, True):
    told_by("test_a_stop_is_shown_until_the_job_is_gone")(
        _showing(
            lambda job: job._replace(stop_asked=job.stop_asked and job.state is JobState.HELD),
            "ShowsStopsOfTheHeldAlone",
            pages=_pages,
        )
    )


@told_by("test_a_cancel_that_lets_the_next_of_its_key_go_wakes_others")
class WakesNobodyAsItCancels(Memory):
    async def cancel(self, ids: Sequence[str]) -> list[Cancelled]:
        wakes, self._wakes = self._wakes, []
        try:
            return await super().cancel(ids)
        finally:
            self._wakes = wakes


@told_by("test_a_stop_is_told_to_the_next_claim[TryAgain]")
@told_by("test_another_claim_than_the_jobs_was_not_asked")
class AsksWhateverClaim(Memory):
    async def asked(self, held: Sequence[tuple[str, int]]) -> set[str]:
        return {id for id, _ in held if id in self._rows and self._rows[id].stop_asked}


@told_by("test_those_asked_to_stop_are_named")
class NamesAllThatAreAsked(Memory):
    async def asked(self, held: Sequence[tuple[str, int]]) -> set[str]:
        return {id for id, row in self._rows.items() if row.stop_asked and row.state is State.HELD}


@told_by("test_a_look_for_those_asked_writes_nothing")
class NotesWhoWasTold(Memory):
    async def asked(self, held: Sequence[tuple[str, int]]) -> set[str]:
        found = await super().asked(held)
        for id in found:
            self._rows[id].keep_name += 1
        return found


@told_by("test_a_job_whose_hold_ran_out_is_removed")
@told_by("test_a_cancel_of_a_lost_job_lets_the_next_of_its_key_go")
@told_by("test_a_batch_of_cancels_lets_one_of_each_key_go")
@told_by("test_a_cancel_of_a_lost_job_makes_room_for_another_of_its_kind")
class AsksThoseThatWereLost(Memory):
    def _cancel(self, id: str, now: int) -> Cancelled:
        return super()._cancel(id, 0)


@told_by("test_a_job_whose_hold_ran_out_is_removed")
class RemovesAMomentEarly(Memory):
    def _cancel(self, id: str, now: int) -> Cancelled:
        return super()._cancel(id, now + 1_000_000)


@told_by("test_a_lost_job_that_a_claim_passed_over_is_removed")
class AsksWhoeverHadAClaim(Memory):
    def _cancel(self, id: str, now: int) -> Cancelled:
        row = self._rows.get(id)
        if row is not None and row.claimed and row.state is State.WAITING:
            row.stop_asked = True
            return Cancelled.ASKED
        return super()._cancel(id, now)


@told_by("test_a_job_that_waits_again_is_removed[TryAgain]")
@told_by("test_a_job_that_waits_again_is_removed[GiveBack]")
class AsksWhatWasEverHeld(Memory):
    def _cancel(self, id: str, now: int) -> Cancelled:
        row = self._rows.get(id)
        if row is not None and row.claim > 0 and row.state is State.WAITING:
            return Cancelled.ASKED
        return super()._cancel(id, now)


class _KeepsKeysOfTheCancelled(Memory):
    def _cancel(self, id: str, now: int) -> Cancelled:
        row = self._rows.get(id)
        had = row is not None and row.unique
        answer = super()._cancel(id, now)
        if row is not None and had and answer is Cancelled.REMOVED:
            self._take_key(row)
        return answer


for _test in (
    "test_a_cancelled_job_lets_its_key_go",
    "test_a_cancelled_job_is_not_moved",
    "test_a_cancelled_job_that_waits_for_another_is_gone",
    "test_a_job_with_everything_is_cancelled_in_any_state",
    "test_a_push_beside_a_cancel_is_refused_or_kept",
):
    told_by(_test)(_KeepsKeysOfTheCancelled)


@told_by("test_a_cancel_leaves_a_key_that_another_has_by_now")
class TakesAnothersKeyAlong(Memory):
    def _cancel(self, id: str, now: int) -> Cancelled:
        row = self._rows.get(id)
        answer = super()._cancel(id, now)
        has = self._keys.get(row.key) if row is not None and row.key is not None else None
        if answer is Cancelled.REMOVED and has is not None:
            self._let_key_go(has)
        return answer


@told_by("test_a_cancelled_jobs_name_is_kept_as_long_as_a_done_ones")
class ForgetsNamesOfTheCancelled(Memory):
    def _cancel(self, id: str, now: int) -> Cancelled:
        row = self._rows.get(id)
        answer = super()._cancel(id, now)
        if answer is Cancelled.REMOVED and row is not None and row.name is not None:
            del self._names[row.name]
        return answer


@told_by("test_a_job_with_everything_is_cancelled_in_any_state")
class KeepsNamesOfTheCancelled(Memory):
    def _cancel(self, id: str, now: int) -> Cancelled:
        row = self._rows.get(id)
        answer = super()._cancel(id, now)
        if answer is Cancelled.REMOVED and row is not None and row.name is not None:
            self._names[row.name] = row
        return answer


@told_by("test_a_cancelled_job_that_waits_for_another_is_gone")
class CancelsNoParkedJob(Memory):
    def _cancel(self, id: str, now: int) -> Cancelled:
        row = self._rows.get(id)
        parked = row is not None and row.state is State.PARKED
        return Cancelled.NOT_THERE if parked else super()._cancel(id, now)


class _WakesNobodyByACancel(Memory):
    cancels = False

    def _cancel(self, id: str, now: int) -> Cancelled:
        self.cancels = True
        try:
            return super()._cancel(id, now)
        finally:
            self.cancels = False

    def _next_of(self, row: Row) -> None:
        if not self.cancels:
            super()._next_of(row)


for _test in (
    "test_a_cancel_of_a_lost_job_lets_the_next_of_its_key_go",
    "test_a_cancel_of_the_job_whose_turn_it_is_lets_the_next_of_its_key_go",
    "test_a_batch_of_cancels_lets_one_of_each_key_go",
):
    told_by(_test)(_WakesNobodyByACancel)


@told_by("test_a_held_job_keeps_others_of_its_key_waiting_until_it_ends")
@told_by("test_a_cancel_of_a_lost_job_makes_room_for_another_of_its_kind")
class CountsNoJobThatIsToStop(Memory):
    def _cancel(self, id: str, now: int) -> Cancelled:
        answer = super()._cancel(id, now)
        row = self._rows.get(id)
        if answer is Cancelled.ASKED and row is not None and row.counts:
            row.counts = False
            self._counts[row.kind] -= 1
            if row.alone is not None:
                del self._busy[row.alone]
                self._next_of(row)
        return answer


@told_by("test_of_cancels_at_once_one_removes_the_job")
@told_by("test_a_cancel_beside_the_end_of_its_job_keeps_the_end")
class LooksThenCancels(Memory):
    """What it looked at has changed by the time that it answers."""

    async def cancel(self, ids: Sequence[str]) -> list[Cancelled]:
        there = [id in self._rows for id in ids]
        await asyncio.sleep(0)
        await super().cancel(ids)
        return [Cancelled.REMOVED if each else Cancelled.NOT_THERE for each in there]


@told_by("test_a_job_is_removed_or_claimed_and_asked_to_stop")
class RemovesWhatItSawWaiting(Memory):
    async def cancel(self, ids: Sequence[str]) -> list[Cancelled]:
        waited = [id for id in ids if id in self._rows and self._rows[id].state is State.WAITING]
        await asyncio.sleep(0)
        answers = await super().cancel(ids)
        return [
            Cancelled.REMOVED if id in waited else answer for id, answer in zip(ids, answers, strict=True)
        ]


@told_by("test_cancels_beside_workers_never_have_two_of_a_key_held")
class LetsTheKeysOfTheCancelledGo(Memory):
    def _cancel(self, id: str, now: int) -> Cancelled:
        row = self._rows.get(id)
        answer = super()._cancel(id, now)
        holder = None if row is None or row.alone is None else self._busy.pop(row.alone, None)
        if holder is not None:
            holder.alone = None
            assert row is not None
            self._next_of(row)
        return answer


@told_by("test_a_cancelled_job_that_is_due_later_is_not_waited_for")
class WaitsForTheCancelled(Memory):
    def _cancel(self, id: str, now: int) -> Cancelled:
        row = self._rows.get(id)
        answer = super()._cancel(id, now)
        if answer is Cancelled.REMOVED and row is not None:
            self._waiting[row.kind].join(row.run_at, row)
        return answer


# Pauses


class _Unpaused(Memory):
    """Forgets some pauses as it claims."""

    def forgets(self, kinds: Sequence[Claimable], others: Claimable | None) -> bool:
        return True

    async def claim(
        self, kinds: Sequence[Claimable], limit: int, *, ahead: int = 0, others: Claimable | None = None
    ) -> Claimed:
        paused = self._paused
        if self.forgets(kinds, others):
            self._paused = set()
        try:
            return await super().claim(kinds, limit, ahead=ahead, others=others)
        finally:
            self._paused = paused


for _test in (
    "test_a_paused_kind_is_not_claimed",
    "test_a_pause_by_another_instance_holds_here",
    "test_pushes_of_a_paused_kind_are_kept",
    "test_jobs_that_run_go_on[TryAgain]",
    "test_a_kind_whose_jobs_are_done_may_be_paused",
    "test_a_kind_that_is_held_back_and_paused_waits_for_both",
    "test_the_next_of_a_key_is_claimed_after_the_pause",
    "test_a_job_that_is_run_again_waits_for_the_end_of_the_pause",
    "test_a_run_of_a_paused_kind_is_pushed_and_waits",
    "test_no_claim_that_begins_after_a_pause_returns_a_job",
    "test_pauses_at_once_leave_the_kind_as_the_last_has_it",
    "test_a_claim_of_a_paused_kind_writes_nothing",
):
    told_by(_test)(_Unpaused)


@told_by("test_a_paused_kind_is_not_claimed")
class ClaimsPausedKindsByPriority(_Unpaused):
    def forgets(self, kinds: Sequence[Claimable], others: Claimable | None) -> bool:
        return any(each.priority for each in kinds)


@told_by("test_a_paused_kind_is_not_claimed")
class ClaimsPausedKindsForOthers(_Unpaused):
    def forgets(self, kinds: Sequence[Claimable], others: Claimable | None) -> bool:
        return others is not None


@told_by("test_a_lost_job_of_a_paused_kind_is_not_claimed")
@told_by("test_a_paused_kinds_jobs_are_not_failed_by_a_claim")
class ClaimsTheLostOfPausedKinds(_Unpaused):
    def forgets(self, kinds: Sequence[Claimable], others: Claimable | None) -> bool:
        return any(until <= self._clock.now() for until, _ in self._held)


@told_by("test_a_paused_kinds_jobs_are_not_failed_by_a_claim")
class FailsThoseOfPausedKinds(Memory):
    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        found = await super().claim(kinds, limit, **more)
        most = {each.kind: each.attempts for each in kinds}
        spent = [
            row
            for row in self._rows.values()
            if row.kind in self._paused and row.state is State.WAITING and row.attempts >= most[row.kind]
        ]
        for row in spent:
            self._fail(row, self._clock.now(), "exhausted")
        more_spent = [
            Job(row.id, row.kind, row.payload, row.run_at, row.attempts, row.claim) for row in spent
        ]
        return replace(found, exhausted=[*found.exhausted, *more_spent])


@told_by("test_a_paused_kind_is_not_claimed")
class PausesEveryKind(Memory):
    def _room(self, kind: str, term: Claimable, now: int) -> int:
        return 0 if self._paused else super()._room(kind, term, now)


@told_by("test_pushes_of_a_paused_kind_are_kept")
class PausesForAMinute(Memory):
    async def pause(self, kind: str, paused: bool) -> bool:
        self._until = self._clock.now() + 60_000_000
        return await super().pause(kind, paused)

    def _room(self, kind: str, term: Claimable, now: int) -> int:
        if self._paused and now >= self._until:
            self._paused.clear()
        return super()._room(kind, term, now)


@told_by("test_pushes_of_a_paused_kind_are_kept")
class ResumesByAPush(Memory):
    def _keep(self, rows: Sequence[Row]) -> None:
        self._paused.difference_update(row.kind for row in rows)
        super()._keep(rows)


@told_by("test_a_paused_kind_has_its_keys")
class LetsKeysGoInAPause(Memory):
    async def pause(self, kind: str, paused: bool) -> bool:
        for row in self._rows.values():
            if paused and row.kind == kind:
                self._let_key_go(row)
        return await super().pause(kind, paused)


@told_by("test_jobs_that_run_go_on[Done]")
class TakesJobsBackByAPause(Memory):
    async def pause(self, kind: str, paused: bool) -> bool:
        for row in self._rows.values():
            if paused and row.kind == kind and row.state is State.HELD:
                self._end_claim(row)
        return await super().pause(kind, paused)


@told_by("test_a_paused_kind_does_not_keep_the_feed_awake")
class WakesForPausedKinds(Memory):
    def _next_in(self, terms: dict[str, Claimable], now: int) -> int | None:
        paused, self._paused = self._paused, set()
        try:
            return super()._next_in(terms, now)
        finally:
            self._paused = paused


@told_by("test_a_paused_kind_does_not_keep_the_feed_awake")
class SaysAgainForPausedKinds(Memory):
    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        found = await super().claim(kinds, limit, **more)
        return replace(found, again=found.again or bool(self._paused))


@told_by("test_a_resume_by_another_instance_wakes")
class ResumesInSilence(Memory):
    async def pause(self, kind: str, paused: bool) -> bool:
        wakes, self._wakes = self._wakes, []
        try:
            return await super().pause(kind, paused)
        finally:
            self._wakes = wakes


@told_by("test_a_kind_may_be_paused_and_resumed_twice")
class CountsPauses(Memory):
    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self._pauses = 0

    async def pause(self, kind: str, paused: bool) -> bool:
        self._pauses += 1 if paused else -1
        return await super().pause(kind, self._pauses > 0)


@told_by("test_a_kind_may_be_paused_and_resumed_twice")
class SaysWhetherItChangedAnything(Memory):
    async def pause(self, kind: str, paused: bool) -> bool:
        was = kind in self._paused
        return await super().pause(kind, paused) and was is not paused


@told_by("test_a_kind_that_is_not_there_is_not_paused")
class PausesAnything(Memory):
    async def pause(self, kind: str, paused: bool) -> bool:
        self._kinds.add(kind)
        return await super().pause(kind, paused)


@told_by("test_a_kind_that_is_not_there_is_not_paused")
class PausesWhateverCase(Memory):
    async def pause(self, kind: str, paused: bool) -> bool:
        return await super().pause(kind.lower().strip(), paused)


@told_by("test_a_kind_whose_jobs_are_done_may_be_paused")
class PausesKindsThatHaveJobs(Memory):
    async def pause(self, kind: str, paused: bool) -> bool:
        there = any(row.kind == kind for row in self._rows.values())
        return there and await super().pause(kind, paused)


@told_by("test_a_job_of_a_paused_kind_may_be_cancelled")
class CancelsNothingOfPausedKinds(Memory):
    def _cancel(self, id: str, now: int) -> Cancelled:
        row = self._rows.get(id)
        paused = row is not None and row.kind in self._paused
        return Cancelled.BUSY if paused else super()._cancel(id, now)


@told_by("test_no_claim_that_begins_after_a_pause_returns_a_job")
class PausesALittleLater(Memory):
    async def pause(self, kind: str, paused: bool) -> bool:
        asyncio.get_running_loop().call_later(0, self._paused.add if paused else self._paused.discard, kind)
        return kind in self._kinds


class _Opened(Memory):
    """Hears of registered kinds as it's opened."""

    extras: ClassVar[Extra] = Memory.extras | Extra.LIFECYCLE

    async def open(self, kinds: Sequence[str] = ()) -> None:
        self._kinds.update(kinds)

    async def close(self) -> None:
        pass


@told_by("test_a_registered_kind_is_listed_before_its_first_push")
@told_by("test_a_registered_kind_may_be_paused_before_its_first_push")
class HearsOfNoRegistration(_Opened):
    async def open(self, kinds: Sequence[str] = ()) -> None:
        pass


@told_by("test_a_registered_kind_may_be_paused_before_its_first_push")
class ResumesByARegistration(_Opened):
    async def open(self, kinds: Sequence[str] = ()) -> None:
        await super().open(kinds)
        self._paused.difference_update(kinds)


# Progress


class _Reports(Memory):
    """Keeps reports otherwise."""

    def keeps(self, row: Row, claim: int) -> bool:
        return row.has_claim(claim)

    async def progress(self, reports: Sequence[tuple[str, int, str]]) -> None:
        for id, claim, text in reports:
            row = self._rows.get(id)
            if row is not None and self.keeps(row, claim):
                row.progress = text


@told_by("test_a_report_of_another_claim_is_left")
@told_by("test_a_report_after_its_claims_end_is_left[TryAgain]")
@told_by("test_a_report_after_its_claims_end_is_left[GiveBack]")
@told_by("test_a_report_after_its_claims_end_is_left[Fail]")
@told_by("test_progress_stays_with_a_failed_job_and_as_it_is_run_again")
@told_by("test_reports_of_nothing_write_nothing")
class KeepsReportsOfAnyClaim(_Reports):
    def keeps(self, row: Row, claim: int) -> bool:
        return True


@told_by("test_a_report_of_another_claim_is_left")
class KeepsReportsOfAnOldClaim(_Reports):
    def keeps(self, row: Row, claim: int) -> bool:
        return claim <= row.claim


@told_by("test_a_report_of_a_lost_claim_is_kept_while_no_other_took_the_job")
class LeavesReportsOfTheLost(_Reports):
    def keeps(self, row: Row, claim: int) -> bool:
        return row.has_claim(claim) and row.held_until > self._clock.now()


@told_by("test_the_progress_of_a_job_that_was_asked_to_stop_is_kept")
class LeavesReportsOfThoseToStop(_Reports):
    def keeps(self, row: Row, claim: int) -> bool:
        return row.has_claim(claim) and not row.stop_asked


@told_by("test_a_report_is_shown_until_the_next")
class KeepsTheFirstReport(_Reports):
    def keeps(self, row: Row, claim: int) -> bool:
        return row.has_claim(claim) and row.progress is None


@told_by("test_a_report_of_another_claim_is_left")
@told_by("test_reports_at_once_beside_ends_are_each_kept_or_left")
class StopsAtAReportThatIsLeft(Memory):
    async def progress(self, reports: Sequence[tuple[str, int, str]]) -> None:
        for each in reports:
            row = self._rows.get(each[0])
            if row is None or not row.has_claim(each[1]):
                return
            await super().progress([each])


@told_by("test_of_several_reports_of_one_claim_the_last_is_kept")
class KeepsTheFirstReportOfACall(Memory):
    async def progress(self, reports: Sequence[tuple[str, int, str]]) -> None:
        await super().progress(reports[::-1])


@told_by("test_many_reports_are_kept_by_one_call")
class KeepsAThousandReports(Memory):
    async def progress(self, reports: Sequence[tuple[str, int, str]]) -> None:
        await super().progress(reports[:1000])


@told_by("test_a_reports_text_comes_back_as_it_was[1 KiB]")
class CutsReports(Memory):
    async def progress(self, reports: Sequence[tuple[str, int, str]]) -> None:
        await super().progress([(id, claim, text[:1000]) for id, claim, text in reports])


@told_by("test_a_reports_text_comes_back_as_it_was[escapes]")
class UnescapesReports(Memory):
    async def progress(self, reports: Sequence[tuple[str, int, str]]) -> None:
        await super().progress([(id, claim, text.replace("\\u0000", "\0")) for id, claim, text in reports])


@told_by("test_a_report_changes_nothing_else")
class ExtendsByAReport(Memory):
    async def progress(self, reports: Sequence[tuple[str, int, str]]) -> None:
        await super().progress(reports)
        await self.mark([Extend(id, claim, 60_000_000) for id, claim, _ in reports])


def _without_progress_after(kind: type[Mark], name: str) -> type[Memory]:
    class Forgets(Memory):
        def _mark(self, mark: Mark, now: int) -> Kept:
            row = self._rows.get(mark.id)
            kept = super()._mark(mark, now)
            if isinstance(mark, kind) and kept is Kept.YES and row is not None:
                row.progress = None
            return kept

    Forgets.__name__ = name
    return Forgets


told_by("test_progress_stays_through_retries")(_without_progress_after(TryAgain, "ForgetsProgressToTryAgain"))
told_by("test_progress_stays_with_a_failed_job_and_as_it_is_run_again")(
    _without_progress_after(Fail, "ForgetsTheProgressOfTheFailed")
)


@told_by("test_progress_stays_through_retries")
class BeginsEachClaimWithoutProgress(Memory):
    def _hold(self, row: Row, until: int) -> Job:
        row.progress = None
        return super()._hold(row, until)


@told_by("test_progress_stays_with_a_failed_job_and_as_it_is_run_again")
class RunsAgainWithoutProgress(Memory):
    def _run_again(self, id: str, now: int) -> bool:
        if id in self._rows:
            self._rows[id].progress = None
        return super()._run_again(id, now)


@told_by("test_progress_goes_with_its_job")
class KeepsTheProgressOfAPayload(Memory):
    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self._far: dict[str, str | None] = {}

    async def job(self, id: str, *, cut: int | None = None) -> KeptJob | None:
        shown = await super().job(id, cut=cut)
        return None if shown is None else shown._replace(progress=self._far.get(shown.payload))

    async def progress(self, reports: Sequence[tuple[str, int, str]]) -> None:
        await super().progress(reports)
        self._far |= {row.payload: row.progress for row in self._rows.values()}


# Beside transactions


@told_in_a_transaction_by("test_a_look_sees_nothing_of_an_open_transaction")
class CountsWhatIsStaged(Memory):
    async def counts(self, *, cap: int = 10_000) -> list[KindCount]:
        found = await super().counts(cap=cap)
        more = self._numbers - len(self._rows)
        return [row._replace(waiting=row.waiting + more) for row in found]


@told_in_a_transaction_by("test_a_job_that_a_transaction_moves_is_shown_where_it_was")
class ShowsMovesBeforeTheyAreKept(Memory):
    async def job(self, id: str, *, cut: int | None = None) -> KeptJob | None:
        shown = await super().job(id, cut=cut)
        return shown and shown._replace(run_at=self._rows[id].run_at)


class _HidesWhatATransactionHas(Memory):
    async def job(self, id: str, *, cut: int | None = None) -> KeptJob | None:
        row = self._rows.get(id)
        return None if row is not None and row.state is State.STAGED else await super().job(id, cut=cut)


told_in_a_transaction_by("test_a_job_that_a_transaction_moves_is_shown_where_it_was")(
    _HidesWhatATransactionHas
)
told_in_a_transaction_by("test_a_job_that_a_transaction_does_is_shown_as_held")(_HidesWhatATransactionHas)


@told_in_a_transaction_by("test_a_look_for_those_asked_to_stop_waits_for_no_transaction")
class NamesNoneThatATransactionHas(Memory):
    async def asked(self, held: Sequence[tuple[str, int]]) -> set[str]:
        found = await super().asked(held)
        return {id for id in found if self._rows[id].state is not State.STAGED}


class _CancelsWhatATransactionHas(Memory):
    def _cancel(self, id: str, now: int) -> Cancelled:
        row = self._rows.get(id)
        if row is None or row.state is not State.STAGED:
            return super()._cancel(id, now)
        row.stop_asked = True
        return Cancelled.ASKED


for _test in (
    "test_a_cancel_of_a_job_that_a_transaction_does_is_busy_or_waits",
    "test_a_lost_job_that_a_transaction_does_is_not_removed_meanwhile",
    "test_a_job_that_a_transaction_moves_is_cancelled_after_it",
):
    told_in_a_transaction_by(_test)(_CancelsWhatATransactionHas)


@told_in_a_transaction_by("test_a_cancel_of_a_job_that_a_transaction_does_is_busy_or_waits")
class AsksAJobThatIsBusy(_CancelsWhatATransactionHas):
    def _cancel(self, id: str, now: int) -> Cancelled:
        answer = super()._cancel(id, now)
        row = self._rows.get(id)
        return Cancelled.BUSY if row is not None and row.state is State.STAGED else answer


@told_in_a_transaction_by("test_a_cancel_of_a_job_that_a_transaction_does_is_busy_or_waits")
class CancelsNoneBesideOneThatIsBusy(Memory):
    async def cancel(self, ids: Sequence[str]) -> list[Cancelled]:
        busy = any(id in self._rows and self._rows[id].state is State.STAGED for id in ids)
        return [Cancelled.BUSY] * len(ids) if busy else await super().cancel(ids)


@told_in_a_transaction_by("test_a_job_that_a_transaction_pushes_is_not_there_until_it_commits")
class SaysThatItCancelledWhatIsStaged(Memory):
    def _cancel(self, id: str, now: int) -> Cancelled:
        answer = super()._cancel(id, now)
        staged = id not in self._rows and id.isdigit() and int(id) <= self._numbers
        return Cancelled.REMOVED if answer is Cancelled.NOT_THERE and staged else answer


@told_in_a_transaction_by("test_a_report_leaves_a_job_that_a_transaction_does")
class KeepsNoReportBesideOneThatIsBusy(Memory):
    async def progress(self, reports: Sequence[tuple[str, int, str]]) -> None:
        if all(self._rows[id].state is not State.STAGED for id, _, _ in reports if id in self._rows):
            await super().progress(reports)


@told_in_a_transaction_by("test_what_a_transaction_pushes_of_a_kind_that_is_paused_meanwhile_waits")
class ResumesByAPushInATransaction(Memory):
    def _keep_staged(self, rows: Sequence[Row], moved: Sequence[tuple[Row, int]]) -> None:
        self._paused.difference_update(row.kind for row in rows)
        super()._keep_staged(rows, moved)


# Prunes


@told_by("test_a_prune_asks_when_a_job_failed_and_not_when_it_was_pushed")
class PrunesByTheTimeOfThePush(Memory):
    async def prune(self, failed_for: int, limit: int) -> int:
        old = self._clock.now() - failed_for
        late = [row.id for row in self._rows.values() if row.state is State.FAILED and row.created_at < old]
        return sum(await self.delete(late[:limit])) + await super().prune(failed_for, limit)


@told_by("test_all_that_a_prune_removes_is_within_its_limit")
class PrunesSoManyOfEachSort(Memory):
    async def prune(self, failed_for: int, limit: int) -> int:
        now = self._clock.now()
        return await super().prune(failed_for, limit) + self._counters.prune(now, limit)


@told_by("test_all_that_a_prune_removes_is_within_its_limit")
class PrunesNoNames(Memory):
    async def prune(self, failed_for: int, limit: int) -> int:
        names, self._names = self._names, {}
        pruned = await super().prune(failed_for, limit)
        self._names = names | self._names
        return pruned


@told_by("test_a_job_is_pruned_or_run_again")
class PrunesWhatItSawFailed(Memory):
    async def prune(self, failed_for: int, limit: int) -> int:
        late = [row for row in self._rows.values() if row.state is State.FAILED][:limit]
        await asyncio.sleep(0)
        for row in late:
            if row.id in self._rows:
                self._forget(row)
        return len(late)


# All of it together

for _store in (
    _CountsHeldJobsAsWaiting,
    _KeepsKeysOfTheCancelled,
    _ForgetsStops,
    _PutsOffTheStopped,
    GivesKeysBackToTheStopped,
    _Unpaused,
    RemovesHeldJobs,
    TakesAnothersKeyAlong,
    TellsToStopOnce,
    CountsNoJobThatIsToStop,
):
    told_by("test_random_histories_with_cancels_and_pauses_keep_every_rule")(_store)

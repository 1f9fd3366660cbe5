"""Stores broken on purpose, one promise each, and the test of the suite that must name it.

Longer than 300 lines, as it's a list: what each fault does is a line or a few of a store that is sound
in all else. That line is often inside `Memory`, so the faults reach into it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar, Literal, cast

from sqlalchemy import event
from sqlalchemy.orm import Session

from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.core.job import FailedJob, Job, NewJob
from fastjobs.core.marks import Done, Extend, Fail, GiveBack, Kept, Mark, TryAgain
from fastjobs.store import Ender, Pusher, SyncEnder, SyncPusher
from fastjobs.stores.memory import Memory
from fastjobs.stores.rows import Row, State
from fastjobs.stores.staging import Staged

FAULTS: list[tuple[type[Memory], str]] = []
"""A store, and the name of the test that tells its fault."""
TRANSACTION_FAULTS: list[tuple[type[Memory], str]] = []
"""The same for faults that only a transaction shows."""

Fault = Callable[[type[Memory]], type[Memory]]


def told_by(test: str) -> Fault:
    def note(store: type[Memory]) -> type[Memory]:
        FAULTS.append((store, test))
        return store

    return note


def told_in_a_transaction_by(test: str) -> Fault:
    def note(store: type[Memory]) -> type[Memory]:
        TRANSACTION_FAULTS.append((store, test))
        return store

    return note


# Pushing


@told_by("test_a_push_keeps_all_of_its_jobs_or_none")
class PushesPartOfABatch(Memory):
    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        ids: list[str | None] = []
        for job in jobs:
            job.payload.encode()
            ids += await super().push([job])
        return ids


@told_by("test_ids_are_never_used_again")
class UsesIdsAgain(Memory):
    def _new(self, jobs: Sequence[NewJob]) -> list[Row]:
        self._numbers = max((row.number for row in self._rows.values()), default=0)
        return super()._new(jobs)


@told_by("test_a_push_answers_an_id_for_each_job_in_order")
class AnswersIdsInAnotherOrder(Memory):
    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        return (await super().push(jobs))[::-1]


@told_by("test_a_payload_comes_back_as_it_was[escapes]")
class UnescapesPayloads(Memory):
    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        return await super().push(
            [job._replace(payload=job.payload.replace("\\u0000", "\0")) for job in jobs]
        )


@told_by("test_a_payload_comes_back_as_it_was[256 KB]")
class CutsPayloads(Memory):
    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        return await super().push([job._replace(payload=job.payload[:65_535]) for job in jobs])


@told_by("test_a_kinds_name_is_kept_to_the_letter")
class TakesMailAndmailForOneKind(Memory):
    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        return await super().push([job._replace(kind=job.kind.lower()) for job in jobs])

    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        return await super().claim([replace(each, kind=each.kind.lower()) for each in kinds], limit, **more)


@told_by("test_after_is_measured_from_the_stores_now")
class MeasuresAfterFromItsStart(Memory):
    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self._start = self._clock.now()

    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        return await super().push(
            [job._replace(at=self._start + job.after) if job.at is None else job for job in jobs]
        )


# Listening


@told_by("test_a_push_of_another_instance_wakes")
class HearsOfNothing(Memory):
    @asynccontextmanager
    async def listen(self, wake: Callable[[], None]) -> AsyncGenerator[None]:
        yield


@told_by("test_a_push_of_another_instance_wakes")
class WakesBeforeItKeeps(Memory):
    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        for wake in self._wakes:
            wake()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        wakes, self._wakes = self._wakes, []
        ids = await super().push([job._replace(after=job.after + 1) for job in jobs])
        self._wakes = wakes
        return ids


@told_by("test_each_push_of_another_instance_wakes")
class WakesOnce(Memory):
    @asynccontextmanager
    async def listen(self, wake: Callable[[], None]) -> AsyncGenerator[None]:
        once = iter([wake])
        async with super().listen(lambda: next(once, lambda: None)()):
            yield


@told_by("test_a_push_for_later_wakes_too")
class WakesForWhatIsDueAlone(Memory):
    def _keep(self, rows: Sequence[Row]) -> None:
        wakes = self._wakes
        if all(row.run_at > self._clock.now() for row in rows):
            self._wakes = []
        super()._keep(rows)
        self._wakes = wakes


@told_by("test_all_that_listen_are_woken")
class WakesTheLastAlone(Memory):
    def _keep(self, rows: Sequence[Row]) -> None:
        wakes, self._wakes = self._wakes, self._wakes[-1:]
        super()._keep(rows)
        self._wakes = wakes


@told_by("test_one_that_left_is_woken_no_more_and_another_still_is")
class WakesThoseThatLeft(Memory):
    @asynccontextmanager
    async def listen(self, wake: Callable[[], None]) -> AsyncGenerator[None]:
        self._wakes.append(wake)
        yield


@told_by("test_one_that_left_is_woken_no_more_and_another_still_is")
class LeavesForAll(Memory):
    @asynccontextmanager
    async def listen(self, wake: Callable[[], None]) -> AsyncGenerator[None]:
        self._wakes.append(wake)
        yield
        self._wakes.clear()


@told_by("test_one_that_left_may_listen_again")
class IsListenedToOnce(Memory):
    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self._left = False

    @asynccontextmanager
    async def listen(self, wake: Callable[[], None]) -> AsyncGenerator[None]:
        async with super().listen((lambda: None) if self._left else wake):
            yield
        self._left = True


@told_by("test_a_wake_that_raises_ends_nothing")
class DropsWakesThatRaise(Memory):
    @asynccontextmanager
    async def listen(self, wake: Callable[[], None]) -> AsyncGenerator[None]:
        broken = False

        def careful() -> None:
            nonlocal broken
            if not broken:
                broken = True
                wake()
                broken = False

        async with super().listen(careful):
            yield


@told_by("test_a_wake_that_raises_ends_nothing")
class LetsAWakesErrorOutOfThePush(Memory):
    def _keep(self, rows: Sequence[Row]) -> None:
        wakes, self._wakes = self._wakes, []
        super()._keep(rows)
        self._wakes = wakes
        for wake in wakes:
            wake()


@told_by("test_pushes_claims_and_marks_go_on_while_someone_listens")
class ClaimsNothingWhileSomeoneListens(Memory):
    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        return Claimed() if self._wakes else await super().claim(kinds, limit, **more)


@told_in_a_transaction_by("test_a_push_in_anothers_transaction_wakes_as_it_commits")
class WakesAsItIsPushedInATransaction(Memory):
    def _new(self, jobs: Sequence[NewJob]) -> list[Row]:
        for wake in self._wakes:
            wake()
        return super()._new(jobs)

    def _keep(self, rows: Sequence[Row]) -> None:
        wakes, self._wakes = self._wakes, []
        super()._keep(rows)
        self._wakes = wakes


# Claiming


@told_by("test_of_claims_at_once_each_job_goes_to_one")
class LooksThenTakes(Memory):
    """Between what it reads and what it writes others have their turn."""

    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        rows = list(self._due({each.kind: each for each in kinds}, self._clock.now()))[:limit]
        found = [(row, row.attempts) for row in rows]
        await asyncio.sleep(0)
        sound = await super().claim(kinds, limit, **more)
        missed = [row for row, _ in found if row.id not in {job.id for job in sound.jobs}]
        stolen = [Job(row.id, row.kind, row.payload, row.run_at, 1, row.claim) for row in missed]
        return replace(sound, jobs=[*sound.jobs, *stolen])


@told_by("test_a_claim_takes_only_the_kinds_it_names")
class TakesAnyKind(Memory):
    async def claim(
        self, kinds: Sequence[Claimable], limit: int, *, ahead: int = 0, others: Claimable | None = None
    ) -> Claimed:
        return await super().claim(kinds, limit, ahead=ahead, others=others or (kinds[0] if kinds else None))


@told_by("test_with_others_a_claim_takes_every_kind")
class IgnoresOthers(Memory):
    async def claim(
        self, kinds: Sequence[Claimable], limit: int, *, ahead: int = 0, others: Claimable | None = None
    ) -> Claimed:
        return await super().claim(kinds, limit, ahead=ahead)


@told_by("test_a_named_kind_without_room_is_not_taken_as_one_of_the_others")
class PassesKindsWithoutRoomOnToTheOthers(Memory):
    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        return await super().claim([each for each in kinds if each.limit != 0], limit, **more)


@told_by("test_others_take_at_most_their_limit_together")
class IgnoresTheLimitOfOthers(Memory):
    async def claim(
        self, kinds: Sequence[Claimable], limit: int, *, ahead: int = 0, others: Claimable | None = None
    ) -> Claimed:
        unlimited = None if others is None else replace(others, limit=None)
        return await super().claim(kinds, limit, ahead=ahead, others=unlimited)


@told_by("test_a_claim_takes_at_most_its_limit")
class IgnoresTheLimit(Memory):
    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        return await super().claim(kinds, limit and 1000, **more)


@told_by("test_a_claim_takes_at_most_a_kinds_limit_of_it")
class IgnoresAKindsLimit(Memory):
    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        return await super().claim([replace(each, limit=None) for each in kinds], limit, **more)


@told_by("test_a_job_that_lost_its_worker_is_only_claimed_for_a_free_one")
class ClaimsLostJobsAhead(Memory):
    async def claim(self, kinds: Sequence[Claimable], limit: int, *, ahead: int = 0, **more: Any) -> Claimed:
        ahead = ahead if any(not each.ahead_ok for each in kinds) else 0
        return await super().claim(kinds, limit, ahead=ahead, **more)


@told_by("test_a_kind_that_is_not_ahead_ok_is_only_claimed_for_a_free_worker")
class IgnoresAheadOk(Memory):
    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        return await super().claim([replace(each, ahead_ok=True) for each in kinds], limit, **more)


@told_by("test_jobs_are_taken_in_the_order_they_are_due")
class TakesJobsInTheOrderOfTheirPushes(Memory):
    def _due(self, terms: dict[str, Claimable], now: int) -> Iterator[Row]:
        return iter(sorted(super()._due(terms, now), key=lambda row: (-terms[row.kind].priority, row.number)))


@told_by("test_the_order_goes_over_all_kinds")
class TakesOneKindAfterTheOther(Memory):
    def _due(self, terms: dict[str, Claimable], now: int) -> Iterator[Row]:
        return iter(sorted(super()._due(terms, now), key=lambda row: (-terms[row.kind].priority, row.kind)))


@told_by("test_jobs_due_at_one_time_are_taken_in_the_order_of_their_pushes")
class OrdersIdsAsText(Memory):
    def _due(self, terms: dict[str, Claimable], now: int) -> Iterator[Row]:
        rows = list(super()._due(terms, now))
        return iter(sorted(rows, key=lambda row: (-terms[row.kind].priority, row.run_at, row.id)))


@told_by("test_a_kind_of_a_higher_priority_is_taken_first")
class IgnoresPriority(Memory):
    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        return await super().claim([replace(each, priority=0) for each in kinds], limit, **more)


@told_by("test_a_job_is_not_claimed_before_its_time")
class TakesJobsASecondEarly(Memory):
    def _due(self, terms: dict[str, Claimable], now: int) -> Iterator[Row]:
        return super()._due(terms, now + 1_000_000)


@told_by("test_next_in_is_never_later_than_the_next_job_is_due")
class TellsNextInTooLate(Memory):
    def _next_in(self, terms: dict[str, Claimable], now: int) -> int | None:
        found = super()._next_in(terms, now)
        return None if found is None else found + 1_000_000


@told_by("test_next_in_is_never_later_than_the_next_job_is_due")
class TellsNoNextIn(Memory):
    def _next_in(self, terms: dict[str, Claimable], now: int) -> int | None:
        return None


@told_by("test_next_in_is_none_while_no_job_of_these_kinds_waits")
class TellsNextInOfAnyKind(Memory):
    def _next_in(self, terms: dict[str, Claimable], now: int) -> int | None:
        return super()._next_in(dict.fromkeys(self._waiting, next(iter(terms.values()))), now)


@told_by("test_a_claim_tells_the_stores_now")
class TellsNoNow(Memory):
    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        return replace(await super().claim(kinds, limit, **more), now=0)


@told_by("test_a_claim_counts_an_attempt")
class CountsNoAttempts(Memory):
    def _hold(self, row: Row, until: int) -> Job:
        row.attempts -= 1
        return super()._hold(row, until)._replace(attempts=1)


# Holds


@told_by("test_a_held_job_is_not_claimed_before_its_hold_ran_out")
class HoldsNothing(Memory):
    def _hold(self, row: Row, until: int) -> Job:
        return super()._hold(row, 0)


@told_by("test_each_kind_has_its_own_hold")
class HoldsAllKindsForTheLongest(Memory):
    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        longest = max((each.hold for each in kinds), default=0)
        return await super().claim([replace(each, hold=longest) for each in kinds], limit, **more)


@told_by("test_a_job_whose_hold_ran_out_is_claimed_again")
class HoldsForEver(Memory):
    def _end_holds(self, now: int) -> None:
        pass


@told_by("test_only_a_hold_that_ran_out_counts_as_lost")
class CountsNoLostWorkers(Memory):
    def _end_holds(self, now: int) -> None:
        super()._end_holds(now)
        for row in self._rows.values():
            row.lost = 0


@told_by("test_a_job_that_always_loses_its_worker_is_claimed_no_more_than_its_attempts")
class RunsAKillerForEver(Memory):
    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        return await super().claim([replace(each, attempts=10**9) for each in kinds], limit, **more)


@told_by("test_an_exhausted_job_is_told_once_and_kept_as_failed")
class ForgetsExhaustedJobs(Memory):
    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        found = await super().claim(kinds, limit, **more)
        await self.delete([job.id for job in found.exhausted])
        return found


@told_by("test_an_exhausted_job_is_told_once_and_kept_as_failed")
class TellsNobodyOfExhaustedJobs(Memory):
    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        return replace(await super().claim(kinds, limit, **more), exhausted=[])


@told_by("test_a_hold_that_ran_out_is_not_had_back")
class ExtendsAHoldThatRanOut(Memory):
    def _mark(self, mark: Mark, now: int) -> Kept:
        row = self._rows.get(mark.id)
        if isinstance(mark, Extend) and row is not None and row.claim == mark.claim:
            now = min(now, row.held_until - 1)
        return super()._mark(mark, now)


@told_by("test_an_extended_hold_ends_so_long_from_now")
class ExtendsFromTheEndOfTheHold(Memory):
    def _mark(self, mark: Mark, now: int) -> Kept:
        row = self._rows.get(mark.id)
        if isinstance(mark, Extend) and row is not None:
            mark = replace(mark, hold=mark.hold + max(0, row.held_until - now))
        return super()._mark(mark, now)


# The fence


def _unfenced(kind: type[Mark]) -> type[Memory]:
    class Unfenced(Memory):
        def _mark(self, mark: Mark, now: int) -> Kept:
            row = self._rows.get(mark.id)
            if isinstance(mark, kind) and row is not None and row.state is State.HELD:
                mark = replace(mark, claim=row.claim)
            return super()._mark(mark, now)

    Unfenced.__name__ = f"HasNoFenceFor{kind.__name__}"
    return Unfenced


for _kind in (Done, TryAgain, Fail, GiveBack, Extend):
    told_by(f"test_a_late_mark_leaves_a_job_that_was_claimed_again_alone[{_kind.__name__}]")(_unfenced(_kind))


class _FencesByAttempts(Memory):
    """Its token is the count of attempts, which comes round again."""

    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        found = await super().claim(kinds, limit, **more)
        return replace(found, jobs=[job._replace(claim=job.attempts) for job in found.jobs])

    def _mark(self, mark: Mark, now: int) -> Kept:
        row = self._rows.get(mark.id)
        if row is not None:
            mark = replace(mark, claim=row.claim if row.attempts == mark.claim else -1)
        return super()._mark(mark, now)


told_by("test_a_late_mark_leaves_a_job_that_was_given_back_and_claimed_again_alone[Done]")(_FencesByAttempts)
told_by("test_a_late_mark_leaves_a_job_that_was_run_again_alone[Done]")(_FencesByAttempts)


@told_by("test_a_mark_sent_twice_is_kept_once[TryAgain]")
class KeepsAMarkTwice(Memory):
    def _end_claim(self, row: Row) -> None:
        pass


@told_by("test_a_late_mark_leaves_a_job_that_was_run_again_alone[Done]")
class KeepsTheTokenOfARunAgain(Memory):
    def _run_again(self, id: str, now: int) -> bool:
        was = self._rows[id].claim - 1 if id in self._rows else 0
        done = super()._run_again(id, now)
        if done:
            self._rows[id].claim, self._rows[id].claimed = was, True
        return done


@told_by("test_a_late_mark_leaves_a_job_that_a_claim_failed_alone[TryAgain]")
class KeepsTheClaimOfAnExhaustedJob(Memory):
    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        tokens = {id: row.claim for id, row in self._rows.items()}
        found = await super().claim(kinds, limit, **more)
        for job in found.exhausted:
            self._rows[job.id].claim, self._rows[job.id].claimed = tokens[job.id], True
        return found


@told_by("test_a_mark_of_a_hold_that_ran_out_is_kept_while_no_claim_took_the_job[Done]")
class LosesMarksOfAHoldThatRanOut(Memory):
    def _mark(self, mark: Mark, now: int) -> Kept:
        row = self._rows.get(mark.id)
        return Kept.LOST if row is not None and row.held_until <= now else super()._mark(mark, now)


@told_by("test_a_claim_that_only_looked_takes_no_job_from_its_holder[Done]")
class TakesAJobFromItsHolderByLooking(Memory):
    def _end_holds(self, now: int) -> None:
        late = [self._rows[str(number)] for until, number in self._held if until <= now]
        super()._end_holds(now)
        for row in late:
            self._end_claim(row)


# Marks


@told_by("test_a_job_to_try_again_is_due_so_long_from_now")
class TriesAgainAtOnce(Memory):
    def _mark(self, mark: Mark, now: int) -> Kept:
        return super()._mark(replace(mark, after=0) if isinstance(mark, TryAgain) else mark, now)


@told_by("test_a_job_to_try_again_keeps_its_latest_error")
class ForgetsErrors(Memory):
    def _hold(self, row: Row, until: int) -> Job:
        return super()._hold(row, until)._replace(error=None)


@told_by("test_an_errors_text_comes_back_as_it_was[four bytes]")
class KeepsThreeBytesOfACharacter(Memory):
    def _mark(self, mark: Mark, now: int) -> Kept:
        if isinstance(mark, TryAgain):
            mark = replace(mark, error="".join(each if each < "\U00010000" else "?" for each in mark.error))
        return super()._mark(mark, now)


@told_by("test_a_give_back_undoes_the_claim")
class KeepsTheAttemptOfAGiveBack(Memory):
    def _mark(self, mark: Mark, now: int) -> Kept:
        kept = super()._mark(mark, now)
        if isinstance(mark, GiveBack) and kept is Kept.YES:
            self._rows[mark.id].attempts += 1
        return kept


@told_by("test_a_job_given_back_has_its_place_again")
class GivesBackToTheEndOfTheLine(Memory):
    def _mark(self, mark: Mark, now: int) -> Kept:
        if isinstance(mark, GiveBack) and mark.after is None:
            mark = replace(mark, after=0)
        return super()._mark(mark, now)


@told_by("test_a_job_that_failed_is_found_by_no_claim")
class RunsFailedJobs(Memory):
    def _mark(self, mark: Mark, now: int) -> Kept:
        kept = super()._mark(mark, now)
        if isinstance(mark, Fail) and kept is Kept.YES:
            self._run_again(mark.id, now)
        return kept


@told_by("test_a_mark_that_changes_nothing_keeps_no_other_from_being_kept")
class StopsABatchAtAMarkThatIsLost(Memory):
    async def mark(self, marks: Sequence[Mark]) -> list[Kept]:
        answers: list[Kept] = []
        for each in marks:
            lost = Kept.LOST in answers
            answers += [Kept.LOST] if lost else await super().mark([each])
        return answers


@told_by("test_a_mark_that_changes_nothing_keeps_no_other_from_being_kept")
class AnswersMarksInAnotherOrder(Memory):
    async def mark(self, marks: Sequence[Mark]) -> list[Kept]:
        return sorted(await super().mark(marks), key=lambda kept: kept.name)


# Failed, and what is carried


@told_by("test_the_latest_failed_is_listed_first")
class ListsTheFirstFailedFirst(Memory):
    async def failed(self, *, limit: int = 100, **more: Any) -> list[FailedJob]:
        return (await super().failed(limit=10**6, **more))[::-1][:limit]


@told_by("test_pages_of_the_list_have_each_job_once")
class PagesByTimeAlone(Memory):
    async def failed(self, *, after: tuple[int, str] | None = None, **more: Any) -> list[FailedJob]:
        return await super().failed(after=after and (after[0], "0"), **more)


@told_by("test_the_list_may_be_of_one_kind")
class ListsEveryKind(Memory):
    async def failed(self, *, kind: str | None = None, **more: Any) -> list[FailedJob]:
        return await super().failed(**more)


@told_by("test_the_list_of_failed_jobs_shows_of_each_what_a_look_at_it_does")
class ListsTheFailedWithoutWhatTheyReported(Memory):
    async def failed(self, **more: Any) -> list[FailedJob]:
        return [job._replace(progress=None) for job in await super().failed(**more)]


@told_by("test_a_job_run_again_is_due_now_and_starts_over")
class RunsAgainWithItsAttempts(Memory):
    def _run_again(self, id: str, now: int) -> bool:
        attempts = self._rows[id].attempts if id in self._rows else 0
        done = super()._run_again(id, now)
        if done:
            self._rows[id].attempts = attempts
        return done


@told_by("test_a_run_again_says_of_each_job_whether_it_was_failed")
class RunsAgainWhatWaits(Memory):
    def _run_again(self, id: str, now: int) -> bool:
        row = self._rows.get(id)
        if row is None or row.state is State.HELD:
            return False
        self._wait(row, now)
        return True


@told_by("test_a_delete_says_of_each_job_whether_it_was_failed")
class DeletesWhatWaits(Memory):
    def _delete(self, id: str) -> bool:
        row = self._rows.pop(id, None)
        if row is not None:
            self._leave(row)
        return row is not None


@told_by("test_what_a_push_carried_comes_with_its_job[short]")
class CarriesNothing(Memory):
    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        return await super().push([job._replace(carried=None) for job in jobs])


@told_by("test_a_job_carries_it_through_every_run")
class CarriesThroughTheFirstRunAlone(Memory):
    def _mark(self, mark: Mark, now: int) -> Kept:
        kept = super()._mark(mark, now)
        if kept is Kept.YES and mark.id in self._rows:
            self._rows[mark.id].carried = None
        return kept


@told_by("test_each_job_carries_its_own")
class CarriesTheSameForABatch(Memory):
    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        return await super().push([job._replace(carried=jobs[0].carried) for job in jobs])


# Transactions


Tell = Callable[[], None]
Ask = Callable[[], str | None]


def _finished() -> str | None:
    return None


class _Pushes:
    sync: ClassVar[Literal[True]] = True

    def __init__(self, push: Callable[[Sequence[NewJob]], list[str | None]]) -> None:
        self._push = push

    def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        return self._push(jobs)


class _Ends:
    sync: ClassVar[Literal[True]] = True

    def __init__(self, done: Callable[[], bool]) -> None:
        self._done = done

    def done(self) -> bool:
        return self._done()


@told_in_a_transaction_by("test_a_push_goes_with_a_rollback")
class PushesBesideTheTransaction(Memory):
    def within(self, tx: object, committed: Tell, unfinished: Ask = _finished) -> Pusher | SyncPusher:
        super().within(tx, committed, unfinished)

        def push(jobs: Sequence[NewJob]) -> list[str | None]:
            rows = self._new(jobs)
            self._keep(rows)
            committed()
            return [row.id for row in rows]

        return _Pushes(push)


class _Staging(Memory):
    """Keeps what is pushed at each commit that a session tells of, or of the outermost alone."""

    outermost_alone = True

    def within(self, tx: object, committed: Tell, unfinished: Ask = _finished) -> Pusher | SyncPusher:
        if not isinstance(tx, Session):
            return super().within(tx, committed, unfinished)
        rows: list[Row] = []

        def deliver(session: Session) -> None:
            if not self.outermost_alone or session.get_nested_transaction() is None:
                self._keep(rows)
                rows.clear()
                committed()

        def end(session: Session, transaction: Any) -> None:
            if transaction.parent is None:
                rows.clear()

        event.listen(tx, "after_commit", deliver)
        event.listen(tx, "after_transaction_end", end)

        def push(jobs: Sequence[NewJob]) -> list[str | None]:
            tx.connection()
            new = self._new(jobs)
            rows.extend(new)
            return [row.id for row in new]

        return _Pushes(push)


told_in_a_transaction_by("test_a_push_goes_with_its_savepoint_in_a_transaction_that_commits")(_Staging)
told_in_a_transaction_by("test_a_push_that_was_not_awaited_fails_the_commit")(_Staging)


@told_in_a_transaction_by("test_a_push_in_a_released_savepoint_goes_with_the_rollback_of_its_transaction")
class TakesAReleaseForACommit(_Staging):
    outermost_alone = False


@told_in_a_transaction_by("test_committed_is_called_after_the_outermost_commit_alone")
class WakesBeforeTheCommit(Memory):
    def within(self, tx: object, committed: Tell, unfinished: Ask = _finished) -> Pusher | SyncPusher:
        sound = cast("SyncPusher", super().within(tx, committed, unfinished))

        def push(jobs: Sequence[NewJob]) -> list[str | None]:
            committed()
            return sound.push(jobs)

        return _Pushes(push)


@told_in_a_transaction_by("test_committed_is_called_after_the_outermost_commit_alone")
class WakesNobody(Memory):
    def within(self, tx: object, committed: Tell, unfinished: Ask = _finished) -> Pusher | SyncPusher:
        return super().within(tx, lambda: None, unfinished)


@told_in_a_transaction_by("test_unfinished_is_asked_by_the_outermost_commit_alone")
class AsksAtEveryRelease(Memory):
    def within(self, tx: object, committed: Tell, unfinished: Ask = _finished) -> Pusher | SyncPusher:
        if isinstance(tx, Session):

            def ask(session: Session) -> None:
                if text := unfinished():
                    raise RuntimeError(text)

            event.listen(tx, "before_commit", ask)
        return super().within(tx, committed, unfinished)


@told_in_a_transaction_by("test_what_is_no_transaction_is_refused")
class TakesAnythingForATransaction(Memory):
    def within(self, tx: object, committed: Tell, unfinished: Ask = _finished) -> Pusher | SyncPusher:
        return (
            super().within(tx, committed, unfinished) if isinstance(tx, Session) else _Pushes(lambda jobs: [])
        )


@told_in_a_transaction_by("test_a_commit_that_fails_keeps_no_push")
class KeepsBeforeTheCommit(Memory):
    def within(self, tx: object, committed: Tell, unfinished: Ask = _finished) -> Pusher | SyncPusher:
        sound = super().within(tx, committed, unfinished)
        if not isinstance(tx, Session):
            return sound
        rows: list[Row] = []

        def keep(session: Session) -> None:
            if session.get_nested_transaction() is None:
                self._keep(rows)
                rows.clear()
                committed()

        def drop(session: Session) -> None:
            rows.clear()

        event.listen(tx, "before_commit", keep)
        event.listen(tx, "after_rollback", drop)

        def push(jobs: Sequence[NewJob]) -> list[str | None]:
            tx.connection()
            new = self._new(jobs)
            rows.extend(new)
            return [row.id for row in new]

        return _Pushes(push)


# A job done through a transaction


@told_in_a_transaction_by("test_a_done_in_that_is_rolled_back_leaves_the_job_with_its_holder")
class DoesAJobBesideTheTransaction(Memory):
    def _stage_end(self, job: Job) -> Staged:
        staged = super()._stage_end(job)
        if staged.ids:
            staged.keep()
        return Staged(staged.ids, lambda: None)


@told_in_a_transaction_by("test_a_job_is_done_as_its_transaction_commits")
class DoesNoJobAtTheCommit(Memory):
    def _stage_end(self, job: Job) -> Staged:
        staged = super()._stage_end(job)
        return Staged(staged.ids, staged.drop, staged.drop)


@told_in_a_transaction_by("test_a_done_in_of_a_claim_that_was_lost_changes_nothing")
class DoesJobsOfLostClaims(Memory):
    def _stage_end(self, job: Job) -> Staged:
        row = self._rows.get(job.id)
        return super()._stage_end(job if row is None else job._replace(claim=row.claim))


@told_in_a_transaction_by("test_a_done_in_with_a_token_of_no_claim_changes_nothing")
class SaysThatItDoesAnyJob(Memory):
    def _stage_end(self, job: Job) -> Staged:
        staged = super()._stage_end(job)
        return staged if staged.ids else Staged([job.id], lambda: None)


class _LeavesItInItsLine(Memory):
    def _stage_end(self, job: Job) -> Staged:
        row = self._rows.get(job.id)
        if row is None or not row.claimed or row.claim != job.claim:
            return Staged([], lambda: None)

        def keep() -> None:
            self._leave(row)
            del self._rows[row.id]

        return Staged([row.id], keep)


told_in_a_transaction_by("test_no_claim_has_a_job_while_the_transaction_that_does_it_is_open")(
    _LeavesItInItsLine
)
told_in_a_transaction_by("test_a_mark_meanwhile_is_busy_or_waits")(_LeavesItInItsLine)


@told_in_a_transaction_by("test_a_done_in_goes_with_its_savepoint_in_a_transaction_that_commits")
class DoesAJobWhoseSavepointRolledBack(Memory):
    def done_within(
        self, tx: object, job: Job, committed: Tell = lambda: None, unfinished: Ask = _finished
    ) -> Ender | SyncEnder:
        if not isinstance(tx, Session):
            return super().done_within(tx, job, committed, unfinished)
        staged: list[Staged] = []

        def deliver(session: Session) -> None:
            if session.get_nested_transaction() is None:
                for each in staged:
                    each.keep()
                staged.clear()

        event.listen(tx, "after_commit", deliver)

        def done() -> bool:
            staged.append(self._stage_end(job))
            return bool(staged[0].ids)

        return _Ends(done)


@told_in_a_transaction_by("test_a_done_in_that_was_not_awaited_fails_the_commit")
class AsksForNoDoneInThatIsNotAwaited(Memory):
    def done_within(
        self, tx: object, job: Job, committed: Tell = lambda: None, unfinished: Ask = _finished
    ) -> Ender | SyncEnder:
        return super().done_within(tx, job, committed)

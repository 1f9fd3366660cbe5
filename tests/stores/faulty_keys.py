"""Stores that break a rule on keys, limits, names, throttles, or on what is pruned, and the test that tells.

As `faulty`, whose lists it adds to, and longer than 300 lines for the same reason.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.core.job import Job, NewJob
from fastjobs.core.marks import Done, Extend, Fail, GiveBack, HoldBack, Kept, Mark, TryAgain
from fastjobs.store import Places, Throttled
from fastjobs.stores.counters import Counters
from fastjobs.stores.memory import Memory
from fastjobs.stores.outcomes import InTheWay
from fastjobs.stores.rows import Key, Row, State
from fastjobs.stores.staging import Staged
from fastjobs.testing.suite.subject import key_of
from tests.stores.faulty import FAULTS, TRANSACTION_FAULTS, told_by, told_in_a_transaction_by

__all__ = ["FAULTS", "TRANSACTION_FAULTS"]


def _pushing(change: Callable[[NewJob], NewJob], name: str) -> type[Memory]:
    """A store that keeps something else than what was pushed."""

    class Changes(Memory):
        async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
            return await super().push([change(job) for job in jobs])

    Changes.__name__ = name
    return Changes


def _claiming(change: Callable[[Claimable], Claimable], name: str) -> type[Memory]:
    """A store that claims by other numbers than it was asked."""

    class Changes(Memory):
        async def claim(
            self, kinds: Sequence[Claimable], limit: int, *, ahead: int = 0, others: Claimable | None = None
        ) -> Claimed:
            return await super().claim([change(each) for each in kinds], limit, ahead=ahead, others=others)

    Changes.__name__ = name
    return Changes


def _after(kind: type[Mark], then: Callable[[Memory, Row], object], name: str) -> type[Memory]:
    """A store that does something more once such a mark is kept."""

    class Marks(Memory):
        def _mark(self, mark: Mark, now: int) -> Kept:
            row = self._rows.get(mark.id)
            kept = super()._mark(mark, now)
            if isinstance(mark, kind) and kept is Kept.YES and row is not None:
                then(self, row)
            return kept

    Marks.__name__ = name
    return Marks


def _let_go(store: Memory, key: Key | None) -> None:
    """Whoever holds a job of the key, another may be claimed beside it."""
    holder = None if key is None else store._busy.pop(key, None)
    if holder is not None:
        holder.alone = None
    if key is not None and key in store._parked:
        store._unpark(key)


# Unique


for _test in (
    "test_a_push_of_a_key_that_waits_pushes_nothing",
    "test_a_job_may_have_every_option[unnamed]",
    "test_a_job_may_have_every_option[named]",
):
    told_by(_test)(_pushing(lambda job: job._replace(key=None, one_at_a_time=False), "IgnoresKeys"))
told_by("test_another_key_is_pushed")(
    _pushing(lambda job: job._replace(key=job.key and job.key.lower()), "TakesKeysForText")
)
told_by("test_another_key_is_pushed")(
    _pushing(lambda job: job._replace(key=job.key and job.key[:31]), "ComparesTheBeginningsOfKeys")
)
told_by("test_jobs_without_a_key_are_in_nobodys_way")(
    _pushing(lambda job: job._replace(key=job.key or b""), "TakesNoKeyForOne")
)


@told_by("test_what_a_waiting_job_was_pushed_with_stays")
class KeepsTheLastPushOfAKey(Memory):
    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        for job in jobs:
            if job.key is not None and (row := self._keys.get((job.kind, job.key))):
                row.payload = job.payload
        return await super().push(jobs)


told_by("test_what_a_moved_job_was_pushed_with_stays")(KeepsTheLastPushOfAKey)


@told_by("test_a_key_is_its_kinds_own")
class HasOneKeyForAllKinds(Memory):
    def _new(self, jobs: Sequence[NewJob]) -> list[Row]:
        rows = super()._new(jobs)
        for row in rows:
            row.key = row.key and ("", row.key[1])
        return rows


@told_by("test_of_one_push_the_first_of_a_key_is_kept")
class KeepsAllOfABatch(Memory):
    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        seen: set[object] = set()
        new: list[NewJob] = []
        for job in jobs:
            again = (job.kind, job.key) in seen and (job.kind, job.key) not in self._keys
            new.append(job._replace(key=None) if again else job)
            seen.add((job.kind, job.key))
        return await super().push(new)


@told_by("test_a_push_answers_each_of_many_in_its_place")
class AnswersTheKeptFirst(Memory):
    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        return sorted(await super().push(jobs), key=lambda id: id is None)


class _KeepsAKeyThroughAClaim(Memory):
    def _hold(self, row: Row, until: int) -> Job:
        had = row.unique
        job = super()._hold(row, until)
        if had:
            self._take_key(row)
        return job


for _test in (
    "test_a_claim_lets_its_jobs_key_go",
    "test_a_latest_push_moves_no_job_that_is_held",
    "test_random_histories_keep_every_rule",
):
    told_by(_test)(_KeepsAKeyThroughAClaim)

_TakesAKeyBackToTryAgain = _after(TryAgain, Memory._take_key, "TakesAKeyBackToTryAgain")
told_by("test_a_job_to_try_again_does_not_take_its_key_back")(_TakesAKeyBackToTryAgain)
told_by("test_a_latest_push_moves_no_job_that_let_its_key_go")(_TakesAKeyBackToTryAgain)
told_by("test_a_job_that_ended_has_no_key")(_after(Fail, Memory._take_key, "KeepsTheKeyOfAFailedJob"))


@told_by("test_a_job_that_has_its_key_and_no_attempts_left_fails_without_it")
class KeepsTheKeyOfWhatIsSpent(Memory):
    def _fail(self, row: Row, now: int, error: str) -> None:
        had = row.unique
        super()._fail(row, now, error)
        if had:
            self._take_key(row)


@told_by("test_a_job_that_lost_its_worker_does_not_take_its_key_back")
class TakesAKeyBackAsAHoldEnds(Memory):
    def _end_holds(self, now: int) -> None:
        late = [self._rows[str(number)] for until, number in self._held if until <= now]
        super()._end_holds(now)
        for row in late:
            self._take_key(row)


@told_by("test_a_job_run_again_does_not_take_its_key_back")
class TakesAKeyBackToRunAgain(Memory):
    def _run_again(self, id: str, now: int) -> bool:
        done = super()._run_again(id, now)
        self._take_key(self._rows[id])
        return done


for _back in (GiveBack, HoldBack):
    told_by(f"test_a_job_whose_claim_was_undone_has_its_key_again[{_back.__name__}]")(
        _after(_back, Memory._let_key_go, f"LosesTheKeyOfA{_back.__name__}")
    )


@told_by("test_a_job_without_a_key_has_none_after_its_claim_was_undone[GiveBack]")
@told_by("test_a_job_without_a_key_has_none_after_its_claim_was_undone[HoldBack]")
class GivesBackWithAKeyOfItsOwn(Memory):
    def _mark(self, mark: Mark, now: int) -> Kept:
        row = self._rows.get(mark.id)
        if row is not None and row.key is None:
            row.key = row.kind, key_of("a")
        return super()._mark(mark, now)


class _TakesTheKeyFromAnother(Memory):
    def _take_key(self, row: Row) -> None:
        has = self._keys.pop(row.key, None) if row.key is not None else None
        if has is not None:
            has.unique = False
        super()._take_key(row)


told_by("test_a_key_that_another_took_meanwhile_stays_the_others[GiveBack]")(_TakesTheKeyFromAnother)
told_by("test_a_key_that_another_took_meanwhile_stays_the_others[HoldBack]")(_TakesTheKeyFromAnother)


class _LosesTheKeyOfBoth(_TakesTheKeyFromAnother):
    def _mark(self, mark: Mark, now: int) -> Kept:
        kept = super()._mark(mark, now)
        if isinstance(mark, GiveBack):
            self._let_key_go(self._rows[mark.id])
        return kept


told_by("test_a_give_back_beside_one_that_waits_leaves_it_its_key")(_LosesTheKeyOfBoth)


@told_by("test_a_batch_of_give_backs_takes_each_key_once")
class FailsABatchThatTakesAKeyTwice(Memory):
    async def mark(self, marks: Sequence[Mark]) -> list[Kept]:
        keys = [self._rows[each.id].key for each in marks if isinstance(each, GiveBack)]
        if len(set(keys)) < len(keys):
            raise ValueError("the key is there already")
        return await super().mark(marks)


class _TakesAKeyBackByALateMark(Memory):
    def _mark(self, mark: Mark, now: int) -> Kept:
        kept = super()._mark(mark, now)
        if kept is Kept.LOST and isinstance(mark, GiveBack | HoldBack) and mark.id in self._rows:
            self._take_key(self._rows[mark.id])
        return kept


told_by("test_a_late_mark_takes_no_key_back[GiveBack]")(_TakesAKeyBackByALateMark)
told_by("test_a_late_mark_takes_no_key_back[HoldBack]")(_TakesAKeyBackByALateMark)


class _LooksForAKeyThenPushes(Memory):
    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        found = [job.key is not None and (job.kind, job.key) in self._keys for job in jobs]
        await asyncio.sleep(0)
        for job, was_there in zip(jobs, found, strict=True):
            if job.key is not None and not was_there and (row := self._keys.pop((job.kind, job.key), None)):
                row.unique = False
        return await super().push(jobs)


for _test in (
    "test_of_pushes_of_one_key_at_once_one_is_kept",
    "test_pushes_of_many_keys_at_once_keep_each_once",
    "test_of_latest_pushes_at_once_one_job_waits",
):
    told_by(_test)(_LooksForAKeyThenPushes)


@told_by("test_pushes_and_claims_of_one_key_at_once_lose_none")
@told_by("test_pushes_and_marks_that_undo_claims_at_once_leave_one_key[GiveBack]")
@told_by("test_pushes_and_marks_that_undo_claims_at_once_leave_one_key[HoldBack]")
class SaysItKeptWhatItDidNot(Memory):
    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        return [id or "0" for id in await super().push(jobs)]


# Latest


told_by("test_a_latest_push_moves_the_job_that_waits_to_later")(
    _pushing(lambda job: job._replace(latest=False), "MovesNothing")
)
told_by("test_a_job_pushed_without_latest_is_moved_by_a_latest_push")(
    _pushing(lambda job: job._replace(latest=job.key is not None), "MovesByAnyPush")
)
_IgnoresAtMost = _pushing(lambda job: job._replace(at_most=None), "IgnoresAtMost")
told_by("test_a_job_is_moved_no_further_than_at_most_from_its_first_push")(_IgnoresAtMost)
told_by("test_a_push_past_at_most_has_the_job_due_then")(_IgnoresAtMost)
told_by("test_random_histories_keep_every_rule")(_IgnoresAtMost)


def _moving(when: Callable[[Row, int, int | None], int | None], name: str) -> type[Memory]:
    """A store that moves a job to another time than was asked; None leaves it where it is."""

    class Moves(Memory):
        def _move(self, row: Row, run_at: int, at_most: int | None, owner: object) -> None:
            due = when(row, run_at, at_most)
            if due is not None:
                super()._move(row, due, at_most, owner)

    Moves.__name__ = name
    return Moves


told_by("test_a_latest_push_moves_the_job_that_waits_to_earlier")(
    _moving(lambda row, run_at, _: max(row.run_at, run_at), "MovesToLaterAlone")
)
told_by("test_a_latest_push_moves_the_job_that_waits_to_later")(
    _moving(lambda row, run_at, _: min(row.run_at, run_at), "MovesToEarlierAlone")
)
told_by("test_at_most_holds_back_no_earlier_time")(
    _moving(
        lambda row, run_at, most: run_at if most is None else row.first_push_at + most, "MovesAsFarAsItMay"
    )
)
told_by("test_of_one_push_the_last_latest_of_a_key_says_when")(
    _moving(lambda row, run_at, _: max(row.run_at, run_at), "TakesTheLastTimeOfABatch")
)
told_by("test_a_moved_job_takes_its_place_by_its_new_time")(
    _moving(lambda row, run_at, at_most: None, "AnswersWithoutMoving")
)


@told_by("test_a_latest_push_that_moves_the_next_of_its_key_to_later_lets_another_go")
class ParksBehindAMovedJob(Memory):
    def _move(self, row: Row, run_at: int, at_most: int | None, owner: object) -> None:
        super()._move(row, run_at, at_most, owner)
        if row.alone is not None:
            for other in [
                each for each in self._rows.values() if each.alone == row.alone and each is not row
            ]:
                if other.state is not State.HELD:
                    self._park(other)


@told_by("test_a_latest_push_moves_a_job_to_a_given_time")
class AnswersNothingForAMove(Memory):
    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        known = set(self._rows)
        return [None if id in known else id for id in await super().push(jobs)]


@told_by("test_a_job_is_moved_no_further_than_at_most_from_its_first_push")
class CountsAtMostFromTheLastPush(Memory):
    def _move(self, row: Row, run_at: int, at_most: int | None, owner: object) -> None:
        row.first_push_at = self._clock.now()
        super()._move(row, run_at, at_most, owner)


@told_by("test_at_most_counts_from_the_first_push_of_the_job_that_waits")
class CountsAtMostFromTheFirstPushOfAll(Memory):
    def _new(self, jobs: Sequence[NewJob]) -> list[Row]:
        rows = super()._new(jobs)
        first = self.__dict__.setdefault("_first", {})
        for row in rows:
            row.first_push_at = first.setdefault(row.key, row.first_push_at)
        return rows


@told_by("test_a_latest_push_moves_its_kinds_and_keys_job_alone")
class MovesAllOfAKind(Memory):
    def _move(self, row: Row, run_at: int, at_most: int | None, owner: object) -> None:
        for each in [each for each in self._keys.values() if each.kind == row.kind]:
            super()._move(each, run_at, at_most, owner)


told_by("test_a_latest_push_moves_a_job_that_has_its_key_again")(
    _after(GiveBack, Memory._let_key_go, "LosesTheKeyOfAGiveBack")
)


@told_by("test_a_latest_push_beside_a_claim_moves_the_job_or_pushes_another")
class LooksThenMoves(Memory):
    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        (job,) = jobs
        row = None if job.key is None else self._keys.get((job.kind, job.key))
        await asyncio.sleep(0)
        return [row.id] if row is not None and job.latest else await super().push(jobs)


@told_by("test_the_last_of_many_latest_pushes_runs_no_earlier_than_it_says")
class ForgetsEverySecondMove(Memory):
    def _move(self, row: Row, run_at: int, at_most: int | None, owner: object) -> None:
        if row.number % 2:
            super()._move(row, run_at, at_most, owner)


class _ParksWithoutItsKey(Memory):
    def _park(self, row: Row) -> None:
        super()._park(row)
        self._let_key_go(row)


told_by("test_a_latest_push_moves_a_job_that_waits_for_another_of_its_key")(_ParksWithoutItsKey)
told_by("test_a_job_that_waits_for_another_has_its_key")(_ParksWithoutItsKey)


# One at a time


_IgnoresOneAtATime = _pushing(lambda job: job._replace(one_at_a_time=False), "IgnoresOneAtATime")
for _test in (
    "test_a_job_waits_while_another_of_its_key_is_held",
    "test_of_claims_at_once_one_has_a_jobs_key",
    "test_workers_at_once_never_hold_two_of_a_key",
    "test_random_histories_keep_every_rule",
):
    told_by(_test)(_IgnoresOneAtATime)


def _alone(change: Callable[[Row], Key | None], name: str) -> type[Memory]:
    """A store that has other jobs run one at a time."""

    class Alone(Memory):
        def _new(self, jobs: Sequence[NewJob]) -> list[Row]:
            rows = super()._new(jobs)
            for row in rows:
                row.alone = change(row)
            return rows

    Alone.__name__ = name
    return Alone


for _store in (
    _alone(lambda row: row.alone and (row.kind, b""), "RunsOneOfAKind"),
    _alone(lambda row: row.alone and ("", row.alone[1]), "RunsOneOfAKeyOfAllKinds"),
    _alone(lambda row: row.key, "RunsAllKeysOneAtATime"),
):
    told_by("test_other_keys_and_kinds_and_jobs_that_are_not_so_run_beside_it")(_store)


def _wakes_nobody(kind: type[Mark]) -> type[Memory]:
    class Marks(Memory):
        _quiet = False

        def _mark(self, mark: Mark, now: int) -> Kept:
            self._quiet = isinstance(mark, kind)
            try:
                return super()._mark(mark, now)
            finally:
                self._quiet = False

        def _next_of(self, row: Row) -> None:
            if not self._quiet:
                super()._next_of(row)

    Marks.__name__ = f"WakesNobodyAfterA{kind.__name__}"
    return Marks


told_by("test_the_end_of_a_claim_lets_one_of_its_key_go[Done]")(_wakes_nobody(Done))
told_by("test_the_end_of_a_claim_lets_one_of_its_key_go[Fail]")(_wakes_nobody(Fail))
told_by("test_a_job_that_goes_back_for_later_lets_the_next_go_at_once")(_wakes_nobody(TryAgain))
told_by("test_a_batch_of_ends_lets_one_of_each_key_go")(_wakes_nobody(GiveBack))
told_by("test_a_held_back_kinds_next_job_of_a_key_goes_after_its_time")(_wakes_nobody(HoldBack))
told_by("test_an_end_that_comes_while_the_kind_is_held_back_is_not_forgotten")(_wakes_nobody(Done))
told_by("test_random_histories_keep_every_rule")(_wakes_nobody(TryAgain))


class _WakesNobodyAsAHoldEnds(Memory):
    def _end_holds(self, now: int) -> None:
        late = [self._rows[str(number)] for until, number in self._held if until <= now]
        keys = {row.alone: self._parked.pop(row.alone) for row in late if row.alone in self._parked}
        super()._end_holds(now)
        self._parked |= keys


told_by("test_the_mark_of_a_hold_that_ran_out_frees_nothing_of_the_next_holders[Done]")(
    _WakesNobodyAsAHoldEnds
)


@told_by("test_a_job_that_was_to_be_the_next_and_has_no_attempts_left_lets_another_go")
class WakesNobodyForWhatIsSpent(Memory):
    def _fail(self, row: Row, now: int, error: str) -> None:
        parked, self._parked = self._parked, {}
        super()._fail(row, now, error)
        self._parked = parked


@told_by("test_a_job_that_used_up_its_attempts_lets_the_next_of_its_key_go")
class WakesNobodyAsAttemptsAreUsedUp(_WakesNobodyAsAHoldEnds, WakesNobodyForWhatIsSpent):
    """Neither as the hold ends nor as the claim fails it."""


@told_by("test_a_hold_that_ran_out_lets_one_of_its_key_go")
class KeepsTheKeyOfAHoldThatRanOut(_WakesNobodyAsAHoldEnds):
    def _end_holds(self, now: int) -> None:
        late = [self._rows[str(number)] for until, number in self._held if until <= now]
        super()._end_holds(now)
        for row in late:
            if row.alone is not None:
                self._park(row)


@told_by("test_an_extended_hold_keeps_the_next_waiting")
class ExtendsAHoldWithoutItsKey(Memory):
    def _mark(self, mark: Mark, now: int) -> Kept:
        kept = super()._mark(mark, now)
        if isinstance(mark, Extend) and kept is Kept.YES:
            _let_go(self, self._rows[mark.id].alone)
        return kept


@told_by("test_a_late_mark_lets_no_other_of_its_key_go")
class LetsAKeyGoByALateMark(Memory):
    def _mark(self, mark: Mark, now: int) -> Kept:
        kept = super()._mark(mark, now)
        if kept is Kept.LOST and mark.id in self._rows:
            _let_go(self, self._rows[mark.id].alone)
        return kept


class _LetsTheNextHoldersKeyGo(Memory):
    def _mark(self, mark: Mark, now: int) -> Kept:
        row = self._rows.get(mark.id)
        late = row is not None and row.claim == mark.claim and row.state is not State.HELD
        kept = super()._mark(mark, now)
        if late and row is not None:
            _let_go(self, row.alone)
        return kept


for _end in ("Done", "TryAgain", "Fail", "GiveBack"):
    told_by(f"test_the_mark_of_a_hold_that_ran_out_frees_nothing_of_the_next_holders[{_end}]")(
        _LetsTheNextHoldersKeyGo
    )


@told_by("test_jobs_of_a_key_are_claimed_in_the_order_they_are_due")
class WakesTheLastOfAKey(Memory):
    def _unpark(self, key: Key) -> None:
        row = self._rows[str(self._parked[key][-1][1])]
        self._leave(row)
        self._join(row, row.run_at)


@told_by("test_one_claim_returns_one_of_a_key")
class ForgetsItsOwnClaim(Memory):
    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        rows = [row for row in self._rows.values() if row.alone and row.alone not in self._busy]
        keys = [row.alone for row in rows]
        for row in rows:
            row.alone = None
        found = await super().claim(kinds, limit, **more)
        for row, key in zip(rows, keys, strict=True):
            if row.state is not State.HELD:
                row.alone = key
        return found


@told_by("test_jobs_that_wait_for_another_take_no_room")
class CountsWhatItPassesOver(Memory):
    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        before = sum(map(len, self._parked.values()))
        found = await super().claim(kinds, limit, **more)
        passed = sum(map(len, self._parked.values())) - before
        return replace(found, jobs=found.jobs[: max(0, limit - passed)])


told_by("test_a_claim_that_passed_over_jobs_does_not_leave_others_behind")(CountsWhatItPassesOver)


@told_by("test_jobs_that_wait_for_another_let_no_more_than_the_limit_go")
@told_by("test_jobs_that_wait_for_another_give_no_worker_more_than_is_free")
class FreesAWorkerByWhatItPassesOver(Memory):
    async def claim(self, kinds: Sequence[Claimable], limit: int, *, ahead: int = 0, **more: Any) -> Claimed:
        before = sum(map(len, self._parked.values()))
        found = await super().claim(kinds, limit, ahead=ahead, **more)
        passed = sum(map(len, self._parked.values())) - before
        others = await super().claim(kinds, min(passed, limit - len(found.jobs)), **more)
        return replace(found, jobs=[*found.jobs, *others.jobs])


@told_by("test_jobs_that_wait_for_another_use_up_no_limit_of_their_kind")
class LeavesAKindWhoseFirstWaits(Memory):
    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        blocked = {row.kind for row in self._rows.values() if row.alone in self._busy and not row.counts}
        return await super().claim([each for each in kinds if each.kind not in blocked], limit, **more)


@told_by("test_a_job_that_waits_for_another_takes_no_place_of_its_kind")
class TakesAPlaceForWhatItPassesOver(Memory):
    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        room = min(self._room(each.kind, each, self._clock.now()) for each in kinds)
        before = sum(map(len, self._parked.values()))
        found = await super().claim(kinds, limit, **more)
        passed = sum(map(len, self._parked.values())) - before
        return replace(found, jobs=found.jobs[: max(0, room - passed)])


@told_by("test_a_job_that_waits_for_another_is_not_asked_for_at_once")
class AsksForWhatIsParked(Memory):
    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        return replace(await super().claim(kinds, limit, **more), again=bool(self._parked))


@told_by("test_a_job_run_again_waits_for_another_of_its_key")
class RunsAgainBesideAnother(Memory):
    def _run_again(self, id: str, now: int) -> bool:
        done = super()._run_again(id, now)
        self._rows[id].alone = None
        return done


class _WritesAsItLooks(Memory):
    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        for row in self._rows.values():
            row.keep_name += 1
        return await super().claim(kinds, limit, **more)

    async def take(self, asked: Sequence[Throttled]) -> list[Places]:
        self._counters._taken["", ""] = dict.fromkeys(range(len(self._counters._taken) + 1), (0, 0))
        self._counters._taken[str(len(self._counters._taken)), ""] = {}
        return await super().take(asked)

    async def sweep(self) -> int:
        self._numbers += 1
        self._rows[f"swept {self._numbers}"] = Row(self._numbers, "", "", 0, 0, None)
        return 0


for _test in (
    "test_a_claim_of_jobs_that_wait_for_another_writes_nothing",
    "test_a_claim_of_a_kind_at_its_limit_writes_nothing",
    "test_a_claim_of_a_held_back_kind_writes_nothing",
    "test_a_take_that_finds_no_place_writes_nothing",
    "test_a_sweep_of_nothing_wakes_nothing",
):
    told_by(_test)(_WritesAsItLooks)


# At once


_IgnoresAtOnce = _claiming(lambda each: replace(each, at_once=None), "IgnoresAtOnce")
for _test in (
    "test_a_kind_has_at_most_so_many_held",
    "test_claims_at_once_never_hold_more_than_the_limit",
    "test_one_at_a_time_and_at_once_hold_together",
    "test_a_held_back_job_gives_its_place_to_no_one_meanwhile",
    "test_jobs_are_taken_in_the_order_they_are_due_under_a_limit",
    "test_random_histories_keep_every_rule",
):
    told_by(_test)(_IgnoresAtOnce)
told_by("test_a_kind_has_at_most_so_many_held")(
    _claiming(lambda each: replace(each, at_once=None, limit=each.at_once), "LimitsEachClaimAlone")
)
told_by("test_the_least_of_all_limits_holds")(
    _claiming(
        lambda each: replace(each, limit=each.limit if each.at_once is None else None),
        "ForgetsAKindsLimitBesideAtOnce",
    )
)


@told_by("test_each_kind_has_its_own_count")
class CountsAllKindsTogether(Memory):
    def _room(self, kind: str, term: Claimable, now: int) -> int:
        found = super()._room(kind, term, now)
        return found if term.at_once is None else term.at_once - sum(self._counts.values())


def _still_counts(kind: type[Mark]) -> type[Memory]:
    def count(store: Memory, row: Row) -> None:
        store._counts[row.kind] += 1

    return _after(kind, count, f"StillCountsAfterA{kind.__name__}")


for _mark in (Done, TryAgain, Fail, GiveBack):
    told_by(f"test_the_end_of_a_claim_makes_room_for_another[{_mark.__name__}]")(_still_counts(_mark))
told_by("test_a_job_to_try_again_later_takes_no_place_meanwhile")(_still_counts(TryAgain))


class _CountsHoldsThatRanOut(Memory):
    def _end_holds(self, now: int) -> None:
        before = dict(self._counts)
        super()._end_holds(now)
        self._counts = defaultdict(int, before)


told_by("test_a_hold_that_ran_out_makes_room")(_CountsHoldsThatRanOut)
told_by("test_an_exhausted_job_takes_no_place")(_CountsHoldsThatRanOut)


@told_by("test_a_hold_that_was_extended_still_counts")
class CountsNoExtendedHold(Memory):
    def _mark(self, mark: Mark, now: int) -> Kept:
        kept = super()._mark(mark, now)
        if isinstance(mark, Extend) and kept is Kept.YES:
            self._counts[self._rows[mark.id].kind] -= 1
        return kept


@told_by("test_the_limit_is_the_claimers_own")
class CountsJobsClaimedByALimitAlone(Memory):
    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        found = await super().claim(kinds, limit, **more)
        unlimited = {each.kind for each in kinds if each.at_once is None}
        for job in found.jobs:
            if job.kind in unlimited:
                self._counts[job.kind] -= 1
        return found


@told_by("test_jobs_of_a_kind_at_its_limit_keep_no_other_from_being_claimed")
class StopsAtAKindAtItsLimit(Memory):
    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        full = any(not self._room(each.kind, each, self._clock.now()) for each in kinds)
        return Claimed() if full else await super().claim(kinds, limit, **more)


class _AsksForKindsThatAreFull(Memory):
    def _next_in(self, terms: dict[str, Claimable], now: int) -> int | None:
        firsts = [self._waiting[kind][0][0] for kind in terms if self._waiting.get(kind)]
        return max(0, min(firsts) - now) if firsts else None


told_by("test_a_kind_at_its_limit_is_not_asked_for_at_once")(_AsksForKindsThatAreFull)
told_by("test_a_held_back_kind_is_not_asked_for_at_once")(_AsksForKindsThatAreFull)


@told_by("test_claims_at_once_never_hold_more_than_the_limit")
class CountsThenTakes(Memory):
    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        now = self._clock.now()
        room = {each.kind: self._room(each.kind, each, now) for each in kinds}
        await asyncio.sleep(0)
        terms = [replace(each, at_once=None, limit=room[each.kind]) for each in kinds]
        return await super().claim(terms, limit, **more)


# Holding a kind back


class _HoldsNoKindBack(Memory):
    def _mark(self, mark: Mark, now: int) -> Kept:
        mark = GiveBack(mark.id, mark.claim, mark.after) if isinstance(mark, HoldBack) else mark
        return super()._mark(mark, now)


for _test in (
    "test_no_job_of_a_held_back_kind_is_claimed_until_its_time",
    "test_hold_backs_at_once_are_each_kept",
    "test_random_histories_keep_every_rule",
):
    told_by(_test)(_HoldsNoKindBack)


def _holding(then: Callable[[Memory, HoldBack, Kept, int], object], name: str) -> type[Memory]:
    """A store that does something else once a kind is held back."""

    class Holds(Memory):
        def _mark(self, mark: Mark, now: int) -> Kept:
            kept = super()._mark(mark, now)
            if isinstance(mark, HoldBack):
                then(self, mark, kept, now)
            return kept

    Holds.__name__ = name
    return Holds


def _to_the_last(store: Memory, mark: HoldBack, kept: Kept, now: int) -> None:
    if kept is Kept.YES:
        store._held_back[store._rows[mark.id].kind] = now + mark.kind_for


def _all_kinds(store: Memory, mark: HoldBack, kept: Kept, now: int) -> None:
    for kind in [*store._waiting, "photo"]:
        store._held_back[kind] = now + mark.kind_for


def _though_late(store: Memory, mark: HoldBack, kept: Kept, now: int) -> None:
    if mark.id in store._rows:
        store._held_back[store._rows[mark.id].kind] = now + mark.kind_for


def _with_its_attempt(store: Memory, mark: HoldBack, kept: Kept, now: int) -> None:
    if kept is Kept.YES:
        store._rows[mark.id].attempts += 1


told_by("test_a_kinds_time_is_moved_only_forward")(_holding(_to_the_last, "HoldsAKindToTheLastTime"))
told_by("test_of_a_batch_of_hold_backs_the_longest_holds")(
    _holding(_to_the_last, "HoldsAKindToTheLastTimeOfABatch")
)
told_by("test_other_kinds_are_claimed_meanwhile")(_holding(_all_kinds, "HoldsAllKindsBack"))
told_by("test_a_late_hold_back_holds_nothing")(_holding(_though_late, "HoldsAKindBackByALateMark"))
told_by("test_a_hold_back_sent_twice_is_kept_once")(_holding(_though_late, "HoldsAKindBackTwice"))
told_by("test_a_hold_back_undoes_the_claim")(_holding(_with_its_attempt, "KeepsTheAttemptOfAHoldBack"))
told_by("test_a_job_may_be_held_back_for_ever")(_holding(_with_its_attempt, "CountsHoldBacksAsAttempts"))


@told_by("test_a_hold_back_may_say_when_the_job_is_due")
class HoldsBackAsItWasDue(Memory):
    def _mark(self, mark: Mark, now: int) -> Kept:
        return super()._mark(replace(mark, after=None) if isinstance(mark, HoldBack) else mark, now)


@told_by("test_a_kind_that_is_held_back_is_claimed_as_no_other_either")
class HoldsNoOtherKindBack(Memory):
    def _room(self, kind: str, term: Claimable, now: int) -> int:
        return super()._room(kind, term, now if term.kind else 2**62)


@told_by("test_jobs_of_a_held_back_kind_that_run_go_on")
class TakesJobsOfAHeldBackKindAway(Memory):
    def _mark(self, mark: Mark, now: int) -> Kept:
        row = self._rows.get(mark.id)
        if row is not None and self._held_back.get(row.kind, 0) > now:
            return Kept.LOST
        return super()._mark(mark, now)


told_by("test_a_latest_push_of_a_held_back_kind_moves_its_job")(
    _after(HoldBack, Memory._let_key_go, "LosesTheKeyOfAHoldBack")
)


# Names


told_by("test_a_push_of_a_name_that_is_taken_pushes_nothing")(
    _pushing(lambda job: job._replace(name=None), "IgnoresNames")
)
told_by("test_a_name_is_one_of_all_kinds")(
    _pushing(lambda job: job._replace(name=job.name and f"{job.kind} {job.name}"), "HasNamesForEachKind")
)
told_by("test_other_names_and_none_are_pushed")(
    _pushing(lambda job: job._replace(name=job.name and job.name.lower()), "TakesAForA")
)
told_by("test_other_names_and_none_are_pushed")(
    _pushing(lambda job: job._replace(name=job.name and job.name.strip()), "TrimsNames")
)
_KeepsNoName = _pushing(lambda job: job._replace(keep_name=0), "KeepsNoNameAfterItsJob")
for _test in (
    "test_a_name_stays_taken_so_long_after_its_jobs_end",
    "test_a_batch_of_ends_keeps_each_name_its_own_time",
    "test_a_deleted_jobs_name_is_kept_so_long_too",
    "test_a_job_run_again_has_its_name",
    "test_pushes_beside_a_jobs_end_keep_its_name",
    "test_the_name_of_a_pruned_job_is_kept_so_long",
):
    told_by(_test)(_KeepsNoName)
told_by("test_a_name_with_nothing_kept_is_free_as_its_job_ends")(
    _pushing(lambda job: job._replace(keep_name=job.keep_name + 1), "KeepsEachName")
)


class _FreesANameAtAClaim(Memory):
    def _hold(self, row: Row, until: int) -> Job:
        self._names.pop(row.name or "", None)
        return super()._hold(row, until)


told_by("test_a_name_is_taken_while_its_job_is_kept")(_FreesANameAtAClaim)


class _FreesTheNameOfAFailedJob(Memory):
    def _fail(self, row: Row, now: int, error: str) -> None:
        self._names.pop(row.name or "", None)
        super()._fail(row, now, error)


told_by("test_a_name_is_taken_while_its_job_is_kept")(_FreesTheNameOfAFailedJob)
told_by("test_a_name_is_taken_by_a_job_that_used_up_its_attempts")(_FreesTheNameOfAFailedJob)


@told_by("test_a_name_stays_taken_so_long_after_its_jobs_end")
class KeepsANameFromItsPushOn(Memory):
    def _forget(self, row: Row) -> None:
        super()._forget(row)
        if row.name is not None:
            self._names[row.name] = row.created_at + row.keep_name


@told_by("test_of_one_push_the_first_of_a_name_is_kept")
class LooksForNamesBeforeABatch(Memory):
    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        seen: set[str | None] = set()
        new: list[NewJob] = []
        for job in jobs:
            new.append(job._replace(name=None) if job.name in seen else job)
            seen.add(job.name)
        return await super().push(new)


@told_by("test_a_late_done_frees_no_name")
class FreesANameByALateDone(Memory):
    def _mark(self, mark: Mark, now: int) -> Kept:
        if isinstance(mark, Done) and mark.id in self._rows:
            self._names.pop(self._rows[mark.id].name or "", None)
        return super()._mark(mark, now)


@told_by("test_a_name_that_is_refused_touches_no_job_of_its_key")
class LooksForKeysBeforeNames(Memory):
    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        for job in jobs:
            if job.latest and job.key is not None and (row := self._keys.get((job.kind, job.key))):
                self._move(row, self._clock.now() + job.after, job.at_most, None)
        return await super().push(jobs)


class _TakesANameForNothing(Memory):
    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        known = set(self._rows)
        ids = await super().push(jobs)
        for job, id in zip(jobs, ids, strict=True):
            if job.name is not None and (id is None or id in known):
                self._names.setdefault(job.name, 2**62)
        return ids


told_by("test_a_key_that_is_refused_takes_no_name")(_TakesANameForNothing)
told_by("test_a_push_that_moves_a_job_gives_it_no_name")(_TakesANameForNothing)


@told_by("test_of_pushes_of_one_name_at_once_one_is_kept")
class LooksForANameThenPushes(Memory):
    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        free = [job.name for job in jobs if job.name is not None and job.name not in self._names]
        await asyncio.sleep(0)
        for name in free:
            self._names.pop(name, None)
        return await super().push(jobs)


# Throttles


def _counting(counters: type[Counters]) -> type[Memory]:
    """A store that counts so."""

    class Counts(Memory):
        def __init__(self, **more: Any) -> None:
            super().__init__(**more)
            self._counters = counters()

    Counts.__name__ = counters.__name__
    return Counts


class Asks(Counters):
    """Asks for something else than it was asked."""

    def ask(self, asked: Throttled) -> Throttled:
        return asked

    def _take(self, asked: Throttled, now: int) -> Places:
        found = super()._take(self.ask(asked), now)
        return found._replace(name=asked.name, key=asked.key)


class GivesOneTooMany(Asks):
    def ask(self, asked: Throttled) -> Throttled:
        return asked._replace(most=asked.most + 1)


class CountsAllKeysTogether(Asks):
    def ask(self, asked: Throttled) -> Throttled:
        return asked._replace(key=asked.key.lower())


class TakesWhatIsNotWanted(Asks):
    def ask(self, asked: Throttled) -> Throttled:
        return asked._replace(wanted=max(1, asked.wanted))


class FreesPlacesEarly(Asks):
    def ask(self, asked: Throttled) -> Throttled:
        return asked._replace(per=asked.per - 1)


class FreesPlacesLate(Asks):
    def ask(self, asked: Throttled) -> Throttled:
        return asked._replace(per=asked.per + 1)


class HasNoMorePlaces(Asks):
    def __init__(self) -> None:
        super().__init__()
        self._most = 10_000

    def ask(self, asked: Throttled) -> Throttled:
        self._most = min(self._most, asked.most)
        return asked._replace(most=self._most)


class HasAThousandPlaces(Asks):
    def ask(self, asked: Throttled) -> Throttled:
        return asked._replace(most=min(asked.most, 1000))


for _counters, _test in (
    (GivesOneTooMany, "test_a_take_gives_what_is_wanted_and_no_more_than_most"),
    (CountsAllKeysTogether, "test_each_throttle_and_key_has_its_own_places"),
    (TakesWhatIsNotWanted, "test_a_take_of_nothing_takes_nothing"),
    (FreesPlacesEarly, "test_a_start_is_counted_for_per_from_its_time_exactly"),
    (FreesPlacesLate, "test_a_start_is_counted_for_per_from_its_time_exactly"),
    (FreesPlacesEarly, "test_places_that_nobody_settles_are_free_ten_seconds_and_per_later"),
    (FreesPlacesLate, "test_places_that_nobody_settles_are_free_ten_seconds_and_per_later"),
    (HasNoMorePlaces, "test_a_throttle_that_has_more_places_gives_more"),
    (HasAThousandPlaces, "test_a_throttle_may_have_ten_thousand_places"),
    (GivesOneTooMany, "test_no_window_of_a_history_has_more_than_most_starts[3 in 4 s]"),
):
    told_by(_test)(_counting(_counters))


class AnswersTakesInAnotherOrder(Counters):
    def take(self, asked: Sequence[Throttled], now: int) -> list[Places]:
        return sorted(super().take(asked, now))


class TellsTheWaitOfTheLastPlace(Counters):
    def _take(self, asked: Throttled, now: int) -> Places:
        found = super()._take(asked, now)
        taken = [at for at, _ in self._taken.get((asked.name, asked.key), {}).values()]
        return found._replace(wait=found.wait and max(1, max(taken) + asked.per - now))


class WaitsForWhatIsNotSettled(Counters):
    """As though whoever took it had died."""

    def _take(self, asked: Throttled, now: int) -> Places:
        taken = [
            at for at, _ in self._taken.get((asked.name, asked.key), {}).values() if at + asked.per > now
        ]
        found = super()._take(asked, now)
        taken += [found.until] * len(found.slots)
        return found._replace(wait=found.wait and max(1, min(taken) + asked.per - now))


class SettlesNothing(Counters):
    def settle(self, started: Sequence[tuple[Places, int, int]]) -> None:
        pass


class SettlesAllAsStarted(Counters):
    def settle(self, started: Sequence[tuple[Places, int, int]]) -> None:
        super().settle([(places, len(places.slots), at) for places, _, at in started])


class SettlesAllAsFree(Counters):
    def settle(self, started: Sequence[tuple[Places, int, int]]) -> None:
        super().settle([(places, 0, at) for places, _, at in started])


class SettlesTheFirstAlone(Counters):
    def settle(self, started: Sequence[tuple[Places, int, int]]) -> None:
        super().settle(started[:1])


class SettlesWhoeverHasThem(Counters):
    def settle(self, started: Sequence[tuple[Places, int, int]]) -> None:
        for places, count, at in started:
            here = self._taken.get((places.name, places.key), {})
            for slot in places.slots:
                if slot in here:
                    here[slot] = (places.until, here[slot][1])
            super().settle([(places, count, at)])


class CountsFromTheSettle(Counters):
    def settle(self, started: Sequence[tuple[Places, int, int]]) -> None:
        super().settle([(places, count, places.until) for places, count, _ in started])


class CountsByTheWindow(Counters):
    """So many in each second of the clock, so twice as many around its end."""

    def _take(self, asked: Throttled, now: int) -> Places:
        here = self._taken.get((asked.name, asked.key), {})
        for slot in [slot for slot, (at, _) in here.items() if at // asked.per < now // asked.per]:
            del here[slot]
        return super()._take(asked, now)


class CountsItsOwnPlacesAlone(Counters):
    def _take(self, asked: Throttled, now: int) -> Places:
        here = self._taken.get((asked.name, asked.key), {})
        for slot in [slot for slot in here if slot >= asked.most]:
            del here[slot]
        return super()._take(asked, now)


class FreesWhatDied(Counters):
    """At once after the time that it's kept for them."""

    def __init__(self) -> None:
        super().__init__()
        self._open: set[int] = set()

    def _take(self, asked: Throttled, now: int) -> Places:
        here = self._taken.get((asked.name, asked.key), {})
        for slot in [slot for slot, (at, _) in here.items() if at in self._open and at <= now]:
            del here[slot]
        found = super()._take(asked, now)
        self._open.add(found.until)
        return found

    def settle(self, started: Sequence[tuple[Places, int, int]]) -> None:
        super().settle(started)
        self._open -= {places.until for places, _, _ in started}


_COUNTERS: list[tuple[type[Counters], str]] = [
    (AnswersTakesInAnotherOrder, "test_a_take_asks_for_several_in_any_order"),
    (TellsTheWaitOfTheLastPlace, "test_the_wait_is_never_later_than_the_next_place_is_free"),
    (WaitsForWhatIsNotSettled, "test_the_wait_for_places_that_are_not_settled_is_that_for_a_start_now"),
    (SettlesNothing, "test_places_that_did_not_start_are_free_again"),
    (SettlesAllAsStarted, "test_places_that_did_not_start_are_free_again"),
    (SettlesAllAsFree, "test_places_settled_twice_are_settled_once"),
    (SettlesTheFirstAlone, "test_several_are_settled_at_once"),
    (SettlesWhoeverHasThem, "test_places_that_were_lost_are_left_to_whoever_has_them_now"),
    (SettlesWhoeverHasThem, "test_places_settled_twice_are_settled_once"),
    (CountsFromTheSettle, "test_places_are_settled_before_they_are_lost_though_late"),
    (CountsItsOwnPlacesAlone, "test_a_throttle_that_has_fewer_places_counts_the_starts_of_all"),
    (FreesWhatDied, "test_places_that_nobody_settles_are_free_ten_seconds_and_per_later"),
    *(
        (SettlesAllAsFree, f"test_no_window_of_a_history_has_more_than_most_starts[{rate}]")
        for rate in ("1 in 1 s", "3 in 4 s", "5 in 25 s", "14 in 1 s")
    ),
    (CountsByTheWindow, "test_no_window_of_a_history_has_more_than_most_starts[5 in 25 s]"),
]
for _kind_of, _test in _COUNTERS:
    told_by(_test)(_counting(_kind_of))


class _CountsThenTakesPlaces(Memory):
    async def take(self, asked: Sequence[Throttled]) -> list[Places]:
        before = {key: dict(here) for key, here in self._counters._taken.items()}
        await asyncio.sleep(0)
        self._counters._taken = before
        return await super().take(asked)


told_by("test_takes_at_once_never_exceed_most")(_CountsThenTakesPlaces)
told_by("test_takes_of_several_at_once_wait_for_nobody_who_waits_for_them")(_CountsThenTakesPlaces)


# Prune and sweep


def _pruning(
    for_longer_than: Callable[[int], int] = lambda each: each,
    at_most: Callable[[int], int] = lambda each: each,
    answer: Callable[[int], int] = lambda each: each,
    *,
    name: str,
) -> type[Memory]:
    """A store that prunes something else than it was asked, or answers something else than it did."""

    class Prunes(Memory):
        async def prune(self, failed_for: int, limit: int) -> int:
            return answer(await super().prune(for_longer_than(failed_for), at_most(limit)))

    Prunes.__name__ = name
    return Prunes


told_by("test_a_prune_removes_jobs_that_failed_longer_ago")(
    _pruning(for_longer_than=lambda each: each - 1, name="PrunesAMicrosecondEarly")
)
told_by("test_a_prune_removes_jobs_that_failed_longer_ago")(
    _pruning(at_most=lambda each: 0, name="PrunesNothing")
)
told_by("test_a_prune_removes_at_most_its_limit")(_pruning(at_most=lambda each: 1000, name="PrunesAll"))
told_by("test_prunes_at_once_count_each_row_once")(
    _pruning(answer=lambda each: each and each + 1, name="CountsPrunedRowsTwice")
)


@told_by("test_a_prune_leaves_what_has_not_failed")
class PrunesWhatWaitsForLong(Memory):
    async def prune(self, failed_for: int, limit: int) -> int:
        old = self._clock.now() - failed_for - 10 * 86_400_000_000
        for row in [row for row in self._rows.values() if row.created_at < old]:
            self._forget(row)
        return await super().prune(failed_for, limit)


@told_by("test_a_pruned_job_is_gone")
class HidesWhatItPrunes(Memory):
    async def prune(self, failed_for: int, limit: int) -> int:
        late = [number for at, number in self._failed if at < self._clock.now() - failed_for]
        return len(late)


@told_by("test_a_job_that_was_run_again_is_not_pruned")
class PrunesWhatFailedOnce(Memory):
    async def prune(self, failed_for: int, limit: int) -> int:
        old = self._clock.now() - failed_for
        for row in [row for row in self._rows.values() if 0 < row.failed_at < old]:
            self._forget(row)
        return await super().prune(failed_for, limit)


@told_by("test_a_prune_removes_names_that_are_free_and_no_other")
class PrunesAllNames(Memory):
    async def prune(self, failed_for: int, limit: int) -> int:
        self._names = {name: row for name, row in self._names.items() if isinstance(row, Row)}
        return await super().prune(failed_for, limit)


class _PrunesPlaces(Memory):
    async def prune(self, failed_for: int, limit: int) -> int:
        old = self._clock.now() - 60_000_000 * (failed_for > 0)
        for here in self._counters._taken.values():
            for slot in [slot for slot, (at, _) in here.items() if at < old]:
                del here[slot]
        return await super().prune(failed_for, limit)


told_by("test_a_prune_leaves_places_that_count")(_PrunesPlaces)
told_by("test_a_long_window_outlives_prunes")(_PrunesPlaces)


@told_by("test_a_prune_frees_no_key_that_is_held")
class PrunesKeysThatAreHeld(Memory):
    async def prune(self, failed_for: int, limit: int) -> int:
        for key in list(self._busy):
            _let_go(self, key)
        return await super().prune(failed_for, limit)


@told_by("test_a_sweep_wakes_no_job_whose_key_is_held")
class SweepsKeysThatAreHeld(Memory):
    async def sweep(self) -> int:
        for key in list(self._busy):
            _let_go(self, key)
        return await super().sweep()


told_by("test_a_sweep_after_a_hold_that_ran_out_lets_one_of_its_key_go")(
    type("SweepsKeysTwice", (SweepsKeysThatAreHeld,), {})
)


@told_by("test_a_sweep_of_nothing_wakes_nothing")
class SaysItSwept(Memory):
    async def sweep(self) -> int:
        return await super().sweep() + 1


# In transactions


class _KeepsTheKeysOfARollback(Memory):
    def _drop_staged(self, rows: Sequence[Row], moved: Sequence[tuple[Row, int]]) -> None:
        with self._lock:
            super()._drop_staged([], moved)
            for row in rows:
                row.owner = None


for _test in (
    "test_a_key_is_taken_as_its_transaction_commits",
    "test_a_key_goes_with_its_savepoint",
    "test_a_name_is_taken_as_its_transaction_commits",
):
    told_in_a_transaction_by(_test)(_KeepsTheKeysOfARollback)


@told_in_a_transaction_by("test_a_push_of_a_key_waits_for_the_transaction_that_pushed_it")
class WaitsForNoOutcome(Memory):
    def _met(self, jobs: Sequence[NewJob], owner: object) -> InTheWay | None:
        return None


@told_in_a_transaction_by("test_a_push_in_a_transaction_of_a_key_that_waits_pushes_nothing")
class ForgetsKeysInATransaction(Memory):
    def _admitted(
        self, jobs: Sequence[NewJob], owner: object
    ) -> tuple[list[str | None], list[Row], list[tuple[Row, int]]]:
        return super()._admitted([job if owner is None else job._replace(key=None) for job in jobs], owner)


@told_in_a_transaction_by("test_a_latest_push_moves_a_job_as_its_transaction_commits")
class MovesThroughARollback(Memory):
    def _drop_staged(self, rows: Sequence[Row], moved: Sequence[tuple[Row, int]]) -> None:
        super()._drop_staged(rows, [(row, row.run_at) for row, _ in moved])


@told_in_a_transaction_by("test_a_claim_undone_waits_for_no_transaction_that_pushes_its_key")
class WaitsToTakeAKeyBack(Memory):
    async def mark(self, marks: Sequence[Mark]) -> list[Kept]:
        keys = [self._rows[each.id].key for each in marks if each.id in self._rows]
        while any(key in self._keys and self._keys[key].owner is not None for key in keys if key):
            await asyncio.sleep(0.01)
        return await super().mark(marks)


@told_in_a_transaction_by("test_a_done_in_lets_the_next_of_its_key_go_as_it_commits")
class WakesNobodyAfterADoneIn(Memory):
    def _end(self, row: Row) -> None:
        parked, self._parked = self._parked, {}
        super()._end(row)
        self._parked = parked


@told_in_a_transaction_by("test_no_job_of_its_key_is_claimed_while_a_done_in_is_open")
class LetsTheNextGoBeforeTheCommit(Memory):
    def _stage_end(self, job: Job) -> Staged:
        staged = super()._stage_end(job)
        _let_go(self, self._rows[job.id].alone)
        return staged


@told_in_a_transaction_by("test_a_done_in_keeps_the_name_of_its_job")
class FreesTheNameOfADoneIn(Memory):
    def _end(self, row: Row) -> None:
        super()._end(row)
        self._names.pop(row.name or "", None)


@told_in_a_transaction_by("test_a_sweep_wakes_a_job_that_a_transaction_had_as_its_turn_came")
class SweepsNothing(Memory):
    def _moved(self, row: Row) -> None:
        super()._moved(row)
        if row.moves == 0:
            self._park(row)

    async def sweep(self) -> int:
        return 0

"""Faults put into the runtime or the store on purpose, each of which the fleet is to find."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from fastjobs.core.job import Job
from fastjobs.core.rate import RESERVED
from fastjobs.core.verdict import Cut
from fastjobs.core.verdict import verdict as judge
from fastjobs.runtime import runner
from fastjobs.runtime.cancelling import Cancels, LastWord
from fastjobs.runtime.feed import Feed
from fastjobs.runtime.handled import Handled
from fastjobs.runtime.ledger import Ledger
from fastjobs.runtime.life import Life
from fastjobs.runtime.progress import Reports
from fastjobs.runtime.renewal import Renewal
from fastjobs.runtime.run import FAR, Run
from fastjobs.runtime.telling import Teller
from fastjobs.store import Claimable, Claimed, GiveBack, Kept, Mark
from fastjobs.stores.counters import Counters
from fastjobs.stores.memory import Memory
from fastjobs.stores.rows import Row
from tests.fleet.wire import Wire
from tests.fleet.world import BUSY, CALM, CANCELS, DEPLOYS, EVERYTHING, FAILING, LIMITED, SHORT, Focus

Mutant = Callable[[], AbstractContextManager[object]]


@contextmanager
def no_fence() -> Generator[None]:
    """A mark is taken for whichever claim has the job."""
    kept = Memory._mark

    def mark(self: Memory, mark: Mark, now: int) -> Kept:
        row = self._rows.get(mark.id)
        return kept(self, mark if row is None else replace(mark, claim=row.claim), now)

    with patch.object(Memory, "_mark", mark):
        yield


@contextmanager
def give_back_keeps_its_attempt() -> Generator[None]:
    """What is given back has used an attempt."""
    kept = Memory._mark

    def mark(self: Memory, mark: Mark, now: int) -> Kept:
        answer = kept(self, mark, now)
        if isinstance(mark, GiveBack) and answer is Kept.YES:
            self._rows[mark.id].attempts += 1
        return answer

    with patch.object(Memory, "_mark", mark):
        yield


@contextmanager
def holds_ignored() -> Generator[None]:
    """A job that's held is claimed all the same."""
    end = Memory._end_holds

    def end_holds(self: Memory, now: int) -> None:
        end(self, now + 3_600_000_000)

    with patch.object(Memory, "_end_holds", end_holds):
        yield


@contextmanager
def attempts_unlimited() -> Generator[None]:
    """The claim doesn't look at the attempts, so that a job which kills its process runs for ever."""
    claim = Memory.claim

    async def unlimited(self: Memory, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        return await claim(self, [replace(each, attempts=10**6) for each in kinds], limit, **more)

    with patch.object(Memory, "claim", unlimited):
        yield


@contextmanager
def a_failed_batch_is_dropped() -> Generator[None]:
    """Marks whose write failed are not written again."""

    class Dropping:
        def __init__(self, store: Wire) -> None:
            self._store = store

        async def mark(self, marks: Sequence[Mark]) -> list[Kept]:
            try:
                return await self._store.mark(marks)
            except Exception:
                return [Kept.LOST for _ in marks]

    with _given_to(Ledger, Dropping):
        yield


def busy_is_lost_for_marks() -> AbstractContextManager[object]:
    """A mark that met someone's transaction is let go."""
    return _given_to(Ledger, _BusyIsLost)


def busy_is_lost_for_renewals() -> AbstractContextManager[object]:
    """A renewal that met someone's transaction cancels the handler."""
    return _given_to(Renewal, _BusyIsLost)


class _BusyIsLost:
    def __init__(self, store: Wire) -> None:
        self._store = store

    async def mark(self, marks: Sequence[Mark]) -> list[Kept]:
        return [Kept.LOST if each is Kept.BUSY else each for each in await self._store.mark(marks)]


@contextmanager
def _given_to(part: type[Any], wrap: Callable[[Wire], object]) -> Generator[None]:
    """Gives the part of the runtime another store."""
    init: Callable[..., None] = part.__init__

    def wrapped(self: object, store: Wire, *rest: Any, **more: Any) -> None:
        init(self, wrap(store), *rest, **more)

    with patch.object(part, "__init__", wrapped):
        yield


def no_renewals() -> AbstractContextManager[object]:
    """No hold is renewed."""

    async def renew(self: Renewal, due: list[Run]) -> None:
        for run in due:
            run.renew_at = FAR

    return patch.object(Renewal, "_renew", renew)


def a_wake_is_lost() -> AbstractContextManager[object]:
    """A push wakes nobody."""

    def wake(self: Feed) -> None:
        self.woken = False

    return patch.object(Feed, "wake", wake)


def what_comes_due_waits_for_the_poll() -> AbstractContextManager[object]:
    """A job that was put back for later is looked for at the next poll."""

    def due_in(self: Feed, seconds: float) -> None:
        return

    return patch.object(Feed, "due_in", due_in)


def the_prefetch_is_not_given_back() -> AbstractContextManager[object]:
    """A stop forgets the jobs that wait for a worker."""

    put_back = Life._put_back_waiting

    def forget(self: Life) -> None:
        if self.feed.stopping:
            self._workers.withdraw()
        else:
            put_back(self)

    return patch.object(Life, "_put_back_waiting", forget)


def a_stop_doesnt_wait_for_marks() -> AbstractContextManager[object]:
    """A stop takes no notice of marks on their way."""

    async def at_once(self: Ledger) -> None:
        return

    return patch.multiple(Ledger, pending=False, flushed=at_once)


@contextmanager
def a_stop_uses_an_attempt() -> Generator[None]:
    """A handler that's cancelled as the queue stops has failed."""

    def verdict(job: Any, options: Any, error: Any, cut: Cut | None, *rest: Any) -> Any:
        return judge(job, options, error, None if cut is Cut.STOP else cut, *rest)

    with patch.object(runner, "verdict", verdict):
        yield


@contextmanager
def a_late_end_is_told() -> Generator[None]:
    """A mark that changed nothing is told of as if it had."""
    tell = Teller.ended

    def ended(self: Teller, ended: Any, kept: Kept | None, resent: bool) -> Any:
        return tell(self, ended, kept, resent or kept is Kept.LOST)

    with patch.object(Teller, "ended", ended):
        yield


@contextmanager
def on_fail_runs_twice() -> Generator[None]:
    """What is owed to a job is given it again."""
    tell = Teller.ended

    def ended(self: Teller, ended: Any, kept: Kept | None, resent: bool) -> Any:
        owed = tell(self, ended, kept, resent)
        if owed is not None:
            ended.run.kind.queue._life._workers.offer(owed)
        return owed

    with patch.object(Teller, "ended", ended):
        yield


@contextmanager
def a_kept_push_is_forgotten() -> Generator[None]:
    """A job that's put back a second time is lost."""
    kept = Memory._mark

    def mark(self: Memory, mark: Mark, now: int) -> Kept:
        row = self._rows.get(mark.id)
        answer = kept(self, mark, now)
        if row is not None and answer is Kept.YES and isinstance(mark, GiveBack) and row.claim > 3:
            self._leave(row)
            del self._rows[row.id]
        return answer

    with patch.object(Memory, "_mark", mark):
        yield


@contextmanager
def a_value_runs_beside_itself() -> Generator[None]:
    """A claim doesn't look at what is held of a job's value."""
    hold = Memory._hold

    def held(self: Memory, row: Any, until: int) -> Any:
        job = hold(self, row, until)
        self._busy.pop(row.alone, None)
        return job

    def leave(self: Memory, row: Any) -> None:
        if row.counts and row.alone is not None:
            self._busy.setdefault(row.alone, row)
        kept(self, row)

    kept = Memory._leave
    with patch.object(Memory, "_hold", held), patch.object(Memory, "_leave", leave):
        yield


@contextmanager
def one_more_at_once() -> Generator[None]:
    """A kind's limit counts one too few of its held jobs."""
    room = Memory._room

    def one_more(self: Memory, kind: str, term: Claimable, now: int) -> int:
        return room(self, kind, term, now) + (term.at_once is not None)

    with patch.object(Memory, "_room", one_more):
        yield


def a_key_is_never_let_go() -> AbstractContextManager[object]:
    """A claim leaves its job its key."""

    def let_go(self: Memory, row: Any) -> None:
        if row.unique and row.state.name == "STAGED":
            del self._keys[row.key]
            row.unique = False

    return patch.object(Memory, "_let_key_go", let_go)


def a_key_is_not_had_back() -> AbstractContextManager[object]:
    """What is given back goes without its key."""
    take = Memory._take_key

    def take_key(self: Memory, row: Any) -> None:
        if row.claim == 0:
            take(self, row)

    return patch.object(Memory, "_take_key", take_key)


def the_next_of_a_value_is_forgotten() -> AbstractContextManager[object]:
    """The end of a job doesn't let the next of its value run."""

    def next_of(self: Memory, row: Any) -> None:
        return

    return patch.object(Memory, "_next_of", next_of)


def what_was_claimed_is_not_settled() -> AbstractContextManager[object]:
    """The places of jobs that started are given back."""
    settle = Counters.settle

    def none_started(self: Counters, started: Any) -> None:
        settle(self, [(places, 0, at) for places, _, at in started])

    return patch.object(Counters, "settle", none_started)


def a_start_counts_from_when_it_was_asked_for() -> AbstractContextManager[object]:
    """Places are free again so long after they were taken, and not after the claim."""
    settle = Counters.settle

    def from_taken(self: Counters, started: Any) -> None:
        settle(self, [(places, count, places.until - RESERVED) for places, count, _ in started])

    return patch.object(Counters, "settle", from_taken)


def a_pause_is_not_kept() -> AbstractContextManager[object]:
    """A paused kind is claimed as any."""

    async def pause(self: Memory, kind: str, paused: bool) -> bool:
        return True

    return patch.object(Memory, "pause", pause)


def cancels_elsewhere_are_not_heard_of() -> AbstractContextManager[object]:
    """Nobody asks the store which jobs were cancelled; a renewal alone tells."""

    async def asked(self: Cancels, runs: Sequence[Run]) -> list[Run]:
        return []

    return patch.object(Cancels, "asked", asked)


def a_cancel_is_not_looked_for_before_a_mark() -> AbstractContextManager[object]:
    """A job that fails as it's cancelled is put back."""
    before = LastWord.before

    async def without(self: LastWord, ends: Sequence[Any]) -> list[Any]:
        async def asked(runs: Sequence[Run]) -> list[Run]:
            return []

        with patch.object(self._cancels, "asked", asked):
            return await before(self, ends)

    return patch.object(LastWord, "before", without)


def a_cancelled_job_is_left_to_its_hold() -> AbstractContextManager[object]:
    """A job that was cancelled is cancelled as by a claim that's gone: nothing marks it."""

    def cancel(self: Run) -> None:
        self.interrupt(Cut.LOST)

    return patch.object(Run, "cancel", cancel)


def a_cancel_ends_with_the_claim_it_met() -> AbstractContextManager[object]:
    """A job that was cancelled runs again where its worker was lost before it heard."""
    hold = Memory._hold

    def held(self: Memory, row: Row, until: int) -> Job:
        row.stop_asked = False
        return hold(self, row, until)

    return patch.object(Memory, "_hold", held)


def a_cancelled_job_is_run_all_the_same() -> AbstractContextManager[object]:
    """What a claim says of an earlier cancel isn't read."""
    run = Handled.run

    def unread(self: Handled, job: Job, asked: float, now: int) -> Run:
        return run(self, job._replace(stop_asked=False), asked, now)

    return patch.object(Handled, "run", unread)


def the_last_report_is_dropped() -> AbstractContextManager[object]:
    """What a handler reported just before its end isn't written."""

    async def keep(self: Reports, runs: Sequence[Run]) -> None:
        return

    return patch.object(Reports, "keep", keep)


MUTANTS: dict[Mutant, Focus] = {
    no_fence: EVERYTHING,
    give_back_keeps_its_attempt: EVERYTHING,
    holds_ignored: EVERYTHING,
    attempts_unlimited: EVERYTHING,
    a_failed_batch_is_dropped: FAILING,
    busy_is_lost_for_marks: BUSY,
    busy_is_lost_for_renewals: BUSY,
    no_renewals: EVERYTHING,
    a_wake_is_lost: CALM,
    what_comes_due_waits_for_the_poll: CALM,
    the_prefetch_is_not_given_back: SHORT,
    a_stop_doesnt_wait_for_marks: DEPLOYS,
    a_stop_uses_an_attempt: DEPLOYS,
    a_late_end_is_told: EVERYTHING,
    on_fail_runs_twice: EVERYTHING,
    a_kept_push_is_forgotten: EVERYTHING,
    a_value_runs_beside_itself: LIMITED,
    one_more_at_once: LIMITED,
    a_key_is_never_let_go: LIMITED,
    a_key_is_not_had_back: LIMITED,
    the_next_of_a_value_is_forgotten: LIMITED,
    what_was_claimed_is_not_settled: LIMITED,
    a_start_counts_from_when_it_was_asked_for: LIMITED,
    a_pause_is_not_kept: CANCELS,
    cancels_elsewhere_are_not_heard_of: CANCELS,
    a_cancel_is_not_looked_for_before_a_mark: CANCELS,
    a_cancelled_job_is_left_to_its_hold: CANCELS,
    a_cancel_ends_with_the_claim_it_met: CANCELS,
    a_cancelled_job_is_run_all_the_same: CANCELS,
    the_last_report_is_dropped: CANCELS,
}
"""Each with what shows it soonest."""

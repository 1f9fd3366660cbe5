"""The queue's desk: what it shows of its jobs and kinds, and does to them, for a route, a script or the command line.

Longer than 300 lines, as most of it says what its public methods promise, for async code and for sync.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from fastjobs.core.claiming import Claimable
from fastjobs.core.duration import SECOND
from fastjobs.core.errors import QueueError
from fastjobs.core.job import JobState
from fastjobs.runtime.acting import FailedJobs, an_id, failed_store, named, number, told
from fastjobs.runtime.blocking import block
from fastjobs.runtime.looking import JobInfo, KindInfo, failed_info, info, kind_info, no_jobs, place
from fastjobs.runtime.waiting import limited
from fastjobs.store import Cancelled, CancelStore, CountsStore, Extra, PauseStore, Store, require, supports

if TYPE_CHECKING:
    import asyncio

    from fastjobs.core.options import KindOptions
    from fastjobs.runtime.kind import Kind

MOST = 10_000
"""How many jobs one page of a list may have."""


class Desk(ABC):
    """What a Queue answers about its jobs. Each works while it runs or not, and in any process that has the store."""

    @property
    @abstractmethod
    def store(self) -> Store:
        """The store; QueueError where there is none yet."""

    @property
    @abstractmethod
    def kinds(self) -> Mapping[str, Kind[Any]]:
        """The kinds with a handler here, by name."""

    _fallback: Kind[Any] | None
    """What handles the others."""

    @property
    @abstractmethod
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop it runs on; None while it doesn't run."""

    @abstractmethod
    def wake(self) -> None:
        """Has what is due start now."""

    @abstractmethod
    def _cancel_here(self, id: str) -> None:
        """Cancels the job, if it's held in this process."""

    async def job(self, id: str, *, cut: int | None = None) -> JobInfo | None:
        """One job as it's kept now, failed ones too; None where it's done, was removed, or never was.

        `cut` is how many characters of its payload are read at most, None for all. `JobInfo.why` says in a sentence
        why it waits. StoreError where the store has no COUNTS.
        """
        store = self._counts_store("q.job")
        _check_cut(cut)
        found = await limited(store.job(an_id(id), cut=cut), "a look at a job")
        return None if found is None else info(found, self._options(found.kind))

    async def jobs(
        self,
        kind: str | Kind[Any],
        state: JobState = JobState.WAITING,
        *,
        after: JobInfo | str | None = None,
        limit: int = 100,
        cut: int | None = None,
    ) -> list[JobInfo]:
        """The jobs of a kind that wait, those due first before the others; or those held, or failed.

        A page of `limit` jobs; `after` is the last one of the page before, or its `cursor`. `cut` as in `job`.
        QueueError for the parked, which are counted alone; StoreError where the store has no COUNTS.
        """
        state = _state(state)
        if state is JobState.FAILED:
            return await self.failed(kind=kind, after=after, limit=limit, cut=cut)
        if state is JobState.PARKED:
            raise QueueError("parked jobs aren't listed: q.counts() counts them, and q.job(id) shows one")
        store = self._counts_store("q.jobs")
        _check_page(limit, cut)
        name = named(kind)
        if name is None:
            raise QueueError("q.jobs lists the jobs of one kind: q.counts() says which kinds there are")
        listed = store.jobs(name, state, after=place(after, state), limit=limit, cut=cut)
        return [info(job, self._options(job.kind)) for job in await limited(listed, "a look at jobs")]

    async def failed(
        self,
        *,
        kind: str | Kind[Any] | None = None,
        after: JobInfo | str | None = None,
        limit: int = 100,
        cut: int | None = None,
    ) -> list[JobInfo]:
        """The jobs that failed for good, the latest first; of one kind, if that's asked for.

        A page of `limit` jobs; `after` is the last one of the page before, or its `cursor`. `cut` is how many
        characters of each payload are read at most. StoreError where the store has no FAILED.
        """
        store = failed_store(self.store, "q.failed")
        _check_page(limit, cut)
        begins = place(after, JobState.FAILED)
        listed = store.failed(kind=named(kind), after=begins, limit=limit, cut=cut)
        return [failed_info(job) for job in await limited(listed, "a look at the failed jobs")]

    async def run_again(self, *ids: str, kind: str | Kind[Any] | None = None, all: bool = False) -> int:
        """Puts failed jobs back, due now and with all their attempts, and answers how many there were.

        Those with these ids, or all of a kind, or with `all=True` every one that had failed before the call. Ids of
        jobs that have not failed are passed over. Many are put back in pages, each kept as it's done, so an error
        in the middle leaves the rest as they were. QueueError unless it's one of the three.
        """
        return await FailedJobs(self.store, ids, kind, all=all, what="run_again").run_again(self.wake)

    async def delete(self, *ids: str, kind: str | Kind[Any] | None = None, all: bool = False) -> int:
        """Removes failed jobs, and answers how many there were; chosen as by `run_again`.

        A job that waits or runs is passed over: `cancel` is for these.
        """
        return await FailedJobs(self.store, ids, kind, all=all, what="delete").delete()

    async def cancel(self, id: str) -> Cancelled:
        """Removes a job that waits, and asks one that runs to stop; answers which it was.

        - REMOVED: it waited, and is gone. It never starts, and its on_fail isn't run.
        - ASKED: it's held. Its async handler is cancelled, on whichever instance runs it: in this process at once,
          in others within two seconds or `poll`, whichever is longer. A process of its own is ended. A `def` handler
          goes on, and sees `current_job().cancelled`. Whatever the handler raises then, the job is removed, and its
          on_fail isn't run; one that returns is done. Where it's put back before anyone has heard, as its process is
          killed or its end was being written, the next claim removes it, and it doesn't start again. One that has
          failed for good by then is kept as failed.
        - BUSY: someone's open transaction has the job. Nothing changed; ask again.
        - NOT_THERE: it's done, has failed, or never was. `delete` is for failed ones.

        StoreError where the store has no CANCEL.
        """
        store = self.store
        require(store, Extra.CANCEL, "q.cancel")
        (answer,) = await limited(cast("CancelStore", store).cancel([an_id(id)]), "a cancel")
        if answer is Cancelled.ASKED:
            told("a job was asked to stop", job=id)
            self._cancel_here(id)
        elif answer is Cancelled.REMOVED:
            told("a job that waited was cancelled, and is removed", job=id)
            self.wake()  # the next of its value may run
        return answer

    async def pause(self, kind: str | Kind[Any]) -> None:
        """Has no job of the kind start any more, on any instance, until `resume`: through restarts and deploys too.

        What runs goes on, and pushes are kept. QueueError for a kind that there isn't, naming those there are;
        StoreError where the store has no PAUSE.
        """
        await self._pause(kind, paused=True)

    async def resume(self, kind: str | Kind[Any]) -> None:
        """Ends a pause, on all instances: what is due starts. Nothing where the kind isn't paused."""
        await self._pause(kind, paused=False)

    async def counts(self, *, cap: int = 10_000) -> list[KindInfo]:
        """How many jobs there are of each kind, in the order of their names: kinds without a handler here, too.

        No number is counted past `cap` + 1, so that it's cheap however many jobs there are. StoreError where the
        store has no COUNTS.
        """
        number(cap, "cap", 1, 10_000_000)
        found = await limited(self._counts_store("q.counts").counts(cap=cap), "counts")
        kinds = [kind_info(each, handled=self._options(each.kind) is not None) for each in found]
        known = {each.kind for each in found}
        kinds += [no_jobs(name) for name in self.kinds if name not in known]
        return sorted(kinds, key=lambda each: each.kind)

    @property
    def sync(self) -> SyncDesk:
        """The same for sync code: `q.sync.failed()` in a thread of the app's, a `def` route, or with no loop at all."""
        return SyncDesk(self)

    async def _pause(self, kind: str | Kind[Any], *, paused: bool) -> None:
        what = "pause" if paused else "resume"
        store = self.store
        require(store, Extra.PAUSE, f"q.{what}")
        name = named(kind)
        if name is None or not (
            await limited(cast("PauseStore", store).pause(name, paused), what)
            or (name in self.kinds and await self._made_known(name, paused=paused))
        ):
            raise QueueError(f"there is no kind {name!r:.120} to {what}; there are: {await self._known()}")
        told(f"a kind was {what}d", kind=name)
        if not paused:
            self.wake()

    async def _made_known(self, name: str, *, paused: bool) -> bool:
        """Pauses a kind that the store has not heard of, as it was never opened with it or pushed to."""
        store = self.store
        if not supports(store, Extra.LIFECYCLE):
            # One with nothing to open hears of kinds by the claims of their jobs.
            await limited(store.claim([Claimable(kind=name, hold=SECOND, attempts=1)], 0), "a claim of none")
            return await limited(cast("PauseStore", store).pause(name, paused), "pause")
        await limited(store.open(list(self.kinds)), "opening")
        try:
            return await limited(cast("PauseStore", store).pause(name, paused), "pause")
        finally:
            await limited(store.close(), "closing")

    async def _known(self) -> str:
        names = set(self.kinds)
        if supports(self.store, Extra.COUNTS):
            names |= {each.kind for each in await limited(self.store.counts(cap=1), "counts")}
        return ", ".join(sorted(names)) or "none"

    def _counts_store(self, what: str) -> CountsStore:
        require(self.store, Extra.COUNTS, what)
        return cast("CountsStore", self.store)

    def _options(self, kind: str) -> KindOptions | None:
        found = self.kinds.get(kind, self._fallback)
        return None if found is None else found.options


class SyncDesk:
    """A queue's answers for sync code: each blocks its thread until it has one.

    From a thread of the app's, or with no event loop at all. On a thread whose event loop runs each raises QueueError,
    as it would block the loop: `await q.failed(…)` there.
    """

    def __init__(self, queue: Desk) -> None:
        self._queue = queue

    def job(self, id: str, *, cut: int | None = None) -> JobInfo | None:
        """As `Queue.job`."""
        return block(self._queue, lambda: self._queue.job(id, cut=cut), "job")

    def jobs(
        self,
        kind: str | Kind[Any],
        state: JobState = JobState.WAITING,
        *,
        after: JobInfo | str | None = None,
        limit: int = 100,
        cut: int | None = None,
    ) -> list[JobInfo]:
        """As `Queue.jobs`."""
        return block(
            self._queue, lambda: self._queue.jobs(kind, state, after=after, limit=limit, cut=cut), "jobs"
        )

    def failed(
        self,
        *,
        kind: str | Kind[Any] | None = None,
        after: JobInfo | str | None = None,
        limit: int = 100,
        cut: int | None = None,
    ) -> list[JobInfo]:
        """As `Queue.failed`."""
        return block(
            self._queue, lambda: self._queue.failed(kind=kind, after=after, limit=limit, cut=cut), "failed"
        )

    def run_again(self, *ids: str, kind: str | Kind[Any] | None = None, all: bool = False) -> int:
        """As `Queue.run_again`."""
        return block(self._queue, lambda: self._queue.run_again(*ids, kind=kind, all=all), "run_again")

    def delete(self, *ids: str, kind: str | Kind[Any] | None = None, all: bool = False) -> int:
        """As `Queue.delete`."""
        return block(self._queue, lambda: self._queue.delete(*ids, kind=kind, all=all), "delete")

    def cancel(self, id: str) -> Cancelled:
        """As `Queue.cancel`."""
        return block(self._queue, lambda: self._queue.cancel(id), "cancel")

    def pause(self, kind: str | Kind[Any]) -> None:
        """As `Queue.pause`."""
        block(self._queue, lambda: self._queue.pause(kind), "pause")

    def resume(self, kind: str | Kind[Any]) -> None:
        """As `Queue.resume`."""
        block(self._queue, lambda: self._queue.resume(kind), "resume")

    def counts(self, *, cap: int = 10_000) -> list[KindInfo]:
        """As `Queue.counts`."""
        return block(self._queue, lambda: self._queue.counts(cap=cap), "counts")


def _state(state: JobState) -> JobState:
    try:
        return JobState(state)
    except ValueError:
        raise QueueError(f"a state is one of {', '.join(JobState)}, not {state!r:.80}") from None


def _check_page(limit: int, cut: int | None) -> None:
    number(limit, "limit", 1, MOST)
    _check_cut(cut)


def _check_cut(cut: int | None) -> None:
    if cut is not None:
        number(cut, "cut", 0, 2**31 - 1)

"""Acts on jobs: looks at one, cancels, has failed ones run again, deletes them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from fastjobs.cli import telling
from fastjobs.cli.asking import check_kind
from fastjobs.cli.printing import Progress, agreed, harmless, out, out_json, someone_is_there, tell
from fastjobs.cli.telling import counted
from fastjobs.runtime.looking import JobInfo
from fastjobs.runtime.queue import Queue
from fastjobs.store import Cancelled, Extra, JobState, supports

OF_MANY = ("retry", "delete")
"""What may be asked for all failed jobs."""
_PAGE = 500
_GONE = "there's no such job: it's done, was removed, or never was"
_CANCELLED = {
    Cancelled.REMOVED: "it waited, and is removed",
    Cancelled.ASKED: "it runs, and is asked to stop: an async handler is cancelled within seconds, a def in a thread"
    " ends where it looks at current_job().cancelled, and the job is removed",
}


async def show(queue: Queue, ids: Sequence[str], *, as_json: bool) -> int:
    """Tells all that's known of these jobs."""
    code = 0
    for id in ids:
        job = await queue.job(id)
        if job is None:
            tell(f"job {id}: {_GONE}")
            code = 1
        elif as_json:
            out_json(telling.job_json(job))
        else:
            out(telling.shown(job))
    return code


async def cancel(queue: Queue, ids: Sequence[str], *, as_json: bool) -> int:
    """Removes jobs that wait, and asks those that run to stop."""
    code = 0
    for id in ids:
        became = await queue.cancel(id)
        if as_json:
            out_json({"id": id, "cancelled": became.value})
        if became in _CANCELLED:
            if not as_json:
                out(f"job {harmless(id)}: {_CANCELLED[became]}\n")
            continue
        code = 1
        if became is Cancelled.BUSY:
            tell(
                f"job {id}: someone's open transaction has it, and nothing was changed: try again in a moment"
            )
        else:
            found = await _found(queue, id)
            failed = found is not None and found.state is JobState.FAILED
            tell(f"job {id}: {'it has failed, and runs no more: delete removes it' if failed else _GONE}")
    return code


class Failed:
    """An action on failed jobs: these, all of a kind, or all there are."""

    def __init__(self, named: str, ids: Sequence[str], kind: str | None, *, as_json: bool) -> None:
        self._named = named
        self._ids = ids
        self._kind = kind
        self._as_json = as_json

    async def retry(self, queue: Queue) -> int:
        """Has them run again."""

        def said(n: int) -> str:
            return f"{counted(n, 'job')} back to run, as the app's queue finds {'it' if n == 1 else 'them'}."

        return await self._act(queue, queue.run_again, "run_again", said)

    async def delete(self, queue: Queue, *, unasked: bool) -> int:
        """Removes them; all or a kind's only once that was agreed to, where someone is at a terminal."""
        if not self._ids and not unasked and someone_is_there() and not await self._agreed(queue):
            tell("nothing was deleted")
            return 1
        return await self._act(queue, queue.delete, "deleted", lambda n: f"{counted(n, 'job')} deleted.")

    async def _act(
        self, queue: Queue, act: Callable[..., Awaitable[int]], word: str, said: Callable[[int], str]
    ) -> int:
        done = 0
        missed: list[str] = []
        progress = Progress()
        ended = False
        try:
            async for ids in self._pages(queue):
                n = await act(*ids)
                done += n
                if self._ids and not n:
                    missed += ids
                progress.says(f"{counted(done, 'job')} so far")
            if not done and self._kind is not None:
                await check_kind(queue, self._kind)
            ended = True
        finally:
            progress.ends()
            # What was done until it was interrupted, or the database went away, stays done.
            if self._as_json and (done or ended):
                out_json({word: done, "missed": missed})
            elif done or (ended and not missed):
                out(said(done) + "\n")
        for id in missed:
            found = await _found(queue, id)
            why = _none(queue, id) if found is None else f"it hasn't failed: {found.why}"
            tell(f"job {id}: {why}")
        return 1 if missed else 0

    async def _pages(self, queue: Queue) -> AsyncGenerator[list[str]]:
        """The ids, one at a time where they were named, so that each says whether it was there."""
        for id in self._ids:
            yield [id]
        after: JobInfo | None = None
        while not self._ids:
            # From the latest to the first: what fails again meanwhile is later than these, and isn't met twice.
            page = await queue.failed(kind=self._kind, after=after, limit=_PAGE, cut=0)
            if page:
                yield [job.id for job in page]
            if len(page) < _PAGE:
                return
            after = page[-1]

    async def _agreed(self, queue: Queue) -> bool:
        every = "all"
        if supports(queue.store, Extra.COUNTS):
            kinds = await queue.counts(cap=telling.CAP)
            found = sum(each.failed for each in kinds if self._kind in (None, each.kind))
            if not found:
                return True  # there's nothing to lose
            every = f"all {telling.number_of(found)}"
        of = "" if self._kind is None else f" of {harmless(self._kind)}"
        return agreed(f"Delete {every} failed jobs{of}, in {self._named}? They don't come back. [y/N] ")


async def _found(queue: Queue, id: str) -> JobInfo | None:
    return await queue.job(id, cut=0) if supports(queue.store, Extra.COUNTS) else None


def _none(queue: Queue, id: str) -> str:
    """What's said of an id of which nothing was found."""
    if id in queue.kinds:
        return f"there's no such job, as it's a kind: --kind {id} means its failed jobs"
    return _GONE if supports(queue.store, Extra.COUNTS) else "there's no failed job of this id"

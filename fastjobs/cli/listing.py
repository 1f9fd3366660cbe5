"""Lists jobs, a page at a time: as many as there are, and never more than a page of them in memory."""

from __future__ import annotations

import argparse
from collections.abc import AsyncGenerator, Iterable

from fastjobs.cli import telling
from fastjobs.cli.asking import ask, check_kind
from fastjobs.cli.printing import harmless, out, out_json
from fastjobs.cli.target import Target
from fastjobs.runtime.looking import JobInfo, KindInfo
from fastjobs.runtime.queue import Queue
from fastjobs.store import Extra, JobState, supports

LIMIT = 100
"""As many are listed where nothing is said."""
_PAGE = 500
_PAGE_WHOLE = 100
"""As many are read at a time where their values are read whole: they may have a quarter of a megabyte each."""
_VERBS = {
    JobState.FAILED: ("has failed for good", "failed for good", "failed for good"),
    JobState.WAITING: ("waits", "waits", "wait"),
    JobState.HELD: ("runs", "runs", "run"),
}
"""What none, one and several of them do."""
_FIRST = {
    JobState.FAILED: "The latest {}",
    JobState.WAITING: "The {} due first",
    JobState.HELD: "The {} whose holds end first",
}


def order(target: Target, typed: argparse.Namespace) -> int:
    """Lists what is asked for, and answers the exit code."""
    listing = Listing(
        kind=typed.waiting or typed.held or typed.kind,
        request=typed.request,
        state=JobState.WAITING if typed.waiting else JobState.HELD if typed.held else JobState.FAILED,
        limit=None if typed.all else typed.limit or LIMIT,
        cut=None if typed.whole or typed.json else telling.SHOWN,
        as_json=typed.json,
    )
    return ask(target, listing.run)


class Listing:
    """A list of a queue's jobs."""

    def __init__(
        self,
        *,
        kind: str | None,
        request: str | None,
        state: JobState,
        limit: int | None,
        cut: int | None,
        as_json: bool,
    ) -> None:
        self._kind = kind
        self._request = request
        self._state = state
        self._limit = limit
        self._cut = cut
        self._as_json = as_json

    async def run(self, queue: Queue) -> int:
        """Writes it, page for page."""
        listed, more = 0, False
        async for page in self._pages(queue):
            if not page:
                break
            if self._limit is not None and listed + len(page) > self._limit:
                page, more = page[: self._limit - listed], True
            if self._as_json:
                for job in page:
                    out_json(telling.job_json(job))
            else:
                head = "" if listed else await self._head(queue, len(page), more=more)
                # In one write: who reads it gets a page whole.
                out(head + "".join(f"\n{self._lines(job)}" for job in page))
            listed += len(page)
            if more:
                break
        if not listed:
            await self._none(queue)
        elif more and not self._as_json:
            out(f"\nThere are more: --limit {listed * 10} lists as many, and --all lists all.\n")
        return 0

    async def _pages(self, queue: Queue) -> AsyncGenerator[list[JobInfo]]:
        if self._request is not None:
            yield await self._of_request(queue)
            return
        after: JobInfo | None = None
        left = self._limit
        while True:
            # One more than is listed says whether there are more.
            limit = self._most if left is None else min(self._most, left + 1)
            page = await self._page(queue, after, limit)
            if page:
                yield page
            if len(page) < limit:
                return
            after = page[-1]
            left = None if left is None else left - len(page)

    async def _of_request(self, queue: Queue) -> list[JobInfo]:
        """Those that the request pushed: a few among all, which are looked through."""
        found: list[JobInfo] = []
        after: JobInfo | None = None
        while self._limit is None or len(found) <= self._limit:
            page = await self._page(queue, after, self._most)
            found += [job for job in page if job.request_id == self._request]
            if len(page) < self._most:
                break
            after = page[-1]
        return found

    async def _page(self, queue: Queue, after: JobInfo | None, limit: int) -> list[JobInfo]:
        if self._state is JobState.FAILED:
            return await queue.failed(kind=self._kind, after=after, limit=limit, cut=self._cut)
        assert self._kind is not None
        return await queue.jobs(self._kind, self._state, after=after, limit=limit, cut=self._cut)

    def _lines(self, job: JobInfo) -> str:
        return telling.failed_lines(job) if self._state is JobState.FAILED else telling.kept_lines(job)

    async def _head(self, queue: Queue, read: int, *, more: bool) -> str:
        perhaps_more = more or (self._request is None and read == self._most)
        counted = self._request is None and (perhaps_more or self._state is JobState.WAITING)
        kinds = await self._counts(queue) if counted else None
        total: int | None = read
        if perhaps_more:
            total = None if kinds is None else max(read, _sum(kinds, self._state.value))
        jobs = "jobs" if total is None else f"{telling.number_of(total)} job{'' if total == 1 else 's'}"
        told = f"{jobs}{self._of} {_VERBS[self._state][1 if total == 1 else 2]}"
        if self._state is JobState.FAILED:
            told += f", and {'is' if total == 1 else 'are'} kept {telling.kept(queue.keep_failed, one=total == 1)}"
        told += self._parked(kinds, ", and", more=True)
        return f"{told}. {_FIRST[self._state].format(f'{read:,}')}:\n" if more else f"{told}:\n"

    async def _none(self, queue: Queue) -> None:
        if self._kind is not None:
            await check_kind(queue, self._kind)
        if not self._as_json:
            kinds = await self._counts(queue) if self._request is None else None
            out(f"no job{self._of} {_VERBS[self._state][0]}{self._parked(kinds, ';')}\n")

    @property
    def _most(self) -> int:
        """As many are read at a time."""
        return _PAGE_WHOLE if self._cut is None else _PAGE

    @property
    def _of(self) -> str:
        kind = "" if self._kind is None else f" of {harmless(self._kind)}"
        return kind if self._request is None else f"{kind} of request {self._request}"

    def _parked(self, kinds: list[KindInfo] | None, joined: str, *, more: bool = False) -> str:
        """A word on those that wait and aren't listed, as they wait for no worker."""
        parked = _sum(kinds or (), "parked") if self._state is JobState.WAITING else 0
        if not parked:
            return ""
        waits = "waits for another of its" if parked == 1 else "wait for another of their"
        number = f"{telling.number_of(parked)}{' more' * more}"
        return f"{joined} {number} {waits} value, which runs (one at a time)"

    async def _counts(self, queue: Queue) -> list[KindInfo] | None:
        """The numbers of the kinds that are listed; None where the store has none."""
        if not supports(queue.store, Extra.COUNTS):
            return None
        found = await queue.counts(cap=telling.CAP)
        return found if self._kind is None else [each for each in found if each.kind == self._kind]


def _sum(kinds: Iterable[KindInfo], of: str) -> int:
    return sum(getattr(each, of) for each in kinds)

"""Writes marks in batches: while one write is under way the next batch gathers.

So an idle queue marks at once, and a busy one hundreds at a time. A mark that failed is tried again until its job's
hold ends; after that another claim may have the job, and the mark would mean nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from fastjobs.clock import Clock
from fastjobs.runtime.lines import say
from fastjobs.runtime.outage import Outage
from fastjobs.runtime.run import Ended, Run, Told
from fastjobs.runtime.waiting import limited, pause
from fastjobs.store import Extend, Kept, Mark, Store

MOST = 1000
"""How many marks one write takes."""
BUSY_AGAIN = 0.05


class Ledger:
    """The marks of one running queue."""

    def __init__(
        self, store: Store, clock: Clock, poll: float, before: Callable[[list[Ended[Run]]], Awaitable[None]]
    ) -> None:
        """`before` is called with each batch that is about to be written, and may change its marks."""
        self._store = store
        self._clock = clock
        self._before = before
        self.outage = Outage(clock, "marks", poll)
        self._entries: deque[Ended[Run]] = deque()
        self._size = MOST
        self._more = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def add(self, entry: Ended[Run], mark: Mark, told: Told) -> None:
        """Takes a mark to write for a run that ended. `told` gets the store's answer."""
        entry.sent, entry.told, entry.resent = mark, told, False
        if not self._entries:
            self._empty.clear()
            self._more.set()
        self._entries.append(entry)

    @property
    def pending(self) -> bool:
        """Whether marks are on their way."""
        return not self._empty.is_set()

    async def flushed(self) -> None:
        """Returns once every mark so far is written or given up."""
        await self._empty.wait()

    async def run(self) -> None:
        """Writes until it's cancelled."""
        while True:
            if not self._entries:
                self._more.clear()
                self._empty.set()
                await self._more.wait()
            batch = [self._entries.popleft() for _ in range(min(self._size, len(self._entries)))]
            try:
                await self._before(batch)
            except BaseException:
                self._entries.extendleft(reversed(batch))
                raise
            try:
                marks = [entry.sent for entry in batch if entry.sent is not None]
                kept = await limited(self._store.mark(marks), "marks")
            except BaseException as error:
                self._entries.extend(batch)
                if not isinstance(error, Exception):
                    for entry in batch:
                        entry.resent = True  # by who runs it next: what was cancelled may have been kept
                    raise
                waiting = self._failed(batch, error)
                del batch
                if self._entries:
                    await pause(self._clock, waiting)
                continue
            self.outage.over()
            self._size = min(MOST, self._size * 2)
            await self._tell(batch, kept)
            # An idle ledger keeps no run, as that may have an error, and in its traceback all that a handler had.
            del batch, marks, kept

    def _failed(self, batch: list[Ended[Run]], error: Exception) -> float:
        """Their write failed. Answers how long to wait before the next."""
        # One mark that the store can't take must not keep the others: ever fewer at a time, and to the back.
        self._size = max(1, len(batch) // 2)
        for entry in batch:
            entry.resent = True
        waiting = self.outage.failed(error)
        self._give_up()
        return waiting

    async def _tell(self, batch: list[Ended[Run]], kept: list[Kept]) -> None:
        busy: list[Ended[Run]] = []
        now = self._clock.monotonic()
        for entry, answer in zip(batch, kept, strict=True):
            if answer is Kept.BUSY:
                busy.append(entry)
            else:
                # Past its hold, as in a process that was frozen, another claim may be what it lost the job to.
                entry.told(entry, answer, entry.resent and now < entry.run.until)
        if busy:
            self._entries.extend(busy)
            self._give_up()
            if len(self._entries) == len(busy):
                await pause(self._clock, BUSY_AGAIN)

    def _give_up(self) -> None:
        """Lets go the marks whose hold is over."""
        now = self._clock.monotonic()
        over = [entry for entry in self._entries if entry.run.until <= now]
        if over:
            self._entries = deque(entry for entry in self._entries if entry.run.until > now)
            for entry in over:
                ends = not isinstance(entry.sent, Extend)
                say(
                    logging.ERROR,
                    "the end of a job was not kept while it was held, and it runs again"
                    if ends
                    else "whether a job's done_in was committed was not told while it was held: it runs again if not",
                    job=entry.run.job.id,
                    mark=type(entry.sent).__name__,
                )
                entry.told(entry, None, entry.resent)

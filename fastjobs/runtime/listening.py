"""Hears of other instances' pushes while a queue runs, where its store can tell: a hint, which the poll never needs."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from fastjobs.clock import Clock
from fastjobs.runtime.feed import Feed
from fastjobs.runtime.outage import Outage
from fastjobs.runtime.waiting import limited, pause
from fastjobs.store import ListenStore

SOONEST, LATEST = 1.0, 30.0
"""Between which the longest wait before it's tried again lies, in seconds: it's the poll there. A poll of an hour is
one that stands on being woken."""
LASTS = 1.0
"""Seconds after which an entry counts: one that is lost at once is no end of an outage."""


class Listening:
    """The ear of one running queue."""

    def __init__(
        self, store: ListenStore, clock: Clock, feed: Feed, loop: asyncio.AbstractEventLoop, poll: float
    ) -> None:
        self._store = store
        self._clock = clock
        self._feed = feed
        self._loop = loop
        self.outage = Outage(clock, "listening", min(max(poll, SOONEST), LATEST))
        self.task: asyncio.Task[None] | None = None
        """What runs it, for `stop`."""
        self._stops = False

    def stop(self) -> None:
        """Has it leave. That needs nobody's answer, so it's not waited for here."""
        self._stops = True
        if self.task is not None:
            self.task.cancel()

    async def run(self) -> None:
        """Listens until it's stopped."""
        while not self._stops:
            try:
                async with AsyncExitStack() as listening:
                    entered = listening.enter_async_context(self._store.listen(self._heard))
                    await limited(entered, "listening")
                    # Of what was pushed since the last claim and before this nobody has told.
                    self._feed.wake()
                    await pause(self._clock, LASTS)
                    self.outage.over()
                    await asyncio.Event().wait()
            except Exception as error:
                task = asyncio.current_task()
                if self._stops or (task is not None and task.cancelling()):
                    return  # a store that fails as it's left
                await pause(self._clock, self.outage.failed(error))

    def _heard(self) -> None:
        """From any thread."""
        if not self._stops:
            self._feed.wake_soon(self._loop)

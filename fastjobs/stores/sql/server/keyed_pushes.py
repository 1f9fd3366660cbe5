"""Pushes with keys and names by the store's own connections, which wait for a transaction of the app's without a link.

Such a push may meet the same key in a transaction that's open, and then waits for its outcome, which may take as long
as a request does. It must not have one of the two links for so long, nor any other push wait with it: so a statement
waits a moment alone, and then the push is tried again, one of them at a time, until its caller has had enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic

from fastjobs.core.job import NewJob
from fastjobs.stores.sql.server.gathering import Gathering
from fastjobs.stores.sql.server.link import L
from fastjobs.stores.sql.server.on_loop import OnLoop

_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.25

Send = Callable[[L, Sequence[NewJob]], Awaitable[list["str | None"]]]


class KeyedPushes(Generic[L]):
    """The pushes with keys and names of one loop: they gather as others do, apart from those."""

    def __init__(
        self,
        here: OnLoop[L],
        send: Send[L],
        is_locked_out: Callable[[BaseException], bool],
        *,
        again: Send[L] | None = None,
    ) -> None:
        """`again` sends what was locked out, where that isn't to be as it was sent before."""
        self._here = here
        self._is_locked_out = is_locked_out
        self._again = again or send
        # Two that push the same keys have them in the same order then, and neither waits for what the other will have.
        self._gathering = Gathering(here, send, order=lambda job: (job.kind, job.key or b""))
        self._turn = asyncio.Semaphore(1)

    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        """Sends the jobs, and answers their ids; None for one that's there already."""
        try:
            return await self._gathering.push(jobs)
        except Exception as error:
            if not self._is_locked_out(error):
                raise
        pause = _FIRST_PAUSE
        while True:
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
            async with self._turn:
                try:
                    return await self._here.use(lambda link: self._again(link, jobs))
                except Exception as error:
                    if not self._is_locked_out(error):
                        raise

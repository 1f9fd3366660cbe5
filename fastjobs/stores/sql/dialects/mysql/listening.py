"""How a queue hears of other instances' pushes on MySQL and MariaDB, where nothing notifies: it looks, and how often
depends on how much comes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from fastjobs.stores.sql.dialects.mysql.link import Link
from fastjobs.stores.sql.dialects.mysql.statements import Statements
from fastjobs.stores.sql.dialects.mysql.steps import Step, Steps
from fastjobs.stores.sql.server.on_loop import OnLoop

log = logging.getLogger("fastjobs")

SHORTEST, LONGEST = 0.03, 0.5
"""Seconds between two looks: the first while pushes come, the second where none has come for a while."""
_SLOWER = 1.25
_REST = 5
"""So many times as long as a look took is the least until the next: a busy server is not to be asked all the time."""


async def ring(link: Link, texts: Statements) -> None:
    """Has all that listen hear of something, as of a pause's end: that gives no job a new id."""

    def ring() -> Steps[None]:
        yield Step(texts.ring)

    await link.ask(ring())


class Listening:
    """The looks of one loop, for all who listen there."""

    def __init__(self, here: OnLoop[Link], texts: Statements) -> None:
        self._here = here
        self._texts = texts
        self._wakes: list[Callable[[], None]] = []
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def listen(self, wake: Callable[[], None]) -> AsyncGenerator[None]:
        """Calls `wake` when another instance may have pushed, or has rung."""
        self._wakes.append(wake)
        if self._task is None:
            self._task = self._here.begin(self._look_on())
        try:
            yield
        finally:
            self._wakes.remove(wake)
            if not self._wakes and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _look_on(self) -> None:
        wait, highest, bell = SHORTEST, 0, None
        is_first = True
        while not self._here.is_closed:
            took = 0.0
            try:
                found, rung, took = await self._here.use(lambda link, seen=highest: self._ask(link, seen))  # type: ignore[misc]
            except Exception:
                # The poll is the truth, and tells of a database that's down.
                log.debug("the queue couldn't look for other instances' pushes", exc_info=True)
                wait = LONGEST
            else:
                # What came before the first look may be new as well.
                if is_first or found is not None or rung != bell:
                    wait = SHORTEST
                    self._wake()
                else:
                    wait = min(wait * _SLOWER, LONGEST)
                is_first, bell = False, rung
                # Below what was seen it never looks again: there an open transaction keeps what is gone in the way.
                highest = highest if found is None else found
            await asyncio.sleep(max(wait, took * _REST))

    async def _ask(self, link: Link, seen: int) -> tuple[int | None, int | None, float]:
        """What is new, and how long the look took."""
        began = self._here.loop.time()
        found, rung = await link.ask(self._news(seen))
        return found, rung, self._here.loop.time() - began

    def _news(self, seen: int) -> Steps[tuple[int | None, int | None]]:
        found, rung = (yield Step(self._texts.news, (seen,))).rows[0]
        return found, rung

    def _wake(self) -> None:
        for wake in list(self._wakes):
            try:
                wake()
            except Exception:
                log.debug("a wake-up failed", exc_info=True)

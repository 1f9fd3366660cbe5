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
        last, wait = None, SHORTEST
        while not self._here.is_closed:
            try:
                found = await self._here.use(lambda link: link.ask(self._news()))
            except Exception:
                # The poll is the truth, and tells of a database that's down.
                log.debug("the queue couldn't look for other instances' pushes", exc_info=True)
                wait = LONGEST
            else:
                if found != last and last is not None:
                    wait = SHORTEST
                    self._wake()
                else:
                    wait = min(wait * _SLOWER, LONGEST)
                last = found
            await asyncio.sleep(wait)

    def _news(self) -> Steps[tuple[object, ...]]:
        return tuple((yield Step(self._texts.news)).rows[0])

    def _wake(self) -> None:
        for wake in list(self._wakes):
            try:
                wake()
            except Exception:
                log.debug("a wake-up failed", exc_info=True)

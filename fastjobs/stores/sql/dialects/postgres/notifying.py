"""Tells other instances of pushes by NOTIFY, at most once in five milliseconds, and once after the last of them."""

from __future__ import annotations

import asyncio
import contextvars
import logging

from fastjobs.stores.sql.dialects.postgres.links import Link
from fastjobs.stores.sql.server.on_loop import OnLoop

log = logging.getLogger("fastjobs")

GAP = 0.005
"""Seconds. Postgres has one queue of notifications, and a lock on it, for all databases of a server."""
NOTIFY = "SELECT pg_notify($1, '')"

_IN_A_HURRY = 1.0


class Notifier:
    """Notifies from one loop."""

    def __init__(self, here: OnLoop[Link], channel: str) -> None:
        self._here = here
        self._channel = channel
        self._last = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._is_owed = False
        """Whether something is kept that nobody was told of."""
        here.before_close.append(self._flush)

    def is_time(self) -> bool:
        """Whether a push is to notify in its own statement. If not, `soon` is to be called once it's kept."""
        now = self._here.loop.time()
        if self._timer is not None or now - self._last < GAP:
            return False
        self._last = now
        return True

    def soon(self) -> None:
        """Notifies after what has been committed up to now, at once or a little later. Called on the loop."""
        self._is_owed = True
        if self._timer is None and not self._here.is_closed:
            wait = max(self._last + GAP - self._here.loop.time(), 0)
            self._timer = self._here.loop.call_later(wait, self._fire, context=contextvars.Context())

    def _fire(self) -> None:
        self._timer = None
        self._last = self._here.loop.time()
        self._here.begin(self.notify())

    async def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Also where the loop's end has cancelled one that was under way.
        if self._is_owed:
            async with asyncio.timeout(_IN_A_HURRY):
                await self.notify()

    async def notify(self) -> None:
        """Notifies now. It raises nothing, as the poll is the truth."""

        async def send(link: Link) -> None:
            await link.fetch(NOTIFY, self._channel)

        self._is_owed = False
        try:
            await self._here.call(send).run()
        except asyncio.CancelledError:
            self._is_owed = True
            raise
        except Exception:
            log.debug("other instances couldn't be told of a push; their polls will find it", exc_info=True)

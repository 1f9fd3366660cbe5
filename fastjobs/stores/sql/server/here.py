"""What a store on a server has on one loop: its links, and whether its tables were seen to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic

from fastjobs.stores.sql.server.link import L
from fastjobs.stores.sql.server.on_loop import OnLoop


class Here(Generic[L]):
    """The links of one loop. Those of `beside` have work of their own."""

    def __init__(self, on_loop: OnLoop[L], *beside: OnLoop[L]) -> None:
        self.on_loop = on_loop
        self._beside = beside
        self._ready: asyncio.Task[None] | None = None
        self._waiting = 0

    async def ready(self, prepare: Callable[[L], Awaitable[None]]) -> None:
        """Sees to it that the tables were made or looked at, once for all who ask."""
        if self._ready is not None and self._ready.done():
            if not self._ready.cancelled() and self._ready.exception() is None:
                return
            self._ready = None
        for each in (self.on_loop, *self._beside):
            await each.start()
        if self._ready is None:
            self._ready = self.on_loop.begin(self.on_loop.call(prepare).run())
        self._waiting += 1
        try:
            await asyncio.shield(self._ready)
        except asyncio.CancelledError:
            # One that nobody waits for any more, as the server hangs, must not keep the next from trying anew.
            if self._waiting == 1 and not self._ready.done():
                self._ready.cancel()
                self._ready = None
            raise
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """Lets what's under way end, and closes the links."""
        for each in (*self._beside, self.on_loop):
            await each.close()

    def abandon(self) -> None:
        """Cuts the links of a loop that has been closed without its end."""
        for each in (self.on_loop, *self._beside):
            each.abandon()

    def do(self, work: Callable[[L], Awaitable[None]]) -> None:
        """Does it in a task of the store's own, which nobody waits for."""
        if not self.on_loop.is_closed:
            self.on_loop.begin(self.on_loop.call(work).run())

"""Hears of other instances' pushes by LISTEN, on a connection of its own that is there while someone listens.

It's a hint over the poll: what fails here is logged, tried again, and never raised into the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection

from fastjobs.stores.sql.dialects.postgres.links import Link, is_from_the_server, sqlstate
from fastjobs.stores.sql.server.on_loop import OnLoop

log = logging.getLogger("fastjobs")

FIRST_WAIT = 0.05
LONGEST_WAIT = 4.0
"""Seconds until it's tried again, doubled each time."""
ENTERS_WITHIN = 2.0
"""How many seconds an entry waits to hear, so that what is pushed after it is heard of."""
PASSES_WITHIN = 1.0

_PASSING = ("40", "53", "55", "57", "58")
"""Classes of errors that the server may get over."""


class _Deaf(Exception):
    """It can't listen here, and trying again won't mend it."""


class Listening:
    """What is heard on one loop, for all who listen there."""

    def __init__(
        self,
        here: OnLoop[Link],
        open_link: Callable[[], Awaitable[Link]],
        notify: Callable[[], Awaitable[object]],
        channel: str,
        own: Collection[int],
    ) -> None:
        self._here = here
        self._open_link = open_link
        self._notify = notify
        self._channel = channel
        self._own = own
        self._wakes: list[Callable[[], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._is_settled = asyncio.Event()
        """It listens, or has met an error."""
        self._listens = asyncio.Event()
        self._hears = asyncio.Event()
        here.before_close.append(self._stop)

    @contextlib.asynccontextmanager
    async def listen(self, wake: Callable[[], None]) -> AsyncGenerator[None, None]:
        """Calls `wake`, while entered, as another backend than one of this store's own notifies."""
        # In a list, as the same one may be there twice.
        self._wakes.append(wake)
        try:
            if self._task is None:
                self._is_settled.clear()
                self._task = self._here.loop.create_task(self._run(), context=contextvars.Context())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ENTERS_WITHIN):
                    await self._is_settled.wait()
            yield
        finally:
            self._wakes.remove(wake)
            if not self._wakes:
                await self._stop()

    async def _stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _run(self) -> None:
        wait = FIRST_WAIT
        is_out = False
        has_listened = False

        def listening() -> None:
            nonlocal wait, is_out, has_listened
            if has_listened:
                self._wake()  # whatever was pushed meanwhile
            if is_out:
                log.info("the queue listens for other instances' pushes again")
            wait, is_out, has_listened = FIRST_WAIT, False, True
            self._listens.set()
            self._is_settled.set()

        while True:
            try:
                await self._listen(listening)
            except _Deaf as error:
                log.warning(
                    "%s: the queue goes on without, and finds other instances' pushes by its poll", error
                )
                return self._is_settled.set()
            except Exception as error:
                if not is_out:
                    is_out = True
                    log.warning(
                        "the queue can't hear of other instances' pushes now, and finds them by its poll until it can:"
                        " %s: %s",
                        type(error).__name__,
                        error,
                    )
            self._is_settled.set()
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT)

    async def _listen(self, listening: Callable[[], None]) -> None:
        self._listens.clear()
        self._hears.clear()
        link = await self._open_link()
        self._here.listening.add(link)
        listens = self._here.loop.create_task(link.listen(self._channel, listening, self._heard))
        hears = self._here.loop.create_task(self._try_pooler()) if link.is_pooled else None
        try:
            if hears is not None:
                await asyncio.wait({listens, hears}, return_when=asyncio.FIRST_COMPLETED)
                if hears.done():
                    hears.result()
            await listens
        except Exception as error:
            # A link that was closed has a code too, and is worth another try.
            if is_from_the_server(error) and not (sqlstate(error) or "").startswith(_PASSING):
                raise _Deaf(f"the server lets nobody listen ({error})") from error
            raise
        finally:
            for task in (listens, hears):
                if task is not None:
                    task.cancel()
            self._here.listening.discard(link)
            await link.close()
            await asyncio.wait({task for task in (listens, hears) if task is not None}, timeout=PASSES_WITHIN)
            for task in (listens, hears):
                if task is not None and task.done() and not task.cancelled():
                    task.exception()

    async def _try_pooler(self) -> None:
        """PgBouncer in transaction mode takes a LISTEN, and passes on nothing."""
        await self._listens.wait()
        await self._notify()
        try:
            async with asyncio.timeout(PASSES_WITHIN):
                await self._hears.wait()
        except TimeoutError:
            raise _Deaf("a connection pooler stands before the server and passes on no NOTIFY") from None

    def _heard(self, pid: int) -> None:
        self._hears.set()
        if pid not in self._own:
            self._wake()

    def _wake(self) -> None:
        for wake in list(self._wakes):
            try:
                wake()
            except Exception:
                log.warning("the queue couldn't be woken; its poll will find the jobs", exc_info=True)

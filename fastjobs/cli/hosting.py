"""Enters an app's lifespan without a server, for what it opens: an engine, a client, a cache.

It speaks ASGI's lifespan protocol, so any app will do, with whatever is wrapped around it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

Message = MutableMapping[str, Any]
App = Callable[..., Coroutine[Any, Any, None]]

_ENDING = 1.0
"""Seconds that an app which said that it failed has to raise why."""


class LifespanFailed(Exception):
    """The app's lifespan failed as it started or stopped, or it has none; what it raised is its cause."""


@asynccontextmanager
async def lifespan_of(app: App) -> AsyncGenerator[None]:
    """Has the app started while entered; LifespanFailed where that fails."""
    hosted = _Hosted(app)
    try:
        await hosted.asked("startup")
        yield
    finally:
        # Also where it was cancelled as it started: what it has opened by then is its own to close.
        await hosted.stop()


class _Hosted:
    def __init__(self, app: App) -> None:
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self._answered = asyncio.Event()
        self._started = False
        self._failed: str | None = None
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
        self._running = asyncio.ensure_future(app(scope, self._inbox.get, self._heard))

    async def _heard(self, message: Message) -> None:
        said = str(message["type"])
        if said.endswith(".failed"):
            self._failed = message.get("message") or "it gave no reason"
        self._answered.set()

    async def asked(self, what: str) -> None:
        """Asks for its startup or its shutdown, and returns once that is complete."""
        self._answered.clear()
        self._inbox.put_nowait({"type": f"lifespan.{what}"})
        answer = asyncio.ensure_future(self._answered.wait())
        try:
            await asyncio.wait([answer, self._running], return_when=asyncio.FIRST_COMPLETED)
        finally:
            answer.cancel()
        if self._failed is not None or not self._answered.is_set():
            await asyncio.wait([self._running], timeout=_ENDING)
            raised = (
                self._running.exception() if self._running.done() and not self._running.cancelled() else None
            )
            told = self._failed or ("it raised" if raised else "it has no lifespan")
            raise LifespanFailed(f"{what}: {told.strip().splitlines()[-1]}") from raised
        self._started = what == "startup"

    async def stop(self) -> None:
        """Has it shut down, if it had started, and ends it."""
        try:
            if self._started:
                await self.asked("shutdown")
        finally:
            self._running.cancel()
            await asyncio.wait([self._running])
            if not self._running.cancelled():
                self._running.exception()  # told already, and asked for here so that it isn't told again

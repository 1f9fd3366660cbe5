"""Waits that a Clock times: for an event or a moment, and for a store's answer within its limit."""

from __future__ import annotations

import asyncio
import contextvars
import weakref
from collections.abc import Awaitable
from typing import Any, TypeVar

from fastjobs.clock import Clock
from fastjobs.core.errors import StoreTimeout
from fastjobs.runtime.settings import STORE_LIMIT

T = TypeVar("T")

COARSE = 5.0
"""Seconds from which on a limit may be a second late."""


async def wait(event: asyncio.Event, clock: Clock, seconds: float) -> None:
    """Returns once the event is set, or so many seconds have passed, which sets it."""
    if event.is_set():
        return
    timer = clock.call_later(max(seconds, 0.0), event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()


async def pause(clock: Clock, seconds: float) -> None:
    """Returns after so many seconds."""
    await wait(asyncio.Event(), clock, seconds)


async def limited(call: Awaitable[T], what: str, limit: float = STORE_LIMIT) -> T:
    """The answer of a store's call, or a StoreTimeout: no call may hang a loop for good."""
    if limit < COARSE:
        exact = asyncio.timeout(limit)
        try:
            async with exact:
                return await call
        except TimeoutError as late:
            if exact.expired():
                raise _late(what, limit) from late
            raise
    task = asyncio.current_task()  # the one question to asyncio: before Python 3.12 each is a system call
    assert task is not None
    entry = _limits(task.get_loop()).enter(task, limit)
    try:
        return await call
    except asyncio.CancelledError:
        if entry.expired and entry.task.uncancel() <= entry.cancelling:
            raise _late(what, limit) from None
        raise
    finally:
        entry.limits.calls.discard(entry)


def _late(what: str, limit: float) -> StoreTimeout:
    return StoreTimeout(f"the store gave no answer to {what} in {limit:g} s")


class _Limited:
    """A call under way."""

    __slots__ = ("cancelling", "expired", "limits", "task", "until")

    def __init__(self, limits: _Limits, task: asyncio.Task[Any], until: float) -> None:
        self.limits = limits
        self.task = task
        self.until = until
        self.cancelling = task.cancelling()
        self.expired = False


class _Limits:
    """The limits of all calls of one loop, looked at once a second: a timer for each would cost as much as the call."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.calls: set[_Limited] = set()
        self.loop = weakref.ref(loop)
        self._looks = False

    def enter(self, task: asyncio.Task[Any], limit: float) -> _Limited:
        loop = self.loop()
        assert loop is not None
        entry = _Limited(self, task, loop.time() + limit)
        self.calls.add(entry)
        if not self._looks:
            self._looks = True
            loop.call_later(1.0, self._look, context=contextvars.Context())
        return entry

    def _look(self) -> None:
        loop = self.loop()
        self._looks = bool(self.calls) and loop is not None
        if loop is None or not self._looks:
            return
        now = loop.time()
        for entry in [each for each in self.calls if each.until <= now]:
            self.calls.discard(entry)
            entry.expired = True
            entry.task.cancel()
        loop.call_later(1.0, self._look, context=contextvars.Context())


_all: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Limits] = weakref.WeakKeyDictionary()
_latest: _Limits | None = None
"""Those asked for last, nearly always the same: the look into a weak dictionary costs as much as the rest of it."""


def _limits(loop: asyncio.AbstractEventLoop) -> _Limits:
    global _latest
    latest = _latest
    if latest is not None and latest.loop() is loop:
        return latest
    found = _all.get(loop)
    if found is None:
        found = _all[loop] = _Limits(loop)
    _latest = found
    return found

"""Waits that a Clock times: for an event or a moment, and for a store's answer within its limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from fastjobs.clock import Clock
from fastjobs.core.errors import StoreTimeout
from fastjobs.runtime.settings import STORE_LIMIT

T = TypeVar("T")


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
    within = asyncio.timeout(limit)
    try:
        async with within:
            return await call
    except TimeoutError as late:
        if within.expired():
            raise StoreTimeout(f"the store gave no answer to {what} in {limit:g} s") from late
        raise

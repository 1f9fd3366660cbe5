"""A drain that is cancelled ends what it runs as a stop does: nothing that was done is done again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fastjobs import Memory, Outcome, Permanent, Queue, Ran, current_job
from fastjobs.store import Kept, Mark
from fastjobs.testing import Clock

pytestmark = pytest.mark.anyio


class Slow(Memory):
    """Marks take until they are let on, and a mark whose caller was cancelled by then isn't kept."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.met, self.on = asyncio.Event(), asyncio.Event()
        self.on.set()

    async def mark(self, marks: Sequence[Mark]) -> list[Kept]:
        self.met.set()
        await self.on.wait()
        return await super().mark(marks)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> Slow:
    return Slow(clock)


@pytest.fixture
def seen() -> list[Ran]:
    return []


@pytest.fixture
def queue(clock: Clock, store: Slow, seen: list[Ran]) -> Queue:
    return Queue(store, clock=clock, observe=seen.append)


async def _cancelled(draining: asyncio.Task[int]) -> None:
    draining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await draining


async def test_a_job_that_a_cancelled_drain_stops_is_put_back_due_at_once_with_its_attempt(
    queue: Queue, clock: Clock
) -> None:
    attempts: list[tuple[int, str | None]] = []

    @queue.kind("mail", attempts=1)
    async def mail() -> None:
        attempts.append((current_job().attempt, current_job().last_error))
        if len(attempts) == 1:
            await asyncio.Event().wait()

    await mail.push()
    draining = asyncio.create_task(queue.drain())
    await clock.pass_time(0)
    await _cancelled(draining)
    assert await queue.drain() == 1
    assert [attempt for attempt, _ in attempts] == [1, 1]
    assert (attempts[1][1] or "").startswith("stopped")


@pytest.mark.parametrize("end", [None, Permanent("of its own"), ValueError("in finally")])
async def test_a_handler_that_swallows_its_cancellation_and_returns_is_done_and_any_other_is_put_back(
    queue: Queue, clock: Clock, seen: list[Ran], end: Exception | None
) -> None:
    runs = 0

    @queue.kind("mail", attempts=1)
    async def mail() -> None:
        nonlocal runs
        runs += 1
        try:
            if runs == 1:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            if end is not None:
                raise end from None

    await mail.push()
    draining = asyncio.create_task(queue.drain())
    await clock.pass_time(0)
    await _cancelled(draining)
    assert [ran.outcome for ran in seen] == [Outcome.DONE if end is None else Outcome.RETRIED]
    assert await queue.drain() == (0 if end is None else 1)


async def test_a_handler_that_ended_in_the_moment_of_the_cancellation_is_done(
    queue: Queue, clock: Clock, seen: list[Ran]
) -> None:
    end = asyncio.Event()

    @queue.kind("mail")
    async def mail() -> None:
        await end.wait()
        draining.cancel()

    await mail.push()
    draining = asyncio.create_task(queue.drain())
    await clock.pass_time(0)
    end.set()
    await _cancelled(draining)
    assert [ran.outcome for ran in seen] == [Outcome.DONE]
    assert await queue.drain() == 0


async def test_a_mark_that_is_under_way_as_the_drain_is_cancelled_is_kept(
    queue: Queue, clock: Clock, store: Slow, seen: list[Ran]
) -> None:
    @queue.kind("mail")
    async def mail() -> None: ...

    await mail.push()
    store.on.clear()
    draining = asyncio.create_task(queue.drain())
    await store.met.wait()
    draining.cancel()
    await clock.pass_time(0)
    store.on.set()
    with pytest.raises(asyncio.CancelledError):
        await draining
    assert [ran.outcome for ran in seen] == [Outcome.DONE]
    clock.advance(3600)
    assert await queue.drain() == 0


async def test_an_on_fail_that_is_owed_as_the_drain_is_cancelled_is_run(
    queue: Queue, clock: Clock, store: Slow
) -> None:
    told: list[str] = []

    @queue.kind("mail", attempts=1)
    async def mail() -> None:
        raise ValueError("no")

    @mail.on_fail
    async def tell(error: Exception) -> None:
        told.append(str(error))

    await mail.push()
    store.on.clear()
    draining = asyncio.create_task(queue.drain())
    await store.met.wait()
    draining.cancel()
    await clock.pass_time(0)
    store.on.set()
    with pytest.raises(asyncio.CancelledError):
        await draining
    assert told == ["no"]

"""A drain: what is due, one at a time, for tests and for programs that run what is due and exit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from fastjobs import Outcome, Queue, Ran, current_job
from fastjobs.testing import Clock
from tests.runtime.faulty import Down, Unsteady

pytestmark = pytest.mark.anyio


async def test_it_runs_what_is_due_one_at_a_time_and_answers_how_many(queue: Queue, clock: Clock) -> None:
    running, most, ran = 0, 0, list[int]()

    @queue.kind("mail")
    async def mail(n: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        ran.append(n)

    await mail.push_many(range(5))
    await mail.push(9, after=60)
    assert await queue.drain() == 5
    assert (ran, most) == ([0, 1, 2, 3, 4], 1)
    assert await queue.drain() == 0
    clock.advance(60)
    assert await queue.drain() == 1


async def test_a_job_that_is_due_again_by_then_runs_again_in_the_same_drain(
    queue: Queue, clock: Clock, seen: list[Ran]
) -> None:
    @queue.kind("mail", attempts=3, backoff=10)
    async def mail() -> None:
        raise ValueError("no")

    @queue.kind("long")
    async def long() -> None:
        clock.advance(12)

    await mail.push()
    await long.push()
    assert await queue.drain() == 3
    assert [(ran.kind, ran.outcome, ran.attempt) for ran in seen] == [
        ("mail", Outcome.RETRIED, 1),
        ("long", Outcome.DONE, 1),
        ("mail", Outcome.RETRIED, 2),
    ]


async def test_what_its_jobs_push_runs_too_and_on_fail_before_the_next(queue: Queue) -> None:
    order: list[str] = []

    @queue.kind("mail", attempts=1)
    async def mail() -> None:
        order.append("mail")
        await thanks.push()
        raise ValueError("no")

    @mail.on_fail
    async def tell(error: Exception) -> None:
        order.append(f"on_fail of {current_job().id}: {error}")

    @queue.kind("thanks")
    async def thanks() -> None:
        order.append("thanks")

    await mail.push()
    assert await queue.drain() == 2
    assert order == ["mail", "on_fail of 1: no", "thanks"]


@pytest.mark.parametrize("verb", ["claim", "mark"])
async def test_an_error_of_the_store_is_raised(
    new_queue: Callable[..., Queue], clock: Clock, verb: str
) -> None:
    store = Unsteady(clock=clock)
    queue = new_queue(store=store)
    ran: list[int] = []

    @queue.kind("mail")
    async def mail(n: int) -> None:
        ran.append(n)

    await mail.push(1)
    store.before.add(verb)
    with pytest.raises(Down):
        await queue.drain()
    store.before.clear()
    clock.advance(120)
    assert await queue.drain() == 1
    assert ran == ([1] if verb == "claim" else [1, 1]), "one whose end wasn't kept runs again after its hold"

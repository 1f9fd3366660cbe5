"""Wakes: at once, from any thread, never lost; and an idle queue asks no more than its poll."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import ClassVar

import pytest

from fastjobs import Memory, Queue, Ran
from fastjobs.store import Extra
from fastjobs.testing import Clock
from tests.runtime.conftest import Mail
from tests.runtime.faulty import Unsteady

pytestmark = pytest.mark.anyio


class Deaf(Unsteady):
    """It tells nobody of pushes, so that the queue's own wakes are all there is."""

    extras: ClassVar[Extra] = Unsteady.extras & ~Extra.LISTEN


@pytest.fixture
def store(clock: Clock) -> Deaf:
    return Deaf(clock=clock)


async def test_a_wake_from_another_thread_is_heard(queue: Queue, clock: Clock, store: Memory) -> None:
    ran = asyncio.Event()

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        ran.set()

    async with queue.running():
        await clock.pass_time(0)
        await store.push(mail.jobs([Mail(user=1)], None, None)[0])
        assert not ran.is_set()
        waker = threading.Thread(target=queue.wake)
        waker.start()
        await asyncio.wait_for(ran.wait(), 5)
        waker.join()


async def test_a_wake_while_a_claim_is_under_way_is_not_lost(
    new_queue: Callable[..., Queue], clock: Clock, seen: list[Ran]
) -> None:
    store = Deaf(clock=clock)
    queue = new_queue(store=store, poll=3600)

    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    async with queue.running():
        for n in range(200):
            await mail.push(Mail(user=n))
            await clock.pass_time(0, turns=n % 7)
        await clock.pass_time(0, turns=200)
        assert len(seen) == 200


async def test_an_idle_queue_asks_once_a_poll(new_queue: Callable[..., Queue], clock: Clock) -> None:
    store = Deaf(clock=clock)
    queue = new_queue(store=store, poll=5)

    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    async with queue.running():
        await clock.pass_time(100)
    assert 20 <= store.calls["claim"] <= 22
    assert (store.calls["mark"], store.calls["extend"]) == (0, 0)


async def test_a_queue_whose_workers_are_all_busy_asks_for_nothing(
    new_queue: Callable[..., Queue], clock: Clock
) -> None:
    store = Deaf(clock=clock)
    queue = new_queue(store=store, workers=2, hold=120)
    end = asyncio.Event()

    @queue.kind("long", timeout=3600)
    async def long() -> None:
        await end.wait()

    async with queue.running():
        for _ in range(5):
            await long.push()
        await clock.pass_time(1)
        asked = store.calls["claim"]
        await clock.pass_time(30)
        assert store.calls["claim"] == asked
        end.set()
        await clock.pass_time(0, turns=60)


async def test_a_wake_of_a_queue_that_doesnt_run_or_whose_loop_is_closed_is_nothing(queue: Queue) -> None:
    queue.wake()
    other = Queue(Memory())

    async def once() -> None:
        async with other.running():
            pass

    await asyncio.to_thread(asyncio.run, once())
    other.wake()


async def test_a_queue_without_workers_only_pushes(new_queue: Callable[..., Queue], clock: Clock) -> None:
    store = Deaf(clock=clock)
    web, worker = new_queue(store=store, workers=0), new_queue(store=store)

    @web.kind("mail")
    async def mail(value: Mail) -> None:
        raise AssertionError("this process only pushes")

    ran: list[int] = []

    @worker.kind("mail")
    async def work(value: Mail) -> None:
        ran.append(value.user)

    async with web.running():
        await mail.push(Mail(user=4))
        await clock.pass_time(10)
        assert store.calls["claim"] == 0
    async with web.running(run=False):
        await mail.push(Mail(user=5))
    await worker.drain()
    assert ran == [4, 5]


async def test_a_clock_that_steps_back_or_forward_neither_stops_the_poll_nor_runs_a_job_twice(
    new_queue: Callable[..., Queue], clock: Clock, seen: list[Ran]
) -> None:
    queue = new_queue(poll=1)

    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    async with queue.running():
        clock.step(-3600)
        await mail.push(Mail(user=1))
        await clock.pass_time(1)
        assert len(seen) == 1
        clock.step(86_400)
        await mail.push(Mail(user=2), after=5)
        await clock.pass_time(10)
        assert len(seen) == 2
        clock.step(-86_400)
        await clock.pass_time(10)
    assert len(seen) == 2

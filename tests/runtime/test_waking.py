"""Wakes: at once, from any thread, never lost; and an idle queue asks no more than its poll."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import ClassVar

import pytest

from fastjobs import Memory, Outcome, Queue, Ran, Snooze, Unique
from fastjobs.store import Claimable, Claimed, Extra, NewJob
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


class TellsOfClaims(Deaf):
    """It says when a claim was answered, as what a push waits for."""

    def __init__(self, *, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.claimed = asyncio.Event()

    async def claim(
        self, kinds: Sequence[Claimable], limit: int, *, ahead: int = 0, others: Claimable | None = None
    ) -> Claimed:
        found = await super().claim(kinds, limit, ahead=ahead, others=others)
        self.claimed.set()
        return found


async def test_a_push_to_an_idle_queue_is_claimed_in_the_same_turn_and_not_looked_for_again(
    new_queue: Callable[..., Queue], clock: Clock, seen: list[Ran]
) -> None:
    class Together(TellsOfClaims):
        """It keeps a push and the claim beside it as one."""

        async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
            self.calls["push"] += 1
            ids = await Memory.push(self, jobs)
            await self.claimed.wait()
            return ids

    store = Together(clock=clock)
    queue = new_queue(store=store, poll=3600)

    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    async with queue.running():
        await clock.pass_time(0)
        for n in range(1, 4):
            store.claimed.clear()
            before = store.calls["claim"]
            async with asyncio.timeout(5):
                await mail.push(Mail(user=n))
            await clock.pass_time(0)
            assert (len(seen), store.calls["claim"] - before) == (n, 1)


async def test_a_push_whose_claim_came_too_early_is_looked_for_once_more(
    new_queue: Callable[..., Queue], clock: Clock, seen: list[Ran]
) -> None:
    class Slow(TellsOfClaims):
        async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
            await self.claimed.wait()
            return await super().push(jobs)

    store = Slow(clock=clock)
    queue = new_queue(store=store, poll=3600)

    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    async with queue.running():
        await clock.pass_time(0)
        store.claimed.clear()
        async with asyncio.timeout(5):
            await mail.push(Mail(user=1))
        await clock.pass_time(0)
        assert len(seen) == 1


async def test_a_job_that_is_moved_to_now_is_looked_for_though_the_last_claim_had_it(
    new_queue: Callable[..., Queue], clock: Clock, seen: list[Ran]
) -> None:
    """A latest push answers the id of the job that waits, which may have run before."""
    queue = new_queue(store=Deaf(clock=clock), poll=3600)

    @queue.kind("mail", unique=Unique(latest=True))
    async def mail(value: Mail) -> None:
        if not seen:
            raise Snooze(after=600)

    async with queue.running():
        first = await mail.push(Mail(user=1))
        await clock.pass_time(1)
        assert [each.outcome for each in seen] == [Outcome.HELD_BACK]
        assert await mail.push(Mail(user=1)) == first
        await clock.pass_time(1)
    assert [each.outcome for each in seen] == [Outcome.HELD_BACK, Outcome.DONE]


@pytest.mark.parametrize("when", ["later", "keyed", "busy"])
async def test_no_claim_is_asked_beside_a_push_that_it_could_not_take(
    new_queue: Callable[..., Queue], clock: Clock, when: str
) -> None:
    store = Deaf(clock=clock)
    queue = new_queue(store=store, poll=3600, workers=1)
    asked: list[int] = []
    push = store.push

    async def pushed(jobs: Sequence[NewJob]) -> list[str | None]:
        before = store.calls["claim"]
        for _ in range(5):
            await asyncio.sleep(0)
        asked.append(store.calls["claim"] - before)
        return await push(jobs)

    @queue.kind("mail", unique=when == "keyed")
    async def mail(value: Mail) -> None:
        await asyncio.Event().wait()

    async with queue.running():
        await clock.pass_time(0)
        if when == "busy":
            await mail.push(Mail(user=1))
            await clock.pass_time(0)
        store.push = pushed  # type: ignore[method-assign]
        await mail.push(Mail(user=2), after=60 if when == "later" else None)
        assert asked == [0]

"""Stops and cancellations at odd moments: nothing starts once a stop began, and no handler is blamed for one."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

import pytest

from fastjobs import Memory, Outcome, Queue, Ran
from fastjobs.runtime.living import live
from fastjobs.store import Extra

pytestmark = pytest.mark.anyio


class Opens(Memory):
    """A store that is opened and closed, and whose opening may never end."""

    extras: ClassVar[Extra] = Memory.extras | Extra.LIFECYCLE

    def __init__(self) -> None:
        super().__init__()
        self.opening, self.on = asyncio.Event(), asyncio.Event()
        self.opens = self.closes = 0

    async def open(self, kinds: Sequence[str] = ()) -> None:
        self.opening.set()
        await self.on.wait()
        self.opens += 1

    async def close(self) -> None:
        self.closes += 1


async def test_a_queue_that_is_cancelled_while_its_store_opens_ends_at_once_and_can_start_again() -> None:
    store = Opens()
    queue = Queue(store, grace=30)
    ran = asyncio.Event()

    @queue.kind("mail")
    async def mail() -> None:
        ran.set()

    began = time.monotonic()
    running = asyncio.create_task(queue.run())
    await store.opening.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert time.monotonic() - began < 2
    assert (store.opens, store.closes) == (0, 0)
    store.on.set()
    async with asyncio.timeout(10), queue.running():
        await mail.push()
        await ran.wait()
    assert (store.opens, store.closes) == (1, 1)


async def test_of_several_queues_the_ones_that_started_stop_where_one_is_cancelled_as_it_starts() -> None:
    first, second = Opens(), Opens()
    first.on.set()
    queues = [Queue(store, grace=0.2) for store in (first, second)]
    for queue in queues:

        @queue.kind("mail")
        async def mail() -> None: ...

    async def run() -> None:
        async with live(queues):
            raise AssertionError("it never started")

    running = asyncio.create_task(run())
    await second.opening.wait()
    assert queues[0].health().running
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (first.opens, first.closes) == (1, 1)
    assert not any(queue.health().running for queue in queues)


async def test_a_job_that_fails_and_one_that_is_pushed_during_the_stop_start_no_more() -> None:
    seen: list[Ran] = []
    queue = Queue(Memory(), grace=5, workers=3, poll=0.01, observe=seen.append)
    end, begun = asyncio.Event(), asyncio.Event()
    runs = 0

    @queue.kind("again", backoff=0)
    async def again() -> None:
        nonlocal runs
        runs += 1
        begun.set()
        await end.wait()
        raise ValueError("once more")

    @queue.kind("slow")
    async def slow() -> None:
        await end.wait()
        await again.push()
        queue.wake()
        await asyncio.sleep(0.2)

    await slow.push()
    await again.push()
    async with queue.running():
        await begun.wait()
        asyncio.get_running_loop().call_later(0.05, end.set)
    assert runs == 1
    assert sorted((ran.kind, ran.outcome) for ran in seen) == [("again", "retried"), ("slow", "done")]


async def _cancelled_by_another() -> None:
    inner = asyncio.ensure_future(asyncio.sleep(60))
    asyncio.get_running_loop().call_soon(inner.cancel)
    await inner


async def _a_group_whose_task_was_cancelled() -> None:
    async with asyncio.TaskGroup() as group:
        inner = group.create_task(asyncio.sleep(60))
        group.create_task(asyncio.sleep(0)).add_done_callback(lambda _: inner.cancel())
    raise asyncio.CancelledError("told on")


async def _its_own_time_limit() -> None:
    async with asyncio.timeout(0.01):
        await asyncio.sleep(60)


@pytest.mark.parametrize(
    "handler",
    [_cancelled_by_another, _a_group_whose_task_was_cancelled, _its_own_time_limit],
    ids=lambda h: h.__name__,
)
async def test_a_cancellation_inside_a_handler_is_a_failed_attempt_and_its_worker_lives(
    handler: Callable[[], Awaitable[object]],
) -> None:
    told: asyncio.Queue[Ran] = asyncio.Queue()
    queue = Queue(Memory(), workers=1, grace=0.2, observe=told.put_nowait)
    odd = queue.kind("odd", attempts=1)(handler)
    failures: list[Exception] = []

    @odd.on_fail
    async def tell(error: Exception) -> None:
        failures.append(error)
        await _cancelled_by_another()

    @queue.kind("other")
    async def other() -> None:
        await asyncio.sleep(0)

    async with asyncio.timeout(10), queue.running():
        await odd.push()
        assert (await told.get()).outcome is Outcome.FAILED
        await other.push()
        assert (await told.get()).outcome is Outcome.DONE
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
    assert len(failures) == 1


async def test_a_handler_that_only_a_weak_reference_leads_to_is_not_collected() -> None:
    told: asyncio.Queue[Ran] = asyncio.Queue()
    queue = Queue(Memory(), workers=20, grace=0.2, observe=told.put_nowait)
    waits: weakref.WeakSet[asyncio.Future[None]] = weakref.WeakSet()

    async def wait() -> None:
        # The loop knows nothing of this future, so all that leads to the handler is the queue's own.
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waits.add(future)
        await future

    @queue.kind("mail", attempts=1)
    async def mail() -> None:
        await wait()
        raise ValueError

    @mail.on_fail
    async def tell(error: Exception) -> None:
        await wait()

    @queue.kind("last")
    async def last() -> None: ...

    async def release() -> None:
        async with asyncio.timeout(10):
            while len(waits) < 20:
                await asyncio.sleep(0.001)
        for _ in range(3):
            gc.collect()
        assert len(waits) == 20
        for future in list(waits):
            waits.discard(future)
            future.set_result(None)

    async with queue.running():
        await mail.push_many([None] * 20)
        await release()
        for _ in range(20):
            assert (await told.get()).outcome is Outcome.FAILED
        await release()
        await last.push()
        assert (await told.get()).outcome is Outcome.DONE

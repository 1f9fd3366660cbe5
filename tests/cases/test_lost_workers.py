"""Jobs that lost their worker come to run again: beside a stream of others, and though there are many of them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from fastjobs import Memory, Queue
from fastjobs.runtime.waiting import pause
from fastjobs.store import Claimable
from fastjobs.testing import Clock

pytestmark = pytest.mark.anyio

EARLY = datetime(2025, 1, 1, tzinfo=UTC)
"""Before all others, so that the claim that loses them takes these."""
LOST = Claimable(kind="short", hold=1_000_000, attempts=10)


@pytest.mark.parametrize("lost", [1, 60])
async def test_a_stream_of_short_jobs_keeps_no_job_that_lost_its_worker_from_running(lost: int) -> None:
    clock = Clock()
    store = Memory(clock=clock)
    queue = Queue(store, clock=clock, workers=4, poll=1, grace=0.1)
    ran: list[int] = []
    pushed = 0

    @queue.kind("short")
    async def short(number: int) -> None:
        await pause(clock, 0.005)
        ran.append(number)

    async def stream(seconds: float) -> None:
        nonlocal pushed
        until = clock.monotonic() + seconds
        while clock.monotonic() < until:
            if pushed - len(ran) < 500:
                await short.push_many(list(range(500)))
                pushed += 500
            await clock.pass_time(0.005, turns=6)

    async with queue.running():
        await stream(2)
        life = queue._life
        assert life is not None
        assert life.feed.pace.ahead() > 20, "a prefetch, so that the workers are never without a job"
        await short.push_many([-1 - number for number in range(lost)], at=EARLY)
        taken = await store.claim([LOST], lost)
        assert {job.payload for job in taken.jobs} == {str(-1 - number) for number in range(lost)}
        await stream(1)
        assert min(ran) == 0, "they are held"
        await stream(2)
    assert sum(number < 0 for number in ran) == lost

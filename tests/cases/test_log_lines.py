"""A store that fails fills no log, however it fails, and what it's told of can be made out."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from fastjobs import Memory, Queue
from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.testing import Clock

pytestmark = pytest.mark.anyio


class FailsAtTimes(Memory):
    """Fails `bad` claims of each `bad` and `good`."""

    def __init__(self, clock: Clock, bad: int, good: int) -> None:
        super().__init__(clock=clock)
        self.claims, self.bad, self.every = 0, bad, bad + good

    async def claim(
        self, kinds: Sequence[Claimable], limit: int, *, ahead: int = 0, others: Claimable | None = None
    ) -> Claimed:
        self.claims += 1
        if self.claims % self.every < self.bad:
            raise OSError("no route to the database")
        return await super().claim(kinds, limit, ahead=ahead, others=others)


@pytest.mark.parametrize(("bad", "good"), [(1, 1), (5, 1), (1, 20)])
async def test_a_store_that_fails_now_and_then_is_told_of_at_most_twice_a_minute(
    bad: int, good: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="fastjobs")
    clock = Clock()
    store = FailsAtTimes(clock, bad, good)
    queue = Queue(store, clock=clock, poll=0.1, grace=0.1)

    @queue.kind("mail")
    async def mail() -> None: ...

    minutes = 5
    async with queue.running():
        for _ in range(minutes * 60):
            await clock.pass_time(1, turns=5)
    told = [line for line in caplog.messages if "no route to the database" in line]
    assert store.claims > 1000
    assert minutes - 1 <= len(told) <= minutes + 1
    assert len(caplog.messages) <= 2 * (minutes + 1)
    assert all(" failures=" in line for line in told[1:]), "the failures that weren't told of are counted"


async def test_an_outage_is_told_as_it_begins_while_it_lasts_and_as_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="fastjobs")
    clock = Clock()
    store = FailsAtTimes(clock, 1, 0)
    queue = Queue(store, clock=clock, poll=1, grace=0.1)

    @queue.kind("mail")
    async def mail() -> None: ...

    async with queue.running():
        for _ in range(150):
            await clock.pass_time(1, turns=5)
        store.bad = 0
        await clock.pass_time(5)
    begins = [line.partition(" part=")[0] for line in caplog.messages]
    assert begins == [
        "the store failed, and is asked again",
        "the store still fails",
        "the store still fails",
        "the store answers again",
    ]

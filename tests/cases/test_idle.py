"""What a queue costs that has nothing to do, and what many wakes cost: cheap reads, no writes, one claim for all."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from fastjobs import Memory, Queue, SQLStore
from fastjobs.store import Claimable, Claimed, Fail, NewJob
from fastjobs.testing import Clock

pytestmark = pytest.mark.anyio

FAR = datetime(2999, 1, 1, tzinfo=UTC)


class Counts(SQLStore):
    """Counts its claims."""

    claims = enough = 0
    reached: asyncio.Event | None = None

    async def claim(
        self, kinds: Sequence[Claimable], limit: int, *, ahead: int = 0, others: Claimable | None = None
    ) -> Claimed:
        claimed = await super().claim(kinds, limit, ahead=ahead, others=others)
        self.claims += 1
        if self.reached is not None and self.claims >= self.enough:
            self.reached.set()
        return claimed

    def until(self, claims: int) -> asyncio.Event:
        self.enough, self.reached = self.claims + claims, asyncio.Event()
        return self.reached


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    found = [(each.name, each.stat()) for each in os.scandir(folder) if not each.name.endswith("-shm")]
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in found}


async def test_idle_queues_write_nothing_beside_jobs_that_are_held_failed_for_later_or_of_other_kinds(
    tmp_path: Path,
) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    store = Counts(engine, synchronous="NORMAL")
    queues = [Queue(store, poll=0.01) for _ in range(5)]

    async def nothing() -> None: ...

    for queue in queues:
        queue.kind("mail")(nothing)
    async with queues[0].running(), queues[1].running(), queues[2].running(), queues[3].running():
        await store.push([NewJob(kind="mail", payload="null") for _ in range(2)])
        mail = Claimable(kind="other", hold=3600_000_000, attempts=1)
        await store.push([NewJob(kind="other", payload="null") for _ in range(2)])
        held, failed = (await store.claim([mail], 2)).jobs
        assert held
        await store.mark([Fail(failed.id, failed.claim, "no")])
        await store.push([NewJob(kind="unknown", payload="null")])
        await queues[0].kinds["mail"].push(at=FAR)
        async with asyncio.timeout(20):
            await store.until(40).wait()  # what was due has run
            before = _files(tmp_path)
            await store.until(200).wait()
        assert _files(tmp_path) == before
    engine.dispose()


def _wake(queue: Queue) -> None:
    for _ in range(1000):
        queue.wake()


async def test_a_thousand_wakes_at_once_are_one_claim() -> None:
    clock = Clock()
    claims = 0

    class Counted(Memory):
        async def claim(
            self, kinds: Sequence[Claimable], limit: int, *, ahead: int = 0, others: Claimable | None = None
        ) -> Claimed:
            nonlocal claims
            claims += 1
            await asyncio.sleep(0)
            return await super().claim(kinds, limit, ahead=ahead, others=others)

    queue = Queue(Counted(clock=clock), clock=clock, poll=60)

    @queue.kind("mail")
    async def mail() -> None: ...

    async with queue.running():
        await clock.pass_time(0)
        claims = 0
        _wake(queue)
        await clock.pass_time(0)
        assert claims == 1
        waking = [threading.Thread(target=_wake, args=(queue,)) for _ in range(4)]
        claims = 0
        for each in waking:
            each.start()
        for each in waking:
            each.join()
        await clock.pass_time(0)
        assert claims == 1, "the loop had no turn meanwhile, and is told once"
        claims = 0
        queue.wake()
        await asyncio.sleep(0)
        queue.wake()  # while the claim of the first is under way
        await clock.pass_time(0)
        assert claims == 2

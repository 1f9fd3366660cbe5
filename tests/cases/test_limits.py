"""Limits as whole queues keep them, in stories that other queues are known to have got wrong."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

import fastjobs
from fastjobs.store import Claimable, Done, Kept, NewJob, Places
from fastjobs.testing import Clock

pytestmark = pytest.mark.anyio

HOLD = 60_000_000
ALONE = Claimable(kind="account", hold=HOLD, attempts=5, ahead_ok=False)
FREE = Claimable(kind="free", hold=HOLD, attempts=5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[fastjobs.SQLStore]:
    store = fastjobs.SQLStore(create_engine(f"sqlite:///{path}"), synchronous="NORMAL")
    await store.open([ALONE.kind, FREE.kind])
    yield store
    await store.close()


def execute(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path, timeout=10)
    with connection:
        connection.execute(statement)
    connection.close()


# A debounced job


@pytest.mark.parametrize(("at_most", "runs"), [(None, 0), (5, 5)], ids=["unbounded", "at-most"])
async def test_pushes_that_never_stop_move_a_latest_job_for_ever_unless_at_most_bounds_it(
    at_most: float | None, runs: int
) -> None:
    clock = Clock()
    q = fastjobs.Queue(fastjobs.Memory(clock=clock), clock=clock)
    ran: list[float] = []

    @q.kind("reindex", unique=fastjobs.Unique(latest=True, at_most=at_most))
    async def reindex(page: int) -> None:
        ran.append(clock.monotonic())

    async with q.running():
        for _ in range(280):
            await reindex.push(1, after=1)
            await clock.pass_time(0.1)
        assert len(ran) == runs
        await clock.pass_time(1)
        assert len(ran) == runs + 1, "once it's quiet it runs"
    gaps = [later - earlier for earlier, later in itertools.pairwise(ran)]
    assert all(gap <= 5.2 for gap in gaps)


# A rate that is not used up


class _SlowToSettle(fastjobs.Memory):
    """Answers a settle once quick jobs have ended, as a server does."""

    async def settle(self, started: Sequence[tuple[Places, int, int]]) -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        await super().settle(started)


async def test_a_rate_is_used_up_where_jobs_end_before_its_places_are_settled() -> None:
    clock = Clock()
    store = _SlowToSettle(clock=clock)
    ran: list[float] = []
    async with AsyncExitStack() as stack:
        for instance in range(3):
            q = fastjobs.Queue(store, clock=clock, workers=8)

            @q.kind("mail", rate=fastjobs.Throttle(100, per=1))
            async def mail(n: int) -> None:
                ran.append(clock.monotonic())

            if not instance:
                await mail.push_many(range(2000))
            await stack.enter_async_context(q.running())
        await clock.pass_time(10, turns=40)
    assert len(ran) >= 0.98 * 1000
    assert all(later - first >= 1 - 1e-6 for first, later in zip(ran, ran[100:], strict=False))


# The order of one value's jobs


async def test_jobs_of_a_value_run_in_the_order_of_their_pushes_but_for_one_that_is_tried_again() -> None:
    clock = Clock()
    q = fastjobs.Queue(fastjobs.Memory(clock=clock), clock=clock, workers=8)
    ran: list[tuple[str, int]] = []

    @q.kind("sync", unique=fastjobs.Unique(one_at_a_time=True), backoff=10)
    async def sync(account: int) -> None:
        job = fastjobs.current_job()
        ran.append((job.id, job.attempt))
        sleep: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = clock.call_later(1 + clock.random(), lambda: sleep.set_result(None))
        try:
            await sleep
        finally:
            timer.cancel()
        if len(ran) == 3:
            raise RuntimeError("this one is tried again")

    pushed: list[str] = []
    async with q.running():
        for _ in range(20):
            # The one before is claimed by now, or waits for its turn: then this is the same job.
            if (id := await sync.push(1)) is not None:
                pushed.append(id)
            await clock.pass_time(1.3)
        await clock.pass_time(30)
    first_runs = [id for id, attempt in ran if attempt == 1]
    assert first_runs == pushed
    assert len(pushed) > 10
    again = ran.index((pushed[2], 2))
    assert again > 3, "those behind it don't wait for its next attempt"


# Whose job is gone


async def test_a_key_is_free_as_its_row_is_deleted_by_hand(store: fastjobs.SQLStore, path: Path) -> None:
    waiting = NewJob("account", "1", key=b"k".ljust(32), one_at_a_time=True)
    assert await store.push([waiting]) != [None]
    assert await store.push([waiting]) == [None]
    execute(path, "DELETE FROM fastjobs_jobs")
    assert await store.push([waiting]) != [None]


async def test_the_next_of_a_key_runs_after_a_sweep_as_the_holders_row_is_deleted_by_hand(
    store: fastjobs.SQLStore, path: Path
) -> None:
    job = NewJob("account", "1", key=b"k".ljust(32), one_at_a_time=True)
    await store.push([job])
    (holder,) = (await store.claim([ALONE], 5)).jobs
    await store.push([job])
    assert (await store.claim([ALONE], 5)).jobs == []
    execute(path, f"DELETE FROM fastjobs_jobs WHERE id = {holder.id}")
    assert await store.sweep() == 1
    (after,) = (await store.claim([ALONE], 5)).jobs
    assert after.id != holder.id
    assert await store.mark([Done(holder.id, holder.claim), Done(after.id, after.claim)]) == [
        Kept.LOST,
        Kept.YES,
    ]


async def test_a_unique_value_may_be_as_long_as_any(path: Path) -> None:
    q = fastjobs.Queue(fastjobs.SQLStore(create_engine(f"sqlite:///{path}")), max_payload=3_000_000)

    @q.kind("report", unique=True)
    async def report(text: str) -> None: ...

    async with q.running(run=False):
        assert await report.push("a" * 2_000_000) is not None
        assert await report.push("a" * 2_000_000) is None
        assert await report.push("a" * 1_999_999 + "A") is not None


# A wake-up that is lost


@pytest.mark.timeout(100)
@pytest.mark.parametrize("limited", ["at_once", "one_at_a_time"])
async def test_no_turn_is_missed_as_two_instances_end_and_ask_at_the_same_moment(
    path: Path, limited: str
) -> None:
    """The poll is a minute, so a turn that is missed shows as a long gap."""
    ran: list[float] = []
    jobs, last = 200, asyncio.Event()
    turns: list[fastjobs.Kind[int]] = []
    async with AsyncExitStack() as stack:
        for instance in range(2):
            engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
            stack.push_async_callback(engine.dispose)
            fastjobs.sqlite.configure(engine)
            q = fastjobs.Queue(fastjobs.SQLStore(engine, synchronous="NORMAL"), workers=4, poll=60)

            @q.kind("limited", at_once=1)
            async def quick(n: int) -> None:
                ended()

            @q.kind("turn", unique=fastjobs.Unique(one_at_a_time=True))
            async def turn(key: int) -> None:
                ended()

            turns.append(turn)

            def ended() -> None:
                ran.append(time.monotonic())
                if len(ran) >= jobs:
                    last.set()

            if not instance:
                async with q.running(run=False):
                    await quick.push_many(range(jobs if limited == "at_once" else 1))
            await stack.enter_async_context(q.running())
        if limited == "one_at_a_time":
            # As one runs the next is pushed, parks, and is woken by its end.
            while len(ran) < jobs:
                before = len(ran)
                if await turns[len(ran) % 2].push(1) is None:
                    await asyncio.sleep(0)
                assert not ran or time.monotonic() - ran[-1] < 10 or len(ran) > before
        async with asyncio.timeout(60):
            await last.wait()
    assert max(later - earlier for earlier, later in itertools.pairwise(ran)) < 10


# Very many keys


async def test_a_claim_does_no_more_where_twenty_thousand_keys_are_held_and_wait(
    store: fastjobs.SQLStore, path: Path
) -> None:
    now = time.time_ns() // 1000

    async def claimed_in() -> int:
        await store.push([NewJob("free", "1")] * 10)
        steps = await _steps(store, 10)
        return steps

    without = min([await claimed_in() for _ in range(3)])
    for state, until, due in ((1, now + 3_600_000_000, now - 2_000_000), (2, 0, now - 1_000_000)):
        execute(
            path,
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) INSERT INTO fastjobs_jobs"
            " (kind, payload, state, held_until, claim, run_at, own_key, alone_key) SELECT 'account', '1',"
            f" {state}, {until}, 1, {due} + i, printf('%032d', i), cast(printf('%032d', i) AS BLOB) FROM n",
        )
    assert min([await claimed_in() for _ in range(3)]) < 1.5 * without + 10
    assert await store.sweep() == 0


async def _steps(store: fastjobs.SQLStore, limit: int) -> int:
    """How many steps SQLite's machine makes for a claim that finds so many, in tens."""
    from fastjobs.stores.sql.dialects.sqlite.database import SQLite
    from fastjobs.stores.sql.dialects.sqlite.writer import Call

    database = store._database
    assert isinstance(database, SQLite)
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    await database._call(Call(lambda opened: opened.raw.set_progress_handler(step, 10)))
    claimed = await store.claim([ALONE, FREE], limit)
    await database._call(Call(lambda opened: opened.raw.set_progress_handler(None, 10)))
    assert [job.kind for job in claimed.jobs] == ["free"] * limit
    await store.mark([Done(job.id, job.claim) for job in claimed.jobs])
    return count

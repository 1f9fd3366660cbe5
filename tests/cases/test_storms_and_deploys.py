"""Many jobs that fail at once, times far away, and instances of two versions side by side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from fastjobs import Memory, Outcome, Queue, Ran, Retry, SQLStore, current_job
from fastjobs.testing import Clock

pytestmark = pytest.mark.anyio

BEFORE_2038 = int(datetime(2038, 1, 19, 3, 14, 0, tzinfo=UTC).timestamp()) * 1_000_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite"])
async def store(
    request: pytest.FixtureRequest, clock: Clock, tmp_path: Path
) -> AsyncIterator[Memory | SQLStore]:
    if request.param == "memory":
        yield Memory(clock=clock)
        return
    engine = create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    sqlite = SQLStore(engine, clock=clock, synchronous="NORMAL")
    yield sqlite
    await sqlite.close()
    engine.dispose()


async def test_jobs_that_fail_together_are_due_again_over_a_tenth_of_their_wait_and_a_new_one_comes_before(
    store: Memory | SQLStore, clock: Clock
) -> None:
    queue = Queue(store, clock=clock)
    order: list[int] = []
    down = True

    @queue.kind("mail", backoff=100)
    async def mail(number: int) -> None:
        order.append(number)
        if down:
            raise ConnectionError("the provider is down")

    await mail.push_many(list(range(1000)))
    assert await queue.drain() == 1000
    down = False
    order.clear()
    clock.advance(99)
    await mail.push(-1)
    assert await queue.drain() == 1
    clock.advance(1)
    runs: list[int] = []
    for _ in range(10):
        clock.advance(1)
        runs.append(await queue.drain())
    assert sum(runs) == 1000
    assert all(70 < each < 130 for each in runs), runs
    assert sorted(order[1:]) == list(range(1000))
    assert order[1:] != list(range(1000)), "each has a chance of its own, not its place in the line"


async def test_a_job_that_failed_waits_for_none_of_the_new_ones_behind_it(
    store: Memory | SQLStore, clock: Clock
) -> None:
    queue = Queue(store, clock=clock)
    order: list[int] = []

    @queue.kind("mail", backoff=10)
    async def mail(number: int) -> None:
        order.append(number)
        if number == 0 and current_job().attempt == 1:
            raise ConnectionError

    await mail.push(0)
    await queue.drain()
    clock.advance(12)
    await mail.push_many([1, 2, 3])
    await queue.drain()
    assert order == [0, 0, 1, 2, 3]


@pytest.mark.parametrize("how", ["after", "at", "retry", "backoff"])
async def test_a_wait_goes_past_the_end_of_32_bits(tmp_path: Path, how: str) -> None:
    clock = Clock(BEFORE_2038)
    engine = create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    store = SQLStore(engine, clock=clock, synchronous="NORMAL")
    queue = Queue(store, clock=clock)
    runs = 0
    far = timedelta(days=365 * 100)

    @queue.kind("mail", backoff=(lambda attempt: far) if how == "backoff" else None)
    async def mail() -> None:
        nonlocal runs
        runs += 1
        if runs == 1 and how == "retry":
            raise Retry("later", after=far)
        if runs == 1 and how == "backoff":
            raise ValueError

    if how == "after":
        await mail.push(after=far)
    elif how == "at":
        await mail.push(at=datetime.fromtimestamp(BEFORE_2038 / 1e6, UTC) + far)
    else:
        await mail.push()
    first = 1 if how in ("retry", "backoff") else 0
    assert await queue.drain() == first
    clock.advance(far - timedelta(seconds=1))
    assert await queue.drain() == 0
    clock.advance(1)
    assert await queue.drain() == 1
    await store.close()
    engine.dispose()


@pytest.mark.parametrize("after", [timedelta.max, 253_000_000_000, 1e300, -1, float("nan")])
async def test_a_wait_that_no_calendar_has_stops_no_queue(
    store: Memory | SQLStore, clock: Clock, after: float | timedelta
) -> None:
    seen: list[Ran] = []
    queue = Queue(store, clock=clock, observe=seen.append, grace=0.1)

    @queue.kind("mail")
    async def mail() -> None:
        error = Retry("later", after=1)
        error.after = after
        raise error

    @queue.kind("other")
    async def other() -> None: ...

    await mail.push()
    assert await queue.drain() == 1
    await other.push()
    assert await queue.drain() == 1
    assert [ran.outcome for ran in seen] == [Outcome.RETRIED, Outcome.DONE]


async def test_an_old_instance_and_a_new_one_side_by_side_cost_the_new_kinds_jobs_no_attempt(
    store: Memory | SQLStore, clock: Clock
) -> None:
    seen: dict[str, list[Ran]] = {"old": [], "new": []}
    old, new = (
        Queue(store, clock=clock, observe=seen[which].append, poll=0.5, grace=0.1) for which in ("old", "new")
    )
    attempts: list[int] = []

    async def mail() -> None: ...

    async def thumbnail(number: int) -> None:
        attempts.append(current_job().attempt)

    old_mail, _ = old.kind("mail")(mail), new.kind("mail")(mail)
    made = new.kind("thumbnail")(thumbnail)

    async def passes(until: int) -> None:
        async with asyncio.timeout(20):
            while len(seen["old"]) + len(seen["new"]) < until:
                await clock.pass_time(0.1)
                await asyncio.sleep(0.001)

    async with old.running():
        await made.push_many(list(range(100)))
        await old_mail.push()
        await passes(1)
        await clock.pass_time(600)
        assert [ran.kind for ran in seen["old"]] == ["mail"]
        async with new.running():
            await passes(101)
        # And back: what the new one left waits for whoever knows it.
        await made.push(100)
        await old_mail.push()
        await passes(102)
        await clock.pass_time(600)
    assert await new.drain() == 1
    assert attempts == [1] * 101
    assert {ran.outcome for ran in seen["old"] + seen["new"]} == {Outcome.DONE}
    assert {ran.kind for ran in seen["old"]} == {"mail"}

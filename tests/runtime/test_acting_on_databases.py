"""Looking and acting on real databases: what one instance asks, another that has the job hears of."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

import fastjobs
from fastjobs import Cancelled, JobState, Outcome, Permanent, Queue, Ran, SQLStore, Throttle, current_job
from fastjobs.core.claiming import Claimable
from fastjobs.core.marks import Kept, TryAgain
from tests.databases.postgres import Database
from tests.runtime.conftest import Mail
from tests.runtime.test_cancelling import waits_for_ever
from tests.runtime.test_threads import Gate, until

pytestmark = pytest.mark.anyio

NewQueue = Callable[..., Queue]


@pytest.fixture(params=["sqlite", "asyncpg", "psycopg"])
async def new_queue(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[NewQueue]:
    """Makes queues that are instances of one app: each has a store of its own on the one database."""
    if request.param == "sqlite":
        url = f"sqlite+aiosqlite:///{tmp_path}/app.db"
    else:
        database: Database = request.getfixturevalue("postgres_database")
        url = database.url(request.param)
    engine = create_async_engine(url, poolclass=NullPool)
    if request.param == "sqlite":
        fastjobs.sqlite.configure(engine)
    stores: list[SQLStore] = []

    def new(**settings: object) -> Queue:
        stores.append(SQLStore(engine))
        return Queue(stores[-1], grace=0.2, **settings)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    yield new
    for store in stores:
        await store.close()
    await engine.dispose()


async def test_a_cancel_stops_a_handler_on_another_instance_and_one_that_fails_first_is_removed(
    new_queue: NewQueue,
) -> None:
    seen: list[Ran] = []
    queue, other = new_queue(observe=seen.append), new_queue()
    mail, ends, failed = waits_for_ever(queue)
    fail = asyncio.Event()

    @queue.kind("fails")
    async def fails() -> None:
        await fail.wait()
        raise ValueError("of itself")

    async with queue.running(), other.running(run=False):
        id, fails_id = await mail.push(Mail(user=1)), await fails.push()
        await until(lambda: queue.health().busy == 2)
        assert id is not None
        assert fails_id is not None
        assert await other.cancel(fails_id) is Cancelled.ASKED
        fail.set()
        await until(lambda: len(seen) == 1)
        assert await other.cancel(id) is Cancelled.ASKED
        asked = await other.job(id)
        assert asked is None or asked.stop_asked
        await until(lambda: len(seen) == 2)
        assert [await other.job(each) for each in (id, fails_id)] == [None, None]
        assert await other.cancel(id) is Cancelled.NOT_THERE
    assert [(ran.outcome, ran.job) for ran in seen] == [
        (Outcome.CANCELLED, fails_id),
        (Outcome.CANCELLED, id),
    ]
    assert (ends, failed) == (["began", "cancelled"], [])


async def test_a_job_that_another_instance_put_back_before_it_heard_of_a_cancel_is_never_run(
    new_queue: NewQueue,
) -> None:
    seen: list[Ran] = []
    queue, other = new_queue(observe=seen.append), new_queue()
    mail, ends, failed = waits_for_ever(queue)
    id = await mail.push(Mail(user=1))
    assert id is not None
    (job,) = (await other.store.claim([Claimable(kind="mail", hold=60_000_000, attempts=9)], 1)).jobs
    assert await queue.cancel(id) is Cancelled.ASKED
    assert await other.store.mark([TryAgain(id, job.claim, 3_600_000_000, "x")]) == [Kept.YES]
    waits = await queue.job(id)
    assert waits is not None
    assert waits.why == "it's cancelled: the next claim removes it"
    async with queue.running():
        await until(lambda: seen)
        assert await queue.job(id) is None
    assert [(ran.outcome, ran.attempt) for ran in seen] == [(Outcome.CANCELLED, 2)]
    assert (ends, failed) == ([], [])


async def test_a_def_handler_sees_a_cancel_by_another_instance(new_queue: NewQueue) -> None:
    seen: list[Ran] = []
    queue, other = new_queue(observe=seen.append), new_queue()
    gate = Gate()

    @queue.kind("mail")
    def mail(value: Mail) -> None:
        while not current_job().cancelled:
            gate.inside = 1
            threading.Event().wait(0.001)
        raise ValueError("stopped")

    async with queue.running():
        id = await mail.push(Mail(user=1))
        await until(lambda: gate.inside)
        assert await other.cancel(id or "") is Cancelled.ASKED
        await until(lambda: seen)
    assert [ran.outcome for ran in seen] == [Outcome.CANCELLED]


async def test_a_job_that_waits_is_shown_and_removed_by_any_instance(new_queue: NewQueue) -> None:
    queue, other = new_queue(), new_queue()

    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    id = await mail.push(Mail(user=1), after=60, name="once")
    assert id is not None
    job = await other.job(id, cut=5)
    assert job is not None
    assert (job.state, job.payload, job.size, job.name) == (JobState.WAITING, '{"use', 10, "once")
    assert job.why.startswith("it waits for its time, ")
    assert [each.id for each in await other.jobs("mail")] == [id]
    assert await other.cancel(id) is Cancelled.REMOVED
    assert await queue.drain() == 0
    assert await queue.counts() == [
        fastjobs.KindInfo(
            kind="mail", waiting=0, due=0, held=0, parked=0, failed=0, oldest=None, held_back=0.0, paused=False,
            handled=True,
        )
    ]  # fmt: skip


async def test_a_pause_and_its_end_reach_the_other_instance(new_queue: NewQueue) -> None:
    seen: list[Ran] = []
    queue, other = new_queue(observe=seen.append, poll=0.05), new_queue()

    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    @queue.kind("beat")
    async def beat() -> None: ...

    async with queue.running():
        await other.pause("mail")
        await mail.push(Mail(user=1))
        for n in range(3):
            await beat.push()
            await until(lambda n=n: len(seen) == n + 1)  # type: ignore[misc]
        assert [ran.kind for ran in seen] == ["beat"] * 3
        await other.resume("mail")
        await until(lambda: len(seen) == 4)
    assert seen[3].kind == "mail"


async def test_progress_is_seen_from_other_instances_and_its_last_stays_with_a_failed_job(
    new_queue: NewQueue,
) -> None:
    seen: list[Ran] = []
    queue, other = new_queue(observe=seen.append), new_queue()
    go = asyncio.Event()

    @queue.kind("count")
    async def count() -> None:
        current_job().progress({"step": 1, "of": "½"})
        await go.wait()
        current_job().progress({"step": 2})
        raise Permanent("no")

    async with queue.running():
        id = await count.push()
        assert id is not None

        async def shown() -> object:
            job = await other.job(id)
            return None if job is None else job.progress

        async with asyncio.timeout(20):
            while await shown() != {"step": 1, "of": "½"}:
                await asyncio.sleep(0.01)
        go.set()
        await until(lambda: seen)
        assert await shown() == {"step": 2}
    assert [job.id for job in await other.failed()] == [id]


async def test_failed_jobs_are_run_again_and_deleted_in_pages(
    new_queue: NewQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastjobs.runtime.acting.PAGE", 3)
    queue, other = new_queue(), new_queue()

    async def fail(value: Mail) -> None:
        raise Permanent("no")

    mail, report = queue.kind("mail")(fail), queue.kind("report")(fail)
    await mail.push_many([Mail(user=n) for n in range(7)])
    await report.push_many([Mail(user=n) for n in range(4)])
    assert await queue.drain() == 11
    pages = [await other.failed(limit=6)]
    pages.append(await other.failed(limit=6, after=pages[0][-1]))
    assert sorted(job.id for page in pages for job in page) == sorted(str(n) for n in range(1, 12))
    assert await other.run_again(kind="mail") == 7
    assert {job.kind for job in await other.failed()} == {"report"}
    assert await other.delete(all=True) == 4
    assert await queue.drain() == 7
    assert await asyncio.to_thread(queue.sync.delete, all=True) == 7


async def test_a_fallback_runs_what_no_kind_handles_and_leaves_the_others_to_their_rates(
    new_queue: NewQueue,
) -> None:
    queue, pushes = new_queue(), new_queue()
    got: list[str] = []

    @queue.kind("mail", rate=Throttle(1, per=600))
    async def mail(n: int) -> None:
        got.append("mail")

    @queue.fallback(attempts=2, backoff=0)
    def unknown(value: dict[str, int]) -> None:
        job = current_job()
        got.append(f"{job.kind} {job.attempt} {value['user']}")
        raise ValueError("no")

    @pushes.kind("photo")
    async def photo(value: Mail) -> None: ...

    await mail.push_many([1, 2, 3])
    await photo.push(Mail(user=7))
    async with queue.running():
        await until(lambda: len(got) == 3)
    assert sorted(got) == ["mail", "photo 1 7", "photo 2 7"]
    assert [(job.kind, job.error) for job in await queue.failed()] == [("photo", "ValueError: no")]

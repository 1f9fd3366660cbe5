"""`current_job().done_in(tx)`: a handler's writes and its job's end commit together, in whatever order things end.

Longer than 600 lines, as each order in which they can end has a test of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import fastjobs
from fastjobs import ClaimLost, Memory, NotAwaited, NotCommitted, Outcome, Queue, QueueError, Ran, StoreError
from fastjobs.runtime.current import CurrentJob
from fastjobs.testing import Clock
from tests.runtime.faulty import Unsteady

pytestmark = pytest.mark.anyio
Lines = Callable[[str], list[str]]
NewQueue = Callable[..., Queue]


@pytest.fixture
def store(clock: Clock) -> Unsteady:
    return Unsteady(clock=clock)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    """The app's own database."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/app.db")
    fastjobs.sqlite.configure(engine)
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE notes (text TEXT UNIQUE)"))
    yield engine
    await engine.dispose()


@pytest.fixture
def sync_engine(engine: AsyncEngine, tmp_path: Path) -> Iterator[Engine]:
    """Another engine of the same database."""
    made = create_engine(f"sqlite:///{tmp_path}/app.db")
    fastjobs.sqlite.configure(made)
    yield made
    made.dispose()


NOTE = text("INSERT INTO notes VALUES (:text)")


async def notes(engine: AsyncEngine) -> list[str]:
    async with engine.connect() as connection:
        return list(await connection.scalars(text("SELECT text FROM notes ORDER BY text")))


async def test_a_handlers_writes_and_its_jobs_end_commit_together(
    queue: Queue, store: Unsteady, engine: AsyncEngine, seen: list[Ran]
) -> None:
    @queue.kind("mail")
    async def mail(text: str) -> None:
        async with AsyncSession(engine) as session, session.begin():
            await session.execute(NOTE, {"text": text})
            await fastjobs.current_job().done_in(session)

    await mail.push("once")
    assert await queue.drain() == 1
    assert await notes(engine) == ["once"]
    assert store._rows == {}
    assert [(ran.outcome, ran.error) for ran in seen] == [(Outcome.DONE, None)]
    assert store.calls["mark"] == 0, "what the app committed needs no mark"


async def test_a_running_queue_does_a_job_in_its_handlers_transaction(
    queue: Queue, store: Unsteady, engine: AsyncEngine, seen: list[Ran], clock: Clock, lines: Lines
) -> None:
    ended = asyncio.Event()

    @queue.kind("mail")
    async def mail(text: str) -> None:
        async with engine.begin() as connection:
            await connection.execute(NOTE, {"text": text})
            await fastjobs.current_job().done_in(connection)
        ended.set()

    async with queue.running():
        await mail.push("once")
        await ended.wait()
    assert await notes(engine) == ["once"]
    assert store._rows == {}
    assert [ran.outcome for ran in seen] == [Outcome.DONE]
    assert lines("") == []


async def test_a_sync_handler_is_done_in_a_sync_transaction_in_its_thread(
    queue: Queue, store: Unsteady, engine: AsyncEngine, sync_engine: Engine, seen: list[Ran]
) -> None:
    threads: list[threading.Thread] = []

    @queue.kind("mail")
    def mail(text: str) -> None:
        threads.append(threading.current_thread())
        with Session(sync_engine) as session, session.begin():
            session.execute(NOTE, {"text": text})
            fastjobs.current_job().done_in(session)

    await mail.push("once")
    assert await queue.drain() == 1
    assert threads != [threading.current_thread()]
    assert await notes(engine) == ["once"]
    assert store._rows == {}
    assert [ran.outcome for ran in seen] == [Outcome.DONE]


async def test_a_push_beside_a_done_in_is_kept_with_it(
    queue: Queue, store: Unsteady, engine: AsyncEngine
) -> None:
    ran: list[str] = []

    @queue.kind("first")
    async def first(rolls_back: bool) -> None:
        ran.append("first")
        async with AsyncSession(engine) as session:
            await second.in_(session).push()
            await fastjobs.current_job().done_in(session)
            await (session.rollback() if rolls_back else session.commit())

    @queue.kind("second")
    async def second() -> None:
        ran.append("second")

    await first.push(False)
    await queue.drain()
    assert ran == ["first", "second"]
    ran.clear()
    await first.push(True)
    await queue.drain()
    assert ran == ["first"], "the push was rolled back with the end"
    assert len(store._rows) == 1


@pytest.mark.parametrize("end", ["rollback", "nothing", "savepoint"])
async def test_a_done_in_that_was_not_committed_has_the_job_run_again(
    queue: Queue, engine: AsyncEngine, seen: list[Ran], clock: Clock, lines: Lines, end: str
) -> None:
    @queue.kind("mail", backoff=1)
    async def mail() -> None:
        job = fastjobs.current_job()
        async with AsyncSession(engine) as session:
            if job.attempt == 2:
                assert job.last_error == "NotCommitted: done_in was not committed"
                await job.done_in(session)
                await session.commit()
                return
            await session.execute(NOTE, {"text": "a transaction that has begun"})
            savepoint = await session.begin_nested()
            await job.done_in(session)
            await (savepoint.rollback() if end == "savepoint" else savepoint.commit())
            await (session.commit() if end == "savepoint" else asyncio.sleep(0))
            if end == "rollback":
                await session.rollback()

    await mail.push()
    await queue.drain()
    assert [ran.outcome for ran in seen] == [Outcome.RETRIED]
    assert isinstance(seen[0].error, NotCommitted)
    assert len(lines("a job failed, and will run again")) == 1
    clock.advance(2)
    assert await queue.drain() == 1
    assert [ran.outcome for ran in seen] == [Outcome.RETRIED, Outcome.DONE]


async def test_a_commit_that_fails_has_the_job_run_again_with_its_error(
    queue: Queue, store: Unsteady, engine: AsyncEngine, seen: list[Ran]
) -> None:
    def fail(connection: object) -> None:
        raise ConnectionError("the commit failed")

    @queue.kind("mail")
    async def mail() -> None:
        async with AsyncSession(engine) as session:
            await session.execute(NOTE, {"text": "gone"})
            await fastjobs.current_job().done_in(session)
            event.listen(engine.sync_engine, "commit", fail)
            try:
                await session.commit()
            finally:
                event.remove(engine.sync_engine, "commit", fail)

    await mail.push()
    await queue.drain()
    assert [(ran.outcome, str(ran.error)) for ran in seen] == [(Outcome.RETRIED, "the commit failed")]
    assert len(store._rows) == 1
    assert await notes(engine) == []


async def test_a_handler_that_fails_before_the_commit_has_its_own_error(
    queue: Queue, engine: AsyncEngine, seen: list[Ran]
) -> None:
    failed: list[str] = []

    @queue.kind("mail")
    async def mail() -> None:
        async with AsyncSession(engine) as session, session.begin():
            await fastjobs.current_job().done_in(session)
            raise fastjobs.Permanent("no such user")

    @mail.on_fail
    async def tell(error: Exception) -> None:
        failed.append(str(error))

    await mail.push()
    await queue.drain()
    assert [ran.outcome for ran in seen] == [Outcome.FAILED]
    assert failed == ["no such user"]


async def test_a_handler_that_fails_after_the_commit_is_told_of_and_does_not_run_again(
    queue: Queue, store: Unsteady, engine: AsyncEngine, seen: list[Ran], lines: Lines
) -> None:
    failed: list[str] = []

    @queue.kind("mail", attempts=1)
    async def mail() -> None:
        async with AsyncSession(engine) as session, session.begin():
            await fastjobs.current_job().done_in(session)
        raise ValueError("too late to matter")

    @mail.on_fail
    async def tell(error: Exception) -> None:
        failed.append(str(error))

    await mail.push()
    assert await queue.drain() == 1
    assert store._rows == {}
    assert [(ran.outcome, ran.error) for ran in seen] == [(Outcome.DONE, None)]
    assert failed == []
    (line,) = lines("a handler failed after it had committed its job as done")
    assert "ValueError: too late to matter" in line


async def test_a_timeout_after_the_commit_changes_nothing(
    queue: Queue, store: Unsteady, engine: AsyncEngine, seen: list[Ran], clock: Clock, lines: Lines
) -> None:
    committed = asyncio.Event()

    @queue.kind("mail", timeout=5)
    async def mail() -> None:
        async with AsyncSession(engine) as session, session.begin():
            await fastjobs.current_job().done_in(session)
        committed.set()
        await asyncio.Event().wait()

    async with queue.running():
        await mail.push()
        await committed.wait()
        await clock.pass_time(6)
        assert [ran.outcome for ran in seen] == [Outcome.DONE]
    assert store._rows == {}
    assert len(lines("a handler failed after it had committed its job as done")) == 1


async def test_a_timeout_before_the_commit_is_a_timeout(
    queue: Queue, store: Unsteady, engine: AsyncEngine, seen: list[Ran], clock: Clock
) -> None:
    sent = asyncio.Event()

    @queue.kind("mail", timeout=5)
    async def mail() -> None:
        async with AsyncSession(engine) as session, session.begin():
            await fastjobs.current_job().done_in(session)
            sent.set()
            await asyncio.Event().wait()

    async with queue.running():
        await mail.push()
        await sent.wait()
        await clock.pass_time(6)
        for _ in range(100):  # its rollback is the driver's thread's
            if seen:
                break
            await asyncio.sleep(0.01)
        assert [(ran.outcome, str(ran.error)) for ran in seen] == [
            (Outcome.RETRIED, "ran over its timeout of 5 s")
        ]
    assert len(store._rows) == 1


@pytest.mark.parametrize("committed", [True, False])
async def test_a_stop_after_a_done_in_gives_back_what_was_not_committed_alone(
    new_queue: NewQueue, store: Unsteady, engine: AsyncEngine, seen: list[Ran], lines: Lines, committed: bool
) -> None:
    queue = new_queue(grace=0.05)
    there = asyncio.Event()

    @queue.kind("mail")
    async def mail() -> None:
        async with AsyncSession(engine) as session:
            await fastjobs.current_job().done_in(session)
            if committed:
                await session.commit()
            there.set()
            await asyncio.Event().wait()

    async with queue.running():
        await mail.push()
        await there.wait()
    assert len(store._rows) == (0 if committed else 1)
    assert [ran.outcome for ran in seen] == [Outcome.DONE if committed else Outcome.RETRIED]
    assert len(lines("a job was stopped with the queue, and runs again")) == (0 if committed else 1)
    assert lines("a handler failed") == []


async def test_a_claim_that_was_lost_raises_and_the_transaction_rolls_back(
    new_queue: NewQueue, store: Unsteady, engine: AsyncEngine, clock: Clock, seen: list[Ran], lines: Lines
) -> None:
    frozen, other = new_queue(hold=10), new_queue()
    store.hang.add("extend")  # or a renewal would see it first
    raised: list[ClaimLost] = []

    @frozen.kind("mail", timeout=60)
    async def mail() -> None:
        clock.advance(20)  # no timer fires meanwhile, as in a process that is frozen
        assert await other.drain() == 1
        async with AsyncSession(engine) as session, session.begin():
            await session.execute(NOTE, {"text": "twice"})
            try:
                await fastjobs.current_job().done_in(session)
            except ClaimLost as lost:
                raised.append(lost)
                raise

    @other.kind("mail")
    async def again() -> None:
        async with AsyncSession(engine) as session, session.begin():
            await session.execute(NOTE, {"text": "once"})

    await mail.push()
    await frozen.drain()
    assert len(raised) == 1
    assert await notes(engine) == ["once"]
    assert [ran.outcome for ran in seen] == [Outcome.DONE]
    assert len(lines("a job's end came too late")) == 1


async def test_a_lost_claim_whose_error_is_swallowed_is_told_as_late(
    new_queue: NewQueue, store: Unsteady, engine: AsyncEngine, clock: Clock, seen: list[Ran], lines: Lines
) -> None:
    frozen, other = new_queue(hold=10), new_queue()
    store.hang.add("extend")  # or a renewal would see it first

    @frozen.kind("mail", timeout=60)
    async def mail() -> None:
        clock.advance(20)
        assert await other.drain() == 1
        async with AsyncSession(engine) as session:
            with pytest.raises(ClaimLost):
                await fastjobs.current_job().done_in(session)

    other.kind("mail")(lambda: None)
    await mail.push()
    await frozen.drain()
    assert [ran.outcome for ran in seen] == [Outcome.DONE], "of the other claim"
    assert len(lines("a job's end came too late")) == 1


async def test_a_hold_that_ends_during_the_commit_leaves_the_job_done(
    new_queue: NewQueue, store: Unsteady, engine: AsyncEngine, clock: Clock, seen: list[Ran], lines: Lines
) -> None:
    """The row is the transaction's: no claim has it until that has ended, whatever the hold."""
    queue, other = new_queue(hold=10), new_queue()

    @queue.kind("mail", timeout=60)
    async def mail() -> None:
        async with AsyncSession(engine) as session, session.begin():
            await fastjobs.current_job().done_in(session)
            clock.advance(20)
            assert await other.drain() == 0

    other.kind("mail")(lambda: None)
    await mail.push()
    assert await queue.drain() == 1
    assert store._rows == {}
    assert [ran.outcome for ran in seen] == [Outcome.DONE]
    assert lines("a job's end came too late") == []


async def test_a_rollback_after_the_hold_lets_another_claim_have_it_and_is_told_as_late(
    new_queue: NewQueue, engine: AsyncEngine, clock: Clock, seen: list[Ran], lines: Lines
) -> None:
    queue, other = new_queue(hold=10), new_queue()

    @queue.kind("mail", timeout=60)
    async def mail() -> None:
        async with AsyncSession(engine) as session:
            await fastjobs.current_job().done_in(session)
            clock.advance(20)
            await session.rollback()
        assert await other.drain() == 1

    other.kind("mail")(lambda: None)
    await mail.push()
    await queue.drain()
    assert [ran.outcome for ran in seen] == [Outcome.DONE], "of the other claim"
    assert len(lines("a job's end came too late")) == 1


async def test_the_hold_is_not_renewed_from_done_in_on_and_a_late_answer_cancels_nobody(
    new_queue: NewQueue, store: Unsteady, engine: AsyncEngine, clock: Clock, seen: list[Ran], lines: Lines
) -> None:
    queue = new_queue(hold=30)
    there, end = asyncio.Event(), asyncio.Event()

    @queue.kind("mail", timeout=60)
    async def mail() -> None:
        async with AsyncSession(engine) as session, session.begin():
            await fastjobs.current_job().done_in(session)
        there.set()
        await end.wait()

    async with queue.running():
        await mail.push()
        await there.wait()
        await clock.pass_time(25)
        assert store.calls["extend"] == 0
        end.set()
        await clock.pass_time(1)
        assert [ran.outcome for ran in seen] == [Outcome.DONE]
    assert lines("a job's claim is gone") == []


class _SlowExtend(Unsteady):
    """Answers the first renewal only once it's let."""

    def __init__(self, *, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.met, self.let = asyncio.Event(), asyncio.Event()

    async def arrive(self, verb: str) -> None:
        await super().arrive(verb)
        if verb == "extend" and not self.met.is_set():
            self.met.set()
            await self.let.wait()


async def test_a_renewal_that_is_under_way_and_finds_the_job_done_cancels_nobody(
    new_queue: NewQueue, engine: AsyncEngine, clock: Clock, seen: list[Ran], lines: Lines
) -> None:
    store = _SlowExtend(clock=clock)
    queue = new_queue(store=store, hold=30)
    go, there, end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @queue.kind("mail", timeout=60)
    async def mail() -> None:
        await go.wait()
        async with AsyncSession(engine) as session, session.begin():
            await fastjobs.current_job().done_in(session)
        there.set()
        await end.wait()

    async with queue.running():
        await mail.push()
        await clock.pass_time(11)
        await store.met.wait()
        go.set()
        await there.wait()
        store.let.set()
        await clock.pass_time(1)
        end.set()
        await clock.pass_time(1)
        assert [ran.outcome for ran in seen] == [Outcome.DONE]
    assert lines("a job's claim is gone") == []


async def test_while_the_transaction_is_open_the_store_is_asked_again_until_it_has_ended(
    queue: Queue, store: Unsteady, engine: AsyncEngine, clock: Clock, seen: list[Ran]
) -> None:
    session = AsyncSession(engine)

    @queue.kind("mail")
    async def mail() -> None:
        await fastjobs.current_job().done_in(session)

    async with queue.running():
        await mail.push()
        await clock.pass_time(2)
        assert seen == []
        assert len(store._rows) == 1
        await session.commit()
        await clock.pass_time(1)
        assert [ran.outcome for ran in seen] == [Outcome.DONE]
    await session.close()
    assert store._rows == {}


async def test_a_transaction_that_is_open_past_the_hold_is_given_up_and_told(
    new_queue: NewQueue, store: Unsteady, engine: AsyncEngine, clock: Clock, seen: list[Ran], lines: Lines
) -> None:
    queue = new_queue(hold=10)
    session = AsyncSession(engine)

    @queue.kind("mail")
    async def mail() -> None:
        if fastjobs.current_job().attempt == 1:
            await fastjobs.current_job().done_in(session)

    async with queue.running():
        await mail.push()
        await clock.pass_time(12)
        assert seen == []
        assert len(lines("whether a job's done_in was committed was not told while it was held")) == 1
        await session.rollback()
        await clock.pass_time(3)
        assert [(ran.outcome, ran.attempt) for ran in seen] == [(Outcome.DONE, 2)]
    await session.close()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("commits", [True, False])
async def test_an_error_of_the_store_after_a_done_in_is_tried_again_and_told_right(
    queue: Queue,
    store: Unsteady,
    engine: AsyncEngine,
    clock: Clock,
    seen: list[Ran],
    lines: Lines,
    when: str,
    commits: bool,
) -> None:
    @queue.kind("mail", backoff=1000)
    async def mail() -> None:
        async with AsyncSession(engine) as session:
            await fastjobs.current_job().done_in(session)
            await (session.commit() if commits else session.rollback())

    async with queue.running():
        getattr(store, when).update({"extend", "mark"})
        await mail.push()
        await clock.pass_time(3)
        assert seen == []
        getattr(store, when).clear()
        await clock.pass_time(5)
        assert [ran.outcome for ran in seen] == [Outcome.DONE if commits else Outcome.RETRIED]
    assert len(store._rows) == (0 if commits else 1)
    assert lines("a job's end came too late") == []


# What is refused.


async def test_a_done_in_that_is_never_awaited_fails_the_commit_and_names_itself(
    queue: Queue, store: Unsteady, engine: AsyncEngine, seen: list[Ran]
) -> None:
    @queue.kind("mail")
    async def mail() -> None:
        async with AsyncSession(engine) as session, session.begin():
            await session.execute(NOTE, {"text": "gone"})
            _ = fastjobs.current_job().done_in(session)

    await mail.push()
    await queue.drain()
    assert [ran.outcome for ran in seen] == [Outcome.RETRIED]
    assert isinstance(seen[0].error, NotAwaited)
    assert "done_in of a job of kind 'mail' was never awaited" in str(seen[0].error)
    assert await notes(engine) == []
    assert len(store._rows) == 1


async def test_a_done_in_that_is_never_awaited_nor_committed_is_an_error_too(
    queue: Queue, store: Unsteady, engine: AsyncEngine, seen: list[Ran]
) -> None:
    @queue.kind("mail")
    async def mail() -> None:
        async with AsyncSession(engine) as session:
            _ = fastjobs.current_job().done_in(session)

    await mail.push()
    await queue.drain()
    assert [str(ran.error) for ran in seen] == ["done_in was never awaited"]
    assert len(store._rows) == 1


async def test_a_second_done_in_is_refused_and_the_first_holds(
    queue: Queue, store: Unsteady, engine: AsyncEngine, seen: list[Ran]
) -> None:
    @queue.kind("mail")
    async def mail() -> None:
        async with AsyncSession(engine) as session, session.begin():
            await fastjobs.current_job().done_in(session)
            with pytest.raises(QueueError, match="called for this job before"):
                await fastjobs.current_job().done_in(session)

    await mail.push()
    await queue.drain()
    assert [ran.outcome for ran in seen] == [Outcome.DONE]
    assert store._rows == {}


async def test_done_in_is_refused_in_an_on_fail(
    queue: Queue, store: Unsteady, engine: AsyncEngine, lines: Lines
) -> None:
    raised: list[str] = []

    @queue.kind("mail", attempts=1)
    async def mail() -> None:
        raise ValueError

    @mail.on_fail
    async def tell(error: Exception) -> None:
        async with AsyncSession(engine) as session:
            with pytest.raises(QueueError, match="in on_fail the job has failed already") as refused:
                await fastjobs.current_job().done_in(session)
            raised.append(str(refused.value))

    await mail.push()
    await queue.drain()
    assert len(raised) == 1
    assert len(await store.failed()) == 1


async def test_done_in_is_refused_once_the_handler_has_ended(
    queue: Queue, store: Unsteady, engine: AsyncEngine
) -> None:
    end = asyncio.Event()
    left: list[asyncio.Task[None]] = []

    @queue.kind("mail", backoff=1000)
    async def mail() -> None:
        async def later() -> None:
            await end.wait()
            async with AsyncSession(engine) as session:
                await fastjobs.current_job().done_in(session)

        left.append(asyncio.create_task(later()))
        raise ValueError

    await mail.push()
    await queue.drain()
    end.set()
    with pytest.raises(QueueError, match="comes too late"):
        await left[0]
    assert len(store._rows) == 1


async def test_a_done_in_that_is_awaited_once_the_handler_has_ended_is_refused(
    queue: Queue, store: Unsteady, engine: AsyncEngine
) -> None:
    kept: list[Any] = []

    @queue.kind("mail", backoff=1000)
    async def mail() -> None:
        kept.append(fastjobs.current_job().done_in(AsyncSession(engine)))

    await mail.push()
    await queue.drain()
    with pytest.raises(QueueError, match="comes too late"):
        await kept[0]
    assert len(store._rows) == 1


async def test_done_in_of_a_job_that_no_queue_runs_here_says_so() -> None:
    job = CurrentJob(id="1", kind="mail", attempt=1, last_error=None, carried={})
    with pytest.raises(QueueError, match="in the app's own process"):
        await job.done_in(AsyncSession())


async def test_done_in_is_refused_by_a_store_that_lacks_it(
    new_queue: NewQueue, clock: Clock, engine: AsyncEngine, seen: list[Ran]
) -> None:
    class Lacks(Memory):
        extras = Memory.extras & ~fastjobs.Extra.DONE_IN

    queue = new_queue(store=Lacks(clock=clock))

    @queue.kind("mail")
    async def mail() -> None:
        async with AsyncSession(engine) as session:
            with pytest.raises(StoreError, match=r"done_in\(\) needs a store with DONE_IN, and Lacks has"):
                await fastjobs.current_job().done_in(session)

    await mail.push()
    await queue.drain()
    assert [ran.outcome for ran in seen] == [Outcome.DONE], "nothing came of it, so its end is told as always"


async def test_done_in_is_refused_for_what_is_no_transaction(queue: Queue, seen: list[Ran]) -> None:
    @queue.kind("mail")
    async def mail() -> None:
        with pytest.raises(StoreError):
            await fastjobs.current_job().done_in(queue)  # type: ignore[call-overload]  # pyright: ignore

    await mail.push()
    await queue.drain()
    assert [ran.outcome for ran in seen] == [Outcome.DONE]


async def test_a_job_that_asks_for_its_current_job_shows_no_inside_of_it(queue: Queue) -> None:
    shown: list[str] = []

    @queue.kind("mail")
    async def mail() -> None:
        shown.append(repr(fastjobs.current_job()))
        assert fastjobs.current_job() == fastjobs.current_job()

    id = await mail.push()
    await queue.drain()
    assert shown == [f"CurrentJob(id={id!r}, kind='mail', attempt=1, last_error=None, carried={{}})"]

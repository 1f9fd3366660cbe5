"""A cancelled job is removed, wherever it stands: it never starts, or its handler is stopped, and on_fail isn't run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import fastjobs
from fastjobs import (
    Cancelled,
    JobState,
    Kind,
    Memory,
    Outcome,
    Permanent,
    Queue,
    Ran,
    Retry,
    Snooze,
    Throttle,
    Unique,
    current_job,
)
from fastjobs.core.marks import Kept, Mark
from fastjobs.testing import Clock
from tests.runtime.conftest import Mail
from tests.runtime.test_threads import Gate, until

pytestmark = pytest.mark.anyio
Lines = Callable[[str], list[str]]

CANCELLED = "a job was cancelled, and is removed"


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


async def pushed(kind: Kind[Mail], user: int = 1, after: float | None = None) -> str:
    id = await kind.push(Mail(user=user), after=after)
    assert id is not None
    return id


def waits_for_ever(queue: Queue, **options: Any) -> tuple[Kind[Mail], list[str], list[Exception]]:
    """A kind whose handler waits, what became of it, and what on_fail was told."""
    ends: list[str] = []
    failed: list[Exception] = []

    @queue.kind("mail", **options)
    async def mail(value: Mail) -> None:
        ends.append("began")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert current_job().cancelled
            ends.append("cancelled")
            raise

    mail.on_fail(lambda value, error: failed.append(error))
    return mail, ends, failed


# Jobs that wait.


async def test_a_job_that_waits_is_removed_and_never_starts(queue: Queue, clock: Clock, lines: Lines) -> None:
    mail, ends, failed = waits_for_ever(queue)
    now, later = await pushed(mail), await pushed(mail, after=60)
    assert [await queue.cancel(id) for id in (now, later)] == [Cancelled.REMOVED] * 2
    assert [await queue.cancel(id) for id in (now, later, "999")] == [Cancelled.NOT_THERE] * 3
    clock.advance(100)
    assert await queue.drain() == 0
    assert (ends, failed) == ([], [])
    assert lines("a job that waited was cancelled") == [
        f"a job that waited was cancelled, and is removed job={id}" for id in (now, later)
    ]


async def test_a_failed_job_is_deleted_and_not_cancelled(queue: Queue) -> None:
    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        raise Permanent("no")

    id = await pushed(mail)
    await queue.drain()
    assert await queue.cancel(id) is Cancelled.NOT_THERE
    assert len(await queue.failed()) == 1


async def test_the_next_of_a_value_runs_once_the_one_before_it_is_cancelled(
    new_queue: Callable[..., Queue], clock: Clock
) -> None:
    queue = new_queue(poll=3600)
    mail, ends, _ = waits_for_ever(queue, unique=Unique(one_at_a_time=True))
    async with queue.running():
        first = await pushed(mail)
        await clock.pass_time(1)
        second = await pushed(mail)
        await clock.pass_time(1)
        job = await queue.job(second)
        assert job is not None
        assert job.state is JobState.PARKED
        assert await queue.cancel(first) is Cancelled.ASKED
        await clock.pass_time(1)
        assert ends == ["began", "cancelled", "began"]


# Jobs that run.


async def test_a_running_handler_is_cancelled_at_once_and_its_job_removed(
    new_queue: Callable[..., Queue], clock: Clock, seen: list[Ran], lines: Lines
) -> None:
    queue = new_queue(poll=3600)
    mail, ends, failed = waits_for_ever(queue, attempts=1)
    async with queue.running():
        id = await pushed(mail)
        await clock.pass_time(3)
        assert await queue.cancel(id) is Cancelled.ASKED
        job = await queue.job(id)
        assert job is not None
        assert job.stop_asked
        await clock.pass_time(0)
        assert await queue.job(id) is None
        assert await queue.cancel(id) is Cancelled.NOT_THERE
    assert ends == ["began", "cancelled"]
    assert failed == []
    assert [(ran.outcome, ran.job, ran.error, ran.took) for ran in seen] == [
        (Outcome.CANCELLED, id, None, 3.0)
    ]
    assert lines(CANCELLED) == [f"{CANCELLED} kind=mail job={id} attempt=1 took=3.000s"]
    assert lines("a job was asked to stop") == [f"a job was asked to stop job={id}"]


RAISES: list[BaseException] = [
    ValueError("in finally"), Permanent("in finally"), Retry(after=1), Snooze(after=1), SystemExit(1),
    KeyboardInterrupt(), GeneratorExit(),
]  # fmt: skip


@pytest.mark.parametrize("raised", RAISES, ids=[type(each).__name__ for each in RAISES])
@pytest.mark.parametrize("attempts", [1, 5])
async def test_whatever_a_cancelled_handler_raises_its_job_is_removed(
    queue: Queue, clock: Clock, seen: list[Ran], lines: Lines, raised: BaseException, attempts: int
) -> None:
    failed: list[Exception] = []

    @queue.kind("mail", attempts=attempts)
    async def mail(value: Mail) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise raised

    mail.on_fail(lambda value, error: failed.append(error))
    async with queue.running():
        id = await pushed(mail)
        await clock.pass_time(1)
        await queue.cancel(id)
        await clock.pass_time(1)
        assert await queue.job(id) is None
    assert failed == []
    assert [ran.outcome for ran in seen] == [Outcome.CANCELLED]
    assert "err=" in lines(CANCELLED)[0]


async def test_a_cancelled_handler_that_returns_is_done(
    queue: Queue, clock: Clock, seen: list[Ran], lines: Lines
) -> None:
    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    async with queue.running():
        id = await pushed(mail)
        await clock.pass_time(1)
        await queue.cancel(id)
        await clock.pass_time(1)
        assert await queue.job(id) is None
    assert [ran.outcome for ran in seen] == [Outcome.DONE]
    assert lines(CANCELLED) == []


async def test_one_that_swallows_its_cancel_is_cancelled_again_by_its_timeout_and_removed(
    queue: Queue, clock: Clock, seen: list[Ran]
) -> None:
    cancels = 0

    @queue.kind("mail", timeout=30)
    async def mail(value: Mail) -> None:
        nonlocal cancels
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancels += 1
                if cancels == 2:
                    raise

    async with queue.running():
        id = await pushed(mail)
        await clock.pass_time(1)
        assert [await queue.cancel(id), await queue.cancel(id)] == [Cancelled.ASKED] * 2
        await clock.pass_time(1)
        assert cancels == 1, "asked twice, it's cancelled once"
        await clock.pass_time(30)
        assert cancels == 2
        assert await queue.job(id) is None
    assert [ran.outcome for ran in seen] == [Outcome.CANCELLED]


async def test_a_cancel_after_the_timeout_removes_the_job(
    queue: Queue, clock: Clock, seen: list[Ran]
) -> None:
    @queue.kind("mail", timeout=5)
    async def mail(value: Mail) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.shield(asyncio.ensure_future(end.wait()))

    end = asyncio.Event()
    async with queue.running():
        id = await pushed(mail)
        await clock.pass_time(6)
        assert await queue.cancel(id) is Cancelled.ASKED
        end.set()
        await clock.pass_time(1)
        assert await queue.job(id) is None
    assert [ran.outcome for ran in seen] == [Outcome.CANCELLED]


async def test_a_job_that_was_claimed_ahead_and_waits_for_a_worker_never_begins(
    new_queue: Callable[..., Queue], clock: Clock, seen: list[Ran]
) -> None:
    queue = new_queue(workers=2)
    stop = asyncio.Event()
    ran: list[int] = []

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        ran.append(value.user)
        if len(ran) > 400:
            await stop.wait()

    async with queue.running():
        await mail.push_many([Mail(user=n) for n in range(1, 801)])
        while len(ran) < 402:
            await clock.pass_time(0.001)
        *_, ahead = await queue.jobs(mail, JobState.HELD)
        assert int(ahead.id) not in ran, "it was claimed ahead"
        assert await queue.cancel(ahead.id) is Cancelled.ASKED
        await clock.pass_time(0)
        assert await queue.job(ahead.id) is None
        (cancelled,) = [each for each in seen if each.outcome is not Outcome.DONE]
        assert (cancelled.outcome, cancelled.job, cancelled.took) == (Outcome.CANCELLED, ahead.id, 0.0)
        stop.set()
        await clock.pass_time(1)
    assert sorted(ran) == [n for n in range(1, 801) if n != int(ahead.id)]


async def test_a_job_that_is_cancelled_between_its_claim_and_its_start_never_begins(
    queue: Queue, clock: Clock, seen: list[Ran]
) -> None:
    mail, ends, _ = waits_for_ever(queue)
    async with queue.running():
        await clock.pass_time(1)
        life = queue._life
        assert life is not None
        took = life._took

        def claimed(*args: Any) -> None:
            took(*args)
            life.cancel("1")  # its worker has it, and has not begun

        life.feed._took = claimed
        await pushed(mail)
        await clock.pass_time(1)
    assert ends == []
    assert [ran.outcome for ran in seen] == [Outcome.CANCELLED]


async def test_a_job_that_waits_for_its_rates_word_never_begins(
    queue: Queue, clock: Clock, store: Memory, seen: list[Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    mail, ends, _ = waits_for_ever(queue, rate=Throttle(1, per=60, by=lambda value: value.user))
    take, asked = Memory.take, asyncio.Event()
    answer = asyncio.Event()

    async def slow(self: Memory, wanted: Any) -> Any:
        asked.set()
        await answer.wait()
        return await take(self, wanted)

    monkeypatch.setattr(Memory, "take", slow)
    async with queue.running():
        id = await pushed(mail)
        await clock.pass_time(1)
        assert asked.is_set()
        assert await queue.cancel(id) is Cancelled.ASKED
        answer.set()
        await clock.pass_time(1)
        assert await queue.job(id) is None
    assert ends == []
    assert [ran.outcome for ran in seen] == [Outcome.CANCELLED]


class Slow:
    """A limiter that takes its time, and swallows its cancellation or not."""

    def __init__(self, *, deaf: bool) -> None:
        self.deaf = deaf
        self.asked = 0

    async def attempt(self, key: str) -> float:
        self.asked += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not self.deaf:
                raise
        return 0


@pytest.mark.parametrize("deaf", [False, True], ids=["cancelled", "deaf"])
async def test_a_job_whose_limiter_is_being_asked_never_begins(
    queue: Queue, clock: Clock, seen: list[Ran], deaf: bool
) -> None:
    limiter = Slow(deaf=deaf)
    mail, ends, _ = waits_for_ever(queue, rate=limiter)
    async with queue.running():
        id = await pushed(mail)
        await clock.pass_time(1)
        assert limiter.asked == 1
        assert await queue.cancel(id) is Cancelled.ASKED
        await clock.pass_time(1)
        assert await queue.job(id) is None
    assert ends == []
    assert [ran.outcome for ran in seen] == [Outcome.CANCELLED]


# In threads.


async def test_a_def_handler_sees_that_it_is_cancelled_and_what_it_raises_removes_its_job(
    queue: Queue, seen: list[Ran], gate: Gate
) -> None:
    told: list[bool] = []

    @queue.kind("mail", attempts=1)
    def mail(value: Mail) -> None:
        job = current_job()
        told.append(job.cancelled)
        gate.wait()
        told.append(job.cancelled)
        if job.cancelled:
            raise ValueError("stopped")

    async with queue.running():
        id = await pushed(mail)
        await until(lambda: gate.inside)
        assert await queue.cancel(id) is Cancelled.ASKED
        assert not seen, "it can't be stopped, so its worker waits for it"
        gate.open()
        await until(lambda: seen)
        assert await queue.job(id) is None
    assert told == [False, True]
    assert [ran.outcome for ran in seen] == [Outcome.CANCELLED]


async def test_a_def_handler_that_goes_on_and_returns_is_done(
    queue: Queue, seen: list[Ran], gate: Gate
) -> None:
    @queue.kind("mail")
    def mail(value: Mail) -> None:
        gate.wait()

    async with queue.running():
        id = await pushed(mail)
        await until(lambda: gate.inside)
        assert await queue.cancel(id) is Cancelled.ASKED
        gate.open()
        await until(lambda: seen)
    assert [ran.outcome for ran in seen] == [Outcome.DONE]


async def test_a_cancelled_def_handler_is_held_past_its_timeout_as_others_are_and_its_job_removed(
    queue: Queue, clock: Clock, seen: list[Ran], lines: Lines, gate: Gate
) -> None:
    @queue.kind("mail", timeout=5)
    def mail(value: Mail) -> None:
        gate.wait()
        raise ValueError("late")

    async with queue.running():
        id = await pushed(mail)
        await until(lambda: gate.inside)
        await queue.cancel(id)
        await clock.pass_time(6)
        assert lines("a handler goes on in its thread after its timeout")
        assert not seen
        gate.open()
        await until(lambda: seen)
        assert await queue.job(id) is None
    assert [ran.outcome for ran in seen] == [Outcome.CANCELLED]


async def test_a_cancelled_def_handler_that_outlasts_the_stop_is_left_behind_and_its_job_removed(
    new_queue: Callable[..., Queue], seen: list[Ran], gate: Gate
) -> None:
    queue = new_queue(grace=0)

    @queue.kind("mail")
    def mail(value: Mail) -> None:
        gate.wait()

    async with queue.running():
        id = await pushed(mail)
        await until(lambda: gate.inside)
        await queue.cancel(id)
    assert [ran.outcome for ran in seen] == [Outcome.CANCELLED]
    assert await queue.job(id) is None


# The stop.


async def test_a_job_cancelled_as_the_queue_stops_is_removed_and_does_not_run_again(
    new_queue: Callable[..., Queue], clock: Clock, seen: list[Ran]
) -> None:
    queue = new_queue(grace=0)
    told: list[Cancelled] = []

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            told.append(await queue.cancel("1"))  # the stop has cancelled it

    async with queue.running():
        await pushed(mail)
        await clock.pass_time(1)
    assert told == [Cancelled.ASKED]
    assert await queue.job("1") is None
    assert [ran.outcome for ran in seen] == [Outcome.CANCELLED]


async def test_a_cancelled_handler_that_swallows_all_is_left_behind_by_the_stop_and_its_job_removed(
    new_queue: Callable[..., Queue], clock: Clock, seen: list[Ran]
) -> None:
    queue = new_queue(grace=0)
    end = asyncio.Event()

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        while not end.is_set():
            try:
                await end.wait()
            except BaseException:
                continue

    async with queue.running():
        id = await pushed(mail)
        await clock.pass_time(1)
        await queue.cancel(id)
    end.set()
    assert await queue.job(id) is None
    assert [ran.outcome for ran in seen] == [Outcome.CANCELLED]


# done_in, drains, and what else races.


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    """The app's own database."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/app.db")
    fastjobs.sqlite.configure(engine)
    yield engine
    await engine.dispose()


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "rolled back"])
async def test_a_handler_cancelled_after_its_done_in_is_done_where_that_was_committed_and_else_removed(
    queue: Queue, clock: Clock, engine: AsyncEngine, seen: list[Ran], committed: bool
) -> None:
    reached = asyncio.Event()

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        async with engine.begin() as connection:
            await current_job().done_in(connection)
            if not committed:
                reached.set()
                await asyncio.Event().wait()
        reached.set()
        await asyncio.Event().wait()

    async with queue.running():
        id = await pushed(mail)
        await clock.pass_time(0)
        await reached.wait()
        # A transaction has the job, or it's gone with it: only a cancel by its hold's renewal comes so late.
        assert await queue.cancel(id) is (Cancelled.NOT_THERE if committed else Cancelled.BUSY)
        life = queue._life
        assert life is not None
        life.cancel(id)
        await until(lambda: seen)
        assert await queue.job(id) is None
    assert [ran.outcome for ran in seen] == [Outcome.DONE if committed else Outcome.CANCELLED]


@asynccontextmanager
async def _busy(store: Memory, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[None]:
    async def cancel(self: Memory, ids: Sequence[str]) -> list[Cancelled]:
        return [Cancelled.BUSY for _ in ids]

    with monkeypatch.context() as patched:
        patched.setattr(Memory, "cancel", cancel)
        yield


async def test_a_job_that_a_transaction_has_is_busy_and_goes_on(
    queue: Queue, clock: Clock, store: Memory, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    mail, ends, _ = waits_for_ever(queue)
    async with queue.running():
        id = await pushed(mail)
        await clock.pass_time(1)
        async with _busy(store, monkeypatch):
            assert await queue.cancel(id) is Cancelled.BUSY
        await clock.pass_time(5)
        assert ends == ["began"]
    assert lines("a job was asked") == []


async def test_a_cancel_that_meets_the_end_of_its_job_changes_nothing(
    queue: Queue, clock: Clock, store: Memory, seen: list[Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    mark, reached, go = Memory.mark, asyncio.Event(), asyncio.Event()

    async def slow(self: Memory, marks: Sequence[Mark]) -> list[Kept]:
        reached.set()
        await go.wait()
        return await mark(self, marks)

    monkeypatch.setattr(Memory, "mark", slow)
    async with queue.running():
        id = await pushed(mail)
        await clock.pass_time(1)
        assert reached.is_set()
        assert await queue.cancel(id) is Cancelled.ASKED, "it was held still"
        go.set()
        await clock.pass_time(1)
        assert await queue.cancel(id) is Cancelled.NOT_THERE
    assert [ran.outcome for ran in seen] == [Outcome.DONE]


async def test_a_cancel_stops_what_a_drain_runs_in_this_process(
    queue: Queue, clock: Clock, seen: list[Ran]
) -> None:
    mail, ends, failed = waits_for_ever(queue)
    id = await pushed(mail)
    draining = asyncio.ensure_future(queue.drain())
    await clock.pass_time(1)
    assert await queue.cancel(id) is Cancelled.ASKED
    assert await draining == 1
    assert (ends, failed) == (["began", "cancelled"], [])
    assert [ran.outcome for ran in seen] == [Outcome.CANCELLED]
    assert await queue.job(id) is None

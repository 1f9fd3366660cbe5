"""A paused kind starts nothing, on any instance, until it's resumed; what runs goes on, and pushes are kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from fastjobs import Memory, Outcome, Queue, QueueError, Ran, SQLStore
from fastjobs.core.request_id import current
from fastjobs.testing import Clock
from tests.runtime.conftest import Mail

pytestmark = pytest.mark.anyio
Lines = Callable[[str], list[str]]


async def test_a_paused_kind_is_not_claimed_on_any_instance_until_it_is_resumed(
    new_queue: Callable[..., Queue], clock: Clock, seen: list[Ran]
) -> None:
    queues = [new_queue(poll=1), new_queue(poll=1)]
    end = asyncio.Event()

    async def run(value: Mail) -> None:
        if value.user == 0:
            await end.wait()

    kinds = [queue.kind("mail")(run) for queue in queues]
    for queue in queues:
        queue.kind("other")(run)
    async with queues[0].running(), queues[1].running():
        await kinds[0].push(Mail(user=0))
        await clock.pass_time(1)
        await queues[1].pause("mail")
        end.set()
        await clock.pass_time(1)
        assert [ran.outcome for ran in seen] == [Outcome.DONE], "what runs goes on"
        waits = await kinds[1].push(Mail(user=1))
        await queues[0].kinds["other"].push(Mail(user=1))
        await clock.pass_time(30)
        assert [ran.kind for ran in seen] == ["mail", "other"]
        job = await queues[0].job(waits or "")
        assert job is not None
        assert job.why == "its kind is paused, until it's resumed: fastjobs resume QUEUE mail"
        assert [each.paused for each in await queues[0].counts()] == [True, False]
        await queues[0].resume(kinds[0])
        await clock.pass_time(0.5)
        assert [ran.kind for ran in seen] == ["mail", "other", "mail"]


async def test_a_resume_starts_what_is_due_at_once(new_queue: Callable[..., Queue], clock: Clock) -> None:
    queue = new_queue(poll=3600)
    ran: list[int] = []

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        ran.append(value.user)

    async with queue.running():
        await queue.pause(mail)
        await mail.push(Mail(user=1))
        await clock.pass_time(1)
        assert ran == []
        await queue.resume(mail)
        await clock.pass_time(0.1)
        assert ran == [1]


async def test_a_pause_holds_through_a_restart(new_queue: Callable[..., Queue], clock: Clock) -> None:
    for pauses in (True, False):
        queue = new_queue()

        @queue.kind("mail")
        async def mail(value: Mail) -> None: ...

        async with queue.running():
            await clock.pass_time(1)
            if pauses:
                await queue.pause(mail)
                await mail.push(Mail(user=1))
            await clock.pass_time(60)
            assert [each.due for each in await queue.counts()] == [1]


async def test_pausing_twice_and_resuming_what_is_not_paused_are_no_mistakes(queue: Queue) -> None:
    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    await queue.resume(mail)
    await queue.pause(mail)
    await queue.pause(mail)
    await queue.resume(mail)
    await mail.push(Mail(user=1))
    assert await queue.drain() == 1


async def test_who_paused_and_resumed_is_told_in_the_log(queue: Queue, lines: Lines) -> None:
    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    current.set("req-7")
    await queue.pause(mail)
    await queue.resume("mail")
    assert lines("a kind was") == [
        "a kind was paused kind=mail request_id=req-7",
        "a kind was resumed kind=mail request_id=req-7",
    ]


@pytest.mark.parametrize("act", ["pause", "resume"])
async def test_a_kind_that_there_is_not_is_refused_and_those_there_are_named(
    new_queue: Callable[..., Queue], act: str, lines: Lines
) -> None:
    queue, other = new_queue(), new_queue()

    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    @other.kind("theirs")
    async def theirs() -> None: ...

    await theirs.push()
    with pytest.raises(QueueError, match=rf"no kind 'mial' to {act}; there are: mail, theirs\Z"):
        await getattr(queue, act)("mial")
    assert lines("a kind was") == []
    await getattr(queue, act)("theirs")  # that this queue has no handler of it is no matter


async def test_a_queue_with_no_kinds_says_that_there_are_none() -> None:
    with pytest.raises(QueueError, match=r"there are: none\Z"):
        await Queue(Memory()).pause("mail")


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Callable[[], SQLStore]]:
    engine = create_engine(f"sqlite:///{tmp_path}/app.db")
    yield lambda: SQLStore(engine)
    engine.dispose()


async def test_a_kind_is_paused_in_a_new_database_before_any_queue_ran(
    database: Callable[[], SQLStore],
) -> None:
    stores = [database(), database()]
    queues = [Queue(store) for store in stores]
    ran: list[int] = []

    async def run(value: Mail) -> None:
        ran.append(value.user)

    kinds = [queue.kind("mail")(run) for queue in queues]
    await queues[0].pause(kinds[0])
    await kinds[1].push(Mail(user=1))
    assert await queues[1].drain() == 0
    await queues[1].resume("mail")
    assert await queues[0].drain() == 1
    for store in stores:
        await store.close()

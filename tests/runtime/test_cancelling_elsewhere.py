"""A cancel by another instance is heard of in time, and before the end of a job is marked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest

from fastjobs import Cancelled, Memory, Outcome, Permanent, Queue, Ran, Retry, Snooze
from fastjobs.testing import Clock
from tests.runtime.conftest import Mail
from tests.runtime.faulty import Down
from tests.runtime.test_cancelling import pushed, waits_for_ever
from tests.runtime.test_threads import until

pytestmark = pytest.mark.anyio
Lines = Callable[[str], list[str]]


async def test_another_instance_hears_of_a_cancel_within_two_seconds_and_a_half(
    new_queue: Callable[..., Queue], clock: Clock, seen: list[Ran]
) -> None:
    queue, other = new_queue(), new_queue()
    mail, ends, _ = waits_for_ever(queue)
    for at in (0.1, 0.7, 1.3, 1.9):
        ends.clear()
        async with queue.running():
            await clock.pass_time(at)
            id = await pushed(mail)
            await clock.pass_time(0.01)
            assert await other.cancel(id) is Cancelled.ASKED
            await clock.pass_time(2.5)
            assert ends == ["began", "cancelled"]
            assert await other.job(id) is None
    assert [ran.outcome for ran in seen] == [Outcome.CANCELLED] * 4


async def test_another_instance_hears_of_a_cancel_by_its_renewal_where_it_cannot_look(
    new_queue: Callable[..., Queue], clock: Clock, seen: list[Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, other = new_queue(poll=3600, hold=30), new_queue()
    mail, ends, _ = waits_for_ever(queue)
    async with queue.running():
        id = await pushed(mail)
        await clock.pass_time(5)
        assert await other.cancel(id) is Cancelled.ASKED
        await clock.pass_time(4)
        assert ends == ["began"]
        await clock.pass_time(2)
        assert ends == ["began", "cancelled"]
    assert [ran.outcome for ran in seen] == [Outcome.CANCELLED]


async def test_a_queue_of_short_jobs_asks_for_no_cancels_and_an_idle_one_neither(
    queue: Queue, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[list[str]] = []
    asked = Memory.asked

    async def told(self: Memory, held: Sequence[tuple[str, int]]) -> set[str]:
        looks.append([id for id, _ in held])
        return await asked(self, held)

    monkeypatch.setattr(Memory, "asked", told)

    @queue.kind("short")
    async def short() -> None: ...

    mail, _, _ = waits_for_ever(queue)
    async with queue.running():
        for _ in range(10):
            await short.push()
            await clock.pass_time(1)
        assert looks == []
        id = await pushed(mail)
        await clock.pass_time(10.1)
        assert looks == [[id]] * 5
        await queue.cancel(id)
        await clock.pass_time(10)
        assert len(looks) == 5


async def test_a_store_that_fails_as_it_is_asked_for_cancels_is_asked_again(
    new_queue: Callable[..., Queue], clock: Clock, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, other = new_queue(), new_queue()
    mail, ends, _ = waits_for_ever(queue)
    asked, down = Memory.asked, True

    async def fails(self: Memory, held: Sequence[tuple[str, int]]) -> set[str]:
        if down:
            raise Down("asked: the database is down")
        return await asked(self, held)

    monkeypatch.setattr(Memory, "asked", fails)
    async with queue.running():
        id = await pushed(mail)
        await clock.pass_time(1)
        await other.cancel(id)
        await clock.pass_time(9)
        assert ends == ["began"]
        down = False
        await clock.pass_time(2)
        assert ends == ["began", "cancelled"]
    assert len(lines("the store failed, and is asked again part=cancels")) == 1
    assert len(lines("the store answers again part=cancels")) == 1


@pytest.mark.parametrize(
    "raised",
    [ValueError("of itself"), Permanent("of itself"), Snooze(after=5), Retry(after=5)],
    ids=["retried", "failed", "snoozed", "retry"],
)
async def test_a_job_that_ends_badly_before_its_instance_has_heard_of_a_cancel_is_removed_all_the_same(
    queue: Queue, clock: Clock, store: Memory, seen: list[Ran], raised: Exception
) -> None:
    failed: list[Exception] = []

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        await store.cancel(["1"])  # by another instance, as far as this queue knows
        raise raised

    mail.on_fail(lambda value, error: failed.append(error))
    async with queue.running():
        await pushed(mail)
        await clock.pass_time(1)
        assert await queue.job("1") is None
    assert [ran.outcome for ran in seen] == [Outcome.CANCELLED]
    assert failed == []


async def test_a_mark_is_kept_where_the_store_fails_as_it_is_asked_for_cancels_before_it(
    queue: Queue, clock: Clock, seen: list[Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(self: Memory, held: Sequence[tuple[str, int]]) -> set[str]:
        raise Down("asked: the database is down")

    monkeypatch.setattr(Memory, "asked", fails)

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        raise Permanent("no")

    async with queue.running():
        await pushed(mail)
        await clock.pass_time(1)
    assert [ran.outcome for ran in seen] == [Outcome.FAILED]


async def test_a_job_given_back_by_a_stop_just_after_another_instance_cancelled_it_is_removed(
    new_queue: Callable[..., Queue], clock: Clock, store: Memory, seen: list[Ran]
) -> None:
    queue = new_queue(grace=0)
    mail, ends, _ = waits_for_ever(queue)
    async with queue.running():
        id = await pushed(mail)
        await clock.pass_time(1)
        assert await store.cancel([id]) == [Cancelled.ASKED], "and nobody has told this queue"
    assert ends[0] == "began"
    assert await queue.job(id) is None
    assert [ran.outcome for ran in seen] == [Outcome.CANCELLED]


async def test_a_drain_hears_of_a_cancel_by_another_instance(
    new_queue: Callable[..., Queue], clock: Clock, seen: list[Ran]
) -> None:
    queue, other = new_queue(), new_queue()
    mail, _, _ = waits_for_ever(queue)
    id = await pushed(mail)
    draining = asyncio.ensure_future(queue.drain())
    await clock.pass_time(1)
    assert await other.cancel(id) is Cancelled.ASKED
    await clock.pass_time(2)
    assert await draining == 1
    assert [ran.outcome for ran in seen] == [Outcome.CANCELLED]


async def test_a_job_that_fails_in_a_drain_just_after_it_was_cancelled_is_removed(
    queue: Queue, store: Memory, seen: list[Ran]
) -> None:
    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        await store.cancel(["1"])
        raise ValueError("of itself")

    await pushed(mail)
    assert await queue.drain() == 1
    assert [ran.outcome for ran in seen] == [Outcome.CANCELLED]
    assert await queue.job("1") is None


async def test_a_cancel_from_a_thread_stops_a_handler_on_the_queues_loop(
    queue: Queue, clock: Clock, seen: list[Ran]
) -> None:
    mail, ends, _ = waits_for_ever(queue)
    answers: list[Cancelled] = []
    async with queue.running():
        id = await pushed(mail)
        await clock.pass_time(1)

        def elsewhere() -> None:
            answers.append(asyncio.run(queue.cancel(id)))  # on a loop of its own

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await until(lambda: seen)
        thread.join()
        assert ends == ["began", "cancelled"]
    assert answers == [Cancelled.ASKED]

"""Holds: renewed while a job runs, lost with a worker, and never two at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from fastjobs import LostWorker, Memory, Outcome, Queue, Ran, current_job
from fastjobs.core.duration import SECOND, instant
from fastjobs.core.exhausted import exhausted_text
from fastjobs.store import Claimable
from fastjobs.testing import Clock
from tests.runtime.conftest import Mail
from tests.runtime.faulty import Unsteady

pytestmark = pytest.mark.anyio
Lines = Callable[[str], list[str]]


def _kind(name: str, attempts: int = 10, hold: float = 2) -> Claimable:
    return Claimable(kind=name, hold=int(hold * 1_000_000), attempts=attempts)


async def _lose(store: Memory, clock: Clock, kind: str) -> None:
    """Claims a job as a worker that is then killed does."""
    claimed = await store.claim([_kind(kind)], 1)
    assert len(claimed.jobs) == 1
    clock.advance(2)


async def test_a_hold_is_renewed_while_the_job_runs_and_by_a_third_of_its_own_hold(
    new_queue: Callable[..., Queue], clock: Clock
) -> None:
    store = Unsteady(clock=clock)
    queue, other = new_queue(store=store, hold=3, workers=1), new_queue(store=store)
    end = asyncio.Event()

    @queue.kind("long", timeout=3600)
    async def long() -> None:
        await end.wait()

    @other.kind("long")
    async def taken() -> None:
        raise AssertionError("two claims had it at once")

    async with queue.running():
        await long.push()
        for _ in range(100):
            await clock.pass_time(0.5)
            assert await other.drain() == 0
        assert 45 <= store.calls["extend"] <= 51
        end.set()
        await clock.pass_time(0)
    assert await other.drain() == 0


async def test_a_kind_with_a_short_timeout_has_a_short_hold_beside_one_that_runs_for_hours(
    new_queue: Callable[..., Queue], clock: Clock
) -> None:
    queue = new_queue()
    held: dict[str, float] = {}

    async def look() -> None:
        job = await queue.job(current_job().id)
        assert job is not None
        assert job.held_until is not None
        held[job.kind] = instant(job.held_until) / SECOND - clock.now() / SECOND

    short, hours = queue.kind("short", timeout=1)(look), queue.kind("hours", timeout=7200)(look)
    queue.fallback(timeout=20)(look)
    other = new_queue().kind("other")(look)
    for each in (short, hours, other):
        await each.push()
    await queue.drain()
    assert held == {"short": 16, "hours": 120, "other": 35}


async def test_a_job_whose_worker_was_killed_runs_again_once_its_hold_is_over(
    queue: Queue, clock: Clock, store: Memory
) -> None:
    attempts: list[int] = []

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        attempts.append(current_job().attempt)

    await mail.push(Mail(user=1))
    await store.claim([_kind("mail")], 1)
    async with queue.running():
        await clock.pass_time(1.9)
        assert attempts == []
        await clock.pass_time(1.2)
    assert attempts == [2]


async def test_a_job_that_keeps_killing_its_process_fails_with_lost_worker_and_its_on_fail_runs(
    queue: Queue, clock: Clock, store: Memory, seen: list[Ran], lines: Lines
) -> None:
    told: list[Exception] = []

    @queue.kind("poison", attempts=3)
    async def poison(value: Mail) -> None:
        raise AssertionError("its attempts are used up")

    @poison.on_fail
    async def tell(value: Mail, error: Exception) -> None:
        told.append(error)

    await poison.push(Mail(user=1))
    for _ in range(3):
        await _lose(store, clock, "poison")
    async with queue.running():
        await clock.pass_time(1)
    (error,) = told
    assert isinstance(error, LostWorker)
    assert str(error) == "lost its worker 3 times, the last in attempt 3 of 3"
    assert [(ran.outcome, ran.attempt) for ran in seen] == [(Outcome.FAILED, 3)]
    assert len(await store.failed()) == 1
    assert len(lines("a job failed for good")) == 1


async def test_a_drain_runs_the_on_fail_of_a_job_that_a_claim_failed(
    queue: Queue, clock: Clock, store: Memory
) -> None:
    told: list[str] = []

    @queue.kind("poison", attempts=1)
    async def poison() -> None: ...

    @poison.on_fail
    async def tell(error: Exception) -> None:
        told.append(str(error))

    await poison.push()
    await _lose(store, clock, "poison")
    assert await queue.drain() == 0
    assert told == ["lost its worker once, the last in attempt 1 of 1"]


async def test_a_job_over_its_kinds_lowered_attempts_says_so_rather_than_that_its_worker_was_lost(
    new_queue: Callable[..., Queue], clock: Clock, store: Memory
) -> None:
    before, after = new_queue(), new_queue()
    told: list[Exception] = []

    @before.kind("mail", backoff=0)
    async def mail(value: Mail) -> None:
        raise Snag("no answer")

    @after.kind("mail", attempts=1)
    async def fewer(value: Mail) -> None: ...

    @fewer.on_fail
    async def tell(value: Mail, error: Exception) -> None:
        told.append(error)

    await mail.push(Mail(user=1))
    async with before.running():
        await clock.pass_time(0, turns=2)
    clock.advance(1)
    await after.drain()
    (error,) = told
    assert not isinstance(error, LostWorker)
    assert "its kind has 1 attempts now" in str(error)
    assert "no answer" in str(error)


class Snag(Exception):
    pass


async def test_a_handler_whose_claim_is_gone_is_cancelled_and_its_end_changes_nothing(
    new_queue: Callable[..., Queue], clock: Clock, seen: list[Ran], lines: Lines
) -> None:
    store = Unsteady(clock=clock)
    queue, other = new_queue(store=store, hold=3, workers=1), new_queue(store=store)
    ends: list[str] = []

    @queue.kind("long", timeout=600)
    async def long() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("cancelled")

    @other.kind("long", attempts=5)
    async def taken() -> None:
        ends.append(f"attempt {current_job().attempt}")
        raise Snag("once")

    async with queue.running():
        await long.push()
        await clock.pass_time(0.1)
        store.before.add("extend")  # as a process that is frozen sends none
        await clock.pass_time(3)
        assert await other.drain() == 1
        store.before.clear()
        await clock.pass_time(1)
    assert ends == ["attempt 2", "cancelled"]
    assert len(lines("a job's claim is gone")) == 1
    assert [ran.attempt for ran in seen] == [2], "the run that lost its claim isn't observed"


async def test_a_row_that_someones_transaction_has_is_renewed_later_and_its_handler_goes_on(
    new_queue: Callable[..., Queue], clock: Clock, seen: list[Ran]
) -> None:
    store = Unsteady(clock=clock)
    queue = new_queue(store=store, hold=10, workers=1)
    end = asyncio.Event()

    @queue.kind("long", timeout=600)
    async def long() -> None:
        await end.wait()

    async with queue.running():
        await long.push()
        await clock.pass_time(3)
        store.busy = 3
        await clock.pass_time(20)
        end.set()
        await clock.pass_time(0)
    assert [ran.outcome for ran in seen] == [Outcome.DONE]


def test_what_a_claim_failed_is_told_by_how_its_attempts_went() -> None:
    assert exhausted_text(4, 2, "ValueError: once", 4) == (
        "LostWorker: lost its worker 2 times, the last in attempt 4 of 4; before that: ValueError: once"
    )
    assert exhausted_text(5, 0, None, 3) == "OutOfAttempts: its kind has 3 attempts now, and it has used 5"

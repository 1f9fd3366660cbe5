"""A cancel that was asked of a claim holds for the next: the job never starts again, whatever became of the claim."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from fastjobs import Cancelled, Memory, Outcome, Queue, Ran, Retry, Snooze, Throttle, Unique
from fastjobs.core.claiming import Claimable
from fastjobs.testing import Clock
from tests.runtime.conftest import Mail
from tests.runtime.test_cancelling import CANCELLED, waits_for_ever

pytestmark = pytest.mark.anyio
Lines = Callable[[str], list[str]]

AGAIN = "a job runs again"


class Open:
    """A limiter that lets all go, and counts them."""

    def __init__(self) -> None:
        self.asked = 0

    async def attempt(self, key: str) -> float:
        self.asked += 1
        return 0


OPTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "plain": dict,
    "rate": lambda: {"rate": Throttle(1, per=3600)},
    "rate by value": lambda: {"rate": Throttle(1, per=3600, by=lambda value: value.user)},
    "limiter": lambda: {"rate": Open()},
    "at once": lambda: {"at_once": 1},
    "one at a time": lambda: {"unique": Unique(one_at_a_time=True)},
}
options = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())


async def cancelled_in_a_lost_claim(store: Memory, clock: Clock, *ids: str) -> None:
    """Has a worker claim these, that is asked to stop them and then killed."""
    claimed = await store.claim([Claimable(kind="mail", hold=1_000_000, attempts=9)], len(ids))
    assert sorted(job.id for job in claimed.jobs) == sorted(ids)
    assert await store.cancel(ids) == [Cancelled.ASKED] * len(ids)
    clock.advance(2)


@options
async def test_a_job_whose_worker_died_before_it_heard_of_a_cancel_is_removed_and_not_run(
    queue: Queue, store: Memory, clock: Clock, seen: list[Ran], lines: Lines, options: Callable[[], Any]
) -> None:
    chosen = options()
    mail, ends, failed = waits_for_ever(queue, **chosen)
    id = await mail.push(Mail(user=1))
    assert id is not None
    await cancelled_in_a_lost_claim(store, clock, id)
    async with queue.running():
        await clock.pass_time(2)
        assert await queue.job(id) is None
        next_id = await mail.push(Mail(user=1))
        await clock.pass_time(2)
        assert ends == ["began"], "the place of a job that was cancelled is not its kind's next's"
        assert await queue.cancel(next_id or "") is Cancelled.ASKED
        await clock.pass_time(1)
    assert [(ran.outcome, ran.job, ran.attempt, ran.took) for ran in seen[:1]] == [
        (Outcome.CANCELLED, id, 2, 0.0)
    ]
    assert failed == []
    assert lines(CANCELLED)[0] == f"{CANCELLED} kind=mail job={id} attempt=2 took=0.000s"
    assert lines(AGAIN) == []
    if isinstance(chosen.get("rate"), Open):
        assert chosen["rate"].asked == 1, "it was asked for a job that doesn't start"


@options
async def test_a_drain_removes_it_and_counts_it_not_as_run(
    queue: Queue, store: Memory, clock: Clock, seen: list[Ran], options: Callable[[], Any]
) -> None:
    ran: list[int] = []

    @queue.kind("mail", **options())
    async def mail(value: Mail) -> None:
        ran.append(value.user)

    id = await mail.push(Mail(user=1))
    assert id is not None
    await cancelled_in_a_lost_claim(store, clock, id)
    await mail.push(Mail(user=1))
    assert await queue.drain() == 1
    assert ran == [1]
    assert [ran.outcome for ran in seen] == [Outcome.CANCELLED, Outcome.DONE]
    assert await queue.job(id) is None


def crunch(value: Mail) -> None:
    raise AssertionError("it was cancelled")


@pytest.mark.parametrize("process", [False, True])
async def test_one_that_would_run_in_a_thread_or_a_process_is_removed_too(
    queue: Queue, store: Memory, clock: Clock, seen: list[Ran], process: bool
) -> None:
    mail = queue.kind("mail", process=process)(crunch)
    id = await mail.push(Mail(user=1))
    assert id is not None
    await cancelled_in_a_lost_claim(store, clock, id)
    async with queue.running():
        await clock.pass_time(2)
    assert [ran.outcome for ran in seen] == [Outcome.CANCELLED]


async def test_the_fallback_is_not_given_one_that_was_cancelled(
    queue: Queue, store: Memory, clock: Clock, seen: list[Ran]
) -> None:
    given: list[str] = []

    @queue.fallback
    async def rest(value: Any) -> None:
        given.append("one")

    other = Queue(store, clock=clock)

    @other.kind("mail")
    async def mail(value: Mail) -> None: ...

    id = await mail.push(Mail(user=1))
    assert id is not None
    await cancelled_in_a_lost_claim(store, clock, id)
    async with queue.running():
        await clock.pass_time(2)
    assert given == []
    assert [ran.outcome for ran in seen] == [Outcome.CANCELLED]


async def test_many_that_were_cancelled_keep_no_other_from_running(
    new_queue: Callable[..., Queue], store: Memory, clock: Clock, seen: list[Ran]
) -> None:
    """Claimed for free workers and ahead of them."""
    queue = new_queue(workers=2)
    ran: list[int] = []

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        ran.append(value.user)

    ids = [id for id in await mail.push_many([Mail(user=0)] * 1200) if id is not None]
    await cancelled_in_a_lost_claim(store, clock, *ids)
    await mail.push_many([Mail(user=n) for n in range(600)])
    async with queue.running():
        for _ in range(100):
            await clock.pass_time(0.1)
    assert sorted(ran) == [*range(600)]
    outcomes = [ran.outcome for ran in seen]
    assert (outcomes.count(Outcome.CANCELLED), outcomes.count(Outcome.DONE)) == (1200, 600)


@pytest.mark.parametrize("raised", [ValueError(), Retry(after=3600), Snooze(after=3600)], ids=type)
async def test_a_job_that_was_put_back_before_its_instance_heard_of_a_cancel_is_removed_within_a_poll(
    new_queue: Callable[..., Queue],
    clock: Clock,
    seen: list[Ran],
    raised: Exception,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def deaf(self: Memory, held: Sequence[tuple[str, int]]) -> set[str]:
        return set()

    monkeypatch.setattr(Memory, "asked", deaf)
    queue, other = new_queue(), new_queue()
    starts: list[int] = []
    fail = asyncio.Event()

    @queue.kind("mail", backoff=3600)
    async def mail(value: Mail) -> None:
        starts.append(value.user)
        await fail.wait()
        raise raised

    async with queue.running():
        id = await mail.push(Mail(user=1))
        assert id is not None
        await clock.pass_time(1)
        assert await other.cancel(id) is Cancelled.ASKED
        fail.set()
        await clock.pass_time(2)
        assert await queue.job(id) is None
    assert starts == [1]
    assert [ran.outcome for ran in seen][1:] == [Outcome.CANCELLED]


async def test_why_says_that_the_next_claim_removes_it_and_another_cancel_does_so_at_once(
    queue: Queue, store: Memory, clock: Clock, seen: list[Ran]
) -> None:
    mail, ends, _ = waits_for_ever(queue)
    id = await mail.push(Mail(user=1))
    assert id is not None
    await cancelled_in_a_lost_claim(store, clock, id)
    await queue.pause(mail)

    async def why() -> str:
        job = await queue.job(id or "")
        assert job is not None
        assert job.stop_asked
        return job.why

    lost = await why()
    assert lost.startswith("its worker was lost: ")
    assert lost.endswith(", and the next claim removes it, as it's cancelled")
    async with queue.running():
        await clock.pass_time(2)
        assert await why() == (
            "it's cancelled: the next claim removes it; and its kind is paused: fastjobs resume QUEUE mail"
        )
        assert await queue.cancel(id) is Cancelled.REMOVED
        assert await queue.job(id) is None
    assert (ends, seen) == ([], [])


async def test_one_whose_attempts_are_used_up_is_kept_as_failed(
    queue: Queue, store: Memory, clock: Clock, seen: list[Ran]
) -> None:
    mail, ends, failed = waits_for_ever(queue, attempts=1)
    id = await mail.push(Mail(user=1))
    assert id is not None
    await cancelled_in_a_lost_claim(store, clock, id)
    async with queue.running():
        await clock.pass_time(2)
        assert [job.id for job in await queue.failed()] == [id]
        assert [ran.outcome for ran in seen] == [Outcome.FAILED]
        assert (ends, len(failed)) == ([], 1)
        assert await queue.run_again(id) == 1
        await clock.pass_time(2)
        assert ends == ["began"], "what is run again is cancelled no more"

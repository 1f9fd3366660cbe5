"""The fallback: what handles the jobs of kinds that have no handler."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import pytest
from fastapi import Depends

from fastjobs import (
    CarryRequestID,
    JobState,
    Memory,
    Outcome,
    Permanent,
    Queue,
    QueueError,
    Ran,
    RegistrationError,
    Snooze,
    Throttle,
    Unique,
    current_job,
    request_id,
)
from fastjobs.core.request_id import current
from fastjobs.runtime.living import live
from fastjobs.store import Claimable
from fastjobs.testing import Clock
from tests.runtime.conftest import Mail

pytestmark = pytest.mark.anyio

NewQueue = Callable[..., Queue]
Lines = Callable[[str], list[str]]


@pytest.fixture
def pushes(new_queue: NewQueue) -> Queue:
    """Another queue on the same store, whose kinds the tested one has no handlers for."""
    return new_queue(observe=None)


async def test_it_handles_the_jobs_of_kinds_that_have_no_handler(
    queue: Queue, pushes: Queue, clock: Clock, seen: list[Ran]
) -> None:
    got: list[tuple[str, Any, int]] = []

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        got.append(("its own", value, current_job().attempt))

    @queue.fallback
    async def unknown(value: Any) -> None:
        got.append((current_job().kind, value, current_job().attempt))

    @pushes.kind("photo")
    async def photo(value: Mail) -> None: ...

    @pushes.kind("tick")
    async def tick() -> None: ...

    async with queue.running():
        await mail.push(Mail(user=1))
        await photo.push(Mail(user=2))
        await tick.push(after=1)
        await clock.pass_time(2)
    wanted = [("its own", Mail(user=1), 1), ("photo", {"user": 2}, 1), ("tick", None, 1)]
    assert sorted(got, key=lambda each: each[0]) == wanted
    assert [(ran.kind, ran.outcome) for ran in seen[-1:]] == [("tick", Outcome.DONE)]


async def test_a_drain_has_it_too(queue: Queue, pushes: Queue) -> None:
    got: list[Any] = []

    @queue.fallback
    def unknown(value: Any) -> None:
        got.append((value, threading.current_thread() is threading.main_thread()))

    @pushes.kind("photo")
    async def photo(n: int) -> None: ...

    await photo.push_many([1, 2])
    assert await queue.drain() == 2
    assert got == [(1, False), (2, False)], "a plain def runs in a thread"
    assert await queue.jobs("photo") == []


async def test_without_one_such_jobs_are_left_to_others(queue: Queue, pushes: Queue) -> None:
    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    @pushes.kind("photo")
    async def photo(n: int) -> None: ...

    await photo.push(1)
    assert await queue.drain() == 0
    assert not queue.has_fallback


async def test_it_may_take_no_value_or_one_of_a_type(
    queue: Queue, new_queue: NewQueue, pushes: Queue, store: Memory
) -> None:
    got: list[Any] = []

    @queue.fallback
    async def unknown() -> None:
        got.append(current_job().kind)

    typed = new_queue()

    @typed.fallback
    async def mails(value: Mail) -> None:
        got.append(value)

    @pushes.kind("photo")
    async def photo(value: dict[str, int]) -> None: ...

    await photo.push({"user": 1})
    assert await queue.drain() == 1
    await photo.push_many([{"user": 2}, {"size": 3}])
    assert await typed.drain() == 2
    assert got == ["photo", Mail(user=2)]
    (failed,) = await store.failed()
    assert failed.attempts == 1, "a payload that doesn't fit fails at once"
    assert failed.error is not None
    assert "at user: Field required" in failed.error


async def test_its_options_are_those_of_a_kind(
    queue: Queue, pushes: Queue, clock: Clock, store: Memory, lines: Lines
) -> None:
    at: list[float] = []

    @queue.fallback(attempts=3, backoff=lambda attempt: 10 * attempt, permanent=KeyError, timeout=5)
    async def unknown(n: int) -> None:
        at.append(clock.monotonic())
        match n:
            case 1:
                raise ValueError("no")
            case 2:
                raise KeyError("never")
            case 3:
                raise Permanent("never")
            case _:
                await asyncio.Event().wait()

    @pushes.kind("photo")
    async def photo(n: int) -> None: ...

    async with queue.running():
        await photo.push(1)
        await clock.pass_time(40)
        assert at == [0, pytest.approx(10, abs=0.01), pytest.approx(30, abs=0.02)]
        await photo.push_many([2, 3])
        await clock.pass_time(1)
        await photo.push(4)
        await clock.pass_time(6)
    failed = {
        job.payload: (job.attempts, (job.error or "").partition(" [")[0]) for job in await store.failed()
    }
    assert failed == {
        "1": (3, "ValueError: no"),
        "2": (1, "KeyError: 'never'"),
        "3": (1, "Permanent: never"),
    }
    assert "ran over its timeout of 5 s" in lines("a job failed, and will run again")[-1]
    assert "kind=photo" in lines("a job failed for good")[0]


async def test_a_snooze_of_it_is_no_attempt(queue: Queue, pushes: Queue, clock: Clock) -> None:
    attempts: list[int] = []

    @queue.fallback(attempts=1)
    async def unknown() -> None:
        attempts.append(current_job().attempt)
        if len(attempts) == 1:
            raise Snooze(after=10)

    @pushes.kind("photo")
    async def photo() -> None: ...

    await photo.push()
    assert await queue.drain() == 1
    clock.advance(11)
    assert await queue.drain() == 1
    assert attempts == [1, 1]


async def test_its_priority_counts_beside_the_kinds(queue: Queue, pushes: Queue) -> None:
    order: list[str] = []

    @queue.kind("first", priority=2)
    async def first() -> None:
        order.append("first")

    @queue.kind("last")
    async def last() -> None:
        order.append("last")

    @queue.fallback(priority=1)
    async def unknown() -> None:
        order.append(current_job().kind)

    @pushes.kind("photo")
    async def photo() -> None: ...

    for kind in (last, photo, first):
        await kind.push()
    await queue.drain()
    assert order == ["first", "photo", "last"]


@pytest.mark.parametrize("runs", ["running", "drain"])
async def test_a_job_that_kept_losing_its_worker_is_failed_and_stops_nothing(
    queue: Queue, pushes: Queue, store: Memory, clock: Clock, seen: list[Ran], runs: str
) -> None:
    got: list[str] = []

    @queue.fallback(attempts=1)
    async def unknown() -> None:
        got.append(current_job().kind)

    @pushes.kind("photo")
    async def photo() -> None: ...

    await photo.push()
    assert len((await store.claim([Claimable(kind="photo", hold=1_000_000, attempts=9)], 1)).jobs) == 1
    clock.advance(2)
    if runs == "drain":
        await queue.drain()
    else:
        async with queue.running():
            await clock.pass_time(1)
    assert got == []
    assert [(ran.kind, ran.outcome) for ran in seen] == [("photo", Outcome.FAILED)]
    assert [job.kind for job in await store.failed()] == ["photo"]
    await photo.push()
    assert await queue.drain() == 1
    assert got == ["photo"]


async def test_what_a_push_carried_is_restored_for_it(new_queue: NewQueue) -> None:
    carries: dict[str, Any] = {"carry": [CarryRequestID()]}
    queue, pushes = new_queue(**carries), new_queue(**carries)
    got: list[str | None] = []

    @queue.fallback
    async def unknown() -> None:
        got.append(request_id())

    @pushes.kind("photo")
    async def photo() -> None: ...

    token = current.set("abc-1")
    await photo.push()
    current.reset(token)
    await queue.drain()
    assert got == ["abc-1"]


async def test_a_process_that_runs_some_kinds_has_none(queue: Queue, pushes: Queue, clock: Clock) -> None:
    got: list[str] = []

    @queue.kind("mail")
    async def mail() -> None:
        got.append("mail")

    @queue.kind("report")
    async def report() -> None:
        got.append("report")

    @queue.fallback
    async def unknown() -> None:
        got.append(f"fallback of {current_job().kind}")

    @pushes.kind("photo")
    async def photo() -> None: ...

    async with queue.running(kinds=["mail"]):
        for kind in (mail, report, photo):
            await kind.push()
        await clock.pass_time(3)
        assert got == ["mail"]
        assert [job.attempts for name in ("report", "photo") for job in await queue.jobs(name)] == [0, 0]
    async with queue.running():
        await clock.pass_time(1)
    assert sorted(got) == ["fallback of photo", "mail", "report"]


class Closed:
    """A limiter that lets one job start, and then none for a minute."""

    def __init__(self) -> None:
        self.asked = 0

    async def attempt(self, key: str) -> float:
        self.asked += 1
        return 0 if self.asked == 1 else 60


RATES: Mapping[str, Callable[[], Any]] = {
    "throttle": lambda: Throttle(1, per=60),
    "by": lambda: Throttle(1, per=60, by=lambda n: "all"),
    "limiter": Closed,
}


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("runs", ["running", "drain"])
async def test_it_takes_no_job_of_a_kind_that_its_rate_holds_back(
    queue: Queue, pushes: Queue, clock: Clock, rate: str, runs: str
) -> None:
    got: list[str] = []

    @queue.kind("mail", rate=RATES[rate]())
    async def mail(n: int) -> None:
        got.append("mail")

    @queue.fallback
    async def unknown(value: Any) -> None:
        got.append(f"fallback of {current_job().kind}")

    @pushes.kind("photo")
    async def photo(n: int) -> None: ...

    await mail.push_many(range(5))
    if runs == "drain":
        await queue.drain()
        await photo.push(1)
        await queue.drain()
    else:
        async with queue.running():
            await clock.pass_time(5)
            await photo.push(1)
            await clock.pass_time(5)
    assert sorted(got) == ["fallback of photo", "mail"]


async def test_no_two_of_a_value_run_at_once_and_the_next_starts_as_one_ends(
    new_queue: NewQueue, pushes: Queue, clock: Clock
) -> None:
    queue = new_queue(poll=3600)
    running, most, started = 0, 0, list[float]()

    @queue.fallback
    async def unknown(n: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        started.append(clock.monotonic())
        done = asyncio.Event()
        clock.call_later(1.0, done.set)
        await done.wait()
        running -= 1

    @pushes.kind("account", unique=Unique(one_at_a_time=True))
    async def account(n: int) -> None: ...

    await account.push(1)
    async with queue.running():
        await clock.pass_time(0.5)
        await account.push(1)
        await clock.pass_time(5)
    assert most == 1
    assert started == [0, pytest.approx(1, abs=0.1)]


async def test_queues_of_one_store_are_refused_where_ones_fallback_would_take_the_others_jobs(
    queue: Queue, new_queue: NewQueue, clock: Clock
) -> None:
    other, apart = new_queue(), new_queue(store=Memory(clock=clock))

    @queue.fallback
    async def unknown() -> None: ...

    for each in (queue, other, apart):

        @each.kind("mail")
        async def mail() -> None: ...

    async with live([queue, other, apart]):
        pass

    for each in (other, apart):

        @each.kind("photo")
        async def photo() -> None: ...

    for queues in ([queue, other], [other, queue]):
        with pytest.raises(QueueError, match=r"another queue on this store handles photo: have one queue"):
            async with live(queues):
                pass
        async with live(queues, run=False):
            pass
    async with live([queue, apart]):
        pass


async def test_a_look_tells_that_the_kinds_are_handled(queue: Queue, pushes: Queue) -> None:
    @pushes.kind("photo")
    async def photo() -> None: ...

    id = await photo.push()
    assert id is not None
    assert [(each.kind, each.handled) for each in await queue.counts()] == [("photo", False)]

    @queue.fallback
    async def unknown() -> None: ...

    assert queue.has_fallback
    assert [(each.kind, each.handled) for each in await queue.counts()] == [("photo", True)]
    found = await queue.job(id)
    assert found is not None
    assert found.state is JobState.WAITING
    assert found.why.endswith("waits for a free worker, or for a process that runs its kind")


def nothing() -> None: ...


async def test_it_is_given_back_as_it_was(queue: Queue, new_queue: NewQueue) -> None:
    assert queue.fallback(nothing) is nothing
    assert new_queue().fallback(attempts=2)(nothing) is nothing


async def of_a_request(value: Any, session: Annotated[Any, Depends(nothing)]) -> None: ...


@pytest.mark.parametrize(
    ("fn", "options", "told"),
    [
        (3, {}, "a handler is a function, not 3"),
        (of_a_request, {}, "session of of_a_request is a Depends"),
        (nothing, {"attempts": 0}, "attempts is a whole number from 1"),
        (nothing, {"unique": True, "at_once": 3}, "the fallback has no option at_once, unique"),
        (nothing, {"process": True}, "the fallback has no option process"),
    ],
)
async def test_what_is_no_fallback_is_refused_and_told_why(
    queue: Queue, fn: Any, options: Any, told: str
) -> None:
    with pytest.raises(RegistrationError, match=told):
        queue.fallback(**options)(fn)
    assert not queue.has_fallback


async def test_a_queue_has_one_and_takes_none_while_it_runs(queue: Queue) -> None:
    async with queue.running():
        with pytest.raises(RegistrationError, match="the fallback: the queue runs already"):
            queue.fallback(nothing)
    queue.fallback(nothing)
    with pytest.raises(RegistrationError, match=r"has a fallback already: nothing \(test_fallback.py:"):
        queue.fallback(nothing)

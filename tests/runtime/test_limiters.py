"""Limiters of the app's own: asked before each job, and what becomes of a kind whose limiter refuses or fails."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from fastjobs import Kind, Memory, Outcome, Queue, Ran
from fastjobs.core.claiming import Claimable
from fastjobs.core.marks import Mark
from fastjobs.store import Kept
from fastjobs.testing import Clock

pytestmark = pytest.mark.anyio


class Marked(Memory):
    """Keeps what it was told."""

    def __init__(self, *, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.marked: list[Mark] = []

    async def mark(self, marks: Sequence[Mark]) -> list[Kept]:
        self.marked += marks
        return await super().mark(marks)


@pytest.fixture
def store(clock: Clock) -> Marked:
    return Marked(clock=clock)


class Own:
    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def attempt(self, key: str) -> float:
        self.asked.append(key)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        if answer == "hang":
            await asyncio.Event().wait()
        return cast("float", answer)


def counted(queue: Queue, limiter: Own, *, attempts: int = 10) -> tuple[Kind[int], list[int]]:
    """A kind with the limiter, and those of its jobs that ran."""
    ran: list[int] = []

    @queue.kind("mail", rate=limiter, attempts=attempts)
    async def mail(n: int) -> None:
        ran.append(n)

    return mail, ran


async def test_a_limiter_is_asked_before_each_job_and_holds_its_kind_back(
    queue: Queue, clock: Clock, seen: list[Ran]
) -> None:
    limiter = Own(0, 5, 0)
    ran: list[float] = []

    @queue.kind("mail", rate=limiter, attempts=1)
    async def mail(n: int) -> None:
        ran.append(clock.monotonic())

    @queue.kind("free")
    async def free() -> None:
        ran.append(-1.0)

    async with queue.running():
        await mail.push_many([1, 2])
        await clock.pass_time(1)
        assert len(ran) == 1
        await free.push()
        await clock.pass_time(3)
        assert len(ran) == 2
        assert -1.0 in ran
        await clock.pass_time(3)
        assert len(ran) == 3
        assert ran[-1] >= 5.0
    assert set(limiter.asked) == {"mail"}
    assert [ran.outcome for ran in seen].count(Outcome.HELD_BACK) == 1
    assert [ran.attempt for ran in seen if ran.kind == "mail" and ran.outcome is Outcome.DONE] == [1, 1]


async def test_a_limiter_that_refused_is_not_asked_again_while_the_store_is_slow_to_hold_the_kind_back(
    clock: Clock,
) -> None:
    slow = asyncio.Event()

    class Slow(Memory):
        async def mark(self, marks: Sequence[Mark]) -> list[Kept]:
            await slow.wait()
            return await super().mark(marks)

    queue = Queue(Slow(clock=clock), clock=clock, poll=3600, workers=4)
    limiter = Own(5)
    ran: list[float] = []

    @queue.kind("mail", rate=limiter)
    async def mail(n: int) -> None:
        ran.append(clock.monotonic())

    @queue.kind("free")
    async def free() -> None: ...

    await mail.push_many(range(40))
    async with queue.running():
        await clock.pass_time(0.5)
        await free.push()
        await clock.pass_time(0.5)
        assert len(limiter.asked) <= 2
        limiter.answers = [0]
        slow.set()
        await clock.pass_time(6, turns=40)
        assert len(ran) == 40
        assert min(ran) >= 5


async def test_a_limiter_that_lets_all_go_keeps_no_worker_idle(
    new_queue: Callable[..., Queue], clock: Clock
) -> None:
    queue = new_queue(poll=3600, workers=12)
    running = 0
    most = 0

    @queue.kind("mail", rate=Own(0))
    async def mail(n: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        done = asyncio.Event()
        clock.call_later(1, done.set)
        await done.wait()
        running -= 1

    await mail.push_many(range(20))
    async with queue.running():
        await clock.pass_time(0.5)
    assert most == 12


async def test_of_a_kind_that_is_refused_few_jobs_are_claimed(
    queue: Queue, clock: Clock, store: Marked
) -> None:
    @queue.kind("mail", rate=Own(60))
    async def mail(n: int) -> None: ...

    await mail.push_many(range(100))
    async with queue.running():
        await clock.pass_time(30)
    assert len(store.marked) <= 2


@pytest.mark.parametrize(
    "answer",
    [-1, math.nan, math.inf, 1.8e9, 10**400, True, None, "5", "hang", ValueError("down"), SystemExit(3)],
    ids=lambda answer: str(answer)[:20],
)
async def test_a_limiter_that_fails_holds_its_kind_back_for_ten_seconds_and_is_told_once_a_minute(
    queue: Queue, clock: Clock, answer: object, lines: Callable[[str], list[str]], seen: list[Ran]
) -> None:
    limiter = Own(answer)
    mail, ran = counted(queue, limiter, attempts=1)

    await mail.push(1)
    async with queue.running():
        await clock.pass_time(1)
        await clock.pass_time(54)
        assert 2 <= len(limiter.asked) <= 6
        assert len(lines("a limiter failed")) == 1
        limiter.answers = [0]
        await clock.pass_time(22)
    assert ran == [1]
    assert [ran.attempt for ran in seen if ran.outcome is Outcome.DONE] == [1]


async def test_a_limiter_that_fails_leaves_no_worker_stuck(
    new_queue: Callable[..., Queue], clock: Clock
) -> None:
    queue = new_queue(workers=8)
    late: list[float] = []

    @queue.kind("mail", rate=Own("hang"))
    async def mail(n: int) -> None: ...

    @queue.kind("urgent")
    async def urgent(pushed: float) -> None:
        late.append(clock.monotonic() - pushed)

    await mail.push_many(range(200))
    async with queue.running():
        for _ in range(300):
            await urgent.push(clock.monotonic())
            await clock.pass_time(0.1)
    # Each push has the feed claim, and a claim of it took two more of those that are never answered.
    assert len(late) == 300
    assert max(late) == 0


async def test_a_limiter_that_answers_again_is_asked_for_all_workers_at_once(
    new_queue: Callable[..., Queue], clock: Clock
) -> None:
    queue = new_queue(poll=3600, workers=8)
    asking = most = 0
    answer = 5.0

    class Slow:
        async def attempt(self, key: str) -> float:
            nonlocal asking, most
            asking += 1
            most = max(most, asking)
            done = asyncio.Event()
            clock.call_later(0.1, done.set)
            await done.wait()
            asking -= 1
            return answer

    @queue.kind("mail", rate=Slow())
    async def mail(n: int) -> None: ...

    await mail.push_many(range(200))
    async with queue.running():
        await clock.pass_time(1)
        assert most <= 2
        answer = 0.0
        await clock.pass_time(30)
        assert most == 8


async def test_a_limiters_wait_of_days_is_a_day_and_is_told(
    queue: Queue, clock: Clock, lines: Callable[[str], list[str]]
) -> None:
    limiter = Own(3 * 86_400, 0)
    mail, _ = counted(queue, limiter)

    await mail.push(1)
    assert await queue.drain() == 0
    clock.advance(86_399)
    assert await queue.drain() == 0
    clock.advance(1)
    assert await queue.drain() == 1
    (line,) = lines("a limiter asks for more than a day: its kind is held back for one")
    assert "kind=mail" in line
    assert "days=3.0" in line
    assert not lines("a limiter failed")


async def test_a_limiter_is_asked_in_its_jobs_context(new_queue: Callable[..., Queue], clock: Clock) -> None:
    import fastjobs
    from fastjobs.core.request_id import current

    seen: list[tuple[str, str | None]] = []

    class Asks:
        async def attempt(self, key: str) -> float:
            seen.append((fastjobs.current_job().kind, fastjobs.request_id()))
            return 0

    queue = new_queue(carry=[fastjobs.CarryRequestID()])

    @queue.kind("mail", rate=Asks())
    async def mail() -> None: ...

    token = current.set("abc-1")
    await mail.push()
    current.reset(token)
    await queue.drain()
    assert seen == [("mail", "abc-1")]


async def test_a_stop_while_a_limiter_is_asked_gives_the_job_back(
    new_queue: Callable[..., Queue], clock: Clock, store: Marked, seen: list[Ran]
) -> None:
    queue = new_queue(grace=0.05)
    limiter = Own("hang")
    mail, ran = counted(queue, limiter, attempts=1)

    await mail.push(1)
    async with queue.running():
        await clock.pass_time(0.1)
        assert limiter.asked
    assert ran == []
    assert [(ran.outcome, ran.attempt, ran.took, ran.error) for ran in seen] == [
        (Outcome.HELD_BACK, 1, 0, None)
    ]
    claimed = await store.claim([Claimable(kind="mail", hold=1, attempts=1)], 1)
    assert [(job.attempts, job.error) for job in claimed.jobs] == [(1, None)]

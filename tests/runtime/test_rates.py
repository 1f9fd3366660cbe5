"""Rates while queues run: never more starts than a rate allows in any of its windows, and nearly all that it allows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

from fastjobs import Kind, Memory, Outcome, Permanent, Queue, Ran, Throttle
from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.core.marks import Mark
from fastjobs.store import Kept, Places, Throttled
from fastjobs.testing import Clock

pytestmark = pytest.mark.anyio


class Letter(BaseModel):
    to: str
    n: int = 0


def most_in_a_window(starts: Sequence[float], per: float) -> int:
    """The most starts of any window of so many seconds, its end not included."""
    most, first = 0, 0
    for last, at in enumerate(starts):
        while at - starts[first] >= per - 1e-9:
            first += 1
        most = max(most, last - first + 1)
    return most


class Looking(Memory):
    """Counts what it's asked."""

    def __init__(self, *, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.taken: list[int] = []
        self.settled = 0
        self.claims: list[list[Claimable]] = []
        self.marked: list[Mark] = []
        self.fails: set[str] = set()

    async def take(self, asked: Sequence[Throttled]) -> list[Places]:
        if "take" in self.fails:
            raise ConnectionError("no places to be had")
        places = await super().take(asked)
        self.taken += [len(each.slots) for each in places]
        return places

    async def settle(self, started: Sequence[tuple[Places, int, int]]) -> None:
        if "settle" in self.fails:
            raise ConnectionError("nothing is settled")
        self.settled += 1
        await super().settle(started)

    async def claim(self, kinds: Sequence[Claimable], limit: int, **more: Any) -> Claimed:
        self.claims.append(list(kinds))
        return await super().claim(kinds, limit, **more)

    async def mark(self, marks: Sequence[Mark]) -> list[Kept]:
        self.marked += marks
        return await super().mark(marks)


@pytest.fixture
def store(clock: Clock) -> Looking:
    return Looking(clock=clock)


async def test_three_queues_start_no_more_in_any_second_than_the_rate_and_nearly_as_many(
    new_queue: Callable[..., Queue], clock: Clock
) -> None:
    starts: list[float] = []
    kinds: list[Kind[int]] = []
    queues = [new_queue(workers=8, poll=1 + n / 10) for n in range(3)]
    for queue in queues:

        @queue.kind("mail", rate=Throttle(100, per=1))
        async def mail(n: int) -> None:
            starts.append(clock.monotonic())

        kinds.append(mail)
    await kinds[0].push_many(range(7000))
    async with AsyncExitStack() as stack:
        for queue in queues:
            await stack.enter_async_context(queue.running())
        await clock.pass_time(60)
        assert most_in_a_window(starts, 1.0) <= 100
        assert len(starts) >= 0.98 * 100 * 60


async def test_a_rate_that_is_used_up_keeps_no_other_kind_from_running(queue: Queue, clock: Clock) -> None:
    ran: list[str] = []

    @queue.kind("slow", rate=Throttle(1, per=3600))
    async def slow(n: int) -> None:
        ran.append("slow")

    @queue.kind("free")
    async def free(n: int) -> None:
        ran.append("free")

    await slow.push_many(range(1000))
    async with queue.running():
        await clock.pass_time(1)
        await free.push_many(range(50))
        await clock.pass_time(1)
        assert (ran.count("slow"), ran.count("free")) == (1, 50)


async def test_other_kinds_that_fill_each_claim_keep_no_rate_from_its_jobs(
    new_queue: Callable[..., Queue], clock: Clock
) -> None:
    queue = new_queue(workers=2)
    ran: list[float] = []

    @queue.kind("endless")
    async def endless(n: int) -> None:
        done = asyncio.Event()
        clock.call_later(0.05, done.set)
        await done.wait()

    @queue.kind("rated", rate=Throttle(10, per=1))
    async def rated() -> None:
        ran.append(clock.monotonic())

    async with queue.running():
        await rated.push()
        await clock.pass_time(0.5)
        assert len(ran) == 1
        await endless.push_many(range(1000))
        # Due before them, so that a claim takes it first: it only needs room.
        await rated.push(at=datetime(2026, 1, 1, tzinfo=UTC))
        await clock.pass_time(3)
        assert len(ran) == 2


async def test_an_idle_queue_takes_no_places(queue: Queue, store: Looking, clock: Clock) -> None:
    @queue.kind("rated", rate=Throttle(10, per=1))
    async def rated() -> None: ...

    async with queue.running():
        await clock.pass_time(60)
        assert (store.taken, store.settled) == ([], 0)
        await rated.push()
        await clock.pass_time(1)
        assert store.settled >= 1
        before = len(store.taken)
        await clock.pass_time(60)
        assert len(store.taken) == before


async def test_places_that_were_not_used_are_free_again(queue: Queue, store: Looking, clock: Clock) -> None:
    @queue.kind("rated", rate=Throttle(4, per=3600))
    async def rated() -> None: ...

    async with queue.running():
        await rated.push()
        await clock.pass_time(2)
    assert store.taken[0] == 4
    (places,) = await store.take([Throttled("rated", "", 4, 3600_000_000, 9)])
    assert len(places.slots) == 3


async def test_a_rate_is_never_claimed_ahead(queue: Queue, store: Looking, clock: Clock) -> None:
    @queue.kind("rated", rate=Throttle(4, per=1), unique=True)
    async def rated() -> None: ...

    @queue.kind("few", at_once=2)
    async def few() -> None: ...

    @queue.kind("any")
    async def any_() -> None: ...

    async with queue.running():
        await clock.pass_time(2)
    ahead = {each.kind: each.ahead_ok for kinds in store.claims for each in kinds}
    assert ahead == {"rated": False, "few": False, "any": True}


async def test_a_drain_starts_what_the_rate_allows_and_leaves_the_rest(
    queue: Queue, clock: Clock, store: Looking
) -> None:
    @queue.kind("rated", rate=Throttle(3, per=60))
    async def rated(n: int) -> None: ...

    await rated.push_many(range(10))
    assert await queue.drain() == 3
    clock.advance(59.999)
    assert await queue.drain() == 0
    clock.advance(0.001)
    assert await queue.drain() == 3


async def test_a_store_that_cannot_count_lets_nothing_past_the_rate(
    queue: Queue, store: Looking, clock: Clock, lines: Callable[[str], list[str]]
) -> None:
    ran: list[int] = []

    @queue.kind("rated", rate=Throttle(100, per=1))
    async def rated(n: int) -> None:
        ran.append(n)

    async with queue.running():
        await clock.pass_time(1)
        store.fails = {"take"}
        await rated.push(1)
        await clock.pass_time(30)
        assert ran == []
        store.fails = set()
        await clock.pass_time(5)
        assert ran == [1]


async def test_what_is_not_settled_stays_taken(queue: Queue, store: Looking, clock: Clock) -> None:
    starts: list[float] = []

    @queue.kind("rated", rate=Throttle(4, per=5))
    async def rated(n: int) -> None:
        starts.append(clock.monotonic())

    store.fails = {"settle"}
    await rated.push_many(range(20))
    async with queue.running():
        await clock.pass_time(60)
    assert most_in_a_window(starts, 5.0) <= 4
    assert len(starts) > 4


async def test_a_claim_that_comes_after_its_places_ran_out_starts_nothing(
    queue: Queue, store: Looking, clock: Clock, seen: list[Ran]
) -> None:
    """As where the process was frozen between the two: others may have had the places since."""
    ran: list[float] = []

    @queue.kind("rated", rate=Throttle(1, per=1), attempts=1)
    async def rated() -> None:
        ran.append(clock.monotonic())

    take = store.take

    async def frozen_after_it(asked: Sequence[Throttled]) -> list[Places]:
        places = await take(asked)
        if not ran and clock.monotonic() < 11:
            clock.step(11)
        return places

    store.take = frozen_after_it  # type: ignore[method-assign]
    await rated.push()
    async with queue.running():
        await clock.pass_time(10)
        assert ran == []
        assert {each.outcome for each in seen} == {Outcome.HELD_BACK}
        await clock.pass_time(3)
    assert len(ran) == 1


# By value.


async def test_each_value_has_a_rate_of_its_own_and_one_that_is_used_up_blocks_no_other(
    queue: Queue, clock: Clock
) -> None:
    starts: list[tuple[str, float]] = []

    @queue.kind("letter", rate=Throttle(2, per=10, by=lambda letter: letter.to))
    async def letter(value: Letter) -> None:
        starts.append((value.to, clock.monotonic()))

    await letter.push_many([Letter(to="flood", n=n) for n in range(40)])
    async with queue.running():
        await clock.pass_time(1)
        await letter.push_many([Letter(to="ada"), Letter(to="bob"), Letter(to="ada"), Letter(to="ada")])
        await clock.pass_time(1, turns=500)
        assert sorted(to for to, _ in starts) == ["ada", "ada", "bob", "flood", "flood"]
        await clock.pass_time(300)
    for who, count in (("ada", 3), ("bob", 1), ("flood", 40)):
        times = [at for to, at in starts if to == who]
        assert len(times) == count
        assert most_in_a_window(times, 10.0) <= 2


async def test_a_job_that_its_values_rate_refuses_keeps_its_attempts_and_is_told_as_held_back(
    queue: Queue, clock: Clock, seen: list[Ran]
) -> None:
    attempts: list[int] = []

    @queue.kind("letter", rate=Throttle(1, per=10, by=lambda n: n % 2), attempts=1)
    async def letter(n: int) -> None: ...

    await letter.push_many([0, 2])
    async with queue.running():
        await clock.pass_time(15)
    attempts = [ran.attempt for ran in seen if ran.outcome is Outcome.DONE]
    assert attempts == [1, 1]
    assert Outcome.HELD_BACK in [ran.outcome for ran in seen]


async def test_a_job_of_many_that_wait_for_one_value_is_moved_about_once_for_its_turn(
    queue: Queue, clock: Clock, store: Looking
) -> None:
    ran: list[int] = []

    @queue.kind("letter", rate=Throttle(1, per=10, by=lambda n: "all"))
    async def letter(n: int) -> None:
        ran.append(n)

    await letter.push_many(range(150))
    async with queue.running():
        await clock.pass_time(1, turns=3000)
        await clock.pass_time(1599)
    assert len(ran) >= 0.98 * 150
    given_back = sum(type(mark).__name__ == "GiveBack" for mark in store.marked)
    assert given_back <= 1.3 * 150


async def test_a_rate_by_value_that_a_deploy_raises_is_used_within_half_an_hour(
    new_queue: Callable[..., Queue], clock: Clock
) -> None:
    ran: list[float] = []

    async def deployed(rate: Throttle | None, seconds: float, count: int = 0) -> None:
        queue = new_queue()

        @queue.kind("letter", rate=rate)
        async def letter(n: int) -> None:
            ran.append(clock.monotonic())

        async with queue.running():
            await letter.push_many(range(count))
            await clock.pass_time(1, turns=3000)
            await clock.pass_time(seconds)

    await deployed(Throttle(1, per=60, by=lambda n: "all"), 600, 300)  # five hours of them
    assert 10 <= len(ran) <= 12
    await deployed(None, 1800)
    assert len(ran) == 300


async def test_all_that_a_value_may_is_used_where_many_more_wait_than_are_given_turns(
    queue: Queue, clock: Clock
) -> None:
    ran: list[float] = []

    @queue.kind("letter", rate=Throttle(1, per=60, by=lambda n: "all"))
    async def letter(n: int) -> None:
        ran.append(clock.monotonic())

    await letter.push_many(range(400))
    async with queue.running():
        await clock.pass_time(1, turns=3000)
        await clock.pass_time(200 * 60)
    assert most_in_a_window(ran, 60) == 1
    assert len(ran) >= 0.97 * 200


async def test_jobs_of_a_value_need_not_wait_behind_those_that_were_cancelled(
    queue: Queue, clock: Clock
) -> None:
    ran: list[int] = []

    @queue.kind("letter", rate=Throttle(5, per=1, by=lambda n: "all"))
    async def letter(n: int) -> None:
        ran.append(n)

    async with queue.running():
        ids = await letter.push_many(range(1000))
        await clock.pass_time(1, turns=3000)
        for id in ids:
            assert id is not None
            await queue.cancel(id)
        await clock.pass_time(5)
        await letter.push_many(range(1000, 1050))
        await clock.pass_time(12, turns=200)
    assert sum(n >= 1000 for n in ran) == 50


async def test_by_that_raises_fails_the_job_as_its_handler_would(
    queue: Queue, clock: Clock, seen: list[Ran]
) -> None:
    def by(n: int) -> str:
        raise Permanent("no such account") if n else ValueError("not yet")

    failed: list[str] = []

    @queue.kind("letter", rate=Throttle(1, per=1, by=by), attempts=2, backoff=1)
    async def letter(n: int) -> None: ...

    @letter.on_fail
    async def tell(n: int, error: Exception) -> None:
        failed.append(f"{n} {error}")

    await letter.push_many([0, 1])
    async with queue.running():
        await clock.pass_time(5)
    assert sorted(failed) == ["0 not yet", "1 no such account"]
    assert [ran.outcome for ran in seen if ran.attempt == 2] == [Outcome.FAILED]


@pytest.mark.parametrize("key", [None, 1.5, True, b"x"])
async def test_by_that_answers_no_key_fails_the_job(queue: Queue, key: Any, seen: list[Ran]) -> None:
    @queue.kind("letter", rate=Throttle(1, per=1, by=lambda n: key), attempts=1)
    async def letter(n: int) -> None: ...

    await letter.push(1)
    await queue.drain()
    assert [ran.outcome for ran in seen] == [Outcome.FAILED]
    assert isinstance(seen[0].error, TypeError)


async def test_a_store_that_cannot_count_holds_back_what_has_a_rate_by_value(
    queue: Queue, store: Looking, clock: Clock
) -> None:
    ran: list[int] = []

    @queue.kind("letter", rate=Throttle(5, per=1, by=lambda n: n))
    async def letter(n: int) -> None:
        ran.append(n)

    store.fails = {"take"}
    async with queue.running():
        await letter.push(1)
        await clock.pass_time(5)
        assert ran == []
        store.fails = set()
        await clock.pass_time(10)
    assert ran == [1]


async def test_a_drain_honours_a_rate_by_value(queue: Queue, clock: Clock) -> None:
    ran: list[int] = []

    @queue.kind("letter", rate=Throttle(1, per=10, by=lambda n: n % 2))
    async def letter(n: int) -> None:
        ran.append(n)

    await letter.push_many(range(6))
    assert await queue.drain() == 2
    assert sorted(ran) == [0, 1]
    clock.advance(10)
    assert await queue.drain() == 2

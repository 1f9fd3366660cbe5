"""Unique jobs, names, and how many run at once, as queues push and run them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from fastjobs import Kind, Memory, Outcome, PushError, Queue, Ran, Snooze, StoreError, Throttle, Unique
from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.core.marks import GiveBack, Kept, Mark, TryAgain
from fastjobs.store import Extra
from fastjobs.testing import Clock

pytestmark = pytest.mark.anyio


class Running:
    """How many handlers run at once, by value, and the most there ever were."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.now: dict[object, int] = {}
        self.most: dict[object, int] = {}
        self.order: list[tuple[object, float]] = []

    async def run(self, value: object, seconds: float, each: object = None) -> None:
        self.order.append((value, self._clock.monotonic()))
        for at in ("all", each):
            self.now[at] = self.now.get(at, 0) + 1
            self.most[at] = max(self.most.get(at, 0), self.now[at])
        done = asyncio.Event()
        self._clock.call_later(seconds, done.set)
        try:
            await done.wait()
        finally:
            for at in ("all", each):
                self.now[at] -= 1


@pytest.fixture
def running(clock: Clock) -> Running:
    return Running(clock)


# Unique and latest.


async def test_one_job_waits_for_each_value(queue: Queue, clock: Clock) -> None:
    ran: list[int] = []

    @queue.kind("reindex", unique=True)
    async def reindex(post: int) -> None:
        ran.append(post)

    first = await reindex.push(1, after=60)
    assert first is not None
    assert [await reindex.push(1), await reindex.push(1, after=5)] == [None, None]
    assert await reindex.push_many([1, 2, 2, 3]) == [None, "5", None, "7"]
    assert await queue.drain() == 2
    clock.advance(60)
    assert await queue.drain() == 1
    assert ran == [2, 3, 1]


async def test_a_push_while_its_value_runs_is_pushed_and_may_run_beside_it(
    queue: Queue, clock: Clock, running: Running
) -> None:
    @queue.kind("reindex", unique=True)
    async def reindex(post: int) -> None:
        await running.run(post, 10)

    async with queue.running():
        await reindex.push(1)
        await clock.pass_time(1)
        assert await reindex.push(1) is not None
        await clock.pass_time(1)
        assert running.now["all"] == 2
        await clock.pass_time(10)


async def test_a_kind_without_a_value_has_one_job_that_waits_at_all(queue: Queue) -> None:
    @queue.kind("nightly", unique=True)
    async def nightly() -> None: ...

    assert await nightly.push() is not None
    assert await nightly.push() is None
    assert await queue.drain() == 1


async def test_a_latest_push_moves_the_job_that_waits_and_answers_its_id(queue: Queue, clock: Clock) -> None:
    ran: list[float] = []

    @queue.kind("reindex", unique=Unique(latest=True, at_most=100))
    async def reindex(post: int) -> None:
        ran.append(clock.monotonic())

    first = await reindex.push(1, after=60)
    async with queue.running():
        for _ in range(9):
            await clock.pass_time(30)
            if await reindex.push(1, after=60) != first:
                break
        await clock.pass_time(60)
    # Never later than 100 s after the first push, however often it was moved.
    assert ran[0] == pytest.approx(100, abs=1.1)


async def test_a_snoozed_job_has_its_value_again_and_a_retried_one_has_not(
    queue: Queue, clock: Clock
) -> None:
    ends: list[Exception] = [Snooze(after=10), ValueError("no")]

    @queue.kind("reindex", unique=True, backoff=10)
    async def reindex(post: int) -> None:
        if ends:
            raise ends.pop(0)

    await reindex.push(1)
    assert await queue.drain() == 1
    assert await reindex.push(1) is None
    clock.advance(10)
    assert await queue.drain() == 1
    assert await reindex.push(1) is not None


async def test_a_kind_that_a_store_cannot_keep_is_refused_at_registration_and_as_the_store_comes(
    clock: Clock,
) -> None:
    class Small(Memory):
        extras: ClassVar[Extra] = Extra.TRANSACTIONS

    async def run(n: int) -> None: ...

    class Own:
        async def attempt(self, key: str) -> float:
            return 0

    wants: list[tuple[dict[str, Any], str]] = [
        ({"unique": True}, "UNIQUE"),
        ({"unique": Unique(latest=True)}, "UNIQUE, LATEST|LATEST"),
        ({"unique": Unique(one_at_a_time=True)}, "ONE_AT_A_TIME"),
        ({"at_once": 1}, "AT_ONCE"),
        ({"rate": Own()}, "HOLD_BACK"),
        ({"rate": Throttle(1, per=1)}, "THROTTLE"),
    ]
    for settings, lacking in wants:
        with pytest.raises(StoreError, match=f"kind 'k' needs a store with .*({lacking}), and Small has"):
            Queue(Small()).kind("k", **settings)(run)
        queue = Queue()
        queue.kind("k", **settings)(run)
        with pytest.raises(StoreError, match="kind 'k' needs a store with"):
            queue.use(Small())
    queue = Queue(Memory())
    kind: Kind[int] = queue.kind("k", unique=True)(run)
    with pytest.raises(StoreError, match="kind 'k' needs a store with UNIQUE"):
        kind.in_(Small())
    plain: Kind[int] = Queue(Small()).kind("plain")(run)
    with pytest.raises(StoreError, match=r"push\(name=…\) needs a store with NAMES"):
        await plain.push(1, name="once")


# Names.


async def test_a_name_is_pushed_once_until_its_job_has_ended_and_a_while_after(
    queue: Queue, clock: Clock
) -> None:
    @queue.kind("invoice", keep_name=100)
    async def invoice(n: int) -> None: ...

    @queue.kind("other")
    async def other(n: int) -> None: ...

    assert await invoice.push(1, name="order-7") is not None
    assert await invoice.push(2, name="order-7") is None
    assert await other.push(2, name="order-7") is None
    assert await queue.drain() == 1
    clock.advance(99)
    assert await invoice.push(3, name="order-7") is None
    clock.advance(1)
    assert await invoice.push(3, name="order-7") is not None


async def test_a_name_goes_with_each_way_to_push(queue: Queue) -> None:
    @queue.kind("invoice")
    async def invoice(n: int) -> None: ...

    with Session(create_engine("sqlite://")) as session:
        assert invoice.in_(session).push(1, name="a") is not None
        assert invoice.in_(session).push(1, name="a") is None
        session.commit()
    assert await invoice.push(1, name="a") is None
    assert await invoice.in_(queue.store).push(1, name="a") is None
    assert await asyncio.to_thread(lambda: invoice.sync.push(1, name="a")) is None
    assert await queue.drain() == 1


@pytest.mark.parametrize("name", ["", "x" * 201, "é", "a\n", 5])
async def test_a_name_that_cannot_be_is_a_push_error(queue: Queue, name: Any) -> None:
    @queue.kind("invoice")
    async def invoice(n: int) -> None: ...

    with pytest.raises(PushError, match="a push's name is 1 to 200 printable ASCII characters"):
        await invoice.push(1, name=name)


async def test_a_name_that_is_far_too_long_is_cut_in_its_error(queue: Queue) -> None:
    @queue.kind("invoice")
    async def invoice(n: int) -> None: ...

    with pytest.raises(PushError, match="take a hash") as raised:
        await invoice.push(1, name="x" * 1_000_000)
    assert len(str(raised.value)) < 600


async def test_a_name_that_is_taken_moves_no_job_of_the_value(queue: Queue, clock: Clock) -> None:
    @queue.kind("reindex", unique=Unique(latest=True))
    async def reindex(n: int) -> None: ...

    await reindex.push(1, after=10, name="a")
    assert await reindex.push(1, after=0, name="a") is None
    assert await queue.drain() == 0


# How many at once.


async def test_no_more_run_at_once_than_the_kind_says_on_three_queues(
    new_queue: Callable[..., Queue], clock: Clock, running: Running
) -> None:
    kinds: list[Kind[int]] = []
    queues = [new_queue(workers=8) for _ in range(3)]
    for queue in queues:

        @queue.kind("photo", at_once=5)
        async def photo(n: int) -> None:
            await running.run(n, 0.5 + n % 3 / 10)

        kinds.append(photo)
    await kinds[0].push_many(range(100))
    async with queues[0].running(), queues[1].running(), queues[2].running():
        await clock.pass_time(30)
    assert running.most["all"] == 5
    assert len(running.order) == 100


async def test_the_end_of_a_job_lets_the_next_start_at_once_and_not_at_the_poll(
    new_queue: Callable[..., Queue], clock: Clock, running: Running
) -> None:
    queue = new_queue(poll=3600)

    @queue.kind("photo", at_once=1)
    async def photo(n: int) -> None:
        await running.run(n, 1)

    @queue.kind("account", unique=Unique(one_at_a_time=True))
    async def account(n: int) -> None:
        await running.run(n, 1, each=n)

    async with queue.running():
        await photo.push_many(range(5))
        await clock.pass_time(5.5)
        assert [at for _, at in running.order] == pytest.approx([0, 1, 2, 3, 4], abs=0.01)
        running.order.clear()
        for _ in range(3):
            await account.push(1)
            await clock.pass_time(0.1)
        await clock.pass_time(5)
        assert [value for value, _ in running.order] == [1, 1]
        assert running.order[1][1] - running.order[0][1] == pytest.approx(1, abs=0.01)


async def test_the_end_of_a_job_asks_one_claim_where_that_takes_its_place(
    clock: Clock, running: Running
) -> None:
    class Counts(Memory):
        """Answers a claim before the marks that it has seen, as a database does that was asked both together."""

        claims = 0

        async def mark(self, marks: Sequence[Mark]) -> list[Kept]:
            kept = await super().mark(marks)
            for _ in range(3):
                await asyncio.sleep(0)
            return kept

        async def claim(
            self, kinds: Sequence[Claimable], limit: int, *, ahead: int = 0, others: Claimable | None = None
        ) -> Claimed:
            self.claims += 1
            return await super().claim(kinds, limit, ahead=ahead, others=others)

    store = Counts(clock=clock)
    queue = Queue(store, clock=clock, workers=4, poll=3600, grace=0.5)

    @queue.kind("photo", at_once=1)
    async def photo(n: int) -> None:
        await running.run(n, 1)

    async with queue.running():
        await photo.push_many(range(20))
        await clock.pass_time(0.5)
        before = store.claims
        await clock.pass_time(5)
        assert len(running.order) == 6
        assert store.claims - before == 5


async def test_no_two_jobs_of_one_value_run_at_once_and_others_do(
    new_queue: Callable[..., Queue], clock: Clock, running: Running
) -> None:
    kinds: list[Kind[int]] = []
    queues = [new_queue(workers=8) for _ in range(3)]
    for queue in queues:

        @queue.kind("account", unique=Unique(one_at_a_time=True))
        async def account(n: int) -> None:
            await running.run(n, 1, each=n)

        kinds.append(account)
    async with queues[0].running(), queues[1].running(), queues[2].running():
        for step in range(120):
            await kinds[step % 3].push(step % 4)
            await clock.pass_time(0.1)
        await clock.pass_time(30)
    assert [running.most[n] for n in range(4)] == [1, 1, 1, 1]
    assert running.most["all"] == 4
    assert len(running.order) >= 40


async def test_a_drain_runs_the_jobs_of_a_value_one_after_another(queue: Queue, clock: Clock) -> None:
    ran: list[int] = []

    @queue.kind("account", unique=Unique(one_at_a_time=True), at_once=1)
    async def account(n: int) -> None:
        ran.append(n)
        if len(ran) < 3:
            await account.push(n)

    await account.push(1)
    assert await queue.drain() == 3


class Lets:
    """A limiter that lets all go."""

    async def attempt(self, key: str) -> float:
        return 0


@pytest.mark.parametrize(
    "options",
    [
        {"at_once": 2},
        {"unique": Unique(one_at_a_time=True)},
        {"rate": Throttle(20, per=1)},
        {"rate": Throttle(20, per=1, by=lambda value: "all")},
        {"rate": Lets()},
    ],
    ids=["at_once", "one_at_a_time", "rate", "rate by value", "limiter"],
)
async def test_short_jobs_that_fill_each_claim_keep_no_kind_with_a_limit_from_its_priority(
    new_queue: Callable[..., Queue], clock: Clock, options: dict[str, Any]
) -> None:
    queue = new_queue(workers=2)
    late: list[float] = []

    @queue.kind("urgent", priority=1, **options)
    async def urgent(pushed: float) -> None:
        late.append(clock.monotonic() - pushed)

    @queue.kind("short")
    async def short(n: int) -> None:
        done = asyncio.Event()
        clock.call_later(0.02, done.set)
        await done.wait()

    await short.push_many(range(3000))
    async with queue.running():
        await clock.pass_time(1)  # they're seen to be short, and claimed ahead
        for _ in range(50):
            await urgent.push(clock.monotonic())
            await clock.pass_time(0.2)
        await clock.pass_time(1)
    assert len(late) == 50
    assert max(late) <= 0.5


async def test_all_of_it_together(new_queue: Callable[..., Queue], clock: Clock, running: Running) -> None:
    queues = [new_queue(workers=8) for _ in range(2)]
    kinds: list[Kind[int]] = []
    for queue in queues:

        @queue.kind(
            "account", unique=Unique(latest=True, one_at_a_time=True), at_once=2, rate=Throttle(3, per=2)
        )
        async def account(n: int) -> None:
            await running.run(n, 0.5, each=n)

        kinds.append(account)
    async with queues[0].running(), queues[1].running():
        for step in range(100):
            await kinds[step % 2].push(step % 7)
            await clock.pass_time(0.2)
        await clock.pass_time(20)
    starts = [at for _, at in running.order]
    assert running.most["all"] <= 2
    assert all(running.most[n] == 1 for n in range(7))
    assert all(later - first >= 2 - 1e-9 for first, later in zip(starts, starts[3:], strict=False))
    assert len(starts) >= 25


async def test_a_turn_that_was_missed_is_found_by_the_sweep_of_any_instance(
    new_queue: Callable[..., Queue], clock: Clock
) -> None:
    class Forgets(Memory):
        """Tells nobody that a key is free."""

        def _next_of(self, row: Any) -> None: ...

    store = Forgets(clock=clock)
    queue = new_queue(store=store)
    ran: list[int] = []

    @queue.kind("account", unique=Unique(one_at_a_time=True))
    async def account(n: int) -> None:
        ran.append(n)

    term = Claimable(kind="account", hold=60_000_000, attempts=9)
    await account.push(1)
    (held,) = (await store.claim([term], 1)).jobs
    await account.push(1)
    assert (await store.claim([term], 1)).jobs == []
    await store.mark([GiveBack(held.id, held.claim, after=3_600_000_000)])
    async with queue.running():
        await clock.pass_time(4.9)
        assert ran == []
        await clock.pass_time(6)
        assert ran == [1]


async def test_a_kind_without_such_options_is_asked_for_as_ever(queue: Queue, clock: Clock) -> None:
    asked: list[Claimable] = []
    claim = queue.store.claim

    async def noted(kinds: Any, limit: int, **more: Any) -> Claimed:
        asked.extend(kinds)
        return await claim(kinds, limit, **more)

    queue.store.claim = noted  # type: ignore[method-assign]

    @queue.kind("plain")
    async def plain() -> None: ...

    async with queue.running():
        await clock.pass_time(1)
    assert set(asked) == {Claimable(kind="plain", hold=75_000_000, attempts=10)}


async def test_thousands_that_wait_for_one_value_cost_a_claim_nothing(clock: Clock) -> None:
    """Counted in the jobs that a claim looks at, not in time."""
    looked = 0

    class Counting(Memory):
        def _due(self, terms: Any, now: int) -> Any:
            nonlocal looked
            for row in super()._due(terms, now):
                looked += 1
                yield row

    store = Counting(clock=clock)
    queue = Queue(store, clock=clock)

    @queue.kind("account", unique=Unique(one_at_a_time=True))
    async def account(n: int) -> None: ...

    @queue.kind("few", at_once=1)
    async def few(n: int) -> None: ...

    terms = [
        Claimable(kind="account", hold=7200_000_000, attempts=100),
        Claimable(kind="few", hold=7200_000_000, attempts=9, at_once=1),
    ]
    for _ in range(2_000):
        # Each waits to be tried again, without its value's key.
        await account.push(1)
        (job,) = (await store.claim(terms, 1)).jobs
        await store.mark([TryAgain(job.id, job.claim, 3600_000_000, "no")])
    await few.push_many(range(2_000))
    clock.advance(3600)
    assert sorted(job.kind for job in (await store.claim(terms, 8)).jobs) == ["account", "few"]
    assert looked >= 2_000
    looked = 0
    for _ in range(10):
        assert (await store.claim(terms, 8)).jobs == []
    assert looked == 0


async def test_what_is_held_back_is_observed(queue: Queue, clock: Clock, seen: list[Ran]) -> None:
    @queue.kind("k", rate=Throttle(1, per=60, by=lambda n: "all"))
    async def k(n: int) -> None: ...

    await k.push_many([1, 2])
    await queue.drain()
    assert [ran.outcome for ran in seen] == [Outcome.DONE, Outcome.HELD_BACK]

"""Schedules while a queue runs: each run is pushed once and ahead, whatever the clock, the store or a schedule does.

Longer than 600 lines, as each way in which one of these goes wrong has a test of its own.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from types import FunctionType, MethodType
from typing import Any, ClassVar

import pytest

from fastjobs import Cron, Every, Extra, Kind, Memory, Queue, Schedule, Unique, current_job
from fastjobs.clock import Timer
from fastjobs.core.duration import instant, moment
from fastjobs.core.schedule import Missed
from fastjobs.runtime import waiting
from fastjobs.runtime.scheduler import Scheduler
from fastjobs.store import Run
from fastjobs.testing import Clock
from tests.runtime.faulty import Down

pytestmark = pytest.mark.anyio
Lines = Callable[[str], list[str]]
NewQueue = Callable[..., Queue]

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Recorded(Memory):
    """Memory that tells which runs were pushed, and whose calls can be made to fail."""

    def __init__(self, *, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.pushed: list[tuple[str, datetime]] = []
        self.pushes = 0
        self.fails: dict[str, int] = {}
        """How many calls of a verb, or of a schedule's runs, are yet to fail."""
        self.hangs: set[str] = set()

    async def arrive(self, verb: str) -> None:
        if verb in self.hangs:
            await asyncio.Event().wait()
        if self.fails.get(verb, 0) > 0:
            self.fails[verb] -= 1
            raise Down(f"{verb}: the database is down")

    async def runs(self, schedules: Sequence[str]) -> Mapping[str, int]:
        await self.arrive("runs")
        return await super().runs(schedules)

    async def push_run(self, run: Run) -> bool:
        self.pushes += 1
        await self.arrive("push_run")
        await self.arrive(run.schedule)
        won = await super().push_run(run)
        if won:
            self.pushed.append((run.schedule, moment(run.due)))
        return won


@pytest.fixture
def store(clock: Clock) -> Recorded:
    return Recorded(clock=clock)


class Ticks:
    """A queue with a kind that notes when it ran."""

    def __init__(self, queue: Queue, clock: Clock) -> None:
        self.queue = queue
        self.ran: list[datetime] = []

        @queue.kind("tick")
        async def tick() -> None:
            self.ran.append(moment(clock.now()))

        self.kind: Kind[None] = tick


def minutes(*some: float) -> list[datetime]:
    return [START + n * MINUTE for n in some]


async def test_each_run_is_pushed_ahead_and_runs_at_its_time(
    new_queue: NewQueue, clock: Clock, store: Recorded
) -> None:
    ticks = Ticks(new_queue(poll=20), clock)
    ticks.kind.schedule(Every(minutes=1))
    clock.advance(30)
    async with ticks.queue.running():
        await clock.pass_time(1)
        assert store.pushed == [("tick", START + MINUTE)], "a new schedule's first run is its next"
        assert ticks.ran == []
        await clock.pass_time(28.9)
        assert ticks.ran == []
        for n in range(1, 11):
            await clock.pass_time(0.2)
            assert ticks.ran == minutes(*range(1, n + 1))
            assert store.pushed[-1] == ("tick", START + (n + 1) * MINUTE), "the next is there early"
            await clock.pass_time(59.8)
    assert [due for _, due in store.pushed] == minutes(*range(1, 12))


async def test_of_several_instances_each_run_is_pushed_once(
    new_queue: NewQueue, clock: Clock, store: Recorded
) -> None:
    several = [Ticks(new_queue(), clock) for _ in range(4)]
    for each in several:
        each.kind.schedule(Every(seconds=10))
    async with (
        several[0].queue.running(),
        several[1].queue.running(),
        several[2].queue.running(),
        several[3].queue.running(),
    ):
        await clock.pass_time(601)
    wanted = [START + timedelta(seconds=10 * n) for n in range(1, 61)]
    ran = sorted(time for each in several for time in each.ran)
    assert [each.replace(microsecond=0) for each in ran] == wanted
    assert [due for _, due in store.pushed] == [*wanted, wanted[-1] + timedelta(seconds=10)]


@pytest.mark.parametrize(
    ("missed", "late"), [("once", 1), ("skip", 0), ("all", 6)], ids=["once", "skip", "all"]
)
async def test_runs_that_nobody_was_there_for(
    new_queue: NewQueue, clock: Clock, missed: Missed, late: int
) -> None:
    async def lives(seconds: float) -> list[datetime]:
        ticks = Ticks(new_queue(), clock)
        ticks.kind.schedule(Every(minutes=1), missed=missed)
        async with ticks.queue.running():
            await clock.pass_time(seconds)
        return ticks.ran

    assert await lives(150) == minutes(1, 2)
    clock.advance(389.5)  # six came due, from 3:00 to 8:00
    assert await lives(0.4) == [START + timedelta(seconds=539.5)] * late
    assert await lives(90) == minutes(9, 10)


async def test_of_missed_runs_that_all_run_there_are_at_most_a_hundred(
    new_queue: NewQueue, clock: Clock, store: Recorded
) -> None:
    def make() -> Ticks:
        ticks = Ticks(new_queue(), clock)
        ticks.kind.schedule(Every(minutes=1), missed="all")
        return ticks

    async with make().queue.running():
        await clock.pass_time(1)
    clock.advance(timedelta(days=365))
    ticks = make()
    async with ticks.queue.running():
        await clock.pass_time(10)
    assert len(ticks.ran) == 101, "the latest hundred, and the one that was pushed before"
    now = START + timedelta(days=365)
    assert [due for _, due in store.pushed[1:]] == [now + n * MINUTE for n in range(-99, 2)]


async def test_a_new_schedule_that_skips_runs_nothing_that_came_due_before_it(
    new_queue: NewQueue, clock: Clock
) -> None:
    clock.advance(70)
    ticks = Ticks(new_queue(), clock)
    ticks.kind.schedule(Every(minutes=1), missed="skip")
    async with ticks.queue.running():
        await clock.pass_time(170)
    assert ticks.ran == minutes(2, 3, 4)


async def test_a_run_that_skips_is_pushed_a_little_late_and_not_much(
    new_queue: NewQueue, clock: Clock, store: Recorded
) -> None:
    ticks = Ticks(new_queue(), clock)
    ticks.kind.schedule(Every(minutes=5), missed="skip")
    async with ticks.queue.running():
        await clock.pass_time(301)
        for down, wanted in ((20, 1), (60, 0)):
            ticks.ran.clear()
            await clock.pass_time(290)
            store.fails["push_run"] = 1000
            await clock.pass_time(9 + down)
            store.fails.clear()
            await clock.pass_time(5)
            assert len(ticks.ran) == wanted
            await clock.pass_time(296 - down)


class Bad:
    """A schedule that does what none may."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked = 0

    def next(self, after: datetime, /) -> datetime | None:
        self.asked += 1
        if isinstance(self.answer, BaseException):
            raise self.answer
        answer: Any = self.answer
        found: datetime | None = answer(after) if isinstance(answer, FunctionType | MethodType) else answer
        return found


def _the_same(after: datetime) -> datetime:
    return after


def _a_minute_before(after: datetime) -> datetime:
    return after - MINUTE


def _once(after: datetime) -> datetime | None:
    return START + MINUTE if after < START + MINUTE else None


@pytest.mark.parametrize(
    "bad",
    [
        ZeroDivisionError("its own"),
        asyncio.CancelledError(),
        RecursionError(),
        SystemExit(3),
        _the_same,
        _a_minute_before,
        datetime(2030, 1, 1),
        "tomorrow",
        5,
    ],
    ids=["raises", "cancels", "recurses", "exits", "now", "past", "naive", "text", "number"],
)
async def test_a_bad_schedule_stops_no_other_and_is_told_once_a_minute(
    new_queue: NewQueue, clock: Clock, lines: Lines, bad: Any
) -> None:
    ticks = Ticks(new_queue(), clock)
    schedule = Bad(bad)
    ticks.kind.schedule(schedule, name="bad")
    ticks.kind.schedule(Every(seconds=1))
    async with ticks.queue.running():
        await clock.pass_time(150.5)
        told = lines("a schedule failed")
        assert len(ticks.ran) == 150
        assert len(told) == 3
        assert "schedule=bad kind=tick" in told[0]
        assert lines("a bug in fastjobs") == []
        assert 10 < schedule.asked < 400, "it's asked again, and not in a tight loop"
        schedule.answer = Every(seconds=10).next
        ticks.ran.clear()
        await clock.pass_time(20)
    assert len(ticks.ran) == 22, "it runs again once it answers"


async def test_a_schedule_that_ends_is_asked_no_more_than_others(
    new_queue: NewQueue, clock: Clock, store: Recorded
) -> None:
    ticks = Ticks(new_queue(), clock)
    schedule = Bad(_once)
    ticks.kind.schedule(schedule)
    async with ticks.queue.running():
        await clock.pass_time(3600)
    assert ticks.ran == minutes(1)
    assert len(store.pushed) == 1
    assert schedule.asked < 200


class Coarse(Clock):
    """A clock whose timers fire early, or at multiples of its grain."""

    def __init__(self, early: float, grain: float) -> None:
        super().__init__()
        self._early = early
        self._grain = grain

    def call_later(self, delay: float, callback: Callable[[], object]) -> Any:
        at = self.monotonic() + delay - self._early
        if self._grain:
            at = at // self._grain * self._grain
        timer: Timer = super().call_later(max(at - self.monotonic(), 0.0005), callback)
        return timer


@pytest.mark.parametrize(
    ("early", "grain"),
    [(0.001, 0), (0.000001, 0), (0, 0), (-0.001, 0), (0, 0.0156)],
    ids=["1 ms early", "1 us early", "exact", "1 ms late", "grain of 15.6 ms"],
)
async def test_an_early_timer_pushes_no_run_twice_and_loses_none(early: float, grain: float) -> None:
    clock = Coarse(early, grain)
    store = Recorded(clock=clock)
    ticks = Ticks(Queue(store, clock=clock, poll=10), clock)
    ticks.kind.schedule(Every(seconds=1))
    async with ticks.queue.running():
        await clock.pass_time(1000.5, turns=8)
    wanted = [START + timedelta(seconds=n) for n in range(1, 1002)]
    assert [due for _, due in store.pushed] == wanted
    assert store.pushes == len(wanted), "a look before a run's time pushed"


async def test_a_clock_that_is_set_back_runs_nothing_twice(
    new_queue: NewQueue, clock: Clock, store: Recorded, lines: Lines
) -> None:
    ticks = Ticks(new_queue(), clock)
    ticks.kind.schedule(Every(minutes=10))
    ticks.kind.schedule(Every(minutes=10), name="skips", missed="skip")
    async with ticks.queue.running():
        await clock.pass_time(3605)
        clock.step(timedelta(hours=-1))
        await clock.pass_time(3600 + 610)
    dues = [due for name, due in store.pushed if name == "tick"]
    assert dues == minutes(*range(10, 90, 10))
    assert [due for name, due in store.pushed if name == "skips"] == minutes(*range(10, 80, 10))
    assert len(lines("a schedule goes on after the run")) == 2, "each tells it once"


async def test_a_clock_that_is_set_forward_runs_late_once(
    new_queue: NewQueue, clock: Clock, store: Recorded
) -> None:
    """As after a laptop's sleep, in which no timer runs: it looks again each 30 seconds at the latest."""
    ticks = Ticks(new_queue(poll=10), clock)
    ticks.kind.schedule(Every(hours=1))
    async with ticks.queue.running():
        await clock.pass_time(10)
        clock.step(timedelta(hours=8, minutes=30))
        await clock.pass_time(31)
        assert [due for _, due in store.pushed] == minutes(60, 540)
        assert len(ticks.ran) == 1
        await clock.pass_time(1800)
        assert len(ticks.ran) == 2


async def test_a_store_that_fails_is_asked_until_it_answers(
    new_queue: NewQueue, clock: Clock, store: Recorded, lines: Lines
) -> None:
    ticks = Ticks(new_queue(), clock)
    ticks.kind.schedule(Every(minutes=1))
    store.fails = {"push_run": 3, "runs": 2}
    async with ticks.queue.running():
        await clock.pass_time(5)
        assert store.pushed == [("tick", START + MINUTE)]
        await clock.pass_time(60)
    assert ticks.ran == minutes(1)
    assert len(lines("the store failed, and is asked again part=schedules")) == 1
    assert len(lines("the store answers again part=schedules")) == 1


async def test_a_store_that_was_down_at_the_start_is_opened_once(clock: Clock) -> None:
    """The feed and the scheduler both wait for it, and each open has its close."""

    class Opens(Recorded):
        extras: ClassVar[Extra] = Recorded.extras | Extra.LIFECYCLE
        opens = closes = 0

        async def open(self, kinds: Sequence[str] = ()) -> None:
            await self.arrive("open")
            await asyncio.sleep(0)
            self.opens += 1

        async def close(self) -> None:
            self.closes += 1

    store = Opens(clock=clock)
    store.fails["open"] = 1
    ticks = Ticks(Queue(store, clock=clock), clock)
    ticks.kind.schedule(Every(minutes=1))
    async with ticks.queue.running():
        await clock.pass_time(65)
    assert ticks.ran == minutes(1)
    assert (store.opens, store.closes) == (1, 1)


async def test_a_schedule_whose_push_fails_stops_no_other(
    new_queue: NewQueue, clock: Clock, store: Recorded
) -> None:
    ticks = Ticks(new_queue(), clock)
    ticks.kind.schedule(Every(minutes=1), name="fails")
    ticks.kind.schedule(Every(minutes=1))
    store.fails["fails"] = 10**6
    async with ticks.queue.running():
        await clock.pass_time(301)
    assert ticks.ran == minutes(1, 2, 3, 4, 5)


async def test_a_store_that_hangs_is_given_up_and_asked_again(
    new_queue: NewQueue, clock: Clock, store: Recorded, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    monkeypatch.setattr("fastjobs.runtime.scheduler.limited", partial(waiting.limited, limit=0.05))
    ticks = Ticks(new_queue(), clock)
    ticks.kind.schedule(Every(minutes=1))
    store.hangs.add("push_run")
    async with ticks.queue.running():
        while not lines("the store failed, and is asked again part=schedules"):
            await asyncio.sleep(0.01)
        store.hangs.clear()
        await clock.pass_time(61)
    assert ticks.ran == minutes(1)


async def test_busy_workers_delay_no_push(new_queue: NewQueue, clock: Clock, store: Recorded) -> None:
    queue = new_queue(workers=1)
    gate = asyncio.Event()

    @queue.kind("long", timeout=3600)
    async def long() -> None:
        await gate.wait()

    long.schedule(Every(minutes=1))
    async with queue.running():
        await clock.pass_time(605)
        assert len(store.pushed) == 11
        gate.set()
        await clock.pass_time(1)


async def test_a_queue_that_only_pushes_schedules_nothing_and_a_drain_neither(
    new_queue: NewQueue, clock: Clock, store: Recorded
) -> None:
    for workers, run in ((0, True), (4, False)):
        ticks = Ticks(new_queue(workers=workers), clock)
        ticks.kind.schedule(Every(minutes=1))
        async with ticks.queue.running(run=run):
            await clock.pass_time(120)
    ticks = Ticks(new_queue(), clock)
    ticks.kind.schedule(Every(minutes=1))
    assert await ticks.queue.drain() == 0
    clock.advance(120)
    assert await ticks.queue.drain() == 0
    assert store.pushes == 0


async def test_an_instance_schedules_the_kinds_that_it_runs(
    new_queue: NewQueue, clock: Clock, store: Recorded
) -> None:
    queue = new_queue()

    @queue.kind("mail")
    async def mail() -> None: ...

    @queue.kind("photo")
    async def photo() -> None: ...

    mail.schedule(Every(minutes=1))
    photo.schedule(Every(minutes=1))
    async with queue.running(kinds=["photo"]):
        await clock.pass_time(60)
    assert store.pushed == [("photo", START + MINUTE), ("photo", START + 2 * MINUTE)]


async def test_a_run_that_was_pushed_runs_though_its_schedule_is_gone(
    new_queue: NewQueue, clock: Clock, store: Recorded
) -> None:
    before = Ticks(new_queue(), clock)
    before.kind.schedule(Every(hours=1))
    async with before.queue.running():
        await clock.pass_time(1)
    without = Ticks(new_queue(), clock)
    async with without.queue.running():
        await clock.pass_time(2 * 3600)
    assert without.ran == minutes(60)
    # It comes back a month later: nothing runs for the old date.
    clock.advance(timedelta(days=30))
    again = Ticks(new_queue(), clock)
    again.kind.schedule(Every(hours=1))
    async with again.queue.running():
        await clock.pass_time(1798)
        assert again.ran == []
        assert await store.runs(["tick"]) == {"tick": instant(START + timedelta(days=30, hours=3))}


async def test_a_schedule_that_changes_while_both_versions_run_neither_doubles_nor_starves(
    new_queue: NewQueue, clock: Clock, store: Recorded
) -> None:
    def version(expression: str) -> Ticks:
        ticks = Ticks(new_queue(poll=30), clock)
        ticks.kind.schedule(Cron(expression))
        return ticks

    old, new = version("0 2 * * *"), version("0 5 * * *")
    async with old.queue.running():
        await clock.pass_time(timedelta(hours=1), turns=4)
        async with new.queue.running():
            await clock.pass_time(timedelta(hours=24), turns=4)
    async with new.queue.running():
        await clock.pass_time(timedelta(hours=28), turns=4)
        async with old.queue.running():  # and a roll back
            await clock.pass_time(timedelta(hours=12), turns=4)
    ran = sorted([*old.ran, *new.ran])
    assert len(ran) == len(set(ran))
    days = {time.date() for time in ran}
    assert days == {START.date() + timedelta(days=n) for n in range(3)}
    assert {time.hour for time in ran} <= {2, 5}


async def test_runs_carry_nothing(new_queue: NewQueue, clock: Clock) -> None:
    class Carries:
        def carry(self, into: Any) -> None:
            into["from"] = "a request"

        def restore(self, carried: Mapping[str, str]) -> None: ...

    queue = new_queue(carry=[Carries()])
    carried: list[dict[str, str]] = []

    @queue.kind("mail")
    async def mail() -> None:
        carried.append(dict(current_job().carried))

    mail.schedule(Every(minutes=1))
    async with queue.running():
        await mail.push()
        await clock.pass_time(61)
    assert carried == [{"from": "a request"}, {}]


@pytest.mark.parametrize("missed", ["once", "skip", "all"])
async def test_no_run_of_a_unique_kind_is_lost_to_the_one_before_it(
    new_queue: NewQueue, clock: Clock, missed: Missed
) -> None:
    """As a run comes round its job waits still."""
    queue = new_queue(poll=5)
    ran: list[datetime] = []

    @queue.kind("index", unique=True)
    async def index(n: int) -> None:
        ran.append(moment(clock.now()))

    index.schedule(Every(minutes=1), 1, missed=missed)
    async with queue.running():
        await clock.pass_time(605)
    assert ran == minutes(*range(1, 11))


async def test_a_job_of_a_unique_kind_that_waits_is_the_run_and_is_not_moved(
    new_queue: NewQueue, clock: Clock, store: Recorded
) -> None:
    queue = new_queue()
    ran: list[tuple[int, datetime]] = []

    @queue.kind("index", unique=Unique(latest=True))
    async def index(n: int) -> None:
        ran.append((n, moment(clock.now())))

    index.schedule(Every(minutes=1), 1)
    async with queue.running():
        await clock.pass_time(61)
        await index.push(1, at=START + 3.5 * MINUTE)
        await index.push(2, at=START + 3.5 * MINUTE)
        await clock.pass_time(180)
    assert ran == [(1, START + MINUTE), *((n, START + 3.5 * MINUTE) for n in (1, 2)), (1, START + 4 * MINUTE)]
    assert [due for _, due in store.pushed] == minutes(1, 2, 3, 4)


async def test_runs_of_a_unique_kind_that_nobody_was_there_for_are_one(
    new_queue: NewQueue, clock: Clock
) -> None:
    ran: list[datetime] = []

    async def lives(seconds: float) -> None:
        queue = new_queue()

        @queue.kind("index", unique=True)
        async def index(n: int) -> None:
            ran.append(moment(clock.now()))

        index.schedule(Every(minutes=1), 1)
        async with queue.running():
            await clock.pass_time(seconds)

    await lives(130)
    clock.advance(400)  # to 8:50
    await lives(30)
    assert ran == [*minutes(1, 2), START + timedelta(seconds=530), *minutes(9)]


async def test_jitter_puts_off_each_job(new_queue: NewQueue, clock: Clock, store: Recorded) -> None:
    ticks = Ticks(new_queue(), clock)
    ticks.kind.schedule(Every(minutes=1), jitter=20)
    async with ticks.queue.running():
        await clock.pass_time(11 * 60)
    assert [due for _, due in store.pushed] == minutes(*range(1, 13))
    late = [(ran - due).total_seconds() for ran, due in zip(ticks.ran, minutes(*range(1, 11)), strict=False)]
    assert all(0 <= each <= 20 for each in late)
    assert len({round(each, 3) for each in late}) == 10


async def test_an_interval_longer_than_an_instance_lives_runs_all_the_same(
    new_queue: NewQueue, clock: Clock
) -> None:
    ran: list[datetime] = []
    clock.advance(3600)
    for _ in range(20):
        ticks = Ticks(new_queue(poll=600), clock)
        ticks.kind.schedule(Every(days=1))
        async with ticks.queue.running():
            await clock.pass_time(timedelta(hours=6), turns=8)
        ran += ticks.ran
    assert ran == [START + timedelta(days=n) for n in range(1, 6)]


YEAR: dict[str, tuple[Schedule, int]] = {
    "each day at a time that a change skips": (Cron("30 2 * * *", "Europe/Paris"), 365),
    "each hour": (Cron("0 * * * *", "Europe/Paris"), 365 * 24),
    "a missing midnight": (Cron("0 0 * * *", "America/Santiago"), 365),
    "a half-hour change": (Cron("*/15 * * * *", "Australia/Lord_Howe"), 365 * 96),
    "each week": (Every(weeks=1), 52),
}


@pytest.mark.parametrize("name", YEAR)
async def test_a_year_of_runs_is_pushed_each_once_in_order(clock: Clock, store: Recorded, name: str) -> None:
    """By one look after another, and the clock goes to where each says. Two instances look, in turn."""
    schedule, count = YEAR[name]
    queue = Queue(store, clock=clock)
    Ticks(queue, clock).kind.schedule(schedule)
    end = datetime(2027, 1, 1, tzinfo=UTC)

    async def opened() -> None: ...

    due_in: list[float] = []
    both = [
        Scheduler(store, clock, queue.schedules, 1.0, opened=opened, due_in=due_in.append) for _ in range(2)
    ]
    for scheduler in itertools.cycle(both):
        await scheduler.look()
        if await scheduler.look() > 0.001:
            # A look every 30 seconds that finds nothing is left out.
            last = store.pushed[-1][1]
            if last > end:
                break
            clock.step(last - moment(clock.now()))
    dues = [due for _, due in store.pushed]
    assert dues == sorted(set(dues))
    assert abs(sum(START < due <= end for due in dues) - count) <= 1
    walked = START
    for due in dues:
        found = schedule.next(walked)
        assert found == due
        walked = due
    assert len(due_in) == len(dues)

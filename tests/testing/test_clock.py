"""The clock that tests move."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import fastjobs.clock
from fastjobs.testing import Clock

pytestmark = pytest.mark.anyio


def test_it_is_a_clock_of_the_queues() -> None:
    clock: fastjobs.clock.Clock = Clock()
    assert 0 <= clock.random() < 1


def test_it_starts_at_one_instant_and_stands_still() -> None:
    clock = Clock()
    assert clock.now() == datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1_000_000
    assert (clock.now(), clock.monotonic()) == (clock.now(), 0)
    assert Clock(start=5).now() == 5


def test_advancing_moves_both_its_times() -> None:
    clock = Clock(start=0)
    clock.advance(1.5)
    clock.advance(timedelta(milliseconds=500))
    assert (clock.now(), clock.monotonic()) == (2_000_000, 2.0)


def test_no_microsecond_is_lost_in_many_small_steps() -> None:
    clock = Clock(start=0)
    for _ in range(100_000):
        clock.advance(0.1)
    assert (clock.now(), clock.monotonic()) == (10_000_000_000, 10_000.0)


def test_a_step_moves_the_wall_clock_alone() -> None:
    clock = Clock(start=0)
    fired: list[int] = []
    clock.call_later(10, lambda: fired.append(clock.now()))
    clock.step(3600)
    assert (clock.now(), clock.monotonic(), fired) == (3_600_000_000, 0, [])
    clock.step(timedelta(hours=-2))
    assert (clock.now(), clock.monotonic()) == (-3_600_000_000, 0)
    clock.advance(10)
    assert fired == [-3_590_000_000]


def test_timers_fire_in_order_each_at_its_own_time() -> None:
    clock = Clock(start=0)
    fired: list[tuple[str, int]] = []

    def ask(name: str, delay: float) -> None:
        clock.call_later(delay, lambda: fired.append((name, clock.now())))

    for name, delay in (("c", 3), ("a", 1), ("b", 2), ("b2", 2), ("d", 4.000001)):
        ask(name, delay)
    clock.advance(4)
    assert fired == [("a", 1_000_000), ("b", 2_000_000), ("b2", 2_000_000), ("c", 3_000_000)]
    assert (clock.now(), clock.waiting) == (4_000_000, 1)
    clock.advance(0.000001)
    assert fired[-1] == ("d", 4_000_001)


def test_a_timer_never_fires_before_its_delay_has_passed() -> None:
    clock = Clock()
    fired: list[str] = []
    clock.call_later(0.0000001, lambda: fired.append("soon"))
    clock.advance(0)
    assert fired == []
    clock.advance(0.000001)
    assert fired == ["soon"]


def test_a_timer_of_no_delay_waits_for_the_next_move() -> None:
    clock = Clock()
    fired: list[str] = []
    clock.call_later(0, lambda: fired.append("now"))
    clock.call_later(-5, lambda: fired.append("before"))
    assert fired == []
    clock.advance(0)
    assert fired == ["now", "before"]


def test_a_timer_that_a_callback_asks_for_fires_on_the_way() -> None:
    clock = Clock(start=0)
    fired: list[int] = []

    def tick() -> None:
        fired.append(clock.now() // 1_000_000)
        clock.call_later(10, tick)

    clock.call_later(10, tick)
    clock.advance(35)
    assert fired == [10, 20, 30]
    assert (clock.now(), clock.waiting) == (35_000_000, 1)


def test_a_cancelled_timer_never_fires() -> None:
    clock = Clock()
    fired: list[str] = []
    timer = clock.call_later(1, lambda: fired.append("no"))
    kept = clock.call_later(2, lambda: fired.append("yes"))
    timer.cancel()
    timer.cancel()
    assert clock.waiting == 1
    clock.advance(5)
    kept.cancel()
    assert fired == ["yes"]


def test_a_callback_may_cancel_another_due_at_its_time() -> None:
    clock = Clock()
    fired: list[str] = []
    clock.call_later(1, lambda: other.cancel())
    other = clock.call_later(1, lambda: fired.append("no"))
    clock.advance(1)
    assert fired == []


def test_what_a_callback_raises_comes_out_at_its_time() -> None:
    clock = Clock(start=0)
    fired: list[str] = []

    def fail() -> None:
        raise LookupError("broken")

    clock.call_later(1, fail)
    clock.call_later(2, lambda: fired.append("after"))
    with pytest.raises(LookupError, match="broken"):
        clock.advance(5)
    assert (clock.now(), fired) == (1_000_000, [])
    clock.advance(1)
    assert fired == ["after"]


def test_a_callback_may_move_the_clock_itself() -> None:
    clock = Clock(start=0)
    clock.call_later(1, lambda: clock.advance(10))
    clock.advance(2)
    assert clock.now() == 11_000_000


def test_its_random_numbers_are_the_same_each_time_or_one_that_was_set() -> None:
    one, two, other = Clock(seed=1), Clock(seed=1), Clock(seed=2)
    numbers = [one.random() for _ in range(5)]
    assert numbers == [two.random() for _ in range(5)]
    assert numbers != [other.random() for _ in range(5)]
    one.chance = 0.25
    assert (one.random(), one.random()) == (0.25, 0.25)


async def test_passing_time_lets_tasks_run_between_the_timers() -> None:
    clock = Clock(start=0)
    seen: list[int] = []

    async def wait(seconds: float) -> None:
        woken = asyncio.Event()
        clock.call_later(seconds, woken.set)
        await woken.wait()

    async def worker() -> None:
        for _ in range(3):
            await wait(10)
            seen.append(clock.now() // 1_000_000)

    task = asyncio.create_task(worker())
    await clock.pass_time(25)
    assert (seen, clock.now()) == ([10, 20], 25_000_000)
    await clock.pass_time(timedelta(seconds=5))
    assert seen == [10, 20, 30]
    await task


async def test_passing_no_time_lets_the_loop_settle() -> None:
    clock = Clock()
    done: list[str] = []

    async def chain(left: int) -> None:
        if left:
            await asyncio.create_task(chain(left - 1))
        done.append("done")

    task = asyncio.create_task(chain(5))
    await clock.pass_time(0)
    assert len(done) == 6
    await task

"""What is kept long enough is removed, in small steps, by every instance that runs jobs, and by no other."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fastjobs import Memory, Permanent, Queue, RegistrationError
from fastjobs.runtime import pruning
from fastjobs.runtime.waiting import pause
from fastjobs.testing import Clock
from tests.runtime.conftest import Mail
from tests.runtime.faulty import Down

pytestmark = pytest.mark.anyio
Lines = Callable[[str], list[str]]
DAY = 86_400.0


class Prunes(Memory):
    """Tells what was asked of its prunes, and may fail or answer what it's told to."""

    def __init__(self, *, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.clock = clock
        self.steps: list[tuple[int, int]] = []
        self.at: list[float] = []
        self.down = False
        self.takes = 0.0
        """Seconds that a step takes."""

    async def prune(self, failed_for: int, limit: int) -> int:
        self.at.append(self.clock.monotonic())
        if self.down:
            raise Down("prune: the database is down")
        self.steps.append((failed_for, limit))
        if self.takes:
            await pause(self.clock, self.takes)
        return await super().prune(failed_for, limit)


@pytest.fixture
def store(clock: Clock) -> Prunes:
    return Prunes(clock=clock)


def fails(queue: Queue) -> Any:
    @queue.kind("mail", keep_name=60)
    async def mail(value: Mail) -> None:
        raise Permanent("no")

    return mail


async def test_failed_jobs_are_kept_for_thirty_days_and_then_removed(
    queue: Queue, clock: Clock, lines: Lines
) -> None:
    mail = fails(queue)
    assert queue.keep_failed == timedelta(days=30)
    async with queue.running():
        await mail.push_many([Mail(user=n) for n in range(3)])
        await clock.pass_time(1)
        clock.advance(29.9 * DAY)
        await clock.pass_time(200)
        assert len(await queue.failed()) == 3
        assert lines("what was kept long enough") == []
        clock.advance(0.1 * DAY)
        await clock.pass_time(200)
        assert await queue.failed() == []
    assert lines("what was kept long enough") == [
        "what was kept long enough was removed: failed jobs, names rows=3"
    ]


@pytest.mark.parametrize("keep", [3600, timedelta(hours=1)], ids=["seconds", "timedelta"])
async def test_keep_failed_says_how_long(new_queue: Callable[..., Queue], clock: Clock, keep: object) -> None:
    queue = new_queue(keep_failed=keep)
    assert queue.keep_failed == timedelta(hours=1)
    mail = fails(queue)
    async with queue.running():
        await mail.push(Mail(user=1))
        await clock.pass_time(3500)
        assert len(await queue.failed()) == 1
        await clock.pass_time(200)
        assert await queue.failed() == []


async def test_without_it_failed_jobs_stay_for_ever_and_ended_names_still_go(
    new_queue: Callable[..., Queue], clock: Clock, store: Prunes
) -> None:
    queue = new_queue(keep_failed=None)
    assert queue.keep_failed is None
    mail = fails(queue)

    @queue.kind("named", keep_name=60)
    async def named(value: Mail) -> None: ...

    async with queue.running():
        await mail.push(Mail(user=1))
        await named.push(Mail(user=1), name="once")
        await clock.pass_time(1)
        assert list(store._names) == ["once"]
        clock.advance(100 * 365 * DAY)
        await clock.pass_time(200)
        assert len(await queue.failed()) == 1
        assert store._names == {}


@pytest.mark.parametrize("bad", [-1, "30 days", float("nan"), True])
def test_what_is_no_duration_is_refused(bad: Any) -> None:
    with pytest.raises(RegistrationError, match="keep_failed is"):
        Queue(Memory(), keep_failed=bad)


async def test_many_are_removed_in_steps_with_a_breath_between_them(
    new_queue: Callable[..., Queue], clock: Clock, store: Prunes, lines: Lines
) -> None:
    queue = new_queue(keep_failed=0, workers=50)
    mail = fails(queue)
    await mail.push_many([Mail(user=n) for n in range(1201)])
    await queue.drain()
    clock.advance(1)
    async with queue.running():
        await clock.pass_time(91)
    assert store.steps[:3] == [(0, pruning.STEP)] * 3
    assert await queue.failed() == []
    steps = [later - at for at, later in zip(store.at, store.at[1:], strict=False)][:2]
    assert all(pruning.BREATH <= step <= 2 * pruning.BREATH for step in steps)
    assert lines("what was kept long enough")[0].endswith("rows=1201")


async def test_a_step_that_took_long_has_a_pause_as_long_after_it(
    new_queue: Callable[..., Queue], clock: Clock, store: Prunes
) -> None:
    queue = new_queue(keep_failed=0)
    mail = fails(queue)
    await mail.push_many([Mail(user=n) for n in range(pruning.STEP + 1)])
    await queue.drain()
    clock.advance(1)
    store.takes = 3.0
    async with queue.running():
        await clock.pass_time(110)
        first, second = store.at[:2]
        assert 3 + 3 <= second - first <= 3 + 6


async def test_instances_keep_no_step_and_each_asks_about_once_a_minute(
    new_queue: Callable[..., Queue], clock: Clock, store: Prunes
) -> None:
    queues = [new_queue(), new_queue()]
    for queue in queues:
        fails(queue)
    async with queues[0].running(), queues[1].running():
        await clock.pass_time(3600)
    assert len(set(store.at)) == len(store.at)
    assert 90 <= len(store.at) <= 150


async def test_a_queue_that_runs_no_jobs_prunes_nothing(
    new_queue: Callable[..., Queue], clock: Clock, store: Prunes
) -> None:
    for settings, run in (({"workers": 0}, True), ({}, False)):
        queue = new_queue(**settings)
        fails(queue)
        async with queue.running(run=run):
            await clock.pass_time(600)
    assert store.at == []


async def test_an_outage_is_told_once_and_the_rest_is_removed_after_it(
    new_queue: Callable[..., Queue], clock: Clock, store: Prunes, lines: Lines
) -> None:
    queue = new_queue(keep_failed=0)
    mail = fails(queue)
    async with queue.running():
        await mail.push(Mail(user=1))
        await clock.pass_time(1)
        store.down = True
        await clock.pass_time(300)
        assert len(await queue.failed()) == 1
        store.down = False
        await clock.pass_time(100)
        assert await queue.failed() == []
    assert len(lines("the store failed, and is asked again part=prune")) == 1
    assert len(lines("the store answers again part=prune")) == 1

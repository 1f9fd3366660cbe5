"""`q.health()`: what a readiness probe is told, without a call of the store, from any thread."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict

import pytest

from fastjobs import Extra, Health, Queue
from fastjobs.testing import Clock
from tests.runtime.conftest import Mail
from tests.runtime.faulty import Unsteady

pytestmark = pytest.mark.anyio


@pytest.fixture
def store(clock: Clock) -> Unsteady:
    return Unsteady(clock=clock)


def with_mail(queue: Queue) -> Queue:
    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    return queue


async def test_a_queue_that_doesnt_run_is_not_well_and_says_so(queue: Queue) -> None:
    with_mail(queue)
    before = queue.health()
    async with queue.running():
        assert queue.health().running
    assert before == queue.health()
    assert (before.ok, before.running, before.workers) == (False, False, 0)


async def test_a_queue_that_runs_is_well_from_its_start_on(queue: Queue, clock: Clock) -> None:
    with_mail(queue)
    async with queue.running():
        assert queue.health().ok, "its store was opened, though nothing was claimed yet"
        assert queue.health().claimed is None
        await clock.pass_time(100.4)
        health = queue.health()
        assert health.claimed is not None
        assert health.claimed <= 1
        assert health == Health(
            ok=True,
            running=True,
            stopping=False,
            store_ok=True,
            down_for=None,
            claimed=health.claimed,
            workers=4,
            busy=0,
            waiting=0,
            oldest=None,
            crashed=(),
        )
        json.dumps(asdict(health))


async def test_it_is_not_well_once_the_store_has_given_no_answer_for_15_seconds(
    queue: Queue, clock: Clock, store: Unsteady
) -> None:
    with_mail(queue)
    async with queue.running():
        await clock.pass_time(2)
        store.before.add("claim")
        await clock.pass_time(10)
        health = queue.health()
        assert health.ok, "an outage of a moment takes no instance out of service"
        assert not health.store_ok
        assert health.down_for == pytest.approx(9.5, abs=0.6)
        await clock.pass_time(8)
        assert not queue.health().ok
        store.before.clear()
        await clock.pass_time(1)
        assert queue.health().ok
        assert queue.health().store_ok


@pytest.mark.parametrize(("poll", "patience"), [(1, 15), (20, 60)])
async def test_a_store_that_hangs_and_a_loop_that_stands_still_are_seen_after_15_seconds_or_three_polls(
    new_queue: Callable[..., Queue], clock: Clock, store: Unsteady, poll: float, patience: float
) -> None:
    queue = with_mail(new_queue(poll=poll))
    async with queue.running():
        await clock.pass_time(0)
        store.hang.add("claim")
        await clock.pass_time(poll)  # this claim has no answer, and the limit of its call is by real time
        await clock.pass_time(patience - poll - 1)
        assert queue.health().ok
        await clock.pass_time(2)
        assert not queue.health().ok


class Closed(Unsteady):
    """One that is to be opened, and can't be yet."""

    extras = Unsteady.extras | Extra.LIFECYCLE

    async def open(self, kinds: Sequence[str] = ()) -> None:
        await self.arrive("claim")

    async def close(self) -> None: ...


async def test_a_queue_whose_store_was_down_at_its_start_is_not_well_until_it_answers(
    new_queue: Callable[..., Queue], clock: Clock
) -> None:
    store = Closed(clock=clock)
    queue = with_mail(new_queue(store=store))
    store.before.add("claim")
    async with queue.running():
        await clock.pass_time(2)
        assert not queue.health().ok
        store.before.clear()
        await clock.pass_time(2)
        assert queue.health().ok


async def test_busy_workers_are_well_however_long_they_are_busy(
    new_queue: Callable[..., Queue], clock: Clock
) -> None:
    queue = new_queue(workers=2)

    @queue.kind("night", timeout=36_000)
    async def night() -> None:
        await asyncio.Event().wait()

    await night.push_many([None] * 3)
    async with queue.running():
        await clock.pass_time(3600)
        health = queue.health()
        assert (health.ok, health.workers, health.busy, health.waiting) == (True, 2, 2, 0)
        assert health.oldest == pytest.approx(3600, abs=1)
        assert health.claimed == pytest.approx(3600, abs=1)


async def test_marks_that_cant_be_kept_are_an_outage_until_they_are_kept_or_given_up(
    queue: Queue, clock: Clock, store: Unsteady
) -> None:
    with_mail(queue)
    store.before.add("mark")
    async with queue.running():
        for kind in queue._kinds.values():
            await kind.push(Mail(user=1))
        await clock.pass_time(5)
        assert not queue.health().store_ok
        await clock.pass_time(15)
        assert not queue.health().ok
        store.before.clear()
        await clock.pass_time(2)
        assert queue.health().ok


async def test_a_bug_counts_for_a_minute_and_names_its_loop(
    queue: Queue, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_mail(queue)
    async with queue.running():
        life = queue._life
        assert life is not None
        with monkeypatch.context() as patched:
            patched.setattr(life.feed, "_load", lambda: 1 / 0)
            queue.wake()
            await clock.pass_time(0.5)
        await clock.pass_time(30)
        assert queue.health().crashed == ("the feed",)
        assert not queue.health().ok
        await clock.pass_time(31)
        assert queue.health().crashed == ()
        assert queue.health().ok


async def test_a_queue_that_stops_is_not_well(queue: Queue) -> None:
    started, end = asyncio.Event(), asyncio.Event()

    @queue.kind("long")
    async def long() -> None:
        started.set()
        await end.wait()

    stopping = asyncio.Event()

    async def serve() -> None:
        async with queue.running():
            await long.push()
            await started.wait()
        stopping.set()

    serving = asyncio.create_task(serve())
    await started.wait()
    await asyncio.sleep(0.01)
    health = queue.health()
    assert (health.ok, health.running, health.stopping, health.busy) == (False, True, True, 1)
    end.set()
    await serving


async def test_a_queue_that_only_pushes_is_well_as_it_runs(
    new_queue: Callable[..., Queue], clock: Clock, store: Unsteady
) -> None:
    queue = with_mail(new_queue(workers=0))
    store.before.add("claim")
    async with queue.running():
        await clock.pass_time(1000)
        health = queue.health()
        assert (health.ok, health.workers, health.claimed) == (True, 0, None)


async def test_any_thread_may_ask_while_jobs_come_and_go(queue: Queue) -> None:
    kind = with_mail(queue)._kinds["mail"]
    answers: list[Health] = []
    errors: list[BaseException] = []
    over = threading.Event()

    def ask() -> None:
        try:
            while not over.is_set():
                answers.append(queue.health())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    async with queue.running():
        thread.start()
        for _ in range(200):
            await kind.push_many([Mail(user=1)] * 10)
            await asyncio.sleep(0)
        over.set()
        await asyncio.to_thread(thread.join)
    assert errors == []
    assert {health.running for health in answers} == {True}


async def test_it_asks_the_store_nothing(queue: Queue, store: Unsteady) -> None:
    with_mail(queue)
    async with queue.running():
        before = dict(store.calls)
        for _ in range(100):
            queue.health()
        assert store.calls == before

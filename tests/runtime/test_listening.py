"""A queue that runs listens for other instances' pushes, where its store can: a hint, whose faults matter to nobody."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest

from fastjobs import Memory, Queue, Ran
from fastjobs.clock import Clock as AnyClock
from fastjobs.runtime import waiting
from fastjobs.store import Extra
from fastjobs.testing import Clock
from tests.runtime.conftest import Mail
from tests.runtime.faulty import Down

pytestmark = pytest.mark.anyio
Lines = Callable[[str], list[str]]


class Ear(Memory):
    """Memory whose listening the tests decide on; it wakes nobody by itself."""

    def __init__(self, *, clock: AnyClock) -> None:
        super().__init__(clock=clock)
        self.fails: Exception | None = None
        self.fails_at_its_end: Exception | None = None
        self.lost = asyncio.Event()
        self.enters = asyncio.Event()
        self.enters.set()
        self.hangs_at_its_end = False
        self.entered = 0
        self.inside = 0
        self.hears: Callable[[], None] = lambda: None

    @asynccontextmanager
    async def listen(self, wake: Callable[[], None]) -> AsyncGenerator[None]:
        self.entered += 1
        if self.fails is not None:
            raise self.fails
        await self.enters.wait()
        self.hears = wake
        self.inside += 1
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._until_lost())
                try:
                    yield
                finally:
                    watching.cancel()
        finally:
            self.inside -= 1
            if self.fails_at_its_end is not None:
                raise self.fails_at_its_end
            while self.hangs_at_its_end:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    continue

    async def _until_lost(self) -> None:
        await self.lost.wait()
        self.lost.clear()
        raise Down("the connection that listens was cut")


@pytest.fixture
def store(clock: Clock) -> Ear:
    return Ear(clock=clock)


def with_mail(queue: Queue) -> Queue:
    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    return queue


async def push_elsewhere(store: Memory, *, clock: Clock) -> None:
    """As another instance does: this one's queue is told of nothing."""
    elsewhere = with_mail(Queue(store, workers=0, clock=clock))
    await elsewhere.kinds["mail"].push(Mail(user=1))


async def test_of_two_queues_on_one_memory_each_starts_what_the_other_pushes_at_once(
    clock: Clock, new_queue: Callable[..., Queue], seen: list[Ran]
) -> None:
    store = Memory(clock=clock)
    queue = with_mail(new_queue(store=store, poll=3600))
    async with queue.running():
        await clock.pass_time(1)
        for n in range(3):
            await push_elsewhere(store, clock=clock)
            await clock.pass_time(0)
            assert len(seen) == n + 1


async def test_a_wake_from_a_thread_is_heard_and_many_are_one(
    clock: Clock,
    new_queue: Callable[..., Queue],
    store: Ear,
    seen: list[Ran],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = with_mail(new_queue(poll=3600))
    async with queue.running():
        await clock.pass_time(1)
        life = queue._life
        assert life is not None
        wakes = 0
        woken = life.feed.wake

        def wake() -> None:
            nonlocal wakes
            wakes += 1
            woken()

        monkeypatch.setattr(life.feed, "wake", wake)
        await push_elsewhere(store, clock=clock)

        def hear() -> None:
            for _ in range(1000):
                store.hears()

        thread = threading.Thread(target=hear)
        thread.start()
        thread.join()  # the loop has no turn meanwhile
        await clock.pass_time(0)
        assert (len(seen), wakes) == (1, 1)


async def test_what_was_pushed_before_it_listens_is_found_as_it_does(
    clock: Clock, new_queue: Callable[..., Queue], store: Ear, seen: list[Ran]
) -> None:
    store.enters.clear()
    queue = with_mail(new_queue(poll=3600))
    async with queue.running():
        await clock.pass_time(1)
        await push_elsewhere(store, clock=clock)
        await clock.pass_time(1)
        assert seen == []
        store.enters.set()
        await clock.pass_time(0)
        assert len(seen) == 1


async def test_a_listen_that_fails_is_told_once_a_minute_and_entered_again_while_jobs_run_by_the_poll(
    clock: Clock, new_queue: Callable[..., Queue], store: Ear, seen: list[Ran], lines: Lines
) -> None:
    store.fails = Down("no more connections")
    queue = with_mail(new_queue(poll=2))
    async with queue.running():
        await push_elsewhere(store, clock=clock)
        await clock.pass_time(2)
        assert len(seen) == 1
        await clock.pass_time(298)
        assert 150 <= store.entered <= 330, "again, at a pace that grows to the poll"
        told = [line for line in lines("the store ") if "part=listening" in line]
        assert 4 <= len(told) <= 6, "once, then once a minute"
        assert queue.health().ok, "no job waits longer than the poll"
        store.fails = None
        await clock.pass_time(4)
        assert len(lines("the store answers again part=listening")) == 1
        await push_elsewhere(store, clock=clock)
        store.hears()
        await clock.pass_time(0)
        assert len(seen) == 2
    assert not [each for each in lines("a bug in fastjobs")]


@pytest.mark.parametrize(("poll", "most"), [(0.1, 1.0), (3600, 30.0)])
async def test_the_wait_before_it_is_tried_again_grows_to_the_poll_or_half_a_minute(
    poll: float, most: float, clock: Clock, new_queue: Callable[..., Queue], store: Ear
) -> None:
    store.fails = Down("no more connections")
    clock.chance = 1.0
    queue = with_mail(new_queue(poll=poll))
    async with queue.running():
        await clock.pass_time(100)
        before = store.entered
        await clock.pass_time(10 * most)
        assert store.entered == before + 10


async def test_a_listen_that_is_lost_is_entered_again_and_finds_what_was_pushed_meanwhile(
    clock: Clock, new_queue: Callable[..., Queue], store: Ear, seen: list[Ran], lines: Lines
) -> None:
    queue = with_mail(new_queue(poll=3600))
    async with queue.running():
        await clock.pass_time(1)
        await push_elsewhere(store, clock=clock)
        store.lost.set()
        await clock.pass_time(1)
        assert (store.entered, store.inside, len(seen)) == (2, 1, 1)
    assert not lines("a bug in fastjobs")


async def test_a_listen_that_is_lost_as_soon_as_it_is_entered_is_an_outage_that_lasts(
    clock: Clock, new_queue: Callable[..., Queue], store: Ear, lines: Lines
) -> None:
    queue = with_mail(new_queue(poll=5))

    async def cut() -> None:
        while True:
            store.lost.set()
            await asyncio.sleep(0)

    cutting = asyncio.create_task(cut())
    async with queue.running():
        await clock.pass_time(100)
        assert 20 <= store.entered <= 60
        assert not lines("the store answers again")
    cutting.cancel()


async def test_an_entry_that_hangs_delays_neither_the_start_nor_the_stop_and_is_given_up(
    clock: Clock,
    new_queue: Callable[..., Queue],
    store: Ear,
    seen: list[Ran],
    lines: Lines,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fastjobs.runtime.listening.limited", partial(waiting.limited, limit=0.05))
    store.enters.clear()
    queue = with_mail(new_queue(poll=1, grace=30))
    async with queue.running():
        await push_elsewhere(store, clock=clock)
        await clock.pass_time(1)
        assert len(seen) == 1
        while not lines("the store failed"):
            await asyncio.sleep(0.005)
        await clock.pass_time(1)
        assert store.entered == 2
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 5
    assert "gave no answer to listening" in lines("the store failed")[0]


async def test_a_listen_that_never_lets_go_keeps_the_stop_for_a_moment_alone(
    clock: Clock, new_queue: Callable[..., Queue], store: Ear
) -> None:
    store.hangs_at_its_end = True
    queue = with_mail(new_queue(grace=30))
    async with queue.running():
        await clock.pass_time(1)
        life = queue._life
        assert life is not None
        assert life._listening is not None
        left = life._listening.task
        assert left is not None
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 5
    store.hangs_at_its_end = False
    left.cancel()
    await asyncio.wait([left])


async def test_a_listen_that_fails_as_it_is_left_is_nobodys_trouble(
    clock: Clock, new_queue: Callable[..., Queue], store: Ear, caplog: pytest.LogCaptureFixture
) -> None:
    store.fails_at_its_end = Down("the connection was cut")
    queue = with_mail(new_queue(grace=30))
    with caplog.at_level(logging.DEBUG, logger="fastjobs"):
        async with queue.running():
            await clock.pass_time(1)
            began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 5
    assert (store.entered, store.inside) == (1, 0)
    assert caplog.messages == []


async def test_a_listen_that_fails_as_all_tasks_are_cancelled_ends(
    clock: Clock, new_queue: Callable[..., Queue], store: Ear
) -> None:
    """As asyncio.run does at its end, which waits for each."""
    store.fails_at_its_end = Down("the connection was cut")
    queue = with_mail(new_queue())
    async with queue.running():
        await clock.pass_time(1)
        life = queue._life
        assert life is not None
        assert life._listening is not None
        task = life._listening.task
        assert task is not None
        task.cancel()
        await asyncio.wait([task], timeout=5)
        assert task.done()
        assert store.entered == 1


async def test_it_is_left_at_the_stop_and_entered_again_at_the_next_start(
    clock: Clock, new_queue: Callable[..., Queue], store: Ear
) -> None:
    queue = with_mail(new_queue())
    for n in range(3):
        async with queue.running():
            await clock.pass_time(1)
            assert (store.entered, store.inside) == (n + 1, 1)
        assert store.inside == 0
        store.hears()  # one that comes late is nothing


async def test_a_queue_that_runs_nothing_does_not_listen(
    clock: Clock, new_queue: Callable[..., Queue], store: Ear
) -> None:
    for queue, run in (
        (with_mail(new_queue(workers=0)), True),
        (with_mail(new_queue()), False),
        (new_queue(), True),
    ):
        async with queue.running(run=run):
            await clock.pass_time(1)
    assert store.entered == 0


async def test_a_store_that_lacks_it_is_not_asked(
    clock: Clock, new_queue: Callable[..., Queue], seen: list[Ran]
) -> None:
    class Deaf(Ear):
        extras = Ear.extras & ~Extra.LISTEN

    store = Deaf(clock=clock)
    queue = with_mail(new_queue(store=store, poll=5))
    async with queue.running():
        await clock.pass_time(1)
        await push_elsewhere(store, clock=clock)
        await clock.pass_time(5)
    assert (store.entered, len(seen)) == (0, 1)

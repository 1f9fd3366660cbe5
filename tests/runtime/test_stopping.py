"""A stop is nobody's fault: nothing new starts, what runs has its grace, and the rest goes back as it was."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from fastjobs import Memory, Outcome, Permanent, Queue, Ran, current_job
from fastjobs.clock import SystemClock
from fastjobs.runtime.living import live
from fastjobs.store import Claimable
from fastjobs.testing import Clock
from tests.runtime.conftest import Mail
from tests.runtime.faulty import Unsteady

pytestmark = pytest.mark.anyio
Lines = Callable[[str], list[str]]


async def _deaf(end: list[bool]) -> None:
    """Swallows every cancellation, and being closed too, until it may end."""
    while not end:
        try:
            await asyncio.Event().wait()
        except BaseException:
            continue


@pytest.fixture
def real(seen: list[Ran]) -> Callable[..., Queue]:
    """Queues on real time, for what a stop may take of it."""

    def new(**settings: Any) -> Queue:
        return Queue(Memory(), observe=seen.append, **settings)

    return new


async def test_a_running_job_has_its_grace_to_finish(real: Callable[..., Queue], seen: list[Ran]) -> None:
    queue = real(grace=5)
    started = asyncio.Event()

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        started.set()
        await asyncio.sleep(0.1)

    async with queue.running():
        await mail.push(Mail(user=1))
        await started.wait()
    assert [ran.outcome for ran in seen] == [Outcome.DONE]


async def test_a_job_that_outlasts_grace_is_put_back_due_at_once_with_its_attempt(
    real: Callable[..., Queue], seen: list[Ran]
) -> None:
    queue = real(grace=0.1)
    attempts: list[tuple[int, str | None]] = []
    started = asyncio.Event()

    @queue.kind("mail", attempts=1)
    async def mail(value: Mail) -> None:
        attempts.append((current_job().attempt, current_job().last_error))
        if len(attempts) == 1:
            started.set()
            await asyncio.sleep(60)

    async with queue.running():
        await mail.push(Mail(user=1))
        await started.wait()
    assert [ran.outcome for ran in seen] == [Outcome.RETRIED]
    assert await queue.drain() == 1
    assert attempts == [(1, None), (1, "stopped with the queue; it runs again")]


@pytest.mark.parametrize("raised", [ValueError("in finally"), Permanent("in finally"), SystemExit(1)])
async def test_a_deploy_never_fails_a_job_whatever_its_handler_raises_as_it_is_cancelled(
    real: Callable[..., Queue], seen: list[Ran], raised: BaseException
) -> None:
    queue = real(grace=0)
    started = asyncio.Event()

    @queue.kind("mail", attempts=1)
    async def mail(value: Mail) -> None:
        try:
            started.set()
            await asyncio.sleep(60)
        finally:
            raise raised

    async with queue.running():
        await mail.push(Mail(user=1))
        await started.wait()
    assert [ran.outcome for ran in seen] == [Outcome.RETRIED]


async def test_a_handler_that_swallows_its_cancellation_and_returns_is_done(
    real: Callable[..., Queue], seen: list[Ran]
) -> None:
    queue = real(grace=0)
    started = asyncio.Event()

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return

    async with queue.running():
        await mail.push(Mail(user=1))
        await started.wait()
    assert [ran.outcome for ran in seen] == [Outcome.DONE]


async def test_the_stop_takes_grace_and_a_second_at_most_whatever_handlers_do(
    real: Callable[..., Queue], lines: Lines
) -> None:
    queue = real(grace=0.2, workers=20)
    running = 0
    end: list[bool] = []

    @queue.kind("deaf")
    async def deaf() -> None:
        nonlocal running
        running += 1
        await _deaf(end)

    async with queue.running():
        for _ in range(20):
            await deaf.push()
        while running < 20:
            await asyncio.sleep(0)
        began = time.monotonic()
    assert time.monotonic() - began < 0.2 + 1
    assert len(lines("a handler was left behind as the queue stopped")) == 20
    deaf_kind = Claimable(kind="deaf", hold=1_000_000, attempts=1)
    back = await queue.store.claim([deaf_kind], 50)
    assert [job.attempts for job in back.jobs] == [1] * 20, "all are due at once, no attempt lost"
    end.append(True)


async def test_an_on_fail_runs_as_the_queue_stops_with_what_is_left_of_grace(
    real: Callable[..., Queue],
) -> None:
    queue = real(grace=5)
    started, told = asyncio.Event(), list[str]()

    @queue.kind("mail", attempts=1)
    async def mail(value: Mail) -> None:
        started.set()
        await asyncio.sleep(0.1)
        raise ValueError("no")

    @mail.on_fail
    async def tell(value: Mail, error: Exception) -> None:
        assert [job.id for job in await queue.failed()] == [current_job().id], "it's kept as failed by then"
        await asyncio.sleep(0.1)
        told.append(f"{value.user}: {error}")

    async with queue.running():
        await mail.push(Mail(user=1))
        await started.wait()
    assert told == ["1: no"]


async def test_nothing_starts_once_the_stop_has_begun_and_grace_is_one_for_all_queues(
    real: Callable[..., Queue], seen: list[Ran]
) -> None:
    queues = [real(grace=5, workers=2) for _ in range(3)]
    starts: list[float] = []
    begun = 0.0

    async def job() -> None:
        starts.append(time.monotonic())
        await asyncio.sleep(0.3)

    kinds = [queue.kind("slow")(job) for queue in queues]
    async with live(queues):
        for kind in kinds:
            await kind.push_many([None] * 100)
        while len(starts) < 6:
            await asyncio.sleep(0)
        begun = time.monotonic()
    took = time.monotonic() - begun
    assert max(starts) <= begun
    assert took < 0.3 * 2, "they stop together, not one after another"
    assert [ran.outcome for ran in seen] == [Outcome.DONE] * 6


async def test_jobs_claimed_ahead_go_back_untouched(
    new_queue: Callable[..., Queue], clock: Clock, store: Memory, seen: list[Ran]
) -> None:
    queue, other = new_queue(workers=2), new_queue()
    gate = asyncio.Event()
    ran = 0

    async def short(value: Mail) -> None:
        nonlocal ran
        ran += 1
        if ran > 400:
            await gate.wait()

    quick = queue.kind("quick")(short)
    attempts: list[int] = []

    @other.kind("quick")
    async def again(value: Mail) -> None:
        attempts.append(current_job().attempt)

    async with queue.running():
        await quick.push_many([Mail(user=n) for n in range(800)])
        while ran < 402:
            await clock.pass_time(0.001)
        life = queue._life
        assert life is not None
        assert len(life._runs) > 2, "a prefetch was claimed beside what runs"
        stopping = asyncio.ensure_future(clock.pass_time(0.01))
        gate.set()
    await stopping
    left = 800 - sum(each.outcome is Outcome.DONE for each in seen)
    assert await other.drain() == left
    assert set(attempts) <= {1}


async def test_leaving_at_once_or_with_an_error_stops_at_once(real: Callable[..., Queue]) -> None:
    queue = real(grace=30)

    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    began = time.monotonic()
    for _ in range(50):
        async with queue.running():
            pass
    with pytest.raises(ZeroDivisionError):
        async with queue.running():
            raise ZeroDivisionError
    assert time.monotonic() - began < 5


async def test_a_cancelled_run_gives_its_jobs_their_grace(
    real: Callable[..., Queue], seen: list[Ran]
) -> None:
    queue = real(grace=5)
    started = asyncio.Event()

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        started.set()
        await asyncio.sleep(0.1)

    running = asyncio.create_task(queue.run())
    await asyncio.sleep(0)
    await mail.push(Mail(user=1))
    await started.wait()
    running.cancel()
    await asyncio.sleep(0.01)
    running.cancel()  # the impatient operator's second Ctrl-C
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [ran.outcome for ran in seen] == [Outcome.DONE]


async def test_a_stop_while_the_store_hangs_or_is_down_ends_in_time(lines: Lines) -> None:
    for fault in ("hang", "before"):
        store = Unsteady(clock=SystemClock())
        queue = Queue(store, grace=0.1)
        started = asyncio.Event()

        @queue.kind("mail")
        async def mail(value: Mail, started: asyncio.Event = started) -> None:
            started.set()
            await asyncio.sleep(0.01)

        async with queue.running():
            await mail.push(Mail(user=1))
            await started.wait()
            getattr(store, fault).update({"claim", "mark", "extend"})
            began = time.monotonic()
        assert time.monotonic() - began < 0.1 + 1


async def test_a_queue_starts_and_stops_and_starts_again_on_another_loop() -> None:
    queue = Queue(Memory())
    ran = 0

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        nonlocal ran
        ran += 1

    async def once() -> None:
        before = ran
        async with queue.running():
            await mail.push(Mail(user=1))
            while ran == before:
                await asyncio.sleep(0)

    for _ in range(3):
        await asyncio.to_thread(asyncio.run, once())
    assert ran == 3


async def test_a_queue_runs_once_at_a_time_and_takes_no_kinds_while_it_does(queue: Queue) -> None:
    async with queue.running():
        with pytest.raises(RuntimeError, match="runs already"):
            async with queue.running():
                pass
        with pytest.raises(ValueError, match="register it before"):

            @queue.kind("late")
            async def late() -> None: ...

    @queue.kind("later")
    async def later() -> None: ...


async def test_a_loop_that_is_closed_around_a_running_queue_ends() -> None:
    queue = Queue(Memory())
    started = asyncio.Event()

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        started.set()
        await asyncio.sleep(60)

    left: list[AbstractAsyncContextManager[None]] = []

    async def careless() -> None:
        block = queue.running()
        await block.__aenter__()
        await mail.push(Mail(user=1))
        await asyncio.sleep(0.05)
        left.append(block)

    def run() -> None:
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(careless())
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5))
        finally:
            loop.close()

    await asyncio.to_thread(run)


@pytest.mark.parametrize("raised", [None, ValueError("in finally")])
def test_a_loop_that_is_closed_with_all_its_tasks_cancelled_is_a_stop_like_others(
    real: Callable[..., Queue], seen: list[Ran], raised: Exception | None
) -> None:
    # asyncio.run does so as what it ran has ended: a server that was told twice, and skips its app's stop.
    queue = real(grace=0.3, workers=3)
    begun = asyncio.Event()
    ends: list[bool] = []

    @queue.kind("waits", attempts=1)
    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            if raised is not None:
                raise raised

    @queue.kind("finishes", attempts=1)
    async def finishes() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.1)

    @queue.kind("deaf", attempts=1)
    async def deaf() -> None:
        begun.set()
        await _deaf(ends)

    async def lifespan() -> None:
        async with queue.running():
            await asyncio.Event().wait()

    async def serve() -> None:
        serving.append(asyncio.create_task(lifespan()))
        await waits.push()
        await finishes.push()
        await deaf.push()
        await begun.wait()

    serving: list[asyncio.Task[None]] = []
    asyncio.run(serve())
    assert sorted((ran.kind, ran.outcome) for ran in seen) == [
        ("finishes", Outcome.DONE),
        ("waits", Outcome.RETRIED),
    ]

    async def left() -> list[tuple[str, int]]:
        kinds = [Claimable(kind=name, hold=1_000_000, attempts=1) for name in queue.kinds]
        return sorted((job.kind, job.attempts) for job in (await queue.store.claim(kinds, 9)).jobs)

    assert asyncio.run(left()) == [("deaf", 1), ("waits", 1)], "due at once, with their attempt"


def test_a_handler_that_refuses_even_to_be_closed_doesnt_keep_the_interpreter_from_its_end() -> None:
    # As it ends every name is gone, so each round raises at once and the loop would never end.
    program = """
import asyncio, fastjobs
q = fastjobs.Queue(fastjobs.Memory(), grace=0)
started = []

async def within() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except BaseException:
            continue

@q.kind("deaf")
async def deaf() -> None:
    started.append(1)
    await within()

@q.kind("deafer")
async def deafer() -> None:
    started.append(2)
    while True:
        try:
            await asyncio.Event().wait()
        except BaseException:
            continue

async def main() -> None:
    async with q.running():
        await deaf.push()
        await deafer.push()
        while len(started) < 2:
            await asyncio.sleep(0)

asyncio.run(main())
print("the end", flush=True)
"""
    root = Path(__file__).parent.parent.parent
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=root, check=True, capture_output=True, text=True, timeout=30
    )
    assert ended.stdout == "the end\n"
    assert "Exception ignored" not in ended.stderr

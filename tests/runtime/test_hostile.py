"""No handler can stop the queue, the app, or another job's time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fastjobs import Memory, Outcome, Queue, Ran, current_job
from fastjobs.testing import Clock
from tests.runtime.conftest import Mail

pytestmark = pytest.mark.anyio
Lines = Callable[[str], list[str]]


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Enormous(Exception):
    def __str__(self) -> str:
        return "x" * 10_000_000


async def _raises(error: BaseException) -> None:
    raise error


async def _cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def _cancels_itself_and_returns() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def _stops_iteration() -> None:
    next(iter(()))


async def _recurses(n: int = 0) -> None:
    await _recurses(n + 1)


FAILS: dict[str, Callable[[], Awaitable[object]]] = {
    "Exception": lambda: _raises(ValueError("no")),
    "ExceptionGroup": lambda: _raises(ExceptionGroup("two", [ValueError("a"), TypeError("b")])),
    "BaseExceptionGroup": lambda: _raises(BaseExceptionGroup("one", [KeyboardInterrupt()])),
    "SystemExit": lambda: _raises(SystemExit(1)),
    "KeyboardInterrupt": lambda: _raises(KeyboardInterrupt()),
    "GeneratorExit": lambda: _raises(GeneratorExit()),
    "CancelledError": lambda: _raises(asyncio.CancelledError()),
    "BaseException": lambda: _raises(BaseException("bare")),
    "StopIteration": _stops_iteration,
    "StopAsyncIteration": lambda: _raises(StopAsyncIteration()),
    "TimeoutError": lambda: _raises(TimeoutError("its own")),
    "cancels its own task": _cancels_itself,
    "endless recursion": _recurses,
    "an error whose str() raises": lambda: _raises(Unspeakable()),
    "an error of 10 MB": lambda: _raises(Enormous()),
    "an error with NUL, newlines and a lone surrogate": lambda: _raises(
        ValueError("a\0b\r\nc\ud800d\u2028e\x1b[2J")
    ),
}


@pytest.mark.parametrize("how", FAILS)
async def test_whatever_a_handler_raises_its_outcome_is_kept_and_the_next_job_runs(
    new_queue: Callable[..., Queue], clock: Clock, store: Memory, seen: list[Ran], how: str, lines: Lines
) -> None:
    queue = new_queue(workers=1)
    canaries = 0

    @queue.kind("hostile", attempts=1)
    async def hostile() -> None:
        await FAILS[how]()

    @queue.kind("canary")
    async def canary() -> None:
        nonlocal canaries
        await asyncio.sleep(0)
        canaries += 1

    async with queue.running():
        await hostile.push()
        for _ in range(3):
            await canary.push()
        await clock.pass_time(2, turns=60)
    assert [ran.outcome for ran in seen if ran.kind == "hostile"] == [Outcome.FAILED]
    assert canaries == 3
    (failed,) = await store.failed()
    assert failed.error
    assert len(failed.error.encode()) <= 4096
    (line,) = lines("a job failed for good")
    assert len(line.splitlines()) == 1
    assert "\x1b" not in line


async def test_a_handler_that_cancels_its_task_and_returns_is_done_and_its_worker_lives(
    new_queue: Callable[..., Queue], clock: Clock, seen: list[Ran]
) -> None:
    queue = new_queue(workers=1)

    @queue.kind("odd")
    async def odd() -> None:
        await _cancels_itself_and_returns()

    async with queue.running():
        await odd.push()
        await odd.push()
        await clock.pass_time(1, turns=60)
    assert [ran.outcome for ran in seen] == [Outcome.DONE, Outcome.DONE]


async def test_a_timeout_ends_the_attempt(
    new_queue: Callable[..., Queue], clock: Clock, seen: list[Ran], lines: Lines
) -> None:
    queue = new_queue(workers=1)
    cancelled: list[float] = []

    @queue.kind("slow", timeout=30, attempts=2, backoff=5)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(clock.monotonic())

    async with queue.running():
        await slow.push()
        await clock.pass_time(100)
    assert cancelled[0] == 30
    assert [str(ran.error) for ran in seen] == ["ran over its timeout of 30 s"] * 2
    assert [ran.outcome for ran in seen] == [Outcome.RETRIED, Outcome.FAILED]


async def test_a_handler_that_swallows_its_cancellation_and_returns_has_still_run_out_of_time(
    queue: Queue, clock: Clock, seen: list[Ran]
) -> None:
    @queue.kind("slow", timeout=1)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    async with queue.running():
        await slow.push()
        await clock.pass_time(1.5)
    assert [ran.outcome for ran in seen] == [Outcome.RETRIED]


async def test_a_handler_that_goes_on_after_its_timeout_is_told_of_and_loses_its_claim_when_its_hold_ends(
    new_queue: Callable[..., Queue], clock: Clock, store: Memory, lines: Lines
) -> None:
    queue = new_queue(workers=1, hold=10, grace=0)
    other = new_queue(workers=1)
    end = asyncio.Event()
    runs: list[int] = []

    @queue.kind("deaf", timeout=20)
    async def deaf() -> None:
        runs.append(current_job().attempt)
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                continue

    @other.kind("deaf")
    async def again() -> None:
        runs.append(current_job().attempt)

    async with queue.running():
        await deaf.push()
        await clock.pass_time(19.5)
        assert await other.drain() == 0, "it's held, and renewed, up to its timeout"
        await clock.pass_time(3)
        assert len(lines("a handler goes on after its timeout")) == 1
        await clock.pass_time(11)
        assert await other.drain() == 1
        end.set()
        await clock.pass_time(1)
    assert runs == [1, 2]
    assert len(lines("a job's end came too late")) == 1


async def test_tasks_that_a_handler_leaves_behind_dont_keep_its_worker(
    new_queue: Callable[..., Queue], clock: Clock, seen: list[Ran]
) -> None:
    queue = new_queue(workers=1)
    left: list[asyncio.Task[None]] = []

    async def forever() -> None:
        await asyncio.Event().wait()

    @queue.kind("careless")
    async def careless() -> None:
        left.append(asyncio.create_task(forever()))

    async with queue.running():
        await careless.push()
        await careless.push()
        await clock.pass_time(0, turns=60)
    assert [ran.outcome for ran in seen] == [Outcome.DONE] * 2
    for task in left:
        task.cancel()


async def test_an_on_fail_that_fails_is_logged_and_the_job_stays_failed(
    queue: Queue, clock: Clock, store: Memory, lines: Lines
) -> None:
    @queue.kind("mail", attempts=1)
    async def mail(value: Mail) -> None:
        raise ValueError("no")

    @mail.on_fail
    async def tell(value: Mail, error: Exception) -> None:
        raise SystemExit("worse")

    await mail.push(Mail(user=1))
    await queue.drain()
    assert len(await store.failed()) == 1
    assert "SystemExit: worse" in lines("on_fail failed")[0]


async def test_an_on_fail_has_its_kinds_timeout(queue: Queue, clock: Clock, lines: Lines) -> None:
    @queue.kind("mail", attempts=1, timeout=5)
    async def mail(value: Mail) -> None:
        raise ValueError("no")

    @mail.on_fail
    async def tell(value: Mail, error: Exception) -> None:
        await asyncio.Event().wait()

    async with queue.running():
        await mail.push(Mail(user=1))
        await clock.pass_time(6)
        assert "ran over its kind's timeout of 5 s" in lines("on_fail failed")[0]

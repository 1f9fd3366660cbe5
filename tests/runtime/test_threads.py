"""A `def` handler runs in a daemon thread of the queue's own, and can't hold up the queue, the stop or the process."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from pathlib import Path

import pytest

from fastjobs import (
    CarryRequestID,
    Memory,
    Outcome,
    Permanent,
    Queue,
    Ran,
    Retry,
    Snooze,
    current_job,
    request_id,
)
from fastjobs.core.request_id import current
from fastjobs.testing import Clock
from tests.runtime.conftest import Mail
from tests.runtime.test_hostile import Enormous, Unspeakable

pytestmark = pytest.mark.anyio
Lines = Callable[[str], list[str]]
ROOT = Path(__file__).parents[2]


class Gate:
    """What a handler waits at in its thread. It's opened at a test's end, so that no thread outlives it."""

    def __init__(self) -> None:
        self.inside = 0
        self.passed = 0
        self._open = threading.Event()

    def wait(self) -> None:
        self.inside += 1
        assert self._open.wait(30)
        self.passed += 1

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


async def until(holds: Callable[[], object]) -> None:
    """Returns once it holds: threads take real time."""
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.001)


def handler_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("fastjobs handler")]


async def test_a_def_handler_runs_in_a_daemon_thread_with_its_value_its_job_and_its_context(
    new_queue: Callable[..., Queue], seen: list[Ran]
) -> None:
    queue = new_queue(carry=[CarryRequestID()])
    found: list[object] = []

    @queue.kind("mail")
    def mail(value: Mail) -> int:
        thread = threading.current_thread()
        found.extend([value, current_job().kind, request_id(), thread.daemon, thread.name])
        return 5

    current.set("req-1")
    async with queue.running():
        await mail.push(Mail(user=7))
        await until(lambda: seen)
    assert found == [Mail(user=7), "mail", "req-1", True, "fastjobs handler 1"]
    assert [ran.outcome for ran in seen] == [Outcome.DONE]


async def test_a_def_handler_does_not_block_the_loop(new_queue: Callable[..., Queue], gate: Gate) -> None:
    queue = new_queue()

    @queue.kind("tick")
    def tick() -> None:
        gate.wait()

    async with queue.running():
        await tick.push()
        await until(lambda: gate.inside)
        gate.open()
        await until(lambda: gate.passed)


async def test_threads_are_used_again_and_never_more_than_the_workers(
    new_queue: Callable[..., Queue], seen: list[Ran]
) -> None:
    queue = new_queue(workers=3)
    threads: set[int] = set()

    @queue.kind("tick")
    def tick() -> None:
        threads.add(threading.get_ident())
        time.sleep(0.002)

    async with queue.running():
        await tick.push_many([None] * 60)
        await until(lambda: len(seen) == 60)
        assert 1 <= len(handler_threads()) <= 3
    assert len(threads) <= 3
    await until(lambda: not handler_threads())


async def test_there_is_no_thread_where_no_def_handler_ran(new_queue: Callable[..., Queue]) -> None:
    queue = new_queue()

    @queue.kind("tick")
    def tick() -> None: ...

    async with queue.running():
        await asyncio.sleep(0)
        assert handler_threads() == []


async def test_an_idle_thread_lets_go_of_what_its_last_handler_had(
    new_queue: Callable[..., Queue], seen: list[Ran]
) -> None:
    class Held:
        """Something that can be referred to weakly."""

    queue, kept = new_queue(), list[weakref.ref[Held]]()
    variable: ContextVar[Held] = ContextVar("variable")

    @queue.kind("tick")
    def tick() -> None:
        held = Held()
        variable.set(held)
        kept.append(weakref.ref(held))

    async with queue.running():
        await tick.push()
        await until(lambda: seen)
        gc.collect()
        assert kept[0]() is None


async def test_each_run_has_a_fresh_context(new_queue: Callable[..., Queue], seen: list[Ran]) -> None:
    queue, found = new_queue(workers=1), list[int]()
    variable: ContextVar[int] = ContextVar("variable", default=0)

    @queue.kind("tick")
    def tick() -> None:
        found.append(variable.get())
        variable.set(1)

    async with queue.running():
        await tick.push_many([None] * 3)
        await until(lambda: len(seen) == 3)
    assert found == [0, 0, 0]


def _stops_iteration() -> None:
    next(iter(()))


def _recurses() -> None:
    _recurses()


def _raises(error: BaseException) -> Callable[[], None]:
    def handler() -> None:
        raise error

    return handler


FAILS: dict[str, Callable[[], None]] = {
    "Exception": _raises(ValueError("no")),
    "ExceptionGroup": _raises(ExceptionGroup("two", [ValueError("a"), TypeError("b")])),
    "SystemExit": _raises(SystemExit(1)),
    "KeyboardInterrupt": _raises(KeyboardInterrupt()),
    "GeneratorExit": _raises(GeneratorExit()),
    "CancelledError": _raises(asyncio.CancelledError()),
    "BaseException": _raises(BaseException("bare")),
    "StopIteration": _stops_iteration,
    "StopAsyncIteration": _raises(StopAsyncIteration()),
    "endless recursion": _recurses,
    "an error whose str() raises": _raises(Unspeakable()),
    "an error of 10 MB": _raises(Enormous()),
}


@pytest.mark.parametrize("how", FAILS)
async def test_whatever_a_def_handler_raises_is_its_jobs_end_alone(
    new_queue: Callable[..., Queue], seen: list[Ran], how: str
) -> None:
    queue = new_queue(workers=1)
    told: list[Exception] = []
    queue.kind("bad", attempts=1)(FAILS[how]).on_fail(told.append)
    fine = queue.kind("fine", priority=-1)(lambda: None)
    async with queue.running():
        bad = queue._kinds["bad"]
        await bad.push_many([None, None])
        await fine.push()
        await until(lambda: len(seen) == 3 and len(told) == 2)
    assert [ran.outcome for ran in seen] == [Outcome.FAILED, Outcome.FAILED, Outcome.DONE]
    assert told == [ran.error for ran in seen[:2]]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Permanent("no"), Outcome.FAILED),
        (Retry(after=5), Outcome.RETRIED),
        (Snooze(after=5), Outcome.HELD_BACK),
    ],
)
async def test_a_def_handler_says_what_its_end_means_as_an_async_one(
    new_queue: Callable[..., Queue], seen: list[Ran], error: Exception, outcome: Outcome
) -> None:
    queue = new_queue()
    tick = queue.kind("tick")(_raises(error))
    async with queue.running():
        await tick.push()
        await until(lambda: seen)
    assert seen[0].outcome is outcome


async def test_a_def_handler_that_returns_a_coroutine_has_failed_and_says_why(
    new_queue: Callable[..., Queue], seen: list[Ran]
) -> None:
    queue = new_queue()

    async def send() -> None: ...

    @queue.kind("tick")
    def tick() -> Awaitable[None]:
        return send()

    async with queue.running():
        await tick.push()
        await until(lambda: seen)
    assert seen[0].outcome is Outcome.RETRIED
    assert str(seen[0].error) == (
        "tick is a plain function and returned a coroutine, which nothing awaits, so its work was not done."
        " Make it an async def"
    )


async def test_drain_runs_def_handlers(new_queue: Callable[..., Queue]) -> None:
    queue, ran = new_queue(), list[int]()

    @queue.kind("mail")
    def mail(value: Mail) -> None:
        ran.append(value.user)

    await mail.push_many([Mail(user=1), Mail(user=2)])
    assert await queue.drain() == 2
    assert ran == [1, 2]
    await until(lambda: not handler_threads())


# Past its timeout.


async def test_a_def_handler_past_its_timeout_keeps_its_worker_until_it_returns_and_has_failed(
    new_queue: Callable[..., Queue], clock: Clock, seen: list[Ran], gate: Gate, lines: Lines
) -> None:
    queue = new_queue(workers=1)

    @queue.kind("slow", timeout=5, attempts=2)
    def slow() -> None:
        gate.wait()

    fine = queue.kind("fine")(lambda: None)
    async with queue.running():
        await slow.push()
        await until(lambda: gate.inside)
        await fine.push()
        await clock.pass_time(6)
        assert seen == []
        assert len(lines("a handler goes on in its thread after its timeout, and keeps its worker")) == 1
        gate.open()
        await until(lambda: len(seen) == 2)
    assert [(ran.kind, ran.outcome) for ran in seen] == [("slow", Outcome.RETRIED), ("fine", Outcome.DONE)]
    assert str(seen[0].error) == "ran over its timeout of 5 s"
    assert lines("a handler was left behind") == []


async def test_a_def_handler_past_its_hold_is_left_behind_and_its_job_has_failed_by_its_timeout(
    new_queue: Callable[..., Queue], clock: Clock, store: Memory, seen: list[Ran], gate: Gate, lines: Lines
) -> None:
    queue = new_queue(workers=1)
    failed: list[str] = []

    @queue.kind("slow", timeout=5, attempts=1)
    def slow() -> None:
        gate.wait()

    @slow.on_fail
    def slow_failed(error: Exception) -> None:
        failed.append(str(error))

    fine = queue.kind("fine")(lambda: None)
    async with queue.running():
        await slow.push()
        await until(lambda: gate.inside)
        await fine.push()
        await clock.pass_time(18)
        assert seen == []
        await clock.pass_time(2)  # its hold of 20 s ends; its end was kept just before
        await until(lambda: len(seen) == 2 and failed)
        assert [(ran.kind, ran.outcome) for ran in seen] == [("slow", Outcome.FAILED), ("fine", Outcome.DONE)]
        assert failed == ["ran over its timeout of 5 s"]
        (line,) = lines("a handler was left behind")
        assert "kind=slow" in line
        assert 'why="it ran over its timeout" where="test_threads.py:' in line
        assert len(handler_threads()) == 2  # the one left behind, and the one in its place
        gate.open()
        await until(lambda: gate.passed)
        await until(lambda: len(handler_threads()) == 1)
        await clock.pass_time(1)
    assert len(seen) == 2


async def test_an_on_fail_past_its_timeout_is_left_behind_at_once(
    new_queue: Callable[..., Queue], clock: Clock, gate: Gate, lines: Lines, seen: list[Ran]
) -> None:
    queue = new_queue(workers=1)
    bad = queue.kind("bad", attempts=1, timeout=5)(_raises(ValueError("no")))
    bad.on_fail(lambda error: gate.wait())
    fine = queue.kind("fine")(lambda: None)
    async with queue.running():
        await bad.push()
        await until(lambda: gate.inside)
        await fine.push()
        await clock.pass_time(6)
        await until(lambda: len(seen) == 2)
        assert len(lines("a handler was left behind")) == 1
        assert len(lines("on_fail failed")) == 1


async def test_a_def_handler_whose_claim_is_gone_is_left_behind_and_changes_nothing(
    new_queue: Callable[..., Queue], clock: Clock, store: Memory, seen: list[Ran], gate: Gate, lines: Lines
) -> None:
    queue = new_queue(workers=1, hold=3)

    @queue.kind("slow")
    def slow() -> None:
        if current_job().attempt == 1:
            gate.wait()

    async with queue.running():
        await slow.push()
        await until(lambda: gate.inside)
        clock.step(10)  # the store's wall clock: the hold is over there
        other = new_queue(workers=1)
        await store.claim([], 1)
        again = other.kind("slow")(lambda: None)
        assert again.name == "slow"
        assert await other.drain() == 1
        await clock.pass_time(3)
        await until(lambda: lines("a handler was left behind"))
        assert 'why="its claim was gone"' in lines("a handler was left behind")[0]
        gate.open()
        await until(lambda: gate.passed)
    assert [ran.outcome for ran in seen] == [Outcome.DONE]


# The stop, and the end of the process.


async def test_a_def_handler_that_outlasts_grace_is_put_back_and_its_late_end_changes_nothing(
    seen: list[Ran], gate: Gate, lines: Lines
) -> None:
    store = Memory()
    queue = Queue(store, grace=0.1, observe=seen.append)

    @queue.kind("slow", attempts=1)
    def slow() -> None:
        gate.wait()

    async with queue.running():
        await slow.push()
        await until(lambda: gate.inside)
        stopping = time.monotonic()
    assert time.monotonic() - stopping < 1.1
    assert [ran.outcome for ran in seen] == [Outcome.RETRIED]
    assert 'why="the queue stopped"' in lines("a handler was left behind")[0]
    gate.open()
    await until(lambda: gate.passed)
    attempts: list[int] = []
    later = Queue(store)
    later.kind("slow", attempts=1)(lambda: attempts.append(current_job().attempt))
    assert await later.drain() == 1  # due at once, and its attempt is back
    assert attempts == [1]


async def test_a_handler_past_its_timeout_as_the_queue_stops_has_failed(seen: list[Ran], gate: Gate) -> None:
    queue = Queue(Memory(), grace=0.1, observe=seen.append)

    @queue.kind("slow", timeout=0.05)
    def slow() -> None:
        gate.wait()

    async with queue.running():
        await slow.push()
        await until(lambda: gate.inside)
        await asyncio.sleep(0.1)
        stopping = time.monotonic()
    assert time.monotonic() - stopping < 1.1
    assert [str(ran.error) for ran in seen] == ["ran over its timeout of 0.05 s"]


def test_a_process_ends_though_a_def_handler_never_returns() -> None:
    program = textwrap.dedent("""
        import asyncio, threading, time
        import fastjobs

        q = fastjobs.Queue(fastjobs.Memory(), grace=0.1)
        started = threading.Event()

        @q.kind("stuck")
        def stuck() -> None:
            started.set()
            time.sleep(600)

        async def main() -> None:
            async with q.running():
                await stuck.push()
                while not started.is_set():
                    await asyncio.sleep(0.01)

        asyncio.run(main())
        print("ended")
    """)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=20, cwd=ROOT, check=True
    )
    assert ended.stdout == "ended\n"
    assert "Traceback" not in ended.stderr


def test_a_loop_that_is_closed_around_a_running_handler_is_no_error(gate: Gate) -> None:
    queue = Queue(Memory(), grace=0.1)
    tick = queue.kind("tick")(gate.wait)

    async def left_open() -> None:
        running = queue.running()
        await running.__aenter__()
        await tick.push()
        await until(lambda: gate.inside)
        kept.append(running)

    kept: list[object] = []
    asyncio.run(left_open())
    gate.open()
    deadline = time.monotonic() + 10
    while handler_threads() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert handler_threads() == []  # and pytest fails a test whose thread raised

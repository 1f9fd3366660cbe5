"""`with q.testing() as jobs:`: what was pushed, and how a test runs it.

Longer than 600 lines, as each thing that a test may ask of the kit has a test of its own.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import fastjobs
import fastjobs.testing
from fastjobs import Kinds, Memory, Outcome, PayloadError, Queue, QueueError, Ran, Unique, current_job
from fastjobs.testing import Clock, Jobs, Pushed

ROOT = Path(__file__).parent.parent.parent


class Mail(BaseModel):
    user: int


@dataclass
class App:
    """A queue with a few kinds, and what they did."""

    q: Queue
    mail: fastjobs.Kind[Mail]
    tick: fastjobs.Kind[None]
    done: list[object] = field(default_factory=list[object])
    raises: list[BaseException] = field(default_factory=list[BaseException])


@pytest.fixture
def app() -> App:
    q = Queue(poll=30, grace=0.5)

    @q.kind("mail", attempts=3, backoff=60)
    async def mail(value: Mail) -> None:
        if made.raises:
            raise made.raises.pop(0)
        made.done.append(value.user)

    @q.kind("tick")
    def tick() -> None:
        made.done.append("tick")

    made = App(q, mail, tick)
    return made


@pytest.fixture
def jobs(app: App) -> Iterator[Jobs]:
    with app.q.testing() as jobs:
        yield jobs


# The store in its place.


def test_a_queue_has_its_own_store_again_after_the_block() -> None:
    own = Memory()
    q = Queue(own)
    with q.testing():
        assert q.store is not own
    assert q.store is own


def test_a_queue_without_a_store_has_none_again_after_the_block(app: App) -> None:
    with app.q.testing() as jobs:
        app.tick.sync.push()
        assert jobs.drain() == 1
    with pytest.raises(QueueError, match="has no store yet"):
        app.tick.sync.push()


def test_a_block_that_raises_gives_the_store_back_too(app: App) -> None:
    with pytest.raises(ZeroDivisionError), app.q.testing():
        raise ZeroDivisionError
    with pytest.raises(QueueError, match="has no store yet"):
        _ = app.q.store


def test_a_store_that_is_given_in_the_block_is_the_queues_after_it(app: App) -> None:
    given = Memory()
    with app.q.testing() as jobs:
        app.q.use(given)
        assert app.q.store is not given
        app.tick.sync.push()
        assert jobs.pushed(app.tick)
    assert app.q.store is given


def test_each_block_begins_with_nothing(app: App) -> None:
    for _ in range(2):
        with app.q.testing() as jobs:
            assert not jobs.pushed()
            app.tick.sync.push()
            assert len(jobs.waiting) == 1


def test_a_block_within_another_has_jobs_of_its_own(app: App, jobs: Jobs) -> None:
    app.tick.sync.push()
    with app.q.testing() as inner:
        app.mail.sync.push(Mail(user=1))
        assert (inner.pushed(app.mail), inner.pushed(app.tick)) == ([Mail(user=1)], [])
        inner.drain()
    assert (jobs.pushed(app.mail), jobs.pushed(app.tick)) == ([], [None])
    assert [ran.kind for ran in jobs.ran] == []
    assert jobs.drain() == 1


@pytest.mark.anyio
async def test_a_queue_that_runs_is_refused_and_the_order_is_said(app: App) -> None:
    app.q.use(Memory())
    async with app.q.running():
        with (
            pytest.raises(QueueError, match=r"enter q\.testing\(\) before the app's lifespan"),
            app.q.testing(),
        ):
            pass
    with app.q.testing():
        pass


@pytest.mark.anyio
async def test_a_block_that_ends_while_the_queue_runs_is_told(app: App) -> None:
    block = app.q.testing()
    block.__enter__()
    async with app.q.running(run=False):
        with pytest.raises(QueueError, match="leave the app's lifespan before it"):
            block.__exit__(None, None, None)


def test_the_queues_own_observer_is_told_as_ever() -> None:
    seen: list[Ran] = []
    q = Queue(observe=seen.append)

    @q.kind("tick")
    async def tick() -> None: ...

    with q.testing() as jobs:
        tick.sync.push()
        jobs.drain()
        assert jobs.ran == seen
        assert [(ran.kind, ran.outcome) for ran in seen] == [("tick", Outcome.DONE)]


def test_kinds_of_other_modules_are_the_queues() -> None:
    kinds, q = Kinds(), Queue()

    @kinds.kind("tick")
    async def tick() -> None: ...

    with (
        pytest.raises(QueueError, match=r"kind 'tick' is of no queue yet: q\.include\(kinds\)"),
        q.testing() as jobs,
    ):
        jobs.pushed(tick)
    q.include(kinds)
    with q.testing() as jobs:
        tick.sync.push()
        assert jobs.pushed(tick)


def test_two_queues_have_a_block_each(app: App, jobs: Jobs) -> None:
    other = Queue()

    @other.kind("mail")
    async def mail(value: Mail) -> None: ...

    with other.testing() as others:
        mail.sync.push(Mail(user=1))
        assert others.pushed(mail)
        assert not jobs.pushed()
        with pytest.raises(
            QueueError, match="kind 'mail' is of another queue, and these are the jobs of one queue"
        ):
            jobs.pushed(mail)
        with pytest.raises(QueueError, match="is of another queue"):
            jobs.run(mail, Mail(user=1))


def test_a_kind_is_paused_before_anything_was_pushed(app: App) -> None:
    with app.q.testing() as jobs:
        app.q.sync.pause("mail")
        app.mail.sync.push(Mail(user=1))
        assert jobs.drain() == 0
        app.q.sync.resume(app.mail)
        assert jobs.drain() == 1
    assert app.done == [1]


def test_what_the_queue_shows_and_does_is_of_the_block(app: App) -> None:
    own = Memory()
    app.q.use(own)
    app.mail.sync.push(Mail(user=9))
    with app.q.testing() as jobs:
        first, second = app.mail.sync.push_many([Mail(user=1), Mail(user=2)])
        assert first is not None
        assert second is not None
        assert app.q.sync.cancel(second) is fastjobs.Cancelled.REMOVED
        app.q.sync.pause(app.mail)
        assert jobs.drain() == 0
        assert "paused" in jobs.waiting[0].why
        app.q.sync.resume(app.mail)
        app.raises.append(fastjobs.Permanent("no"))
        jobs.drain(raising=False)
        assert [job.id for job in app.q.sync.failed()] == [job.id for job in jobs.failed] == [first]
        assert app.q.sync.run_again(first) == 1
        assert jobs.drain() == 1
    assert app.done == [1]
    assert [each.waiting for each in app.q.sync.counts()] == [1, 0]


# What was pushed.


def test_what_was_pushed_is_true_and_what_was_not_is_false(app: App, jobs: Jobs) -> None:
    app.mail.sync.push(Mail(user=1))
    assert jobs.pushed(app.mail, Mail(user=1))
    assert jobs.pushed(app.mail)
    assert jobs.pushed()
    assert not jobs.pushed(app.mail, Mail(user=2))
    assert not jobs.pushed(app.tick)


def test_the_pushed_are_the_values_in_their_order(app: App, jobs: Jobs) -> None:
    app.mail.sync.push_many([Mail(user=2), Mail(user=1), Mail(user=2)])
    app.tick.sync.push()
    assert jobs.pushed(app.mail) == [Mail(user=2), Mail(user=1), Mail(user=2)]
    assert jobs.pushed(app.mail, Mail(user=2)) == [Mail(user=2)] * 2
    assert jobs.pushed(app.tick) == [None]
    assert jobs.pushed() == [Mail(user=2), Mail(user=1), Mail(user=2), None]


def test_a_kind_goes_by_its_name_too(app: App, jobs: Jobs) -> None:
    app.mail.sync.push(Mail(user=1))
    assert jobs.pushed("mail") == jobs.pushed("mail", Mail(user=1)) == [Mail(user=1)]
    with pytest.raises(QueueError, match="the queue has no kind 'post'; it has mail, tick"):
        jobs.pushed("post")


def test_a_value_that_its_kind_does_not_take_is_an_error_and_no_false(app: App, jobs: Jobs) -> None:
    bad: Any = "ada"
    with pytest.raises(PayloadError, match="doesn't fit its kind's type"):
        jobs.pushed(app.mail, bad)
    ask: Any = jobs.pushed
    with pytest.raises(TypeError, match="takes a kind and a value of it, and 2 values were given"):
        ask("mail", Mail(user=1), Mail(user=2))


def test_a_job_that_has_run_was_pushed_still(app: App, jobs: Jobs) -> None:
    app.mail.sync.push(Mail(user=1))
    jobs.drain()
    assert jobs.waiting == []
    assert jobs.pushed(app.mail, Mail(user=1))


def test_what_waits_already_is_not_pushed_once_more(jobs: Jobs, app: App) -> None:
    @app.q.kind("index", unique=True)
    async def index(post: int) -> None: ...

    index.sync.push(1)
    assert index.sync.push(1) is None
    app.mail.sync.push(Mail(user=1), name="once")
    app.mail.sync.push(Mail(user=2), name="once")
    assert jobs.pushed(index) == [1]
    assert jobs.pushed(app.mail) == jobs.pushed(app.mail, name="once") == [Mail(user=1)]
    assert not jobs.pushed(app.mail, name="twice")
    for none in ("", "zwölf", "x" * 201):
        with pytest.raises(fastjobs.PushError, match="a push's name is"):
            jobs.pushed(app.mail, name=none)


def test_a_latest_push_is_one_job_that_is_due_by_its_last(jobs: Jobs, app: App) -> None:
    @app.q.kind("index", unique=Unique(latest=True))
    async def index(post: int) -> None: ...

    index.sync.push(1, after=60)
    index.sync.push(1, after=120)
    assert jobs.pushed(index) == jobs.pushed(index, after=120) == [1]
    jobs.clock.advance(60)
    assert jobs.drain() == 0
    jobs.clock.advance(60)
    assert jobs.drain() == 1


def test_when_a_push_is_due_can_be_asked(app: App, jobs: Jobs) -> None:
    app.mail.sync.push(Mail(user=1), after=timedelta(days=7))
    app.mail.sync.push(Mail(user=2), at=datetime.now(UTC) + timedelta(days=7))
    app.mail.sync.push(Mail(user=3))
    assert jobs.pushed(app.mail, after=timedelta(days=7)) == [Mail(user=1), Mail(user=2)]
    assert jobs.pushed(app.mail, after=0) == [Mail(user=3)]
    jobs.drain()
    jobs.clock.advance(timedelta(days=7))
    app.raises.append(ValueError("not yet"))
    jobs.drain(raising=False)  # a job that waits to be tried again is due by another time
    assert jobs.pushed(app.mail, after=timedelta(days=7)) == [Mail(user=1), Mail(user=2)]


def test_what_was_not_pushed_says_what_was(app: App, jobs: Jobs) -> None:
    assert repr(jobs.pushed(app.tick)) == "<no push of 'tick'; nothing else was pushed>"
    app.tick.sync.push(after=60)
    app.mail.sync.push(Mail(user=2), name="once")
    assert repr(jobs.pushed(app.mail, Mail(user=1), after=5)) == (
        "<no push of 'mail' Mail(user=1) after 5 s; pushed: 'mail' Mail(user=2) named 'once', 'tick' None after 60 s>"
    )
    assert repr(jobs.pushed(app.mail)) == "[Mail(user=2)]"
    app.mail.sync.push_many([Mail(user=number) for number in range(20)])
    assert repr(jobs.pushed(app.mail, Mail(user=21))).endswith("'mail' Mail(user=8) and 12 more>")


def test_pytest_shows_what_was_pushed_instead(app: App, jobs: Jobs) -> None:
    app.mail.sync.push(Mail(user=2))
    with pytest.raises(
        AssertionError, match=r"<no push of 'mail' Mail\(user=1\); pushed: 'mail' Mail\(user=2\)>"
    ):
        assert jobs.pushed(app.mail, Mail(user=1))


def test_a_pushed_is_a_list() -> None:
    assert Pushed([1, 2]) == [1, 2]
    assert not Pushed[int]([])


# Time.


def test_the_clock_begins_at_the_machines_time_and_stands_still(app: App) -> None:
    before = datetime.now(UTC).timestamp()
    with app.q.testing() as jobs:
        assert before <= jobs.clock.now() / 1_000_000 <= datetime.now(UTC).timestamp()
        app.mail.sync.push(Mail(user=1), after=0.001)
        assert jobs.drain() == 0
        jobs.clock.advance(0.001)
        assert jobs.drain() == 1


def test_a_time_of_the_machines_is_as_far_away_by_the_blocks_clock(app: App, jobs: Jobs) -> None:
    app.mail.sync.push(Mail(user=1), at=datetime.now(UTC))
    assert jobs.drain() == 1
    jobs.clock.advance(timedelta(days=365))
    app.mail.sync.push(Mail(user=2), at=datetime.now(UTC) + timedelta(hours=1))
    app.mail.sync.push(Mail(user=3), at=datetime.now(UTC) - timedelta(hours=1))
    assert jobs.drain() == 1
    jobs.clock.advance(timedelta(hours=1))
    assert jobs.drain() == 1
    assert app.done == [1, 3, 2]


def test_a_handler_that_pushes_itself_for_later_runs_once_in_a_drain(jobs: Jobs, app: App) -> None:
    @app.q.kind("remind")
    async def remind() -> None:
        app.done.append("remind")
        await remind.push(at=datetime.now(UTC) + timedelta(hours=1))

    jobs.clock.advance(timedelta(days=30))
    remind.sync.push()
    for _ in range(2):
        assert jobs.drain() == 1
        jobs.clock.advance(timedelta(hours=1))


def test_a_machine_whose_clock_a_test_has_set_is_what_times_are_taken_against(
    app: App, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    travelled = datetime(2040, 1, 1, tzinfo=UTC)
    monkeypatch.setattr("time.time_ns", lambda: int(travelled.timestamp()) * 1_000_000_000)
    app.mail.sync.push(Mail(user=1), at=travelled + timedelta(hours=1))
    assert jobs.drain() == 0
    jobs.clock.advance(timedelta(hours=1))
    assert jobs.drain() == 1


def test_a_clock_of_the_tests_own_takes_times_as_they_are(app: App) -> None:
    with app.q.testing(clock=Clock()) as jobs:
        app.mail.sync.push(Mail(user=1), at=datetime(2026, 1, 1, 8, tzinfo=UTC))
        jobs.clock.advance(timedelta(hours=8) - timedelta(microseconds=1))
        assert jobs.drain() == 0
        jobs.clock.advance(timedelta(microseconds=1))
        assert jobs.drain() == 1


# Draining.


def test_a_drain_runs_what_is_due_and_what_that_pushes(jobs: Jobs, app: App) -> None:
    @app.q.kind("both")
    async def both() -> None:
        await app.mail.push(Mail(user=1))
        await app.tick.push(after=60)

    both.sync.push()
    assert jobs.drain() == 2
    assert app.done == [1]
    assert [job.kind for job in jobs.waiting] == ["tick"]


def test_a_drain_raises_what_a_handler_raised_and_says_whose_it_was(app: App, jobs: Jobs) -> None:
    app.raises.append(ConnectionRefusedError("no mail server"))
    app.mail.sync.push_many([Mail(user=1), Mail(user=2)])
    with pytest.raises(ConnectionRefusedError, match="no mail server") as told:
        jobs.drain()
    assert told.value.__notes__ == ["raised by a job of kind 'mail', attempt 1: retried"]
    assert app.done == []  # the one behind it waits for the next drain
    assert jobs.drain() == 1
    (waits,) = jobs.waiting
    assert (waits.payload, waits.attempts, waits.error) == (
        '{"user":1}',
        1,
        "ConnectionRefusedError: no mail server",
    )
    assert jobs.failed == []


def test_a_drain_that_raises_has_kept_the_jobs_end_and_run_its_on_fail(app: App, jobs: Jobs) -> None:
    told: list[tuple[int, str]] = []

    @app.mail.on_fail
    async def tell(mail: Mail, error: Exception) -> None:
        told.append((mail.user, str(error)))

    app.mail.sync.push(Mail(user=1))
    app.raises.append(fastjobs.Permanent("gone"))
    with pytest.raises(fastjobs.Permanent, match="gone"):
        jobs.drain()
    assert told == [(1, "gone")]
    assert [(job.kind, job.error) for job in jobs.failed] == [("mail", "Permanent: gone")]


def test_a_drain_that_raises_nothing_goes_on_and_the_jobs_say_what_became_of_them(
    app: App, jobs: Jobs
) -> None:
    app.mail.sync.push_many([Mail(user=1), Mail(user=2)])
    for attempt in range(1, 4):
        app.raises.append(ValueError(f"attempt {attempt}"))
        assert jobs.drain(raising=False) == (2 if attempt == 1 else 1)
        jobs.clock.advance(timedelta(hours=1))
    assert [ran.outcome for ran in jobs.ran] == [
        Outcome.RETRIED,
        Outcome.DONE,
        Outcome.RETRIED,
        Outcome.FAILED,
    ]
    (failed,) = jobs.failed
    assert (failed.kind, failed.attempts, failed.error) == ("mail", 3, "ValueError: attempt 3")
    assert jobs.drain() == 0


def test_the_failed_are_the_latest_first(app: App, jobs: Jobs) -> None:
    app.raises += [fastjobs.Permanent("1"), fastjobs.Permanent("2")]
    app.mail.sync.push_many([Mail(user=1), Mail(user=2)])
    jobs.drain(raising=False)
    assert [job.error for job in jobs.failed] == ["Permanent: 2", "Permanent: 1"]


def test_an_error_is_raised_by_one_drain_alone(app: App, jobs: Jobs) -> None:
    app.raises.append(ValueError("once"))
    app.mail.sync.push(Mail(user=1))
    with pytest.raises(ValueError, match="once"):
        jobs.drain()
    assert jobs.drain() == 0


def test_an_error_that_is_raised_twice_has_its_note_once(app: App, jobs: Jobs) -> None:
    error = ValueError("the same")
    for _ in range(2):
        app.raises.append(error)
        app.mail.sync.push(Mail(user=1))
        with pytest.raises(ValueError, match="the same"):
            jobs.drain()
    assert len(error.__notes__) == 1


def test_a_snooze_is_no_error(app: App, jobs: Jobs) -> None:
    app.raises.append(fastjobs.Snooze(after=60))
    app.mail.sync.push(Mail(user=1))
    assert jobs.drain() == 1
    assert [ran.outcome for ran in jobs.ran] == [Outcome.HELD_BACK]
    jobs.clock.advance(60)
    assert jobs.drain() == 1
    assert app.done == [1]


def test_a_rate_holds_back_until_the_clock_is_moved(jobs: Jobs, app: App) -> None:
    @app.q.kind("sms", rate=fastjobs.Throttle(2, per=60))
    async def sms(number: int) -> None: ...

    sms.sync.push_many(range(5))
    assert jobs.drain() == 2
    assert jobs.drain() == 0
    jobs.clock.advance(60)
    assert jobs.drain() == 2


def test_a_rate_by_value_holds_back_each_value_apart(jobs: Jobs, app: App) -> None:
    @app.q.kind("sms", rate=fastjobs.Throttle(1, per=60, by=lambda number: str(number)))
    async def sms(number: int) -> None: ...

    sms.sync.push_many([1, 1, 2])
    assert jobs.drain() == 2
    jobs.clock.advance(61)
    assert jobs.drain() == 1


def test_a_limiter_is_asked_once_for_each_job(jobs: Jobs, app: App) -> None:
    asked: list[str] = []

    class Never:
        async def attempt(self, key: str) -> float:
            asked.append(key)
            return 60

    @app.q.kind("sms", rate=Never())
    async def sms(number: int) -> None: ...

    sms.sync.push(1)
    assert jobs.drain() == 0
    assert asked == ["sms"]


def test_one_at_a_time_and_at_once_run_all_in_turn(jobs: Jobs, app: App) -> None:
    @app.q.kind("bill", unique=Unique(one_at_a_time=True), at_once=1)
    async def bill(order: int) -> None:
        if current_job().attempt == 1 and order == 1 and not app.done:
            app.done.append(order)
            await bill.push(order)

    bill.sync.push_many([1, 2])
    assert jobs.drain() == 3


def test_a_handler_that_pushes_itself_for_ever_ends_the_drain_and_is_named(jobs: Jobs, app: App) -> None:
    @app.q.kind("again")
    async def again() -> None:
        await again.push()

    @app.q.kind("later")
    async def later() -> None:
        raise fastjobs.Snooze(after=0)

    again.sync.push()
    with pytest.raises(
        QueueError, match="20 jobs ran in one drain, the last of kind 'again': a handler that pushes"
    ):
        jobs.drain(most=20)
    assert len(jobs.ran) == 20
    with app.q.testing() as block:
        later.sync.push()
        with pytest.raises(QueueError, match="1,000 jobs ran in one drain, the last of kind 'later'"):
            block.drain(most=1000)
    for most in (0, True, "all"):
        bad: Any = most
        with pytest.raises(QueueError, match="most= is how many jobs may run in a drain, not"):
            jobs.drain(most=bad)


def test_an_exit_in_a_handler_is_raised_as_an_error_that_tells_of_it(app: App, jobs: Jobs) -> None:
    app.raises.append(SystemExit(3))
    app.mail.sync.push(Mail(user=1))
    with pytest.raises(RuntimeError, match="SystemExit: 3") as told:
        jobs.drain()
    assert isinstance(told.value.__cause__, SystemExit)


def test_a_clock_that_is_moved_as_a_job_runs_has_no_job_run_twice(app: App) -> None:
    @app.q.kind("long")
    def long(number: int) -> None:
        app.done.append(number)
        block.clock.advance(timedelta(days=7))
        asyncio.run(block.adrain())

    with app.q.testing() as block:
        long.sync.push_many([1, 2])
        block.drain()
        assert app.done == [1, 2]
        assert {ran.attempt for ran in block.ran} == {1}


def test_what_is_no_clock_of_the_kits_is_refused(app: App) -> None:
    bad: Any = datetime.now(UTC)
    with (
        pytest.raises(QueueError, match=r"clock= is a fastjobs\.testing\.Clock, and datetime"),
        app.q.testing(clock=bad),
    ):
        pass


def test_a_drain_on_a_thread_whose_loop_runs_says_what_to_write(app: App, jobs: Jobs) -> None:
    async def test() -> None:
        with pytest.raises(QueueError, match=r"an event loop runs in this thread.*: await jobs\.adrain\(\)$"):
            jobs.drain()
        with pytest.raises(QueueError, match=r"await jobs\.arun\(…\)$"):
            jobs.run(app.tick)
        await app.tick.push()
        assert await jobs.adrain() == 1
        assert (await jobs.arun(app.mail, Mail(user=1))).outcome is Outcome.DONE
        app.raises.append(ValueError("in arun"))
        with pytest.raises(ValueError, match="in arun"):
            await jobs.arun(app.mail, Mail(user=1))

    asyncio.run(test())
    gc.collect()  # a coroutine that was never awaited would warn by now


def test_a_drain_leaves_the_threads_own_event_loop_as_it_is(app: App, jobs: Jobs) -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        app.tick.sync.push()
        jobs.drain()
        assert asyncio.get_event_loop() is loop
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def test_each_test_may_have_a_loop_of_its_own(app: App) -> None:
    async def test(user: int) -> None:
        with app.q.testing() as jobs:
            await app.mail.push(Mail(user=user))
            assert await jobs.adrain() == 1

    for user in range(3):
        asyncio.run(test(user))
    assert app.done == [0, 1, 2]


# A run of one handler.


def test_a_run_is_as_the_queue_would_run_it(app: App) -> None:
    q = Queue(carry=[fastjobs.CarryRequestID()])
    seen: list[object] = []

    @q.kind("mail", attempts=5)
    def mail(value: Mail) -> None:
        job = current_job()
        seen.extend([value, job.kind, job.attempt, threading.current_thread() is threading.main_thread()])

    with q.testing() as jobs:
        value = Mail(user=1)
        ran = jobs.run(mail, value, attempt=4)
    assert seen == [value, "mail", 4, False]
    assert seen[0] is not value
    assert (ran.kind, ran.attempt, ran.outcome, ran.error) == ("mail", 4, Outcome.DONE, None)


def test_a_run_raises_what_the_handler_raised(app: App, jobs: Jobs) -> None:
    app.raises.append(ValueError("bad"))
    with pytest.raises(ValueError, match="bad"):
        jobs.run(app.mail, Mail(user=1))
    app.raises.append(ValueError("bad"))
    ran = jobs.run(app.mail, Mail(user=1), raising=False)
    assert (ran.outcome, str(ran.error)) == (Outcome.RETRIED, "bad")


def test_a_run_at_the_last_attempt_fails_for_good_and_runs_on_fail(app: App, jobs: Jobs) -> None:
    told: list[str] = []

    @app.mail.on_fail
    async def tell(mail: Mail, error: Exception) -> None:
        told.append(str(error))

    app.raises.append(ValueError("bad"))
    assert jobs.run(app.mail, Mail(user=1), attempt=3, raising=False).outcome is Outcome.FAILED
    assert told == ["bad"]
    for attempt in (0, 4, True):
        with pytest.raises(QueueError, match="one of the attempts of kind 'mail', 1 to 3, not"):
            jobs.run(app.mail, Mail(user=1), attempt=attempt)


def test_nothing_of_a_run_is_kept(app: App, jobs: Jobs) -> None:
    app.mail.sync.push(Mail(user=9))
    for error in (None, ValueError("bad"), fastjobs.Permanent("no"), fastjobs.Snooze(after=1)):
        app.raises += [error] if error else []
        jobs.run(app.mail, Mail(user=1), raising=False)
    assert jobs.pushed() == [Mail(user=9)]
    assert [job.payload for job in jobs.waiting] == ['{"user":9}']
    assert jobs.failed == []
    jobs.clock.advance(timedelta(days=2))
    assert jobs.drain() == 1


def test_no_limit_keeps_a_run_from_running(jobs: Jobs, app: App) -> None:
    @app.q.kind("sms", rate=fastjobs.Throttle(1, per=60), at_once=1, unique=Unique(one_at_a_time=True))
    async def sms(number: int) -> None:
        app.done.append(number)

    sms.sync.push(1)
    jobs.drain()
    sms.sync.push(1)
    for _ in range(3):
        assert jobs.run(sms, 1).outcome is Outcome.DONE
    assert app.done == [1] * 4


def test_a_run_has_its_timeout(jobs: Jobs, app: App) -> None:
    @app.q.kind("slow", timeout=0.01)
    async def slow() -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError, match=r"ran over its timeout of 0\.01 s"):
        jobs.run(slow)


def test_a_run_checks_its_value_as_a_push_does(app: App, jobs: Jobs) -> None:
    bad: Any = Mail.model_construct(user="ada")
    with pytest.raises(PayloadError):
        jobs.run(app.mail, bad)


# Schedules.


def a_queue_with_schedules() -> tuple[Queue, list[str]]:
    q, ran = Queue(), list[str]()

    @q.kind("report")
    async def report(what: str) -> None:
        ran.append(what)

    report.schedule(fastjobs.Every(hours=1), "hourly")
    report.schedule(fastjobs.Cron("0 2 * * *"), "nightly", name="nightly")
    return q, ran


def test_schedules_run_as_the_clock_comes_to_them_where_that_is_asked() -> None:
    q, ran = a_queue_with_schedules()
    with q.testing(schedules=True, clock=Clock()) as jobs:  # from midnight
        assert jobs.drain() == 0
        jobs.clock.advance(timedelta(hours=1))
        assert jobs.drain() == 1
        jobs.clock.advance(timedelta(hours=1))
        assert jobs.drain() == 2
        assert sorted(ran) == ["hourly", "hourly", "nightly"]


@pytest.mark.anyio
async def test_schedules_are_followed_in_an_async_test_too() -> None:
    q, ran = a_queue_with_schedules()
    with q.testing(schedules=True, clock=Clock()) as jobs:
        jobs.clock.advance(timedelta(hours=2))
        assert await jobs.adrain() == 2
    assert sorted(ran) == ["hourly", "nightly"]


def test_schedules_push_nothing_unasked() -> None:
    q, ran = a_queue_with_schedules()
    with q.testing() as jobs:
        jobs.clock.advance(timedelta(days=7))
        assert jobs.drain() == 0
        assert not jobs.pushed()
    assert ran == []


# Without pytest, and with its fixtures.

WITHOUT_PYTEST = """
import sys
sys.modules["pytest"] = None  # as where it isn't installed
import unittest
import fastjobs
import fastjobs.testing
q = fastjobs.Queue()

@q.kind("mail")
async def mail(user: int) -> None: ...

class Test(unittest.TestCase):
    def setUp(self) -> None:
        self.jobs = self.enterContext(q.testing())

    def test_mail(self) -> None:
        mail.sync.push(1)
        self.assertEqual(self.jobs.pushed(mail), [1])
        self.assertEqual(self.jobs.drain(), 1)

class AsyncTest(unittest.IsolatedAsyncioTestCase):
    def setUp(self) -> None:
        self.jobs = self.enterContext(q.testing())

    async def test_mail(self) -> None:
        await mail.push(2)
        self.assertEqual(await self.jobs.adrain(), 1)

try:
    fastjobs.testing.StoreSuite
except ImportError as error:
    print(error)
loaded = [name for name in sys.modules if name.startswith(("sqlalchemy", "fastapi", "_pytest"))]
assert not loaded, loaded
unittest.main(argv=["test"], verbosity=0)
"""


def test_unittest_needs_no_pytest() -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_PYTEST], cwd=ROOT, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert "Ran 2 tests" in ran.stderr
    assert (
        ran.stdout == "fastjobs.testing.StoreSuite needs pytest, which isn't installed: pip install pytest\n"
    )


def test_what_is_not_in_the_testing_module_is_an_attribute_error() -> None:
    module: Any = fastjobs.testing
    with pytest.raises(AttributeError, match=r"'fastjobs\.testing' has no attribute 'nothing'"):
        module.nothing()
    assert {"StoreSuite", "fixtures", "Jobs", "Clock"} <= set(dir(fastjobs.testing))

"""A running queue: jobs run as they come due, retry as their kind says, and fail for good."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from fastjobs import (
    CarryRequestID,
    Memory,
    Outcome,
    Permanent,
    Queue,
    Ran,
    RegistrationError,
    Retry,
    Snooze,
    current_job,
    request_id,
)
from fastjobs.core.request_id import current
from fastjobs.runtime.workers import EACH, TURN
from fastjobs.testing import Clock
from tests.runtime.conftest import Mail

pytestmark = pytest.mark.anyio
Lines = Callable[[str], list[str]]


async def test_a_pushed_job_runs_at_once_with_its_value(queue: Queue, clock: Clock) -> None:
    got: list[Mail] = []

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        got.append(value)

    async with queue.running():
        await mail.push(Mail(user=7))
        await clock.pass_time(0)
    assert got == [Mail(user=7)]


async def test_a_kind_without_a_value_runs_its_handler_without_one(queue: Queue) -> None:
    ran: list[str] = []

    @queue.kind("tick")
    async def tick() -> int:
        ran.append(current_job().kind)
        return 3

    await tick.push()
    assert await queue.drain() == 1
    assert ran == ["tick"]


async def test_a_job_pushed_for_later_runs_at_its_moment_though_the_poll_is_longer(
    new_queue: Callable[..., Queue], clock: Clock
) -> None:
    queue = new_queue(poll=5)
    ran: list[float] = []

    @queue.kind("later")
    async def later() -> None:
        ran.append(clock.monotonic())

    async with queue.running():
        await later.push(after=2)
        await later.push(after=timedelta(seconds=3.5))
        await clock.pass_time(10)
    assert [round(at, 3) for at in ran] == [2.0, 3.5]


async def test_a_job_that_fails_runs_again_after_attempt_to_the_fourth_seconds(
    queue: Queue, clock: Clock, lines: Lines
) -> None:
    clock.chance = 0.0
    at: list[float] = []

    @queue.kind("mail", attempts=4)
    async def mail(value: Mail) -> None:
        at.append(clock.monotonic())
        raise ConnectionError("the mail server is down")

    async with queue.running():
        await mail.push(Mail(user=1))
        await clock.pass_time(200)
    assert [round(each) for each in at] == [0, 1, 17, 98]
    assert len(lines("a job failed, and will run again")) == 3
    (last,) = lines("a job failed for good")
    assert "kind=mail job=1 attempt=4" in last
    assert 'err="ConnectionError: the mail server is down"' in last


async def test_a_failed_attempt_is_a_warning_and_the_last_one_an_error_with_the_request_that_pushed_it(
    new_queue: Callable[..., Queue], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="fastjobs")
    queue = new_queue(carry=[CarryRequestID()])
    told: list[str | None] = []

    @queue.kind("mail", attempts=2, backoff=lambda attempt: 30)
    async def mail(value: Mail) -> None:
        raise ConnectionError("the mail server is down")

    @mail.on_fail
    async def tell(value: Mail, error: Exception) -> None:
        told.append(request_id())

    token = current.set("SCK2WDZAHS33MHC2HQCFU7KWMK")
    await mail.push(Mail(user=1))
    current.reset(token)
    due = datetime.fromtimestamp(clock.now() / 1e6, UTC) + timedelta(seconds=30)
    await queue.drain()
    clock.advance(30)
    await queue.drain()
    again, failed = ((record.levelname, record.getMessage()) for record in caplog.records)
    err, asked = 'err="ConnectionError: the mail server is down"', "request_id=SCK2WDZAHS33MHC2HQCFU7KWMK"
    at = due.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert again[0] == "WARNING"
    assert again[1].startswith(
        f"a job failed, and will run again kind=mail job=1 attempt=1 {asked} at={at} {err}"
    )
    assert failed[0] == "ERROR"
    assert failed[1].startswith(f"a job failed for good kind=mail job=1 attempt=2 {asked} {err}")
    assert told == ["SCK2WDZAHS33MHC2HQCFU7KWMK"], "on_fail has what the job carried in its context"


async def test_the_end_of_a_job_is_observed_once_it_is_kept(
    queue: Queue, clock: Clock, store: Memory, seen: list[Ran]
) -> None:
    @queue.kind("mail", attempts=2, backoff=10)
    async def mail(value: Mail) -> None:
        clock.advance(0.5)
        if current_job().attempt == 1:
            raise ValueError("first")

    await mail.push(Mail(user=1))
    clock.advance(3)
    await queue.drain()
    assert seen == [
        Ran(
            kind="mail",
            job="1",
            attempt=1,
            outcome=Outcome.RETRIED,
            error=seen[0].error,
            took=0.5,
            waited=3.0,
        )
    ]
    assert isinstance(seen[0].error, ValueError)
    clock.advance(12)
    await queue.drain()
    assert (seen[1].outcome, seen[1].attempt, seen[1].error) == (Outcome.DONE, 2, None)


async def test_an_observer_that_raises_is_logged_and_stops_nothing(
    new_queue: Callable[..., Queue], lines: Lines
) -> None:
    def broken(ran: Ran) -> None:
        raise RuntimeError("metrics are down")

    queue = new_queue(observe=broken)

    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    await mail.push_many([Mail(user=1), Mail(user=2)])
    assert await queue.drain() == 2
    assert len(lines("observe= failed")) == 2


def _is_99(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno == 99


RAISED: list[tuple[Exception, dict[str, Any]]] = [
    (Permanent("the user has gone"), {}),
    (LookupError("gone"), {"permanent": LookupError}),
    (KeyError("gone"), {"permanent": (ValueError, LookupError)}),
    (OSError(99, "no"), {"permanent": _is_99}),
]


@pytest.mark.parametrize(("raised", "settings"), RAISED)
async def test_an_error_that_trying_again_wont_mend_fails_the_job_at_once(
    queue: Queue, store: Memory, raised: Exception, settings: Any
) -> None:
    failed: list[tuple[int, Exception]] = []

    @queue.kind("mail", **settings)
    async def mail(value: Mail) -> None:
        raise raised

    @mail.on_fail
    async def tell(value: Mail, error: Exception) -> None:
        failed.append((value.user, error))

    await mail.push(Mail(user=3))
    await queue.drain()
    assert failed == [(3, raised)]
    assert [job.attempts for job in await store.failed()] == [1]


async def test_the_queues_permanent_errors_hold_for_every_kind(
    new_queue: Callable[..., Queue], store: Memory
) -> None:
    queue = new_queue(permanent=[TypeError])

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        raise TypeError("a bug")

    await mail.push(Mail(user=1))
    await queue.drain()
    assert len(await store.failed()) == 1


async def test_retry_says_when_the_next_attempt_runs(queue: Queue, clock: Clock, store: Memory) -> None:
    at: list[float] = []

    @queue.kind("mail", attempts=2)
    async def mail(value: Mail) -> None:
        at.append(clock.monotonic())
        raise Retry("the provider says in a minute", after=60)

    async with queue.running():
        await mail.push(Mail(user=1))
        await clock.pass_time(100)
    assert at == [0, 60]
    assert [job.attempts for job in await store.failed()] == [2]


async def test_a_snooze_is_no_attempt(queue: Queue, clock: Clock, seen: list[Ran]) -> None:
    attempts: list[int] = []

    @queue.kind("mail", attempts=1)
    async def mail(value: Mail) -> None:
        attempts.append(current_job().attempt)
        if len(attempts) < 4:
            raise Snooze(after=timedelta(seconds=10))

    async with queue.running():
        await mail.push(Mail(user=1))
        await clock.pass_time(60)
    assert attempts == [1, 1, 1, 1]
    assert [ran.outcome for ran in seen] == [Outcome.HELD_BACK] * 3 + [Outcome.DONE]


async def test_a_handler_sees_its_job_and_the_last_error(queue: Queue, clock: Clock) -> None:
    jobs: list[tuple[str, int, str | None]] = []

    @queue.kind("mail", backoff=1)
    async def mail(value: Mail) -> None:
        job = current_job()
        jobs.append((job.id, job.attempt, job.last_error))
        if job.attempt < 2:
            raise ValueError("once")

    async with queue.running():
        id = await mail.push(Mail(user=1))
        await clock.pass_time(5)
    assert jobs == [(id, 1, None), (id, 2, "ValueError: once")]


async def test_there_is_no_current_job_outside_a_handler() -> None:
    with pytest.raises(RuntimeError, match="only a handler"):
        current_job()


async def test_each_job_runs_in_a_context_of_its_own(queue: Queue, clock: Clock) -> None:
    here: ContextVar[str] = ContextVar("here", default="nothing")
    here.set("the pusher's")
    found: list[str] = []

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        found.append(here.get())
        here.set(f"set by {value.user}")
        await asyncio.sleep(0)
        assert here.get() == f"set by {value.user}"
        await asyncio.create_task(asyncio.sleep(0))

    async with queue.running():
        await mail.push_many([Mail(user=n) for n in range(20)])
        await clock.pass_time(0, turns=100)
    assert found == ["nothing"] * 20
    assert here.get() == "the pusher's"


async def test_no_more_jobs_run_at_once_than_there_are_workers(
    new_queue: Callable[..., Queue], clock: Clock
) -> None:
    queue = new_queue(workers=3)
    now, most = 0, 0

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1

    async with queue.running():
        await mail.push_many([Mail(user=n) for n in range(50)])
        await clock.pass_time(1, turns=400)
    assert most == 3


async def test_a_thousand_jobs_finish_while_the_collector_runs_all_the_time(
    new_queue: Callable[..., Queue], clock: Clock
) -> None:
    queue = new_queue(workers=50)
    done = 0

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        nonlocal done
        await asyncio.sleep(0)
        done += 1

    async with queue.running():
        await mail.push_many([Mail(user=n) for n in range(1000)])
        for _ in range(100):
            gc.collect(0)
            await clock.pass_time(0.01)
            if done == 1000:
                break
    assert done == 1000


async def test_a_payload_that_no_longer_fits_fails_once_says_why_and_runs_no_on_fail(
    new_queue: Callable[..., Queue], store: Memory, lines: Lines
) -> None:
    old, new = new_queue(), new_queue()

    @old.kind("mail")
    async def before(value: dict[str, int]) -> None: ...

    @new.kind("mail")
    async def after(value: Mail) -> None:
        raise AssertionError("there's no value to run with")

    @after.on_fail
    async def tell(value: Mail, error: Exception) -> None:
        raise AssertionError("there's no value to tell of")

    await before.push({"person": 3})
    assert await new.drain() == 1
    (failed,) = await store.failed()
    assert failed.attempts == 1
    assert failed.error is not None
    assert "at user: Field required" in failed.error
    assert len(lines("a job failed for good")) == 1


async def test_a_queue_leaves_kinds_it_has_no_handler_for_to_others(
    new_queue: Callable[..., Queue], seen: list[Ran]
) -> None:
    old, new = new_queue(), new_queue()

    @old.kind("mail")
    async def mail(value: Mail) -> None: ...

    @new.kind("thumbnail")
    async def thumbnail(value: Mail) -> None: ...

    await thumbnail.push(Mail(user=1))
    assert await old.drain() == 0
    assert await new.drain() == 1
    assert [ran.attempt for ran in seen] == [1]


async def test_a_queue_that_runs_some_of_its_kinds_pushes_the_others_and_leaves_their_jobs_untouched(
    new_queue: Callable[..., Queue], clock: Clock, seen: list[Ran]
) -> None:
    queue, other = new_queue(), new_queue()

    @queue.kind("mail")
    async def mail() -> None:
        await report.push()

    @queue.kind("report")
    async def report() -> None:
        raise AssertionError("it's left to another instance")

    @other.kind("report")
    async def elsewhere() -> None: ...

    async with queue.running(kinds=["mail"], workers=2):
        await mail.push()
        await clock.pass_time(60)
        assert queue.health().workers == 2
    assert [ran.kind for ran in seen] == ["mail"]
    assert await other.drain() == 1
    assert (seen[-1].kind, seen[-1].attempt) == ("report", 1)
    seen.clear()

    async with queue.running(kinds=[mail]):
        await mail.push()
        await clock.pass_time(0)
    assert [ran.kind for ran in seen] == ["mail"], "a Kind names itself"


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        (["mail", "nope", "no"], "the queue has no kind 'nope', 'no'; it has mail, report"),
        ("mail", r"kinds= is a list of kinds or their names, as in \["),
        ([], "kinds= names no kind: run=False is what only pushes"),
    ],
)
async def test_kinds_that_a_queue_cant_run_are_told_as_it_starts(queue: Queue, kinds: Any, told: str) -> None:
    for name in ("report", "mail"):

        @queue.kind(name)
        async def kind() -> None: ...

    with pytest.raises(RegistrationError, match=told):
        async with queue.running(kinds=kinds):
            pass
    async with queue.running():
        pass


async def test_a_kind_of_another_queue_isnt_taken_for_this_ones(new_queue: Callable[..., Queue]) -> None:
    queue, other = new_queue(), new_queue()
    for each in (queue, other):

        @each.kind("mail")
        async def mail() -> None: ...

    with pytest.raises(RegistrationError, match="the queue has no kind 'mail' of another queue; it has mail"):
        async with queue.running(kinds=[other.kinds["mail"]]):
            pass


async def test_jobs_of_a_higher_priority_run_first(new_queue: Callable[..., Queue]) -> None:
    queue = new_queue()
    ran: list[str] = []

    @queue.kind("slow")
    async def slow() -> None:
        ran.append("slow")

    @queue.kind("urgent", priority=5)
    async def urgent() -> None:
        ran.append("urgent")

    await slow.push()
    await slow.push()
    await urgent.push()
    await queue.drain()
    assert ran == ["urgent", "slow", "slow"]


async def test_a_backoff_that_raises_is_told_of_and_the_job_runs_again(
    queue: Queue, clock: Clock, lines: Lines
) -> None:
    def broken(attempt: int) -> float:
        raise ZeroDivisionError

    runs = 0

    @queue.kind("mail", backoff=broken)
    async def mail(value: Mail) -> None:
        nonlocal runs
        runs += 1
        raise ValueError

    async with queue.running():
        await mail.push(Mail(user=1))
        await clock.pass_time(10)
    assert runs == 2
    assert "its backoff raised" in lines("a job's kind is not set up well")[0]


async def test_jobs_that_were_claimed_ahead_go_back_when_the_workers_turn_out_to_be_busy(
    new_queue: Callable[..., Queue], clock: Clock
) -> None:
    queue, idle = new_queue(workers=2), new_queue()
    end = asyncio.Event()
    ran = 0

    @queue.kind("mixed")
    async def mixed(value: Mail) -> None:
        nonlocal ran
        ran += 1
        if value.user >= 300:
            await end.wait()

    @idle.kind("mixed")
    async def elsewhere(value: Mail) -> None: ...

    async with queue.running():
        await mixed.push_many([Mail(user=n) for n in range(400)])
        await clock.pass_time(0.1, turns=400)
        assert ran == 302, "short ones first, then a long one for each worker"
        assert await idle.drain() == 0, "the rest was claimed ahead"
        await clock.pass_time(1.1)
        assert await idle.drain() == 98
        end.set()
        await clock.pass_time(0)


async def test_a_job_that_lost_its_worker_is_never_claimed_ahead(
    new_queue: Callable[..., Queue], clock: Clock, store: Memory
) -> None:
    from fastjobs.store import Claimable

    queue = new_queue(workers=1)
    end = asyncio.Event()
    order: list[int] = []

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        order.append(value.user)
        if value.user == 300:
            await end.wait()

    await mail.push_many([Mail(user=n) for n in range(310)])
    await mail.push(Mail(user=999))
    lost = await store.claim([Claimable(kind="mail", hold=1_000, attempts=9)], 311)
    assert len(lost.jobs) == 311
    clock.advance(0.1)
    async with queue.running():
        await clock.pass_time(0.1, turns=2000)
        life = queue._life
        assert life is not None
        assert order[-1] == 300
        assert len(life._runs) == 1, "none of them was taken before a worker was free for it"
        end.set()
        await clock.pass_time(1, turns=200)
    assert len(order) == 311


async def test_handlers_that_never_wait_leave_the_app_its_turns(
    new_queue: Callable[..., Queue], clock: Clock
) -> None:
    queue = new_queue(workers=2)
    turns_at: list[int] = []
    done = 0

    @queue.kind("busy")
    async def busy(value: Mail) -> None:
        nonlocal done
        clock.advance(0.001)
        done += 1

    async def app() -> None:
        while done < 300:
            turns_at.append(done)
            await asyncio.sleep(0)

    await busy.push_many([Mail(user=n) for n in range(300)])
    async with queue.running():
        await app()
    gaps = [after - before for before, after in pairwise(turns_at)]
    assert max(gaps) <= 2 * 4, "a few milliseconds' work of each worker, at most"


async def test_handlers_that_never_wait_leave_the_loop_its_turn_however_many_workers_there_are(
    new_queue: Callable[..., Queue],
) -> None:
    queue = new_queue(workers=8, clock=None)
    runs, most, last = 0, 0, asyncio.Event()

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        nonlocal runs
        runs += 1
        if runs == 2000:
            last.set()

    async with queue.running(run=False):
        await mail.push_many([Mail(user=n) for n in range(2000)])
    async with queue.running():
        before = 0
        while not last.is_set():
            await asyncio.sleep(0)
            most, before = max(most, runs - before), runs
    assert runs == 2000
    assert most <= TURN / EACH + 8 + 1

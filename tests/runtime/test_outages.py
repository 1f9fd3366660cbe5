"""The store being down stops nothing for good, loses nothing, and runs nothing twice while its hold lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from fastjobs import Outcome, Queue, Ran, StoreTimeout
from fastjobs.runtime import waiting
from fastjobs.runtime.outage import Outage
from fastjobs.testing import Clock
from tests.runtime.conftest import Mail
from tests.runtime.faulty import Down, Unsteady

pytestmark = pytest.mark.anyio
Lines = Callable[[str], list[str]]


@pytest.fixture
def store(clock: Clock) -> Unsteady:
    return Unsteady(clock=clock)


async def test_claims_go_on_within_a_poll_of_the_stores_return(
    new_queue: Callable[..., Queue], clock: Clock, store: Unsteady, lines: Lines
) -> None:
    queue = new_queue(poll=2)
    ran: list[float] = []

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        ran.append(clock.monotonic())

    store.before.add("claim")
    async with queue.running():
        await mail.push(Mail(user=1))
        await clock.pass_time(300)
        asked = store.calls["claim"]
        store.before.clear()
        back = clock.monotonic()
        await clock.pass_time(2)
    assert back <= ran[0] <= back + 2
    assert 150 <= asked <= 330, "asked again, at a pace that grows to the poll"
    told = lines("the store failed") + lines("the store still fails")
    assert 4 <= len(told) <= 6, "once, then once a minute"
    assert len(lines("the store answers again")) == 1


async def test_a_mark_that_failed_is_kept_later_and_the_handler_is_not_run_again(
    new_queue: Callable[..., Queue], clock: Clock, store: Unsteady, seen: list[Ran]
) -> None:
    queue = new_queue()
    runs = 0

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        nonlocal runs
        runs += 1
        store.before.add("mark")

    async with queue.running():
        await mail.push(Mail(user=1))
        await clock.pass_time(30)
        assert seen == []
        store.before.clear()
        await clock.pass_time(2)
        assert [ran.outcome for ran in seen] == [Outcome.DONE]
        await clock.pass_time(200)
    assert runs == 1


async def test_a_mark_that_was_kept_though_the_store_answered_with_an_error_is_told_once_as_its_verdict(
    new_queue: Callable[..., Queue], clock: Clock, store: Unsteady, seen: list[Ran], lines: Lines
) -> None:
    queue = new_queue()

    @queue.kind("mail", attempts=1)
    async def mail(value: Mail) -> None:
        store.after.add("mark")
        raise ValueError("no")

    owed: list[int] = []

    @mail.on_fail
    async def tell(value: Mail, error: Exception) -> None:
        owed.append(value.user)

    async with queue.running():
        await mail.push(Mail(user=1))
        await clock.pass_time(0.04)
        store.after.clear()
        await clock.pass_time(5)
    assert [ran.outcome for ran in seen] == [Outcome.FAILED]
    assert owed == [1]
    assert len(lines("the end of a job was kept the first time")) == 1


async def test_a_mark_that_cant_be_kept_within_its_hold_is_let_go_and_the_job_runs_again(
    new_queue: Callable[..., Queue], clock: Clock, store: Unsteady, lines: Lines, seen: list[Ran]
) -> None:
    queue = new_queue(hold=20)
    runs = 0

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        nonlocal runs
        runs += 1

    async with queue.running():
        store.before.add("mark")
        await mail.push(Mail(user=1))
        await clock.pass_time(19)
        assert runs == 1
        await clock.pass_time(4)
        assert runs == 2
        assert seen == [], "a run that the store couldn't keep is told of"
        store.before.clear()
        await clock.pass_time(3)
    assert len(lines("the end of a job was not kept")) == 1
    assert [ran.outcome for ran in seen] == [Outcome.DONE]


async def test_one_mark_that_the_store_cant_take_doesnt_keep_the_others_from_being_kept(
    new_queue: Callable[..., Queue], clock: Clock, store: Unsteady, seen: list[Ran]
) -> None:
    queue = new_queue(workers=10)

    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    ids = await mail.push_many([Mail(user=n) for n in range(100)])
    store.poison = ids[3]
    async with queue.running():
        await clock.pass_time(20)
        assert {ran.job for ran in seen} == {id for id in ids if id is not None} - {store.poison}
        store.poison = None
        await clock.pass_time(5)


async def test_marks_gather_while_one_write_is_under_way(
    new_queue: Callable[..., Queue], clock: Clock, store: Unsteady, seen: list[Ran]
) -> None:
    queue = new_queue(workers=20)

    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    await mail.push_many([Mail(user=n) for n in range(2000)])
    async with queue.running():
        while len(seen) < 2000:
            await clock.pass_time(0.01)
    assert sum(store.batches) == 2000
    assert len(store.batches) < 300
    assert max(store.batches) > 20


async def test_a_push_that_failed_raises_and_is_never_sent_again(queue: Queue, store: Unsteady) -> None:
    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    for fault in (store.before, store.after):
        fault.add("push")
        with pytest.raises(Down):
            await mail.push(Mail(user=1))
        fault.clear()
    assert store.calls["push"] == 2
    assert await queue.drain() == 1, "the second was kept, as the answer alone was lost"


async def test_a_store_that_is_down_at_the_start_doesnt_keep_the_app_from_starting(
    new_queue: Callable[..., Queue], clock: Clock, store: Unsteady, seen: list[Ran]
) -> None:
    queue = new_queue()

    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    await mail.push(Mail(user=1))
    store.before.add("claim")
    async with queue.running():
        await clock.pass_time(10)
        store.before.clear()
        await clock.pass_time(1)
    assert [ran.outcome for ran in seen] == [Outcome.DONE]


async def test_a_bug_of_our_own_is_critical_is_told_to_on_crash_and_the_loop_goes_on(
    new_queue: Callable[..., Queue],
    clock: Clock,
    seen: list[Ran],
    lines: Lines,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = new_queue()
    crashes: list[BaseException] = []

    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    async with queue.running(on_crash=crashes.append):
        life = queue._life
        assert life is not None
        with monkeypatch.context() as patched:
            patched.setattr(life.feed, "_load", lambda: 1 / 0)
            queue.wake()
            await clock.pass_time(0.5)
        assert [type(error) for error in crashes] == [ZeroDivisionError]
        assert len(lines("a bug in fastjobs")) == 1
        await mail.push(Mail(user=1))
        await clock.pass_time(2)
    assert [ran.outcome for ran in seen] == [Outcome.DONE]


async def test_run_raises_a_bug_of_our_own(
    new_queue: Callable[..., Queue], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = new_queue()

    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    running = asyncio.create_task(queue.run())
    await clock.pass_time(0)
    life = queue._life
    assert life is not None
    monkeypatch.setattr(life.feed, "_load", lambda: 1 / 0)
    queue.wake()
    stopping = asyncio.ensure_future(clock.pass_time(12))
    with pytest.raises(ZeroDivisionError):
        await running
    await stopping


@pytest.mark.parametrize("coarse", [0.0, 5.0])
async def test_a_call_that_hangs_is_given_up_after_its_limit_and_its_task_goes_on(
    monkeypatch: pytest.MonkeyPatch, coarse: float
) -> None:
    monkeypatch.setattr(waiting, "COARSE", coarse)
    with pytest.raises(StoreTimeout, match="no answer to a claim in"):
        await waiting.limited(asyncio.Event().wait(), "a claim", 0.05)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_a_cancellation_of_the_caller_is_passed_on_by_a_call_with_a_limit() -> None:
    call = asyncio.create_task(waiting.limited(asyncio.Event().wait(), "a push"))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert call.cancelled()
    assert await waiting.limited(asyncio.sleep(0, "answer"), "a push") == "answer"


async def test_a_store_that_stands_for_a_transaction_has_the_limit_of_every_call(
    queue: Queue, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastjobs.runtime.pushing.limited", partial(waiting.limited, limit=0.05))
    other = Unsteady(clock=clock)
    other.hang.add("push")

    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    with pytest.raises(StoreTimeout, match="no answer to a push"):
        await mail.in_(other).push(Mail(user=1))


async def test_a_drain_asks_again_for_a_mark_whose_row_is_busy(
    queue: Queue, clock: Clock, store: Unsteady, seen: list[Ran]
) -> None:
    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        store.busy = 3

    await mail.push(Mail(user=1))
    draining = asyncio.create_task(queue.drain())
    await clock.pass_time(1)
    assert await draining == 1
    assert [ran.outcome for ran in seen] == [Outcome.DONE]


def _raised() -> RuntimeError:
    try:
        raise RuntimeError("down")
    except RuntimeError as error:
        return error


def test_a_part_that_was_not_asked_for_long_tells_of_another_outage(clock: Clock, lines: Lines) -> None:
    outage = Outage(clock, "cancels", 2)
    for _ in range(3):
        outage.failed(_raised())
        clock.advance(1)
    # It had nothing to ask for two minutes, and the store answered others meanwhile.
    clock.advance(120)
    outage.failed(_raised())
    clock.advance(5)
    outage.over()
    assert len(lines("the store failed, and is asked again")) == 2
    assert lines("the store still fails") == []
    (end,) = lines("the store answers again")
    assert "after=5.0s failures=1" in end


def test_failures_that_were_told_of_are_not_told_of_again(clock: Clock, lines: Lines) -> None:
    outage = Outage(clock, "claim", 1)
    for _ in range(5):
        outage.failed(_raised())
        clock.advance(1)
    outage.over()
    clock.advance(120)
    outage.failed(_raised())
    first, second = lines("the store failed, and is asked again")
    assert "failures=" not in first
    assert "failures=" not in second

"""Looking at jobs and kinds: what is shown is what the store keeps, in pages, and asking changes nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest

from fastjobs import (
    CarryRequestID,
    Extra,
    JobInfo,
    JobState,
    Memory,
    Permanent,
    Queue,
    QueueError,
    StoreError,
    StoreTimeout,
    Throttle,
    Unique,
    current_job,
)
from fastjobs.core.request_id import current
from fastjobs.runtime import blocking
from fastjobs.store import KindCount
from fastjobs.testing import Clock
from tests.runtime.conftest import Mail

pytestmark = pytest.mark.anyio

START = datetime(2026, 1, 1, tzinfo=UTC)


async def test_a_job_that_waits_is_shown_with_all_that_its_push_gave_it(
    new_queue: Callable[..., Queue], clock: Clock
) -> None:
    queue = new_queue(carry=[CarryRequestID()])

    @queue.kind("mail", unique=True)
    async def mail(value: Mail) -> None: ...

    current.set("req-7")
    id = await mail.push(Mail(user=7), after=60, name="welcome 7")
    clock.advance(1)
    assert id is not None
    job = await queue.job(id)
    assert job is not None
    assert (job.id, job.kind, job.state) == (id, "mail", JobState.WAITING)
    assert (job.payload, job.size) == ('{"user":7}', 10)
    assert (job.pushed_at, job.due) == (START, START + timedelta(seconds=60))
    assert (job.attempts, job.lost, job.error) == (0, 0, None)
    assert (job.held_until, job.failed_at, job.behind, job.progress) == (None, None, None, None)
    assert (job.name, job.unique, job.stop_asked) == ("welcome 7", True, False)
    assert (job.request_id, job.carried) == ("req-7", {"request_id": "req-7"})
    assert job.why == "it waits for its time, 2026-01-01 00:01:00 UTC"
    assert "user" not in repr(job), "what a job is about may be secret, and a repr goes to logs"

    short = await queue.job(id, cut=4)
    assert short is not None
    assert (short.payload, short.size) == ('{"us', 10)
    assert await queue.drain() == 0


async def test_a_job_that_is_done_or_never_was_is_not_there(queue: Queue) -> None:
    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    id = await mail.push(Mail(user=1))
    await queue.drain()
    assert id is not None
    assert [await queue.job(each) for each in (id, "999", "", "no number", "-1")] == [None] * 5


async def test_each_state_says_why(new_queue: Callable[..., Queue], clock: Clock) -> None:
    queue = new_queue(workers=2)
    gate = asyncio.Event()

    @queue.kind("turns", unique=Unique(one_at_a_time=True))
    async def turns(value: Mail) -> None:
        await gate.wait()

    @queue.kind("few", at_once=1)
    async def few() -> None:
        await gate.wait()

    @queue.kind("rated", rate=Throttle(1, per=60))
    async def rated() -> None: ...

    async def why(id: str | None) -> str:
        assert id is not None
        job = await queue.job(id)
        assert job is not None
        return job.why

    async with queue.running():
        ids = [await rated.push(), await rated.push()]
        await clock.pass_time(1)
        due = "it is due since 2026-01-01 00:00:00 UTC, and waits for a free worker"
        assert await why(ids[1]) == f"{due}, for its rate (1 in 60 s), or for a process that runs its kind"
        held = await turns.push(Mail(user=1))
        await clock.pass_time(1)
        behind = await turns.push(Mail(user=1))
        await clock.pass_time(1)
        assert await why(held) == "it runs: attempt 1, held until 2026-01-01 00:01:16 UTC"
        assert await why(behind) == f"it waits for job {held} of the same value, which runs (one at a time)"
        shown = await queue.job(behind or "")
        assert shown is not None
        assert (shown.state, shown.behind) == (JobState.PARKED, held)
        await few.push()
        await clock.pass_time(1)
        full = await few.push()
        assert await why(full) == "1 of its kind runs, as many as at_once lets"
        gate.set()
        await clock.pass_time(1)


async def test_a_kind_without_a_handler_here_says_so(new_queue: Callable[..., Queue]) -> None:
    queue, other = new_queue(), new_queue()

    @other.kind("theirs")
    async def theirs() -> None: ...

    id = await theirs.push()
    assert id is not None
    job = await queue.job(id)
    assert job is not None
    assert job.why == "no handler of its kind here: it waits for an instance that has one"
    (count,) = await queue.counts()
    assert (count.kind, count.handled, count.due) == ("theirs", False, 1)


async def test_jobs_are_listed_in_pages_in_the_order_they_are_due(queue: Queue, clock: Clock) -> None:
    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    pushed = [await mail.push(Mail(user=n), after=n % 3) for n in range(10)]
    due = [id for _, id in sorted((n % 3, int(id or "")) for n, id in enumerate(pushed))]
    seen: list[JobInfo] = []
    while page := await queue.jobs(mail, limit=4, after=seen[-1] if seen else None):
        assert len(page) <= 4
        seen += page
    assert [int(job.id) for job in seen] == due
    assert [int(job.id) for job in await queue.jobs(mail, after=seen[3].cursor)] == due[4:]
    assert await queue.jobs("mail", JobState.HELD) == []
    assert await queue.jobs("nothing") == []


async def test_held_jobs_are_listed_as_held(new_queue: Callable[..., Queue], clock: Clock) -> None:
    queue = new_queue(workers=3)
    gate = asyncio.Event()

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        await gate.wait()

    async with queue.running():
        await mail.push_many([Mail(user=n) for n in range(5)])
        await clock.pass_time(1)
        held = await queue.jobs(mail, JobState.HELD, limit=2)
        held += await queue.jobs(mail, JobState.HELD, after=held[-1])
        assert [job.id for job in held] == ["1", "2", "3"]
        assert all(job.held_until == START + timedelta(seconds=75) for job in held)
        assert [job.id for job in await queue.jobs(mail)] == ["4", "5"]
        gate.set()
        await clock.pass_time(1)


async def _failed(queue: Queue, clock: Clock) -> None:
    """Five mails and a report fail, a second apart."""

    @queue.kind("mail", attempts=1)
    async def mail(value: Mail) -> None:
        raise ValueError(f"no {value.user}")

    @queue.kind("report")
    async def report() -> None:
        raise Permanent("no data")

    for n in range(5):
        await mail.push(Mail(user=n))
        clock.advance(1)
        await queue.drain()
    await report.push()
    await queue.drain()


async def test_the_failed_are_listed_the_latest_first_in_pages_and_by_kind(
    queue: Queue, clock: Clock
) -> None:
    await _failed(queue, clock)
    assert [job.id for job in await queue.failed()] == ["6", "5", "4", "3", "2", "1"]
    assert [job.id for job in await queue.jobs("mail", JobState.FAILED)] == ["5", "4", "3", "2", "1"]
    page = await queue.failed(kind="mail", limit=2, cut=3)
    assert [(job.id, job.error, job.payload, job.size) for job in page] == [
        ("5", "ValueError: no 4", '{"u', 10),
        ("4", "ValueError: no 3", '{"u', 10),
    ]
    assert [job.id for job in await queue.failed(kind="mail", limit=2, after=page[-1])] == ["3", "2"]
    assert [job.id for job in await queue.failed(limit=2, after=page[-1].cursor)] == ["3", "2"]
    (job,) = await queue.failed(kind="report")
    assert job.failed_at == job.due == START + timedelta(seconds=5)
    assert job.why == "it failed for good at 2026-01-01 00:00:05 UTC, after 1 attempt"
    assert await queue.job(job.id) == job


async def test_a_job_that_failed_says_where_in_the_apps_code_and_its_next_attempt_does_not(
    queue: Queue, clock: Clock
) -> None:
    errors: list[str | None] = []

    @queue.kind("photo", attempts=2, backoff=1)
    async def photo() -> None:
        errors.append(current_job().last_error)
        raise ValueError("no")

    async with queue.running():
        id = await photo.push()
        await clock.pass_time(5)
        assert id is not None
        job = await queue.job(id)
    assert job is not None
    assert (job.error, (job.where or "").endswith(" photo")) == ("ValueError: no", True)
    assert (job.where or "").startswith("test_looking.py:")
    assert errors == [None, "ValueError: no"]


@pytest.mark.parametrize(
    "after",
    ["", "failed", "failed:x:1", "failed:1:", "waiting:1:1"]
    + [f"failed:{at}:1" for at in ("1" + "0" * 30, 1 << 63, -(1 << 63) - 1, "9" * 20, "--1")],
)
async def test_a_cursor_of_no_such_list_is_refused(queue: Queue, after: str) -> None:
    with pytest.raises(QueueError, match="of a list of failed jobs"):
        await queue.failed(after=after)


async def test_a_job_of_one_list_begins_no_page_of_another(queue: Queue, clock: Clock) -> None:
    await _failed(queue, clock)
    (job, *_) = await queue.failed()
    with pytest.raises(QueueError, match="of a list of waiting jobs"):
        await queue.jobs("mail", after=job)


BAD: dict[str, Callable[[Any], Any]] = {
    "limit 0": lambda q: q.failed(limit=0),
    "limit True": lambda q: q.failed(limit=True),
    "limit 1e9": lambda q: q.jobs("mail", limit=10**9),
    "cut -1": lambda q: q.job("1", cut=-1),
    "cap 0": lambda q: q.counts(cap=0),
    "an id that is a number": lambda q: q.job(1),
    "a kind that is none": lambda q: q.failed(kind=7),
    "a kind with a NUL": lambda q: q.failed(kind="ma\0il"),
    "half a character for a kind": lambda q: q.jobs("\ud800"),
    "no kind's name to run again": lambda q: q.run_again(kind="ma il"),
    "no kind's name to delete": lambda q: q.delete(kind=""),
    "no kind's name to pause": lambda q: q.pause("x" * 101),
    "no kind": lambda q: q.jobs(None),
    "no state": lambda q: q.jobs("mail", "asleep"),
    "parked": lambda q: q.jobs("mail", JobState.PARKED),
    "nothing to run again": lambda q: q.run_again(),
    "ids and all": lambda q: q.run_again("1", all=True),
    "a kind and all": lambda q: q.delete(kind="mail", all=True),
    "all that is no bool": lambda q: q.delete(all="yes"),
    "a list of ids": lambda q: q.run_again(["1", "2"]),
    "a number to delete": lambda q: q.delete(1),
    "a number to cancel": lambda q: q.cancel(1),
    "no kind to pause": lambda q: q.pause(None),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
async def test_what_cannot_be_asked_is_refused_and_says_what_can(
    queue: Queue, bad: Callable[[Any], Any]
) -> None:
    with pytest.raises(QueueError):
        await bad(queue)


async def test_a_list_in_place_of_ids_says_how_to_write_it(queue: Queue) -> None:
    with pytest.raises(QueueError, match=r"is a list: write \*ids"):
        await queue.run_again(["1"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


class Bare(Memory):
    extras: ClassVar[Extra] = Extra.LISTEN


LACKS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda q: q.failed(), "FAILED"),
    (lambda q: q.run_again("1"), "FAILED"),
    (lambda q: q.delete(all=True), "FAILED"),
    (lambda q: q.job("1"), "COUNTS"),
    (lambda q: q.jobs("mail"), "COUNTS"),
    (lambda q: q.counts(), "COUNTS"),
    (lambda q: q.cancel("1"), "CANCEL"),
    (lambda q: q.pause("mail"), "PAUSE"),
    (lambda q: q.resume("mail"), "PAUSE"),
]


@pytest.mark.parametrize(("ask", "extra"), LACKS, ids=range(len(LACKS)))
async def test_a_store_that_lacks_what_is_asked_says_which(ask: Callable[[Any], Any], extra: str) -> None:
    with pytest.raises(StoreError, match=rf"needs a store with {extra}, and Bare has LISTEN"):
        await ask(Queue(Bare()))


async def test_a_queue_without_a_store_says_how_to_give_it_one() -> None:
    with pytest.raises(QueueError, match="no store yet"):
        await Queue().failed()


async def test_counts_are_of_all_kinds_here_and_elsewhere_and_capped(
    new_queue: Callable[..., Queue], clock: Clock
) -> None:
    queue, other = new_queue(), new_queue()

    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    @other.kind("theirs")
    async def theirs() -> None: ...

    @queue.kind("never")
    async def never() -> None: ...

    await mail.push_many([Mail(user=n) for n in range(5)])
    await mail.push(Mail(user=9), after=100)
    await theirs.push(after=1)
    clock.advance(2.5)
    counts = {each.kind: each for each in await queue.counts(cap=3)}
    assert list(counts) == ["mail", "never", "theirs"]
    assert (counts["mail"].waiting, counts["mail"].due, counts["mail"].oldest) == (4, 4, 2.5)
    assert (counts["theirs"].due, counts["theirs"].oldest, counts["theirs"].handled) == (1, 1.5, False)
    assert (counts["never"].waiting, counts["never"].oldest, counts["never"].handled) == (0, None, True)


async def test_counts_in_microseconds_are_shown_in_seconds(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def counts(self: Memory, *, cap: int = 10_000) -> list[KindCount]:
        return [KindCount("mail", 1, 1, 2, 3, 4, 2_500_000, 1_500_000, True)]

    monkeypatch.setattr(Memory, "counts", counts)
    (count,) = await queue.counts()
    assert (count.oldest, count.held_back) == (2.5, 1.5)
    assert (count.held, count.parked, count.failed, count.paused) == (2, 3, 4, True)


# Run again and delete.


async def test_run_again_takes_those_of_the_ids_that_failed_and_starts_them_now(
    queue: Queue, clock: Clock, lines: Callable[[str], list[str]]
) -> None:
    await _failed(queue, clock)
    waits = await queue.kinds["mail"].push(Mail(user=9), after=99)
    assert waits is not None
    current.set("req-7")
    assert await queue.run_again("2", "4", "2", waits, "999") == 2
    assert lines("failed jobs were put back") == [
        f"failed jobs were put back to run again job=2,4,{waits},999 count=2 request_id=req-7"
    ]
    job = await queue.job("2")
    assert job is not None
    assert (job.state, job.attempts, job.error) == (JobState.WAITING, 0, "ValueError: no 1")
    assert await queue.drain() == 2


@pytest.mark.parametrize("act", ["run_again", "delete"])
async def test_all_of_a_kind_and_all_go_in_pages_and_each_once(
    queue: Queue, clock: Clock, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastjobs.runtime.acting.PAGE", 2)
    await _failed(queue, clock)
    assert await getattr(queue, act)(kind=queue.kinds["mail"]) == 5
    assert [job.kind for job in await queue.failed()] == ["report"]
    assert await getattr(queue, act)(all=True) == 1
    assert await getattr(queue, act)(all=True) == 0
    assert sum(each.waiting for each in await queue.counts()) == (6 if act == "run_again" else 0)


async def test_what_fails_anew_meanwhile_is_not_run_again_in_the_same_call(
    queue: Queue, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastjobs.runtime.acting.PAGE", 1)
    await _failed(queue, clock)
    run_again, store = Memory.run_again, queue.store

    async def and_fails(self: Memory, ids: list[str]) -> list[bool]:
        back = await run_again(self, ids)
        clock.advance(1)
        await queue.drain()
        return back

    monkeypatch.setattr(Memory, "run_again", and_fails)
    assert await queue.run_again(all=True) == 6
    monkeypatch.undo()
    assert len(await queue.failed()) == 6
    assert queue.store is store


async def test_an_error_in_the_middle_leaves_the_rest_and_tells_what_was_done(
    queue: Queue, clock: Clock, lines: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastjobs.runtime.acting.PAGE", 2)
    await _failed(queue, clock)
    delete, calls = Memory.delete, 0

    async def breaks(self: Memory, ids: list[str]) -> list[bool]:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError("down")
        return await delete(self, ids)

    monkeypatch.setattr(Memory, "delete", breaks)
    with pytest.raises(OSError, match="down"):
        await queue.delete(all=True)
    assert [job.id for job in await queue.failed()] == ["2", "1"]
    assert lines("failed jobs were deleted") == ["failed jobs were deleted count=4"]


async def test_run_again_wakes_a_queue_that_runs(new_queue: Callable[..., Queue], clock: Clock) -> None:
    queue = new_queue(poll=3600)
    refuses = True
    ran = 0

    @queue.kind("mail", attempts=1)
    async def mail(value: Mail) -> None:
        nonlocal ran
        if refuses:
            raise ValueError("no")
        ran += 1

    async with queue.running():
        await mail.push(Mail(user=1))
        await clock.pass_time(1)
        refuses = False
        assert await queue.run_again(all=True) == 1
        await clock.pass_time(0.1)
        assert ran == 1


# From sync code.


def test_sync_answers_the_same_where_there_is_no_loop(clock: Clock) -> None:
    queue = Queue(Memory(clock=clock), clock=clock)

    @queue.kind("mail", attempts=1)
    async def mail(value: Mail) -> None:
        raise ValueError("no")

    assert mail.sync.push_many([Mail(user=n) for n in range(4)]) == ["1", "2", "3", "4"]
    assert [job.id for job in queue.sync.jobs(mail)] == ["1", "2", "3", "4"]
    assert queue.sync.cancel("4").value == "removed"
    assert asyncio.run(queue.drain()) == 3
    assert [job.id for job in queue.sync.failed(limit=2)] == ["3", "2"]
    assert queue.sync.run_again("1") == 1
    assert queue.sync.delete(kind=mail) == 2
    queue.sync.pause(mail)
    assert [each.paused for each in queue.sync.counts()] == [True]
    queue.sync.resume(mail)
    job = queue.sync.job("1")
    assert job is not None
    assert job.state is JobState.WAITING


async def test_sync_answers_from_a_thread_on_the_loop_that_the_queue_runs_on(queue: Queue) -> None:
    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    threads: list[int] = []
    counts = Memory.counts

    async def told(self: Memory, *, cap: int = 10_000) -> list[KindCount]:
        threads.append(threading.get_ident())
        return await counts(self, cap=cap)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Memory, "counts", told)
        async with queue.running():
            assert len(await asyncio.to_thread(queue.sync.counts)) == 1
    assert threads == [threading.get_ident()]


async def test_sync_on_the_loops_own_thread_says_what_to_await(queue: Queue) -> None:
    with pytest.raises(QueueError, match=r"write await q\.failed\(…\)"):
        queue.sync.failed()


async def test_sync_says_that_a_loop_is_blocked_rather_than_wait_for_ever(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking, "STORE_LIMIT", -0.9)
    ended: list[BaseException] = []
    done = threading.Event()

    def ask() -> None:
        try:
            queue.sync.failed()
        except BaseException as error:
            ended.append(error)
        done.set()

    async with queue.running():
        thread = threading.Thread(target=ask)
        thread.start()
        assert done.wait(30)  # here, so that the loop is blocked for as long as it's asked
        thread.join()
    assert isinstance(ended[0], StoreTimeout)
    assert "something blocks it" in str(ended[0])


async def test_sync_waits_for_what_takes_long_while_the_loop_turns(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking, "STORE_LIMIT", -0.99)
    gate = asyncio.Event()

    async def slow(self: Memory, *, cap: int = 10_000) -> list[KindCount]:
        await gate.wait()
        return []

    turns, seen = blocking._turns, threading.Event()

    def asked(loop: asyncio.AbstractEventLoop) -> bool:
        found = turns(loop)
        seen.set()
        return found

    monkeypatch.setattr(blocking, "_turns", asked)
    monkeypatch.setattr(Memory, "counts", slow)
    async with queue.running():
        answer = asyncio.ensure_future(asyncio.to_thread(queue.sync.counts))
        assert await asyncio.to_thread(seen.wait, 30)
        gate.set()
        assert await answer == []

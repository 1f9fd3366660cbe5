"""A handler says how far it is: written seldom, kept with its job, and never in its way."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import pytest

from fastjobs import (
    Extra,
    Memory,
    Outcome,
    PayloadError,
    Permanent,
    Queue,
    Ran,
    Retry,
    StoreError,
    current_job,
)
from fastjobs.core.marks import Extend, Kept, Mark
from fastjobs.testing import Clock
from tests.runtime.faulty import Down
from tests.runtime.test_threads import Gate, until

pytestmark = pytest.mark.anyio
Lines = Callable[[str], list[str]]


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


class Writes(Memory):
    """Counts what is written of progress, and of ends."""

    def __init__(self, *, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.writes: list[list[tuple[str, object]]] = []
        self.calls: list[str] = []
        self.down = False
        self.going: asyncio.Event | None = None
        """What a write waits for."""

    async def progress(self, reports: Sequence[tuple[str, int, str]]) -> None:
        if self.down:
            raise Down("progress: the database is down")
        self.calls.append("progress")
        if self.going is not None:
            await self.going.wait()
        self.writes.append([(id, json.loads(text)) for id, _, text in reports])
        await super().progress(reports)

    async def mark(self, marks: Sequence[Mark]) -> list[Kept]:
        if not isinstance(marks[0], Extend):
            self.calls.append("mark")
        return await super().mark(marks)


@pytest.fixture
def store(clock: Clock) -> Writes:
    return Writes(clock=clock)


async def shown(queue: Queue, id: str | None) -> object:
    assert id is not None
    job = await queue.job(id)
    assert job is not None
    return job.progress


async def test_the_last_report_of_each_job_is_written_once_a_second_in_one_call(
    queue: Queue, clock: Clock, store: Writes
) -> None:
    @queue.kind("count")
    async def count(many: int) -> None:
        for step in range(many):
            current_job().progress({"step": step})

    @queue.kind("slow")
    async def slow() -> None:
        current_job().progress("half")
        await end.wait()

    end = asyncio.Event()
    async with queue.running():
        first = await slow.push()
        await clock.pass_time(0.5)
        assert store.writes == [[(first, "half")]], "the first is written at once"
        assert await shown(queue, first) == "half"
        await count.push(1000)
        second = await slow.push()
        await clock.pass_time(0.4)
        assert len(store.writes) == 1
        await clock.pass_time(0.2)
        assert store.writes[1:] == [[(second, "half")]], "of a job that is done by now nothing is"
        end.set()
        await clock.pass_time(10)
    assert len(store.writes) == 2


async def test_what_was_reported_already_is_not_written_again(
    queue: Queue, clock: Clock, store: Writes
) -> None:
    steps = asyncio.Queue[object]()

    @queue.kind("count")
    async def count() -> None:
        while (step := await steps.get()) is not None:
            current_job().progress(step)

    async with queue.running():
        id = await count.push()
        for step in (1, 1, 1, 2, 2, 1):
            steps.put_nowait(step)
            await clock.pass_time(2)
        steps.put_nowait(None)
        await clock.pass_time(1)
    assert store.writes == [[(id, 1)], [(id, 2)], [(id, 1)]]


@pytest.mark.parametrize(
    ("raised", "outcome"),
    [
        (ValueError("no"), Outcome.RETRIED),
        (Permanent("no"), Outcome.FAILED),
        (Retry(after=60), Outcome.RETRIED),
    ],
    ids=["retried", "failed", "retry"],
)
@pytest.mark.parametrize("how", ["running", "drain"])
async def test_the_last_report_stays_with_a_job_that_fails(
    queue: Queue, clock: Clock, store: Writes, seen: list[Ran], raised: Exception, outcome: Outcome, how: str
) -> None:
    @queue.kind("count", backoff=60)
    async def count() -> None:
        for step in range(10):
            current_job().progress(step)
            await asyncio.sleep(0)
        raise raised

    id = await count.push()
    if how == "drain":
        await queue.drain()
    else:
        async with queue.running():
            await clock.pass_time(0.5)
    assert [ran.outcome for ran in seen] == [outcome]
    assert await shown(queue, id) == 9
    assert store.calls[-2:] == ["progress", "mark"]


async def test_a_report_that_is_being_written_as_its_job_fails_is_waited_for(
    queue: Queue, clock: Clock, store: Writes
) -> None:
    store.going = asyncio.Event()
    fail = asyncio.Event()

    @queue.kind("count")
    async def count() -> None:
        current_job().progress("last words")
        await fail.wait()
        raise Permanent("no")

    async with queue.running():
        id = await count.push()
        await clock.pass_time(0.5)
        fail.set()
        await clock.pass_time(0.5)
        assert store.calls == ["progress"], "its mark would end the claim"
        store.going.set()
        await clock.pass_time(0.5)
        assert store.calls == ["progress", "mark"]
    assert await shown(queue, id) == "last words"


async def test_progress_stays_through_retries_until_the_next_report(queue: Queue, clock: Clock) -> None:
    @queue.kind("count", backoff=10)
    async def count() -> None:
        if current_job().attempt == 1:
            current_job().progress("first")
            raise ValueError("no")
        await go.wait()
        current_job().progress("second")
        await asyncio.Event().wait()

    go = asyncio.Event()
    async with queue.running():
        id = await count.push()
        await clock.pass_time(15)
        assert await shown(queue, id) == "first"
        go.set()
        await clock.pass_time(2)
        assert await shown(queue, id) == "second"
        await queue.cancel(id or "")


async def test_progress_comes_from_threads_and_after_the_end_it_does_nothing(
    queue: Queue, store: Writes, gate: Gate, seen: list[Ran]
) -> None:
    jobs: list[Any] = []
    told = threading.Event()

    @queue.kind("count")
    def count() -> None:
        jobs.append(current_job())
        jobs[0].progress({"from": threading.current_thread().name.partition(" ")[0]})
        told.set()
        gate.wait()

    async with queue.running():
        id = await count.push()
        await until(lambda: store.writes)
        assert await shown(queue, id) == {"from": "fastjobs"}
        gate.open()
        await until(lambda: seen)
        writes = len(store.writes)
        jobs[0].progress("too late")
        await asyncio.sleep(0)
    assert len(store.writes) == writes


async def test_a_store_that_fails_costs_the_job_nothing_and_gets_the_last_report_later(
    queue: Queue, clock: Clock, store: Writes, seen: list[Ran], lines: Lines
) -> None:
    @queue.kind("count")
    async def count() -> None:
        for step in range(5):
            current_job().progress(step)
            await asyncio.sleep(0)
        await end.wait()

    @queue.kind("fails")
    async def fails() -> None:
        current_job().progress("lost")
        raise Permanent("no")

    end = asyncio.Event()
    store.down = True
    async with queue.running():
        id = await count.push()
        lost = await fails.push()
        await clock.pass_time(5)
        assert [ran.outcome for ran in seen] == [Outcome.FAILED], "its mark is kept all the same"
        assert await shown(queue, lost) is None
        store.down = False
        await clock.pass_time(2)
        assert await shown(queue, id) == 4
        assert store.writes == [[(id, 4)]]
        end.set()
        await clock.pass_time(1)
    assert len(lines("the store failed, and is asked again part=progress")) == 1


async def test_what_cannot_be_reported_is_raised_in_the_handler(queue: Queue, seen: list[Ran]) -> None:
    @queue.kind("count", attempts=1)
    async def count() -> None:
        current_job().progress(object())

    await count.push()
    await queue.drain()
    assert isinstance(seen[0].error, PayloadError)


class NoProgress(Memory):
    extras: ClassVar[Extra] = Memory.extras & ~Extra.PROGRESS


async def test_a_store_without_progress_says_so_at_the_first_report(seen: list[Ran]) -> None:
    queue = Queue(NoProgress(), observe=seen.append)

    @queue.kind("count", attempts=1)
    async def count() -> None:
        current_job().progress(1)

    await count.push()
    await queue.drain()
    assert isinstance(seen[0].error, StoreError)
    assert str(seen[0].error).startswith("progress() needs a store with PROGRESS, and NoProgress has")


async def test_on_fail_may_report_and_nothing_comes_of_it(queue: Queue, store: Writes, lines: Lines) -> None:
    @queue.kind("count", attempts=1)
    async def count() -> None:
        current_job().progress("handler")
        raise ValueError("no")

    @count.on_fail
    async def told(error: Exception) -> None:
        assert not current_job().cancelled
        current_job().progress("on_fail")

    id = await count.push()
    await queue.drain()
    assert await shown(queue, id) == "handler"
    assert lines("on_fail failed") == []

"""What is told of a mark that's sent again: its verdict, where nobody else can have ended its claim."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from fastjobs import Outcome, Queue, Ran
from fastjobs.testing import Clock
from tests.runtime.faulty import Unsteady

pytestmark = pytest.mark.anyio
Lines = Callable[[str], list[str]]


@pytest.fixture
def store(clock: Clock) -> Unsteady:
    return Unsteady(clock=clock)


async def test_a_mark_that_is_sent_again_after_its_hold_and_lost_is_not_told_as_its_verdict(
    new_queue: Callable[..., Queue], clock: Clock, store: Unsteady, seen: list[Ran], lines: Lines
) -> None:
    frozen, other = new_queue(hold=10), new_queue()

    @frozen.kind("mail", attempts=1)
    async def mail() -> None: ...

    @other.kind("mail", attempts=1)
    async def again() -> None: ...

    async with frozen.running():
        store.before.add("mark")
        await mail.push()
        await clock.pass_time(1)
        store.before.clear()
        # No step of the process's for longer than its hold: the timers that came due fire together afterwards.
        clock.advance(20)
        assert await other.drain() == 0, "its one attempt is used, so the claim fails it"
        assert [ran.outcome for ran in seen] == [Outcome.FAILED]
        await clock.pass_time(5)
    assert [ran.outcome for ran in seen] == [Outcome.FAILED], "it's not told of as done as well"
    assert len(lines("a job's end came too late")) == 1


async def test_a_handler_that_was_given_back_as_the_queue_stopped_and_ends_in_that_moment_is_marked_once(
    new_queue: Callable[..., Queue], clock: Clock, store: Unsteady, lines: Lines
) -> None:
    queue = new_queue(workers=1)
    end = asyncio.Event()

    @queue.kind("mail")
    async def mail() -> None:
        await end.wait()

    async with queue.running():
        await mail.push()
        await clock.pass_time(1)
        life = queue._life
        assert life is not None
        # What a stop does where a process was frozen past both of its limits, and all it has left is to let go.
        (run,) = life._runs
        life._give_back(run)
        end.set()
        await clock.pass_time(0.1)
        assert sum(store.batches) == 2, "for the claim that was given back, and for the one after it"
    assert lines("a job's end came too late") == []

"""What is told of a mark that's sent again: its verdict, where nobody else can have ended its claim, and else nothing."""

from __future__ import annotations

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

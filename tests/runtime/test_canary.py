"""Whatever one handler does, another's job starts when it's due: a canary each 50 ms of the clock's time."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import pytest

from fastjobs import Outcome, Queue, Ran
from fastjobs.testing import Clock
from tests.runtime.test_hostile import FAILS

pytestmark = pytest.mark.anyio

EVERY = 0.05
PROMPT = 0.01
"""How many seconds late a canary may start."""
COLOUR: ContextVar[str] = ContextVar("colour", default="none")


async def _swallows_all() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


async def _swallows_one() -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.sleep(0)


async def _leaves_tasks() -> None:
    for _ in range(100):
        LEFT.append(asyncio.create_task(asyncio.Event().wait()))


async def _closes_the_loop() -> None:
    asyncio.get_running_loop().close()


async def _returns_a_coroutine() -> object:
    coroutine = _swallows_one()
    LEFT.append(coroutine)
    return coroutine


async def _changes_its_context() -> None:
    COLOUR.set("red")


async def _takes_10_mb_and_fails() -> None:
    taken = bytearray(10_000_000)
    raise MemoryError(len(taken))


async def _never_ends() -> None:
    await asyncio.Event().wait()


LEFT: list[Any] = []
MISBEHAVES: dict[str, Callable[[], Awaitable[object]]] = {
    **FAILS,
    "swallows every cancellation": _swallows_all,
    "swallows one cancellation": _swallows_one,
    "leaves tasks behind": _leaves_tasks,
    "closes the loop": _closes_the_loop,
    "returns a coroutine": _returns_a_coroutine,
    "changes its context": _changes_its_context,
    "takes 10 MB and fails": _takes_10_mb_and_fails,
    "never ends": _never_ends,
}


@pytest.mark.parametrize("how", MISBEHAVES)
async def test_a_canary_keeps_its_time_beside(
    new_queue: Callable[..., Queue], clock: Clock, seen: list[Ran], how: str
) -> None:
    queue = new_queue(workers=4, grace=0)
    late: list[float] = []
    colours: set[str] = set()

    @queue.kind("hostile", attempts=2, timeout=0.3, backoff=0.1)
    async def hostile() -> None:
        await MISBEHAVES[how]()

    @queue.kind("canary")
    async def canary(due: float) -> None:
        late.append(clock.monotonic() - due)
        colours.add(COLOUR.get())

    began = clock.monotonic()
    async with queue.running():
        for _ in range(3):
            await hostile.push()
        for number in range(40):
            await canary.push(began + number * EVERY, after=number * EVERY)
        await clock.pass_time(40 * EVERY + PROMPT)
        told = [ran for ran in seen if ran.kind == "hostile"]
    assert len(late) == 40
    assert max(late) <= PROMPT
    assert colours == {"none"}
    if how != "swallows every cancellation":  # its workers are kept until its holds end
        assert {ran.job for ran in told if ran.outcome is not Outcome.RETRIED} == {"1", "2", "3"}
    for left in LEFT:
        left.close() if asyncio.iscoroutine(left) else left.cancel()
    LEFT.clear()


class _Large:
    """Something that takes much memory."""

    def __init__(self) -> None:
        self.much = bytearray(1_000_000)


@pytest.mark.parametrize("fails", [False, True], ids=["returned", "failed"])
async def test_an_idle_queue_keeps_nothing_of_what_its_handlers_made(
    new_queue: Callable[..., Queue], clock: Clock, seen: list[Ran], fails: bool
) -> None:
    queue = new_queue(workers=2, observe=None)
    made: list[weakref.ref[_Large]] = []

    @queue.kind("large", attempts=1)
    async def large() -> object:
        mine = _Large()
        made.append(weakref.ref(mine))
        if fails:
            raise ValueError("with a traceback, and in it this frame, and in that the large thing")
        return mine

    async with queue.running():
        for _ in range(10):
            await large.push()
        await clock.pass_time(2)
        gc.collect()
        assert len(made) == 10
        assert [each() for each in made if each() is not None] == []

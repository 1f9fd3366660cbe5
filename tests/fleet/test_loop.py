"""The simulation's loop: time takes no time, the seed decides the order, an owner stops at any step."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

import pytest

from tests.fleet.loop import Owner, SimLoop


@pytest.fixture
def loop() -> Generator[SimLoop]:
    made = SimLoop(7)
    yield made
    made.close()


def _order(seed: int) -> list[int]:
    loop, order = SimLoop(seed), list[int]()

    async def step(number: int) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
            order.append(number)

    tasks = [loop.create_task(step(number)) for number in range(4)]
    loop.run(lambda: all(task.done() for task in tasks), 1)
    loop.close()
    return order


def test_the_seed_decides_the_order_of_tasks_steps() -> None:
    assert _order(1) == _order(1)
    assert len({tuple(_order(seed)) for seed in range(20)}) > 15


def test_callbacks_keep_the_order_they_were_asked_in(loop: SimLoop) -> None:
    order: list[int] = []
    for number in range(20):
        loop.call_soon(order.append, number)
    loop.run(lambda: len(order) == 20, 1)
    assert order == list(range(20))


def test_time_passes_only_where_nothing_else_is_to_be_done(loop: SimLoop) -> None:
    async def sleep() -> float:
        began = loop.time()
        await asyncio.sleep(3600)
        return loop.time() - began

    task = loop.create_task(sleep())
    assert loop.run(task.done, 4000)
    assert task.result() == 3600


def test_it_stops_at_its_limit(loop: SimLoop) -> None:
    assert not loop.run(lambda: False, 5)
    assert loop.time() == 0, "nothing was asked of it"
    loop.call_later(10, print)
    assert not loop.run(lambda: False, 5)
    assert loop.time() == 5


def test_a_killed_owner_has_no_cleanup(loop: SimLoop) -> None:
    owner, steps = Owner("killed"), list[str]()

    async def work() -> None:
        try:
            steps.append("begun")
            await asyncio.sleep(1)
            steps.append("gone on")
        finally:
            steps.append("cleaned up")

    with loop.owned_by(owner):
        task = loop.create_task(work())
    loop.run(lambda: False, 0.5)
    owner.dead = True
    loop.run(lambda: False, 5)
    assert steps == ["begun"]
    owner.dead = False
    task.cancel()
    loop.run(task.done, 5)


def test_a_frozen_owner_goes_on_where_it_was_though_its_time_is_over(loop: SimLoop) -> None:
    owner, woke = Owner("frozen"), list[float]()

    async def work() -> None:
        await asyncio.sleep(1)
        woke.append(loop.time())

    with loop.owned_by(owner):
        task = loop.create_task(work())
    loop.run(lambda: False, 0.5)
    owner.frozen = True
    loop.call_later(10, loop.thaw, owner)
    assert loop.run(task.done, 20)
    assert woke == [10.5]


def test_a_task_belongs_to_the_owner_that_made_it_whoever_wakes_it(loop: SimLoop) -> None:
    owner, event, ran = Owner("sleeper"), asyncio.Event(), list[bool]()

    async def sleep() -> None:
        await event.wait()
        ran.append(True)

    with loop.owned_by(owner):
        task = loop.create_task(sleep())
    loop.call_later(1, event.set)
    loop.run(lambda: False, 0.5)
    owner.frozen = True
    loop.run(lambda: False, 2)
    assert ran == []
    loop.thaw(owner)
    assert loop.run(task.done, 3)

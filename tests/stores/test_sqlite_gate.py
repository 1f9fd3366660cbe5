"""The gate: one at a time, in the order they came, the writer first but not twice in a row."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import threading
from collections.abc import Callable

import pytest

from fastjobs.stores.sql.dialects.sqlite.gate import Gate, Turn

pytestmark = pytest.mark.anyio


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.001)


def in_thread(gate: Gate, order: list[str], name: str, *, first: bool = False) -> threading.Thread:
    """One who writes its name as its turn comes, and leaves."""

    def go() -> None:
        turn = gate.enter(5, first=first)
        order.append(name)
        gate.leave(turn)

    thread = threading.Thread(target=go)
    before = len(gate._line)
    thread.start()
    while len(gate._line) == before:
        pass
    return thread


def test_turns_come_in_order_and_the_writer_s_not_twice_in_a_row() -> None:
    gate, order = Gate(), list[str]()
    held = gate.enter(1)
    threads = [
        in_thread(gate, order, name, first=name.startswith("w"))
        for name in ("a1", "a2", "w1", "a3", "w2", "w3")
    ]
    gate.leave(held)
    for thread in threads:
        thread.join(5)
    assert order == ["w1", "a1", "w2", "a2", "w3", "a3"]


async def test_tasks_and_threads_stand_in_one_line() -> None:
    gate, order = Gate(), list[str]()

    async def task(name: str) -> None:
        turn = await gate.enter_async(5)
        order.append(name)
        await asyncio.sleep(0)
        gate.leave(turn)

    held = await asyncio.to_thread(gate.enter, 1)
    first = asyncio.create_task(task("task 1"))
    await until(lambda: len(gate._line) == 1)
    thread = in_thread(gate, order, "thread")
    second = asyncio.create_task(task("task 2"))
    await until(lambda: len(gate._line) == 3)
    gate.leave(held)
    await asyncio.gather(first, second)
    thread.join(5)
    assert order == ["task 1", "thread", "task 2"]


async def test_one_that_is_cancelled_leaves_the_line() -> None:
    gate = Gate()
    held = await asyncio.to_thread(gate.enter, 1)
    waits = asyncio.create_task(gate.enter_async(5))
    after = asyncio.create_task(gate.enter_async(5))
    await until(lambda: len(gate._line) == 2)
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    gate.leave(held)
    gate.leave(await after)
    assert gate._holder is None


async def test_one_that_is_cancelled_as_its_turn_comes_gives_it_on() -> None:
    gate = Gate()
    held = await asyncio.to_thread(gate.enter, 1)
    waits = asyncio.create_task(gate.enter_async(5))
    after = asyncio.create_task(gate.enter_async(5))
    await until(lambda: len(gate._line) == 2)
    gate.leave(held)
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    gate.leave(await asyncio.wait_for(after, 5))


async def test_one_that_waits_too_long_is_told_who_has_it() -> None:
    gate = Gate()
    held = await gate.enter_async(1)
    me = asyncio.current_task()
    assert me is not None
    me.set_name("the-long-request")

    async def other() -> None:
        await gate.enter_async(0.02)

    with pytest.raises(
        sqlite3.OperationalError, match=r"database is locked.*the-long-request has had it for 0\.\d s"
    ):
        await asyncio.create_task(other())
    with pytest.raises(sqlite3.OperationalError, match="database is locked"):
        await asyncio.to_thread(gate.enter, 0.02)
    gate.leave(held)
    assert gate._holder is None
    assert not gate._line


async def test_a_task_that_would_wait_for_itself_is_told_at_once() -> None:
    gate = Gate()
    held = await gate.enter_async(1)
    with pytest.raises(sqlite3.OperationalError, match="this task has a write transaction open"):
        await gate.enter_async(60)
    with pytest.raises(sqlite3.OperationalError, match="this task has a write transaction open"):
        gate.enter(60)
    gate.leave(held)


async def test_a_sync_wait_that_would_block_the_loop_it_waits_for_is_refused() -> None:
    gate = Gate()
    entered, ends = asyncio.Event(), asyncio.Event()

    async def other() -> None:
        turn = await gate.enter_async(1)
        entered.set()
        await ends.wait()
        gate.leave(turn)

    task = asyncio.create_task(other())
    await entered.wait()
    with pytest.raises(sqlite3.OperationalError, match="on the loop's own thread would block it"):
        gate.enter(60)
    ends.set()
    await task
    assert gate._holder is None


def test_one_whose_loop_has_closed_is_passed_over() -> None:
    gate, order = Gate(), list[str]()
    held = gate.enter(1)
    loop = asyncio.new_event_loop()
    waits = loop.create_task(gate.enter_async(5))
    loop.run_until_complete(asyncio.sleep(0))
    assert len(gate._line) == 1
    thread = in_thread(gate, order, "after")
    setattr(waits, "_log_destroy_pending", False)  # noqa: B010
    loop.close()
    gate.leave(held)
    thread.join(5)
    assert order == ["after"]


def test_a_turn_is_left_once() -> None:
    gate = Gate()
    first = gate.enter(1)
    gate.leave(first)
    second: Turn = gate.enter(1)
    gate.leave(first)
    assert gate._holder is second
    gate.leave(second)


def test_one_whose_wait_a_signal_ended_leaves_the_line() -> None:
    class Alarm(Exception):
        pass

    def alarm(*_: object) -> None:
        raise Alarm

    gate = Gate()
    held = gate.enter(1)
    before = signal.signal(signal.SIGUSR1, alarm)
    try:
        # To the thread that waits: sent to another, it would be heard once the wait is over.
        threading.Timer(0.05, signal.pthread_kill, [threading.get_ident(), signal.SIGUSR1]).start()
        with pytest.raises(Alarm):
            gate.enter(20)
    finally:
        signal.signal(signal.SIGUSR1, before)
    gate.leave(held)
    gate.leave(gate.enter(1))

"""A handler that blocks the event loop is named in the log; nothing else is blamed on one."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable

import pytest

from fastjobs import Queue, Ran
from fastjobs.runtime import driving, watching
from tests.runtime.conftest import Mail
from tests.runtime.test_threads import until

pytestmark = pytest.mark.anyio
Lines = Callable[[str], list[str]]
ENDED = "a handler blocked the event loop "
GOES_ON = "a handler blocks the event loop, and goes on"


def blocks(seconds: float) -> None:
    time.sleep(seconds)


def took(line: str) -> float:
    return float(line.partition("took=")[2].partition("s")[0])


def watchers() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "fastjobs watch"]


async def test_a_handler_that_blocks_the_loop_is_named_with_its_job_how_long_and_where(
    new_queue: Callable[..., Queue], seen: list[Ran], lines: Lines
) -> None:
    queue = new_queue()

    @queue.kind("slow")
    async def slow() -> None:
        await asyncio.sleep(0)
        blocks(0.4)

    async with queue.running():
        id = await slow.push()
        await until(lambda: seen)
    (line,) = lines(ENDED)
    assert f"kind=slow job={id} attempt=1" in line
    assert took(line) >= 0.4
    assert line.endswith(f' where="test_watching.py:{blocks.__code__.co_firstlineno + 1} blocks"')


async def test_one_that_does_not_let_go_is_named_while_it_blocks(
    new_queue: Callable[..., Queue], seen: list[Ran], lines: Lines
) -> None:
    queue = new_queue()

    @queue.kind("stuck")
    async def stuck() -> None:
        began = time.perf_counter()
        while not lines(GOES_ON) and time.perf_counter() < began + 20:
            pass  # Python's own work, which lets go of nothing but the interpreter's lock

    async with queue.running():
        await stuck.push()
        await until(lambda: seen)
    (line,) = lines(GOES_ON)
    assert "kind=stuck" in line
    assert "where=" in line
    assert lines(ENDED) == []
    assert watching._STILL + watching._LOOK * 2 < 1  # so it's within a second, on a machine that keeps up


async def test_the_place_is_the_handlers_also_where_no_code_of_the_apps_is(
    new_queue: Callable[..., Queue], seen: list[Ran], lines: Lines
) -> None:
    queue = new_queue()
    namespace: dict[str, Callable[[], Awaitable[None]]] = {}
    library = sys.modules["pydantic"].__file__ or ""
    exec(compile("import time\nasync def installed(): time.sleep(0.4)", library, "exec"), namespace)
    slow = queue.kind("slow")(namespace["installed"])
    async with queue.running():
        await slow.push()
        await until(lambda: seen)
    (line,) = lines(ENDED)
    assert line.endswith('where="__init__.py:2 installed"')


class Passing:
    """Time that passes only as a handler says."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> Passing:
    passing = Passing()
    monkeypatch.setattr(watching, "perf_counter", passing)
    monkeypatch.setattr(driving, "perf_counter", passing)
    return passing


async def test_a_kind_is_named_once_a_minute_and_each_for_itself(
    new_queue: Callable[..., Queue], seen: list[Ran], lines: Lines, passing: Passing
) -> None:
    queue = new_queue(workers=1)

    async def slow() -> None:
        passing.now += 0.11

    one, two = queue.kind("one")(slow), queue.kind("two")(slow)
    async with queue.running():
        await one.push_many([None] * 2)
        await two.push()
        await until(lambda: len(seen) == 3)
        assert [took(line) for line in lines(ENDED)] == [0.11, 0.11]
        assert [line.partition("kind=")[2][:3] for line in lines(ENDED)] == ["one", "two"]
        passing.now += 60
        await one.push()
        await until(lambda: len(seen) == 4)
    assert len(lines(ENDED)) == 3


async def test_an_on_fail_that_blocks_is_named(new_queue: Callable[..., Queue], lines: Lines) -> None:
    queue = new_queue()

    @queue.kind("bad", attempts=1)
    async def bad(value: Mail) -> None:
        raise ValueError

    @bad.on_fail
    async def bad_failed(value: Mail, error: Exception) -> None:
        time.sleep(0.15)

    async with queue.running():
        await bad.push(Mail(user=1))
        await until(lambda: lines(ENDED))
    assert "kind=bad" in lines(ENDED)[0]


async def test_what_blocks_the_loop_beside_a_handler_is_not_blamed_on_it(
    new_queue: Callable[..., Queue], seen: list[Ran], lines: Lines
) -> None:
    queue, may_end = new_queue(), asyncio.Event()

    @queue.kind("waits")
    async def waits() -> None:
        await may_end.wait()

    @queue.kind("in-a-thread")
    def in_a_thread() -> None:
        time.sleep(0.3)

    async with queue.running():
        await waits.push()
        await in_a_thread.push()
        await asyncio.sleep(0.05)
        time.sleep(0.3)  # a route's, say
        may_end.set()
        await until(lambda: len(seen) == 2)
    assert lines(ENDED) == lines(GOES_ON) == []


async def test_many_short_steps_are_no_block(
    new_queue: Callable[..., Queue], seen: list[Ran], lines: Lines, passing: Passing
) -> None:
    queue = new_queue()

    @queue.kind("steps")
    async def steps() -> None:
        for _ in range(40):
            passing.now += 0.09
            await asyncio.sleep(0)

    async with queue.running():
        await steps.push_many([None] * 2)
        await until(lambda: len(seen) == 2)
    assert lines(ENDED) == lines(GOES_ON) == []


async def test_the_thread_is_there_while_handlers_run_and_not_while_idle(
    new_queue: Callable[..., Queue], seen: list[Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_LOOK", 0.01)
    queue, may_end = new_queue(), asyncio.Event()

    @queue.kind("waits")
    async def waits() -> None:
        await may_end.wait()

    await until(lambda: not watchers())  # one of another test's may still look round
    async with queue.running():
        assert watchers() == []
        await waits.push()
        await until(lambda: watchers())
        await asyncio.sleep(0.2)
        assert len(watchers()) == 1
        may_end.set()
        await until(lambda: seen)
        await until(lambda: not watchers())
        await waits.push()
        await until(lambda: len(seen) == 2)
        assert len(watchers()) == 1
    await until(lambda: not watchers())

"""Pushes from sync code: from a thread of the app, and with no event loop at all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import create_engine

import fastjobs
from fastjobs import CarryRequestID, Memory, PayloadError, Queue, QueueError, Ran, StoreTimeout
from fastjobs.core.request_id import current as current_request
from fastjobs.runtime import blocking
from fastjobs.testing import Clock
from tests.runtime.conftest import Mail
from tests.runtime.faulty import Down, Unsteady

anyio = pytest.mark.anyio


@anyio
async def test_a_push_from_a_thread_of_the_app_wakes_the_queue_and_carries(
    new_queue: Callable[..., Queue],
) -> None:
    queue = new_queue(carry=[CarryRequestID()])
    ran: asyncio.Event = asyncio.Event()
    found: list[str | None] = []

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        found.append(fastjobs.request_id())
        ran.set()

    def route() -> str | None:
        current_request.set("REQUEST")
        return mail.sync.push(Mail(user=1))

    async with queue.running():
        id = await asyncio.to_thread(route)
        await asyncio.wait_for(ran.wait(), 5)
    assert id == "1"
    assert found == ["REQUEST"]


def test_a_push_with_no_loop_at_all_is_kept(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    queue = Queue(fastjobs.SQLStore(engine))
    ran: list[int] = []

    @queue.kind("mail")
    async def mail(value: Mail) -> None:
        ran.append(value.user)

    @queue.kind("tick")
    async def tick() -> None:
        ran.append(0)

    assert mail.sync.push_many([Mail(user=1), Mail(user=2)]) == ["1", "2"]
    assert tick.sync.push(after=0) == "3"
    assert asyncio.run(queue.drain()) == 3
    assert sorted(ran) == [0, 1, 2]
    asyncio.run(queue.store.close())  # type: ignore[attr-defined]  # pyright: ignore
    engine.dispose()


def test_pushes_of_many_threads_are_all_kept(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    queue = Queue(fastjobs.SQLStore(engine))

    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    with ThreadPoolExecutor(16) as threads:
        ids = list(threads.map(mail.sync.push, [Mail(user=n) for n in range(200)]))
    assert len(set(ids)) == 200
    assert asyncio.run(queue.drain()) == 200
    asyncio.run(queue.store.close())  # type: ignore[attr-defined]  # pyright: ignore
    engine.dispose()


@anyio
async def test_on_the_loops_own_thread_it_says_to_await_and_nothing_is_pushed(queue: Queue) -> None:
    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    with pytest.raises(QueueError, match=r"write await kind\.push"):
        mail.sync.push(Mail(user=1))
    assert await queue.drain() == 0


@anyio
async def test_a_bad_value_and_a_store_that_is_down_raise_in_the_thread(
    new_queue: Callable[..., Queue], clock: Clock
) -> None:
    store = Unsteady(clock=clock)
    queue = new_queue(store=store)

    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    store.before.add("push")
    async with queue.running():
        with pytest.raises(Down) as raised:
            await asyncio.to_thread(mail.sync.push, Mail(user=1))
        assert raised.value.__context__ is None  # its traceback is of nothing else
        with pytest.raises(PayloadError):
            await asyncio.to_thread(mail.sync.push, "no mail")  # type: ignore[arg-type]  # pyright: ignore


@anyio
async def test_a_loop_that_is_blocked_doesnt_block_the_thread_for_ever(
    monkeypatch: pytest.MonkeyPatch, seen: list[Ran]
) -> None:
    monkeypatch.setattr(blocking, "STORE_LIMIT", -0.9)
    queue = Queue(Memory())
    raised: list[BaseException] = []

    @queue.kind("mail")
    async def mail(value: Mail) -> None: ...

    def push() -> None:
        try:
            mail.sync.push(Mail(user=1))
        except BaseException as error:
            raised.append(error)

    async with queue.running():
        thread = threading.Thread(target=push)
        thread.start()
        thread.join()  # as a handler that blocks would
    assert [type(error) for error in raised] == [StoreTimeout]

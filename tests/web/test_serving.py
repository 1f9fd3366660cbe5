"""`lifespan`: what is entered when, what comes out of it, and that a stop is a queue's own stop, always."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar, cast

import anyio
import pytest
from fastapi import APIRouter, FastAPI, Request
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from starlette.responses import JSONResponse
from starlette.routing import Route

import fastjobs
from fastjobs import Extra, QueueError, RegistrationError

pytestmark = pytest.mark.anyio


class Told(fastjobs.Memory):
    """A store that tells as it is opened and closed, which is the first and the last that a queue does."""

    extras: ClassVar[Extra] = fastjobs.Memory.extras | Extra.LIFECYCLE

    def __init__(self, told: list[str], name: str = "q") -> None:
        super().__init__()
        self.told, self.name = told, name
        self.error: Exception | None = None
        self.closing: Callable[[], Awaitable[object]] | None = None

    async def open(self, kinds: Sequence[str] = ()) -> None:
        if self.error is not None:
            raise self.error
        self.told.append(f"{self.name} up")

    async def close(self) -> None:
        if self.closing is not None:
            await self.closing()
        self.told.append(f"{self.name} down")


def queue(told: list[str], name: str = "q", **options: Any) -> tuple[Told, fastjobs.Queue]:
    store = Told(told, name)
    return store, fastjobs.Queue(store, **options)


def outer(
    told: list[str], state: Mapping[str, Any] | None
) -> Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]:
    @asynccontextmanager
    async def own(app: object) -> AsyncGenerator[Mapping[str, Any]]:
        told.append(f"own up with {type(app).__name__}")
        try:
            yield cast("Mapping[str, Any]", state)
        finally:
            told.append("own down")

    return own


@pytest.fixture
def told() -> list[str]:
    return []


async def route(request: StarletteRequest) -> JSONResponse:
    return JSONResponse({"a": request.state.a})


def test_the_apps_own_lifespan_is_entered_first_and_left_last(told: list[str]) -> None:
    _, q = queue(told)
    app = FastAPI(lifespan=fastjobs.lifespan(q, within=outer(told, {"engine": 1})))

    @app.get("/")
    async def state(request: Request) -> int:
        told.append("request")
        return cast("int", request.state.engine)

    with TestClient(app) as client:
        assert client.get("/").json() == 1
    assert told == ["own up with FastAPI", "q up", "request", "q down", "own down"]


@pytest.mark.parametrize("state", [None, {}, {"a": 1}])
async def test_what_the_own_lifespan_yields_is_yielded_unchanged(
    told: list[str], state: Mapping[str, Any] | None
) -> None:
    _, q = queue(told)
    async with fastjobs.lifespan(q, within=outer(told, state))(None) as got:
        assert got is state


async def test_without_one_it_yields_nothing(told: list[str]) -> None:
    _, q = queue(told)
    lifespan = cast("Any", fastjobs.lifespan(q))
    async with lifespan(None) as got:
        assert got is None


def test_starlette_takes_it_as_fastapi_does(told: list[str]) -> None:
    _, q = queue(told)
    app = Starlette(lifespan=fastjobs.lifespan(q, within=outer(told, {"a": 1})), routes=[Route("/", route)])
    with TestClient(app) as client:
        assert client.get("/").json() == {"a": 1}
    assert told == ["own up with Starlette", "q up", "q down", "own down"]


def test_a_routers_lifespan_still_runs_beside_it(told: list[str]) -> None:
    _, q = queue(told)
    app = FastAPI(lifespan=fastjobs.lifespan(q))
    app.include_router(APIRouter(lifespan=outer(told, {"b": 2})))
    with TestClient(app):
        pass
    assert told[0] == "q up"
    assert told[-1] == "q down"
    assert "own down" in told


async def test_an_async_generator_is_taken_as_a_lifespan(told: list[str]) -> None:
    _, q = queue(told)

    async def own(_app: object) -> AsyncGenerator[Mapping[str, Any]]:
        told.append("own up")
        yield {"a": 1}
        told.append("own down")

    lifespan = cast("Any", fastjobs.lifespan(q, within=cast("Any", own)))
    async with lifespan(None) as state:
        assert state == {"a": 1}
    assert told == ["own up", "q up", "q down", "own down"]


async def a_coroutine(_app: object) -> None: ...


def a_generator(_app: object) -> Any:
    yield


@pytest.mark.parametrize("within", [3, a_coroutine, a_generator])
def test_a_within_that_is_no_lifespan_is_refused(told: list[str], within: Any) -> None:
    _, q = queue(told)
    with pytest.raises(RegistrationError, match="within="):
        fastjobs.lifespan(q, within=within)


def test_what_is_no_queue_is_refused_and_the_right_form_shown() -> None:
    # FastAPI(lifespan=fastjobs.lifespan) calls it with the app.
    with pytest.raises(RegistrationError, match=r"FastAPI\(lifespan=fastjobs.lifespan\(q\)\)"):
        fastjobs.lifespan(cast("Any", FastAPI()))
    with pytest.raises(RegistrationError, match="takes the queues"):
        fastjobs.lifespan()


def test_one_queue_twice_is_refused(told: list[str]) -> None:
    _, q = queue(told)
    with pytest.raises(RegistrationError, match="twice"):
        fastjobs.lifespan(q, q)


async def test_a_store_is_given_to_the_queue_as_it_starts(told: list[str]) -> None:
    q = fastjobs.Queue()
    lifespan = fastjobs.lifespan(q, store=Told(told))
    with pytest.raises(QueueError, match="no store yet"):
        _ = q.store
    for _ in range(2):
        async with lifespan(None):
            assert isinstance(q.store, Told)
    assert told == ["q up", "q down"] * 2


def test_a_store_for_several_queues_is_refused(told: list[str]) -> None:
    _, one = queue(told)
    _, two = queue(told)
    with pytest.raises(RegistrationError, match="store= is for one queue, and there are 2"):
        fastjobs.lifespan(one, two, store=fastjobs.Memory())


async def test_a_process_may_run_some_kinds_of_a_queue_with_workers_of_its_own_number(
    told: list[str],
) -> None:
    _, q = queue(told)
    ran = asyncio.Event()
    for name in ("mail", "report"):

        @q.kind(name)
        async def kind() -> None:
            ran.set()

    async with fastjobs.lifespan(q, kinds=["mail"], workers=7)(None):
        await q.kinds["report"].push()
        await q.kinds["mail"].push()
        await ran.wait()
        assert q.health().workers == 7
    _, other = queue(told)
    with pytest.raises(RegistrationError, match="kinds= is for one queue, and there are 2"):
        fastjobs.lifespan(q, other, kinds=["mail"])
    with pytest.raises(RegistrationError, match="the queue has no kind 'letter'; it has mail, report"):
        async with fastjobs.lifespan(q, kinds=["letter"])(None):
            pass
    assert await q.drain() == 1, "the report waits for an instance that runs it"


async def test_jobs_run_while_it_is_entered(told: list[str]) -> None:
    _, q = queue(told)
    done = asyncio.Event()

    @q.kind("mail")
    async def mail() -> None:
        done.set()

    async with fastjobs.lifespan(q)(None):
        await mail.push()
        await done.wait()


async def test_with_run_false_it_opens_the_store_and_runs_nothing(told: list[str]) -> None:
    _, q = queue(told)

    @q.kind("mail")
    async def mail() -> None:
        told.append("ran")

    async with fastjobs.lifespan(q, run=False)(None):
        await mail.push()
        for _ in range(20):
            await asyncio.sleep(0)
    assert told == ["q up", "q down"]
    assert await q.drain() == 1


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives queues a bug of their own."""

    async def run(_feed: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("fastjobs.runtime.feed.Feed.run", run)


def mail_only(q: fastjobs.Queue) -> None:
    @q.kind("mail")
    async def mail() -> None: ...


@pytest.mark.usefixtures("broken")
async def test_a_bug_of_the_queues_own_stops_the_app_in_order(
    told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    _, q = queue(told, grace=0)
    mail_only(q)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    try:
        async with fastjobs.lifespan(q)(None):
            await stopped.wait()
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
    assert any(record.levelno == logging.CRITICAL for record in caplog.records)
    assert "a bug" in caplog.text


@pytest.mark.usefixtures("broken")
async def test_on_crash_may_be_a_call(told: list[str]) -> None:
    _, q = queue(told, grace=0)
    mail_only(q)
    crashed: asyncio.Queue[BaseException] = asyncio.Queue()
    async with fastjobs.lifespan(q, on_crash=crashed.put_nowait)(None):
        assert str(await crashed.get()) == "a bug"


async def test_several_queues_start_in_order_and_stop_together(told: list[str]) -> None:
    stopping = asyncio.Barrier(3)
    queues: list[fastjobs.Queue] = []
    for name in ("one", "two", "three"):
        store, q = queue(told, name)
        store.closing = stopping.wait  # passes only once all three are here
        queues.append(q)
    async with fastjobs.lifespan(*queues)(None):
        assert told == ["one up", "two up", "three up"]
    assert sorted(told[3:]) == ["one down", "three down", "two down"]


async def test_the_apps_own_error_comes_out_as_it_is(told: list[str]) -> None:
    _, q = queue(told)
    error = ValueError("the app's own")
    with pytest.raises(ValueError, match="the app's own") as raised:
        async with fastjobs.lifespan(q, within=outer(told, None))(None):
            raise error
    assert raised.value is error
    assert told[-2:] == ["q down", "own down"]


async def test_the_own_lifespan_may_swallow_an_error_as_it_could_alone(told: list[str]) -> None:
    _, q = queue(told)

    @asynccontextmanager
    async def own(_app: object) -> AsyncGenerator[None]:
        try:
            yield
        except ValueError:
            told.append("swallowed")

    def fails() -> None:
        raise ValueError

    async with fastjobs.lifespan(q, within=own)(None):
        fails()
    assert told == ["q up", "q down", "swallowed"]


async def test_a_queue_that_cannot_start_stops_the_others_and_raises_its_own_error(told: list[str]) -> None:
    _, one = queue(told, "one")
    store, two = queue(told, "two")
    store.error = fastjobs.StoreError("no tables")
    with pytest.raises(fastjobs.StoreError) as raised:
        async with fastjobs.lifespan(one, two, within=outer(told, None))(None):
            pytest.fail("it served")
    assert raised.value is store.error
    assert told == ["own up with NoneType", "one up", "one down", "own down"]


@pytest.mark.parametrize("times", [1, 3])
async def test_a_lifespan_that_is_cancelled_gives_the_jobs_their_grace(told: list[str], times: int) -> None:
    store, q = queue(told)
    up, stopping, may_stop = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def grace() -> None:
        stopping.set()
        await may_stop.wait()

    store.closing = grace

    async def serve() -> None:
        async with fastjobs.lifespan(q, within=outer(told, None))(None):
            up.set()
            await asyncio.Event().wait()

    serving = asyncio.create_task(serve())
    await up.wait()
    for _ in range(times):  # a server that loses its patience cancels again
        serving.cancel()
        await stopping.wait()
        await asyncio.sleep(0)
    assert not serving.done()
    assert "q down" not in told
    may_stop.set()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert told[-2:] == ["q down", "own down"]


async def test_a_cancelled_scope_around_it_does_not_cut_the_grace(told: list[str]) -> None:
    store, q = queue(told)

    async def grace() -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        told.append("grace was given")

    store.closing = grace
    with anyio.CancelScope() as scope:
        async with fastjobs.lifespan(q)(None):
            scope.cancel()
            await anyio.sleep_forever()
    assert told == ["q up", "grace was given", "q down"]


async def test_nothing_of_it_is_left_behind(told: list[str]) -> None:
    _, q = queue(told)
    before = asyncio.all_tasks()
    async with fastjobs.lifespan(q)(None):
        pass
    assert asyncio.all_tasks() == before


def test_it_starts_again_on_another_loop(told: list[str]) -> None:
    _, q = queue(told)
    app = FastAPI(lifespan=fastjobs.lifespan(q))
    for _ in range(3):
        with TestClient(app):
            pass
    assert told == ["q up", "q down"] * 3


def test_an_on_crash_that_cant_be_is_refused_where_it_is_written() -> None:
    with pytest.raises(RegistrationError, match="on_crash is 'stop', 'log' or a callable"):
        fastjobs.lifespan(fastjobs.Queue(fastjobs.Memory()), on_crash="explode")  # type: ignore[call-overload]  # pyright: ignore

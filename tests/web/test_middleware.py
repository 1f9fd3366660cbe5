"""RequestIDMiddleware: which inbound IDs are taken, who knows the ID, and what the response says."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextvars import ContextVar
from typing import Any

import pytest
import structlog
from asgi_correlation_id import CorrelationIdMiddleware, correlation_id
from fastapi import BackgroundTasks, Depends, FastAPI, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import JSONResponse
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route
from starlette.testclient import WebSocketDenialResponse

import fastjobs
from fastjobs import RegistrationError, RequestIDMiddleware, request_id

pytestmark = pytest.mark.anyio

NEW = re.compile(r"[A-Z2-7]{26}\Z")
Message = MutableMapping[str, Any]


def new_app(**options: Any) -> FastAPI:
    app = FastAPI()
    app.add_middleware(RequestIDMiddleware, **options)

    @app.get("/id")
    async def id_of(request: Request) -> dict[str, str | None]:
        return {"id": request_id(), "state": request.state.request_id}

    return app


def answered(client: TestClient, headers: Any = None, path: str = "/id") -> str:
    """The ID that the route saw, having checked that the response and the state say the same."""
    response = client.get(path, headers=headers)
    assert response.status_code == 200
    id = response.json()["id"]
    assert isinstance(id, str)
    assert response.json()["state"] == id
    assert response.headers.get_list("x-request-id") == [id]
    return id


def test_a_request_without_an_id_gets_a_new_one_each_time() -> None:
    client = TestClient(new_app())
    first, second = answered(client), answered(client)
    assert NEW.match(first)
    assert NEW.match(second)
    assert first != second


@pytest.mark.parametrize(
    "id",
    [
        "a",
        "abc-1",
        "a" * 128,
        "550e8400-e29b-41d4-a716-446655440000",
        "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "SCK2WDZABCDEFGHIJKLMNOPQRS",
        "Root=1-67891233-abcdef012345678912345678",
        "user@host:8080/path+x==",
        "-._:",
    ],
)
def test_an_inbound_id_that_is_plain_is_taken(id: str) -> None:
    assert answered(TestClient(new_app()), {"X-Request-ID": id}) == id


@pytest.mark.parametrize(
    "id",
    [
        b"",
        b" ",
        b"a b",
        b"a\tb",
        b"a\r\nSet-Cookie: x=1",
        b"a\nINFO forged line",
        b"a\x00b",
        b"a\x1b[2J",
        "é".encode(),
        b"\xe9",
        "ａｂｃ".encode(),
        b"a,b",
        b"a;b",
        b"<script>",
        b"a" * 129,
        b"a" * 100_000,
        b"a\n",
    ],
)
async def test_any_other_inbound_id_is_replaced_and_never_answered(id: bytes) -> None:
    # By hand, as a client refuses to send some of these, and a server need not refuse to take them.
    seen, sent = await called(new_app(), headers=[(b"x-request-id", id)])
    assert seen == 200
    assert len(sent) == 1
    assert NEW.match(sent[0].decode())


def test_two_headers_are_as_none() -> None:
    client = TestClient(new_app())
    assert NEW.match(answered(client, [("X-Request-ID", "one"), ("x-request-id", "two")]))
    assert NEW.match(answered(client, [("X-Request-ID", "same"), ("X-Request-ID", "same")]))


def test_inbound_ids_are_not_taken_where_they_are_not_trusted() -> None:
    assert NEW.match(answered(TestClient(new_app(trust=False)), {"X-Request-ID": "abc-1"}))


def test_the_header_may_have_another_name() -> None:
    response = TestClient(new_app(header="X-Correlation-ID")).get(
        "/id", headers={"x-correlation-id": "abc-1", "x-request-id": "other"}
    )
    assert response.json()["id"] == "abc-1"
    assert response.headers["X-Correlation-ID"] == "abc-1"
    assert "x-request-id" not in response.headers


@pytest.mark.parametrize(
    "header", ["", "X Request", "x-id\r\nx: y", "é", "a:b", "x\n", b"X-Request-ID", None]
)
def test_a_header_that_cannot_be_one_is_refused(header: Any) -> None:
    async def app(*_: object) -> None: ...

    with pytest.raises(RegistrationError, match="header"):
        RequestIDMiddleware(app, header=header)


@pytest.mark.parametrize("trust", ["no", "", 0, None])
def test_a_trust_that_an_environment_said_is_refused_and_not_taken_for_yes(trust: Any) -> None:
    async def app(*_: object) -> None: ...

    with pytest.raises(RegistrationError, match="trust is True or False"):
        RequestIDMiddleware(app, trust=trust)


def test_the_response_has_the_id_once_though_the_route_set_the_header() -> None:
    app = new_app()
    shared = PlainTextResponse("", headers={"X-Request-ID": "the-route's", "X-Other": "kept"})

    @app.get("/own")
    async def own() -> PlainTextResponse:
        return shared

    client = TestClient(app)
    for id in ("one", "two"):  # one response object for both: nothing of the first is in the second
        response = client.get("/own", headers={"X-Request-ID": id})
        assert response.headers.get_list("x-request-id") == [id]
        assert response.headers["x-other"] == "kept"
    assert shared.headers.getlist("x-request-id") == ["the-route's"]


def test_all_that_works_for_a_request_knows_its_id() -> None:
    app = new_app()
    seen: dict[str, str | None] = {}

    async def dependency() -> AsyncIterator[None]:
        seen["dependency"] = request_id()
        yield
        seen["its exit"] = request_id()

    def sync_dependency() -> Iterator[None]:
        seen["sync dependency"] = request_id()
        yield

    def later() -> None:
        seen["background"] = request_id()

    @app.get("/all", dependencies=[Depends(dependency), Depends(sync_dependency)])
    def route(tasks: BackgroundTasks) -> None:
        seen["sync route"] = request_id()
        tasks.add_task(later)

    TestClient(app).get("/all", headers={"X-Request-ID": "abc-1"})
    assert set(seen) == {"dependency", "its exit", "sync dependency", "background", "sync route"}
    assert set(seen.values()) == {"abc-1"}


def test_a_handler_of_a_500_reads_the_id_from_the_state() -> None:
    app = new_app()

    @app.get("/boom")
    async def boom() -> None:
        raise RuntimeError("boom")

    @app.exception_handler(Exception)
    async def on_500(request: Request, _error: Exception) -> JSONResponse:
        return JSONResponse({"id": request.state.request_id}, 500)

    response = TestClient(app, raise_server_exceptions=False).get("/boom", headers={"X-Request-ID": "abc-1"})
    assert (response.status_code, response.json()) == (500, {"id": "abc-1"})


def test_around_the_whole_app_the_header_is_on_a_500_too() -> None:
    app = FastAPI()

    @app.get("/boom")
    async def boom() -> None:
        raise RuntimeError("boom")

    client = TestClient(RequestIDMiddleware(app), raise_server_exceptions=False)
    response = client.get("/boom", headers={"X-Request-ID": "abc-1"})
    assert (response.status_code, response.headers["x-request-id"]) == (500, "abc-1")


def test_a_websocket_has_an_id_and_is_accepted_with_it() -> None:
    app = new_app()

    @app.websocket("/ws")
    async def socket(ws: WebSocket) -> None:
        await ws.accept(headers=[(b"x-request-id", b"the-route's"), (b"x-other", b"kept")])
        await ws.send_json([request_id(), ws.state.request_id])
        await ws.close()

    with TestClient(app).websocket_connect("/ws", headers={"X-Request-ID": "w-1"}) as ws:
        assert ws.receive_json() == ["w-1", "w-1"]
        assert ws.extra_headers == [(b"x-other", b"kept"), (b"x-request-id", b"w-1")]


def test_a_websocket_that_is_refused_stays_refused() -> None:
    app = new_app()

    @app.websocket("/ws")
    async def socket(ws: WebSocket) -> None:
        await ws.close(4000)

    with pytest.raises(WebSocketDisconnect), TestClient(app).websocket_connect("/ws"):
        pytest.fail("it was accepted")


def test_a_response_that_refuses_a_websocket_has_the_id() -> None:
    app = new_app()

    @app.websocket("/ws")
    async def socket(ws: WebSocket) -> None:
        await ws.send_denial_response(PlainTextResponse("no", 403, headers={"X-Request-ID": "the-route's"}))

    with (
        pytest.raises(WebSocketDenialResponse) as refused,
        TestClient(app).websocket_connect("/ws", headers={"X-Request-ID": "w-1"}),
    ):
        pytest.fail("it was accepted")
    assert (refused.value.status_code, refused.value.headers.get_list("x-request-id")) == (403, ["w-1"])


@pytest.mark.parametrize("trust", [True, False])
@pytest.mark.parametrize("inbound", [None, "abc-1"])
def test_a_request_has_one_id_in_a_mounted_app_with_its_own_middleware_too(
    trust: bool, inbound: str | None
) -> None:
    variable: ContextVar[str | None] = ContextVar("another", default="another")
    inner = new_app(use_existing=variable)
    inner.add_middleware(RequestIDMiddleware, header="X-Inner")
    app = FastAPI()
    app.add_middleware(RequestIDMiddleware, trust=trust)
    app.mount("/sub", inner)
    client = TestClient(RequestIDMiddleware(app, trust=trust))
    headers = {} if inbound is None else {"X-Request-ID": inbound}
    id = answered(client, headers, "/sub/id")
    assert (id == inbound) == (trust and inbound is not None)
    assert client.get("/sub/id", headers={"X-Request-ID": "abc-2"}).headers["x-inner"] != id


async def test_a_scope_that_a_server_uses_for_the_next_request_too_gives_that_an_id_of_its_own() -> None:
    had: list[str | None] = []

    async def app(*_: object) -> None:
        had.append(request_id())

    async def nothing(*_: object) -> Any: ...

    scope: dict[str, Any] = {"type": "http", "headers": []}
    for _ in range(2):
        await RequestIDMiddleware(app)(scope, nothing, nothing)
    assert len({*had}) == 2
    assert request_id() is None


def test_a_stream_has_the_id_to_its_end() -> None:
    async def body() -> AsyncIterator[str]:
        for _ in range(3):
            await asyncio.sleep(0)
            yield f"{fastjobs.request_id()} "

    async def route(_: Request) -> StreamingResponse:
        return StreamingResponse(body())

    app = Starlette(routes=[Route("/", route)])
    app.add_middleware(RequestIDMiddleware)
    assert TestClient(app).get("/", headers={"X-Request-ID": "s-1"}).text == "s-1 s-1 s-1 "


async def test_the_id_is_gone_after_the_request() -> None:
    assert request_id() is None
    await called(new_app(), headers=[(b"x-request-id", b"abc-1")])
    assert request_id() is None

    async def fails(*_: object) -> None:
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        await called(RequestIDMiddleware(fails))
    assert request_id() is None


async def test_the_lifespan_passes_through_untouched() -> None:
    seen: list[object] = []

    async def app(scope: Message, receive: object, send: object) -> None:
        seen.extend((scope, receive, send))

    async def receive() -> Message:
        return {}

    async def send(message: Message) -> None: ...

    scope: Message = {"type": "lifespan", "state": {}}
    await RequestIDMiddleware(app)(scope, receive, send)
    assert seen == [scope, receive, send]
    assert scope == {"type": "lifespan", "state": {}}


async def test_a_response_that_leaves_its_headers_out_gets_the_id() -> None:
    async def app(scope: Message, receive: object, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body"})

    _, sent = await called(RequestIDMiddleware(app), headers=[(b"X-Request-Id", b"abc-1")])
    assert sent == [b"abc-1"]


# Beside another library's middleware.


def test_asgi_correlation_ids_id_is_the_requests_and_is_said_once() -> None:
    app = new_app(use_existing=correlation_id)
    app.add_middleware(CorrelationIdMiddleware)  # added last, so it's the outer one
    client = TestClient(app)
    made = answered(client)
    assert re.fullmatch("[0-9a-f]{32}", made)
    inbound = "0123456789abcdef0123456789abcdef"
    assert answered(client, {"X-Request-ID": inbound}) == inbound
    assert answered(client, {"X-Request-ID": "not-a-uuid"}) != "not-a-uuid"  # by its rules, not by ours


def test_what_structlog_has_bound_is_the_requests_id() -> None:
    app = new_app(use_existing=lambda: structlog.contextvars.get_contextvars().get("request_id"))
    bound: list[object] = ["from-structlog"]

    class Binds:
        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
            with structlog.contextvars.bound_contextvars(request_id=bound[0]):
                await self.app(scope, receive, send)

    app.add_middleware(Binds)
    client = TestClient(app)
    response = client.get("/id", headers={"X-Request-ID": "from-the-client"})
    assert response.json() == {"id": "from-structlog", "state": "from-structlog"}
    # What isn't plain is none, and the header or a new one takes its place.
    for bad in ("a\nb", "", 7, None, "x" * 129):
        bound[0] = bad
        assert answered(client, {"X-Request-ID": "from-the-client"}) == "from-the-client"
        assert NEW.match(answered(client))


def test_an_existing_id_is_a_websockets_too() -> None:
    app = new_app(use_existing=correlation_id)
    app.add_middleware(CorrelationIdMiddleware)

    @app.websocket("/ws")
    async def socket(ws: WebSocket) -> None:
        await ws.accept()
        await ws.send_json([request_id(), correlation_id.get()])
        await ws.close()

    with TestClient(app).websocket_connect("/ws") as ws:
        ours, theirs = ws.receive_json()
        assert ours == theirs


def test_a_use_existing_that_raises_costs_no_request(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> str:
        raise LookupError("no\nID")

    assert answered(TestClient(new_app(use_existing=fails)), {"X-Request-ID": "abc-1"}) == "abc-1"
    (line,) = caplog.messages
    assert line.startswith("use_existing= of RequestIDMiddleware failed")
    assert "\n" not in line


async def _late() -> str:
    return "x"


@pytest.mark.parametrize("use_existing", ["correlation_id", 7, _late], ids=["text", "number", "async"])
def test_a_use_existing_that_cannot_be_asked_is_refused(use_existing: Any) -> None:
    async def app(*_: object) -> None: ...

    with pytest.raises(RegistrationError, match="use_existing is a ContextVar, or a plain function"):
        RequestIDMiddleware(app, use_existing=use_existing)


def test_asgi_correlation_ids_id_goes_to_the_jobs_and_back_into_its_own_variable() -> None:
    seen: list[object] = []
    done = threading.Event()
    q = fastjobs.Queue(fastjobs.Memory(), carry=[fastjobs.CarryRequestID(use_existing=correlation_id)])

    @q.kind("mail")
    async def mail() -> None:
        seen.append((request_id(), correlation_id.get()))
        done.set()

    app = FastAPI(lifespan=fastjobs.lifespan(q))
    app.add_middleware(CorrelationIdMiddleware)  # and none of ours

    @app.post("/")
    async def route() -> None:
        await mail.push()

    id = "0123456789abcdef0123456789abcdef"
    with TestClient(app) as client:
        client.post("/", headers={"X-Request-ID": id})
        assert done.wait(10)
    assert seen == [(id, id)]


async def called(app: Any, headers: list[tuple[bytes, bytes]] | None = None) -> tuple[int, list[bytes]]:
    """Calls the app as a server does, and answers the status and the request IDs of its response."""
    messages: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        messages.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": "/id", "raw_path": b"/id", "query_string": b"", "root_path": "", "headers": headers or [],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    await app(scope, receive, send)
    start = messages[0]
    return start["status"], [value for name, value in start["headers"] if name == b"x-request-id"]

"""One trace from the request to its jobs in a whole app, with FastAPI's own tracing or another's, and SQLAlchemy's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import fastapi
import pytest
import sqlalchemy
import sqlalchemy.ext.asyncio
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.instrumentation.sqlalchemy import SQLAlchemyInstrumentor
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

import fastjobs
from tests.databases.postgres import Database
from tests.telemetry.spans import Spans, about, context, links, traces

ROOT = Path(__file__).parents[2]
DEEP = 30
"""Seconds a job may take to run on a machine with much to do."""


@pytest.fixture(params=["sqlite", "postgres"])
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """For an async and for a sync engine."""
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path / 'app.db'}", f"sqlite:///{tmp_path / 'app.db'}"
    database: Database = request.getfixturevalue("postgres_database")
    return str(database.url("asyncpg")), str(database.url("psycopg"))


@pytest.fixture
def sql_traced(spans: Spans) -> Iterator[None]:
    """Every engine that is made is traced."""
    instrumentor = SQLAlchemyInstrumentor()
    # It says that it's for SQLAlchemy before 2.1. What is asked here works with that too.
    instrumentor.instrument(tracer_provider=spans.provider, skip_dep_check=True)
    yield
    instrumentor.uninstrument()


def configured(engine: Any) -> Any:
    if engine.dialect.name == "sqlite":
        fastjobs.sqlite.configure(engine)
    return engine


@pytest.fixture
def engine(urls: tuple[str, str], sql_traced: None) -> AsyncEngine:
    engine: AsyncEngine = configured(sqlalchemy.ext.asyncio.create_async_engine(urls[0]))
    return engine


@pytest.fixture
def sync_engine(urls: tuple[str, str], sql_traced: None) -> Generator[Engine]:
    engine: Engine = configured(sqlalchemy.create_engine(urls[1]))
    yield engine
    engine.dispose()


class App:
    """An app whose routes push one job each, in every way there is, and the queue that fails it once."""

    def __init__(self, spans: Spans, engine: AsyncEngine, sync_engine: Engine, telemetry: Any) -> None:
        self.ended = threading.Semaphore(0)
        carry: list[fastjobs.Carrier] = [
            fastjobs.CarryRequestID(),
            fastjobs.CarryTrace(tracer_provider=spans.provider),
        ]
        self.queue = fastjobs.Queue(fastjobs.SQLStore(engine), carry=carry, observe=self._observe, poll=0.05)

        @self.queue.kind("mail", backoff=0)
        async def mail(user: int) -> None:
            with spans.tracer.start_as_current_span("smtp"):
                if fastjobs.current_job().attempt == 1:
                    raise ConnectionRefusedError

        @asynccontextmanager
        async def closing(app: FastAPI) -> AsyncGenerator[None]:
            yield
            await engine.dispose()

        async def get_tx() -> AsyncGenerator[AsyncSession]:
            async with AsyncSession(engine) as session, session.begin():
                yield session

        def get_sync_tx() -> Generator[Session]:
            with Session(sync_engine) as session, session.begin():
                yield session

        tx = Annotated[AsyncSession, Depends(get_tx, scope="function")]
        sync_tx = Annotated[Session, Depends(get_sync_tx, scope="function")]
        options = {} if telemetry is None else {"telemetry": telemetry}
        self.app = FastAPI(lifespan=fastjobs.lifespan(self.queue, within=closing), **options)
        self.app.add_middleware(fastjobs.RequestIDMiddleware)

        async def plain() -> None:
            await mail.push(1)

        def plain_sync() -> None:
            mail.sync.push(1)

        async def in_tx(jobs: Any) -> None:
            await jobs(mail).push(1)

        def in_sync_tx(jobs: Any) -> None:
            jobs(mail).push(1)

        jobs = fastjobs.jobs_in_tx(self.queue, tx)
        sync_jobs = fastjobs.jobs_in_tx(self.queue, sync_tx)
        in_tx.__annotations__ |= {"jobs": Annotated[fastjobs.InTx, Depends(jobs)]}
        in_sync_tx.__annotations__ |= {"jobs": Annotated[fastjobs.SyncInTx, Depends(sync_jobs)]}
        for route in (plain, plain_sync, in_tx, in_sync_tx):
            self.app.post(f"/{route.__name__}")(route)

    def _observe(self, ran: fastjobs.Ran) -> None:
        self.ended.release()

    def runs_twice(self) -> None:
        """Returns once the job has failed once, and is done."""
        assert self.ended.acquire(timeout=DEEP)
        assert self.ended.acquire(timeout=DEEP)


ROUTES = ["plain", "plain_sync", "in_tx", "in_sync_tx"]


@pytest.mark.parametrize("traced_by", ["FastAPI", "FastAPIInstrumentor"])
def test_a_request_and_its_jobs_are_one_trace_and_polls_are_in_none(
    spans: Spans, engine: AsyncEngine, sync_engine: Engine, traced_by: str
) -> None:
    if traced_by == "FastAPI" and not hasattr(fastapi, "telemetry"):
        pytest.skip(f"FastAPI {fastapi.__version__} lacks tracing of its own")
    own = {"tracer_provider": spans.provider} if traced_by == "FastAPI" else None
    it = App(spans, engine, sync_engine, own)
    if traced_by != "FastAPI":
        FastAPIInstrumentor.instrument_app(it.app, tracer_provider=spans.provider)
    with TestClient(it.app) as client:
        assert (
            list(spans.all) == []
        )  # the queue makes its tables on a connection of its own, which nobody traces
        for route in ROUTES:
            assert client.post(f"/{route}", headers={"X-Request-ID": f"req-{route}"}).status_code == 200
            it.runs_twice()
    for route in ROUTES:
        (server,) = [
            each for each in spans.all if each.kind is SpanKind.SERVER and each.name.endswith(f"/{route}")
        ]
        trace = [each for each in spans.all if traces([each]) == traces([server])]
        by_id = {context(each).span_id: each for each in trace}
        (send,) = named(trace, "send mail")
        first, second = sorted(named(trace, "process mail"), key=lambda each: each.start_time or 0)
        assert ancestors(send, by_id)[-1] is server
        for attempt, run in enumerate((first, second), 1):
            assert run.parent is not None
            assert run.parent.span_id == context(send).span_id
            assert links(run) == [context(send).span_id]
            assert about(run)["fastjobs.attempt"] == attempt
            assert about(run)["messaging.message.conversation_id"] == f"req-{route}"
            assert about(run)["messaging.message.id"] == about(send)["messaging.message.id"]
        assert about(first)["error.type"] == "ConnectionRefusedError"
        assert about(second)["fastjobs.outcome"] == "done"
        smtp = [each.parent.span_id for each in named(trace, "smtp") if each.parent]
        assert sorted(smtp) == sorted([context(first).span_id, context(second).span_id])
        if "tx" in route:  # the app's own connection is traced, and what the push does in it
            inside = [each for each in trace if each.kind is SpanKind.CLIENT]
            assert any(each.parent and each.parent.span_id == context(send).span_id for each in inside)
    # No span is outside of the requests' traces: polls, claims and marks make none.
    servers = [each for each in spans.all if each.kind is SpanKind.SERVER]
    assert {each.name for each in spans.all if not traces([each]) <= traces(servers)} == set()
    # And of what is done to the queue's tables, the app's own pushes alone are in them.
    by_id = {context(each).span_id: each for each in spans.all}
    statements = [each for each in spans.all if "fastjobs_" in str(about(each).get("db.statement"))]
    assert {ancestors(each, by_id)[0].name for each in statements} == {"send mail"}


def named(spans: list[ReadableSpan], name: str) -> list[ReadableSpan]:
    return [each for each in spans if each.name == name]


def ancestors(span: ReadableSpan, by_id: dict[int, ReadableSpan]) -> list[ReadableSpan]:
    found: list[ReadableSpan] = []
    at = span
    while at.parent is not None:
        at = by_id[at.parent.span_id]
        found.append(at)
    return found


WORKER = """
import asyncio, json, os, sys
from sqlalchemy.ext.asyncio import create_async_engine
import fastjobs
from tests.telemetry.spans import Spans, context, links

async def main():
    spans = Spans()
    engine = create_async_engine(sys.argv[1])
    if engine.dialect.name == "sqlite":
        fastjobs.sqlite.configure(engine)
    q = fastjobs.Queue(fastjobs.SQLStore(engine), carry=[fastjobs.CarryTrace(tracer_provider=spans.provider)])

    @q.kind("mail")
    async def mail(user: int) -> None:
        pass

    async with q.running(run=False):
        await q.drain()
    await engine.dispose()
    told = [[each.name, context(each).trace_id, each.parent.span_id, links(each)] for each in spans.all]
    os.write(1, json.dumps(told).encode())

asyncio.run(main())
"""


@pytest.mark.anyio
async def test_a_job_that_another_process_runs_is_in_the_pushs_trace(
    spans: Spans, urls: tuple[str, str]
) -> None:
    engine: AsyncEngine = configured(sqlalchemy.ext.asyncio.create_async_engine(urls[0]))
    carry = fastjobs.CarryTrace(tracer_provider=spans.provider)
    queue = fastjobs.Queue(fastjobs.SQLStore(engine), carry=[carry])

    async def mail(user: int) -> None: ...

    kind = queue.kind("mail")(mail)
    async with queue.running(run=False):
        await kind.push(7)
    await engine.dispose()
    ran = subprocess.run(
        [sys.executable, "-c", WORKER, urls[0]],
        cwd=ROOT, capture_output=True, text=True, timeout=50, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    send = context(spans.one("send mail"))
    assert json.loads(ran.stdout) == [["process mail", send.trace_id, send.span_id, [send.span_id]]]

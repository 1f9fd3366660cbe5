"""A registration whose request, commit, welcome mail and the mail's retry are one trace, exported by OTLP over HTTP.

    OTEL_SERVICE_NAME=web uvicorn examples.tracing.app:app

Its mail server refuses each mail once. `OTEL_EXPORTER_OTLP_ENDPOINT` says where the spans go: http://localhost:4318 by
default, where Jaeger listens. `DATABASE_URL` is an SQLite file, or Postgres as `postgresql+asyncpg://app@localhost/app`.
With `RUN_JOBS=no` the app only pushes, and another process runs the jobs: `fastjobs run examples.tracing.app:q`.
"""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from pydantic import BaseModel
from sqlalchemy import create_engine, make_url
from sqlalchemy.ext.asyncio import create_async_engine
from sqlmodel import Field, Session, SQLModel
from sqlmodel.ext.asyncio.session import AsyncSession

import fastjobs

# --- what is seen: spans by OTLP, and log lines with the request, the job and the trace -------------------------

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("registration")

lines = logging.StreamHandler()
lines.addFilter(fastjobs.LogFilter())
logging.basicConfig(
    level=logging.INFO,
    handlers=[lines],
    format="%(levelname)s %(name)s: %(message)s [request %(request_id)s job %(job)s trace %(trace_id)s]",
)
log = logging.getLogger("registration")

# --- what is kept -----------------------------------------------------------------------------------------------

DATABASE_URL = os.environ.get("DATABASE_URL", "sqlite+aiosqlite:///tracing.db")
engine = create_async_engine(DATABASE_URL)
sync_url = make_url(DATABASE_URL)
sync_engine = create_engine(
    sync_url.set(drivername="sqlite" if sync_url.get_backend_name() == "sqlite" else "postgresql+psycopg")
)
if engine.dialect.name == "sqlite":
    fastjobs.sqlite.configure(engine)
    fastjobs.sqlite.configure(sync_engine)


class Registered(SQLModel, table=True):
    id: int | None = Field(default=None, primary_key=True)
    email: str


async def get_tx() -> AsyncGenerator[AsyncSession]:
    async with AsyncSession(engine) as session:
        yield session
        with tracer.start_as_current_span("commit"):
            await session.commit()


def get_sync_tx() -> Generator[Session]:
    with Session(sync_engine) as session:
        yield session
        with tracer.start_as_current_span("commit"):
            session.commit()


Tx = Annotated[AsyncSession, Depends(get_tx, scope="function")]
SyncTx = Annotated[Session, Depends(get_sync_tx, scope="function")]

# --- the jobs ---------------------------------------------------------------------------------------------------

q = fastjobs.Queue(
    fastjobs.SQLStore(engine), carry=[fastjobs.CarryRequestID(), fastjobs.CarryTrace()], poll=0.5
)
Jobs = Annotated[fastjobs.InTx, Depends(fastjobs.jobs_in_tx(q, Tx))]
SyncJobs = Annotated[fastjobs.SyncInTx, Depends(fastjobs.jobs_in_tx(q, SyncTx))]


class WelcomeMail(BaseModel):
    email: str


@q.kind("welcome-mail", attempts=5, backoff=0.5)
async def welcome(mail: WelcomeMail) -> None:
    with tracer.start_as_current_span("smtp"):
        if fastjobs.current_job().attempt == 1:
            raise ConnectionRefusedError("the mail server is down")
        if mail.email.endswith("@nowhere.example"):
            raise fastjobs.Permanent("the mail server knows no such address")
    log.info("welcomed %s", mail.email)


# --- the app ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def database(_app: FastAPI) -> AsyncGenerator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(SQLModel.metadata.create_all)
    yield
    await engine.dispose()
    sync_engine.dispose()


app = FastAPI(lifespan=fastjobs.lifespan(q, within=database, run=os.environ.get("RUN_JOBS") != "no"))
app.add_middleware(fastjobs.RequestIDMiddleware)
if "telemetry" not in inspect.signature(FastAPI).parameters:  # before 0.142 it doesn't trace by itself
    from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor

    FastAPIInstrumentor.instrument_app(app)


@app.post("/register")
async def register(mail: WelcomeMail, tx: Tx, jobs: Jobs) -> dict[str, str | None]:
    tx.add(Registered(email=mail.email))
    log.info("registering")
    return {"job": await jobs(welcome).push(mail)}


@app.post("/register-sync")
def register_sync(mail: WelcomeMail, tx: SyncTx, jobs: SyncJobs) -> dict[str, str | None]:
    tx.add(Registered(email=mail.email))
    log.info("registering")
    return {"job": jobs(welcome).push(mail)}


@app.post("/remind")
async def remind(mail: WelcomeMail) -> dict[str, str | None]:
    log.info("reminding")
    return {"job": await welcome.push(mail)}


@app.post("/remind-sync")
def remind_sync(mail: WelcomeMail) -> dict[str, str | None]:
    log.info("reminding")
    return {"job": welcome.sync.push(mail)}

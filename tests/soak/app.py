"""The app under load: a business row and its job in one transaction, pushes of the queue's own, and eight kinds.

    uvicorn tests.soak.app:app

The environment says where it keeps its record (`SOAK_FOLDER`), what it's called there (`SOAK_NAME`), which database it
has (`SOAK_URL`), how long it holds jobs (`SOAK_HOLD`), and which store it has (`SOAK_STORE`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException
from sqlalchemy.ext.asyncio import create_async_engine
from sqlmodel import Field, SQLModel
from sqlmodel.ext.asyncio.session import AsyncSession

import fastjobs
from tests.soak.kinds import ATTEMPTS, POLL, Push, Work
from tests.soak.recording import Recorder
from tests.soak.stores import CONTROLS

FOLDER = Path(os.environ["SOAK_FOLDER"])
NAME = os.environ["SOAK_NAME"]
HOLD = float(os.environ["SOAK_HOLD"])
PARENT = os.getppid()
STALL = 0.3
"""How many seconds late the loop is when that is written down."""

logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
recorder = Recorder(FOLDER, NAME)


class Order(SQLModel, table=True):
    """A business row: there if and only if its job was pushed."""

    ref: str = Field(primary_key=True)


IS_FILE = os.environ["SOAK_URL"].startswith("sqlite")
engine = create_async_engine(os.environ["SOAK_URL"], pool_pre_ping=not IS_FILE)
if IS_FILE:
    fastjobs.sqlite.configure(engine)
store = CONTROLS[os.environ["SOAK_STORE"]](engine, recorder)
# It asks often, so that a frozen process's jobs are claimed again before it wakes.
q = fastjobs.Queue(store, workers=8, poll=POLL, grace=1, hold=HOLD)


async def get_tx() -> AsyncGenerator[AsyncSession]:
    async with AsyncSession(engine) as session, session.begin():
        yield session


Tx = Annotated[AsyncSession, Depends(get_tx, scope="function")]
Jobs = Annotated[fastjobs.InTx, Depends(fastjobs.jobs_in_tx(q, Tx))]


# --- the kinds --------------------------------------------------------------------------------------------------


async def recorded(work: Work, doing: Coroutine[Any, Any, None]) -> None:
    """Runs it between the two lines that say so."""
    job = fastjobs.current_job()
    claim = store.claim_of(job.id, job.attempt)
    recorder.write("start", job.id, claim, work.ref, job.attempt)
    try:
        await doing
    except BaseException as error:
        recorder.write("end", job.id, claim, type(error).__name__)
        raise
    recorder.write("end", job.id, claim, "ok")


@q.kind("quick", attempts=ATTEMPTS["quick"])
async def quick(work: Work) -> None:
    await recorded(work, asyncio.sleep(0.001))


@q.kind("short", attempts=ATTEMPTS["short"])
async def short(work: Work) -> None:
    await recorded(work, asyncio.sleep(0.1))


@q.kind("long", attempts=ATTEMPTS["long"])
async def long(work: Work) -> None:
    await recorded(work, asyncio.sleep(0.9 * HOLD))


@q.kind("unsteady", attempts=ATTEMPTS["unsteady"], backoff=0.2)
async def unsteady(work: Work) -> None:
    async def fail_at_first() -> None:
        await asyncio.sleep(0.01)
        if fastjobs.current_job().attempt <= work.fails:
            raise RuntimeError("not yet")

    await recorded(work, fail_at_first())


@q.kind("hopeless", attempts=ATTEMPTS["hopeless"], backoff=0.2)
async def hopeless(work: Work) -> None:
    async def fail() -> None:
        raise RuntimeError("never")

    await recorded(work, fail())


@q.kind("refused", attempts=ATTEMPTS["refused"])
async def refused(work: Work) -> None:
    async def refuse() -> None:
        raise fastjobs.Permanent("no")

    await recorded(work, refuse())


@q.kind("freezes", attempts=ATTEMPTS["freezes"])
async def freezes(work: Work) -> None:
    async def freeze() -> None:
        job = fastjobs.current_job()
        if job.attempt > 1 or not work.freeze:
            # Still going as the frozen one wakes: only so does a late end meet a run that it could end.
            await asyncio.sleep(0.9 * HOLD)
            return
        recorder.write("freeze", job.id)
        (FOLDER / f"frozen-{NAME}").touch()  # whoever wakes it looks for this
        os.kill(os.getpid(), signal.SIGSTOP)
        recorder.write("woke", job.id)
        if work.lingers:
            await asyncio.sleep(work.lingers)

    await recorded(work, freeze())


@q.kind("poison", attempts=ATTEMPTS["poison"])
async def poison(work: Work) -> None:
    async def kill() -> None:
        recorder.write("poisoned", fastjobs.current_job().id)
        os.kill(os.getpid(), signal.SIGKILL)

    await recorded(work, kill())


@hopeless.on_fail
@refused.on_fail
@poison.on_fail
async def tell(work: Work, error: Exception) -> None:
    recorder.write("on_fail", fastjobs.current_job().id, type(error).__name__)


KINDS = {kind.name: kind for kind in (quick, short, long, unsteady, hopeless, refused, freezes, poison)}


# --- the app ----------------------------------------------------------------------------------------------------


async def watch() -> None:
    """Writes down when the loop was late, as a machine with no time for us explains a hold that ran out; and ends
    with the soak, however that was ended."""
    loop = asyncio.get_running_loop()
    while True:
        asked = loop.time()
        await asyncio.sleep(0.1)
        late = loop.time() - asked - 0.1
        if late > STALL:
            recorder.write("stalled", late)
        if os.getppid() != PARENT:
            os.kill(os.getpid(), signal.SIGKILL)


@asynccontextmanager
async def database(_app: FastAPI) -> AsyncGenerator[None]:
    if IS_FILE:  # a server may be down just now, and has the table already
        async with engine.begin() as connection:
            await connection.run_sync(SQLModel.metadata.create_all)
    watching = asyncio.create_task(watch())
    recorder.write("up")
    yield
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
    await engine.dispose()


app = FastAPI(lifespan=fastjobs.lifespan(q, within=database))


class Undo(Exception):
    """Rolls a savepoint back."""


@app.get("/ready")
async def ready() -> str:
    return NAME


@app.post("/push")
async def push(asked: Push) -> dict[str, str | None]:
    return {"id": await KINDS[asked.kind].push(asked.work)}


@app.post("/order")
async def order(asked: Push, tx: Tx, jobs: Jobs) -> dict[str, str | None]:
    kind = KINDS[asked.kind]
    tx.add(Order(ref=asked.work.ref))
    await tx.flush()
    id = await jobs(kind).push(asked.work)
    if asked.inner is not None:
        with suppress(Undo):
            async with tx.begin_nested():
                tx.add(Order(ref=asked.inner))
                await tx.flush()
                await jobs(kind).push(Work(ref=asked.inner))
                if asked.undo == "savepoint":
                    raise Undo
    if asked.undo == "all":
        raise HTTPException(409, "rolled back")
    return {"id": id}

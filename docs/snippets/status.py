import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request, Response
from sqlalchemy.ext.asyncio import create_async_engine
from sqlmodel import Field, SQLModel
from sqlmodel.ext.asyncio.session import AsyncSession

import fastjobs

engine = create_async_engine("sqlite+aiosqlite:///app.db")
fastjobs.sqlite.configure(engine)
q = fastjobs.Queue(fastjobs.SQLStore(engine))


class Report(SQLModel, table=True):
    id: int | None = Field(default=None, primary_key=True)
    year: int
    job: str = ""
    text: str | None = None


@q.kind("report", timeout=600)
async def write_report(id: int) -> None:
    job, report = fastjobs.current_job(), await find(id)
    if report is None:
        return
    months: list[str] = []
    for month in range(1, 13):
        job.progress({"month": month, "of": 12})
        await asyncio.sleep(0)  # the work
        months.append(f"{report.year}-{month:02}")
    async with AsyncSession(engine) as session, session.begin():
        report.text = " ".join(months)
        session.add(report)
        await job.done_in(session)  # the text and the job's end are committed together


async def find(id: int) -> Report | None:
    async with AsyncSession(engine.execution_options(fastjobs_readonly=True)) as session:
        return await session.get(Report, id)


@asynccontextmanager
async def database(_app: FastAPI) -> AsyncGenerator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(SQLModel.metadata.create_all)
    yield
    await engine.dispose()


app = FastAPI(lifespan=fastjobs.lifespan(q, within=database))


async def get_tx() -> AsyncGenerator[AsyncSession]:
    async with AsyncSession(engine) as session, session.begin():
        yield session


Tx = Annotated[AsyncSession, Depends(get_tx, scope="function")]
Jobs = Annotated[fastjobs.InTx, Depends(fastjobs.jobs_in_tx(q, Tx))]


@app.post("/reports/{year}", status_code=202)
async def order(year: int, tx: Tx, jobs: Jobs, request: Request, response: Response) -> dict[str, str]:
    report = Report(year=year)
    tx.add(report)
    await tx.flush()  # gives the report its id
    assert report.id is not None
    report.job = await jobs(write_report).push(report.id) or ""
    status = str(request.url_for("status", id=report.id))
    response.headers["Location"] = status
    return {"status": status}


async def found(id: int) -> Report:
    report = await find(id)
    if report is None:
        raise HTTPException(404)
    return report


@app.get("/reports/{id}")
async def status(id: int) -> dict[str, Any]:
    job = await q.job((await found(id)).job, cut=0)
    if job is not None:
        return {"state": job.state, "progress": job.progress}
    # Read after the job was found gone, so that it's what its end has left.
    text = (await found(id)).text
    return {"state": "cancelled"} if text is None else {"state": "done", "text": text}


@app.delete("/reports/{id}")
async def cancel(id: int) -> dict[str, str]:
    return {"cancel": (await q.cancel((await found(id)).job)).value}

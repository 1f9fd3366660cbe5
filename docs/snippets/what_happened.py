from fastapi import FastAPI
from sqlalchemy.ext.asyncio import create_async_engine

import fastjobs

engine = create_async_engine("sqlite+aiosqlite:///app.db")
fastjobs.sqlite.configure(engine)
q = fastjobs.Queue(fastjobs.SQLStore(engine), carry=[fastjobs.CarryRequestID(), fastjobs.CarryTrace()])


@q.kind("welcome-mail", attempts=1)
async def welcome(user: int) -> None:
    raise ConnectionRefusedError("the mail server is down")


app = FastAPI(lifespan=fastjobs.lifespan(q))
app.add_middleware(fastjobs.RequestIDMiddleware)


@app.post("/register")
async def register() -> dict[str, str | None]:
    return {"job": await welcome.push(7)}


@app.get("/support/requests/{id}")  # for those who answer the phone: keep it from all others
async def failed_of(id: str) -> list[dict[str, str | None]]:
    found: list[fastjobs.JobInfo] = []
    page = await q.failed(cut=0)
    while page:
        found += [job for job in page if job.request_id == id]
        page = await q.failed(cut=0, after=page[-1])
    return [
        {"job": job.id, "kind": job.kind, "error": job.error, "why": job.why, "trace": job.trace_id}
        for job in found
    ]

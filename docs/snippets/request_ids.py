import logging

from fastapi import FastAPI
from sqlalchemy.ext.asyncio import create_async_engine

import fastjobs

logging.basicConfig(level=logging.INFO)
engine = create_async_engine("sqlite+aiosqlite:///app.db")
fastjobs.sqlite.configure(engine)
q = fastjobs.Queue(fastjobs.SQLStore(engine), carry=[fastjobs.CarryRequestID()])


@q.kind("reindex")
async def reindex() -> None:
    logging.info("for request %s", fastjobs.request_id())


app = FastAPI(lifespan=fastjobs.lifespan(q))
app.add_middleware(fastjobs.RequestIDMiddleware)


@app.post("/reindex")
async def start() -> dict[str, str | None]:
    await reindex.push()
    return {"request": fastjobs.request_id()}

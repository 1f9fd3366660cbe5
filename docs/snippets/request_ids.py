import logging

from fastapi import FastAPI
from sqlalchemy.ext.asyncio import create_async_engine

import fastjobs

output = logging.StreamHandler()
output.addFilter(fastjobs.LogFilter())  # on the handler, so that it's for every logger's lines
logging.basicConfig(
    level=logging.INFO, handlers=[output], format="%(levelname)s [%(request_id)s] %(name)s: %(message)s"
)

engine = create_async_engine("sqlite+aiosqlite:///app.db")
fastjobs.sqlite.configure(engine)
q = fastjobs.Queue(fastjobs.SQLStore(engine), carry=[fastjobs.CarryRequestID()])


@q.kind("reindex")
async def reindex() -> None:
    logging.info("reindexing")


app = FastAPI(lifespan=fastjobs.lifespan(q))
app.add_middleware(fastjobs.RequestIDMiddleware)


@app.post("/reindex")
async def start() -> dict[str, str | None]:
    await reindex.push()
    return {"request": fastjobs.request_id()}

import logging

from fastapi import FastAPI
from pythonjsonlogger.json import JsonFormatter
from sqlalchemy.ext.asyncio import create_async_engine

import fastjobs

output = logging.StreamHandler()
output.addFilter(fastjobs.LogFilter(empty=None))  # on the handler, so that it's for every logger's lines
output.setFormatter(JsonFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
logging.basicConfig(level=logging.INFO, handlers=[output])
for name in (
    "uvicorn",
    "uvicorn.access",
):  # uvicorn has handlers of its own: here its lines come as all others do
    logging.getLogger(name).handlers.clear()
    logging.getLogger(name).propagate = True
log = logging.getLogger("shop")

engine = create_async_engine("sqlite+aiosqlite:///app.db")
fastjobs.sqlite.configure(engine)
q = fastjobs.Queue(fastjobs.SQLStore(engine), carry=[fastjobs.CarryRequestID(), fastjobs.CarryTrace()])


@q.kind("welcome-mail", attempts=1)
async def welcome(user: int) -> None:
    log.info("to user %s", user)
    raise ConnectionRefusedError("the mail server is down")


app = FastAPI(lifespan=fastjobs.lifespan(q))
app.add_middleware(fastjobs.RequestIDMiddleware)


@app.post("/register")
async def register() -> dict[str, str | None]:
    log.info("registering")
    return {"job": await welcome.push(7)}

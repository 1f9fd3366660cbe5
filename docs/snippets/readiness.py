from dataclasses import asdict
from typing import Any

from fastapi import FastAPI, Response
from sqlalchemy.ext.asyncio import create_async_engine

import fastjobs

engine = create_async_engine("sqlite+aiosqlite:///app.db")
fastjobs.sqlite.configure(engine)
q = fastjobs.Queue(fastjobs.SQLStore(engine))


@q.kind("report")
async def report() -> None: ...


app = FastAPI(lifespan=fastjobs.lifespan(q))


@app.get("/ready")
async def ready(response: Response) -> dict[str, Any]:
    health = q.health()
    if not health.ok:
        response.status_code = 503
    return asdict(health)

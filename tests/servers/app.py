"""The app that the servers serve: a slow request that pushes at its end, and whether it's ready."""

from __future__ import annotations

import asyncio

from fastapi import FastAPI

import fastjobs
from tests.servers.jobs import made_by_environment

jobs = made_by_environment()
q = jobs.q
app = FastAPI(lifespan=fastjobs.lifespan(q))


@app.get("/ready")
async def ready() -> bool:
    return q.health().ok


@app.post("/slow")
async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return await jobs.push()

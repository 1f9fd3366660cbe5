"""The app: the queue, and the routes that push."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from sqlmodel import SQLModel

import fastjobs

from .db import Order, SessionDep, engine
from .jobs import Placed, ask, confirm, kinds, take_stock

logging.basicConfig(level=logging.INFO)
q = fastjobs.Queue(fastjobs.SQLStore(engine))
q.include(kinds)
jobs_in_tx = fastjobs.jobs_in_tx(q, SessionDep)
Jobs = Annotated[fastjobs.SyncInTx, Depends(jobs_in_tx)]


@asynccontextmanager
async def database(_app: FastAPI) -> AsyncGenerator[None]:
    SQLModel.metadata.create_all(engine)
    yield
    engine.dispose()


app = FastAPI(lifespan=fastjobs.lifespan(q, within=database))


@app.post("/orders")
def place(order: Order, session: SessionDep, jobs: Jobs) -> Order:
    session.add(order)
    session.flush()  # gives the order its id
    assert order.id is not None
    jobs(confirm).push(Placed(order=order.id))  # before the commit, which keeps both
    jobs(ask).push(Placed(order=order.id), after=7 * 24 * 3600)
    if order.email.endswith("@blocked.example"):
        raise HTTPException(403)  # nothing is committed: no order, and no job
    session.commit()
    session.refresh(order)
    return order


@app.post("/stock")
def start() -> dict[str, str | None]:
    return {"job": take_stock.sync.push()}  # in no transaction: kept once this returns

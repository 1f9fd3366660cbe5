import logging

from fastapi import FastAPI
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import create_async_engine

import fastjobs

logging.basicConfig(level=logging.INFO)
engine = create_async_engine("sqlite+aiosqlite:///app.db")
fastjobs.sqlite.configure(engine)
q = fastjobs.Queue(fastjobs.SQLStore(engine))


class Greeting(BaseModel):
    name: str


@q.kind("greeting", attempts=5, timeout=30)
async def greet(greeting: Greeting) -> None:
    logging.info("Welcome, %s!", greeting.name)


app = FastAPI(lifespan=fastjobs.lifespan(q))


@app.post("/register/{name}")
async def register(name: str) -> dict[str, str | None]:
    return {"job": await greet.push(Greeting(name=name))}

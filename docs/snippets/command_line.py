from fastapi import FastAPI
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import create_async_engine

import fastjobs

engine = create_async_engine("sqlite+aiosqlite:///app.db")
fastjobs.sqlite.configure(engine)
q = fastjobs.Queue(fastjobs.SQLStore(engine), carry=[fastjobs.CarryRequestID()])


class Mail(BaseModel):
    user: int
    email: str


@q.kind("verify-mail", attempts=10)
async def verify(mail: Mail) -> None:
    raise ConnectionRefusedError("smtp.example.com:587 refuses")  # the mail server is down


@q.kind("invoice")
async def invoice(order: int) -> None: ...


app = FastAPI(lifespan=fastjobs.lifespan(q))
app.add_middleware(fastjobs.RequestIDMiddleware)


@app.post("/register/{user}")
async def register(user: int, email: str) -> dict[str, str | None]:
    return {"job": await verify.push(Mail(user=user, email=email))}


@app.post("/orders/{order}")
async def order(order: int) -> dict[str, str | None]:
    return {"job": await invoice.push(order, after=86_400)}

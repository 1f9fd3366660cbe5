"""What mypy and pyright say of the web part, both strict: each line here is checked by `make types`.

A line that must not pass says so by an ignore, which both report where it is needed no more.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated, Any, TypedDict, assert_type

import sqlmodel
from fastapi import APIRouter, Depends, FastAPI
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession
from sqlmodel.ext.asyncio.session import AsyncSession as SQLModelAsyncSession
from starlette.applications import Starlette

import fastjobs
from fastjobs.runtime.pushing import AsyncPush, SyncPush

Stateless = Callable[[Any], AbstractAsyncContextManager[None]]
Stateful = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]


class Mail(BaseModel):
    user: int


class State(TypedDict):
    engine: int


q = fastjobs.Queue()


@q.kind("mail")
async def mail(value: Mail) -> None: ...


@q.kind("tick")
async def tick() -> None: ...


@asynccontextmanager
async def stateless(_app: FastAPI) -> AsyncGenerator[None]:
    yield


@asynccontextmanager
async def stateful(_app: FastAPI) -> AsyncGenerator[Mapping[str, Any]]:
    yield {}


@asynccontextmanager
async def stateful_dict(_app: FastAPI) -> AsyncGenerator[dict[str, int]]:
    yield {}


@asynccontextmanager
async def typed_state(_app: FastAPI) -> AsyncGenerator[State]:
    yield {"engine": 1}


@asynccontextmanager
async def for_starlette(_app: Starlette) -> AsyncGenerator[None]:
    yield


@asynccontextmanager
async def numbers(_app: FastAPI) -> AsyncGenerator[int]:
    yield 1


def test_the_types_are_what_they_are_said_to_be() -> None:
    assert_type(fastjobs.lifespan(q), Stateless)
    assert_type(fastjobs.lifespan(q, within=stateless), Stateless)
    assert_type(fastjobs.lifespan(q, within=stateful), Stateful)
    assert_type(fastjobs.lifespan(q, within=stateful_dict), Stateful)
    assert_type(fastjobs.lifespan(q, within=typed_state), Stateful)
    assert_type(mail, fastjobs.Kind[Mail])
    assert_type(tick, fastjobs.Kind[None])


def test_apps_take_every_form_of_it() -> None:
    FastAPI(lifespan=fastjobs.lifespan(q))
    FastAPI(lifespan=fastjobs.lifespan(q, run=False, on_crash="log"))
    FastAPI(lifespan=fastjobs.lifespan(q, store=fastjobs.Memory(), on_crash=print))
    FastAPI(lifespan=fastjobs.lifespan(q, fastjobs.Queue()))
    FastAPI(lifespan=fastjobs.lifespan(q, within=stateless))
    FastAPI(lifespan=fastjobs.lifespan(q, within=stateful))
    FastAPI(lifespan=fastjobs.lifespan(q, within=stateful_dict))
    FastAPI(lifespan=fastjobs.lifespan(q, within=typed_state))
    APIRouter(lifespan=fastjobs.lifespan(q))
    Starlette(lifespan=fastjobs.lifespan(q))
    Starlette(lifespan=fastjobs.lifespan(q, within=for_starlette))
    FastAPI().add_middleware(fastjobs.RequestIDMiddleware)
    FastAPI().add_middleware(fastjobs.RequestIDMiddleware, header="X-Correlation-ID", trust=False)
    fastjobs.RequestIDMiddleware(FastAPI())


def refused() -> None:
    fastjobs.lifespan(FastAPI())  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    fastjobs.lifespan(q, within=numbers)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
    fastjobs.lifespan(q, on_crash="restart")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    fastjobs.lifespan(q, stateless)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    FastAPI().add_middleware(fastjobs.RequestIDMiddleware, heeder="x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def get_tx() -> AsyncGenerator[AsyncSession]:
    yield AsyncSession()


Tx = Annotated[AsyncSession, Depends(get_tx, scope="function")]
jobs_in_tx = fastjobs.jobs_in_tx(q, Tx)


async def route(jobs: Annotated[fastjobs.InTx, Depends(jobs_in_tx)]) -> None:
    assert_type(jobs(mail), AsyncPush[Mail])
    assert_type(await jobs(mail).push(Mail(user=1)), str | None)
    assert_type(await jobs(mail).push_many([Mail(user=1)]), list[str | None])
    await jobs(tick).push()
    await jobs(mail).push("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await jobs(mail).push()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def sync_route(jobs: Annotated[fastjobs.SyncInTx, Depends(jobs_in_tx)]) -> None:
    assert_type(jobs(mail), SyncPush[Mail])
    assert_type(jobs(mail).push(Mail(user=1)), str | None)
    jobs(tick).push()


def sessions(sync: sqlmodel.Session, asynced: SQLModelAsyncSession) -> None:
    assert_type(mail.in_(sync), SyncPush[Mail])
    assert_type(mail.in_(asynced), AsyncPush[Mail])

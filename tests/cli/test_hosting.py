"""An app's lifespan without a server: it's started, held and shut down, and says so where it can't be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from fastjobs.cli.hosting import LifespanFailed, lifespan_of

pytestmark = pytest.mark.anyio


def app(told: list[str], *, up: Exception | None = None, down: Exception | None = None) -> Starlette:
    @asynccontextmanager
    async def own(_app: object) -> AsyncGenerator[None]:
        told.append("up")
        if up is not None:
            raise up
        yield
        told.append("down")
        if down is not None:
            raise down

    return Starlette(lifespan=own)


async def test_an_apps_lifespan_is_entered_and_left() -> None:
    told: list[str] = []
    before = asyncio.all_tasks()
    async with lifespan_of(app(told)):
        told.append("held")
    assert told == ["up", "held", "down"]
    assert asyncio.all_tasks() == before


async def test_it_is_left_also_where_its_user_raises_or_is_cancelled() -> None:
    told: list[str] = []
    with pytest.raises(ValueError, match="mine"):
        async with lifespan_of(app(told)):
            raise ValueError("mine")

    async def held() -> None:
        async with lifespan_of(app(told)):
            told.append("held")
            await asyncio.Event().wait()

    holding = asyncio.create_task(held())
    while told[-1] != "held":
        await asyncio.sleep(0)
    holding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await holding
    assert told == ["up", "down", "up", "held", "down"]


async def test_an_app_that_fails_as_it_starts_says_why_and_is_never_entered() -> None:
    told: list[str] = []
    with pytest.raises(LifespanFailed, match="startup: OSError: no database") as raised:
        async with lifespan_of(app(told, up=OSError("no database"))):
            told.append("held")
    assert isinstance(raised.value.__cause__, OSError)
    assert told == ["up"]


async def test_an_app_that_fails_as_it_stops_says_why() -> None:
    with pytest.raises(LifespanFailed, match="shutdown: OSError: gone"):
        async with lifespan_of(app([], down=OSError("gone"))):
            pass


async def test_an_app_that_knows_no_lifespan_says_so() -> None:
    async def ends(scope: Scope, receive: Receive, send: Send) -> None: ...

    async def refuses(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"

    for each, why in ((ends, "it has no lifespan"), (refuses, "it raised")):
        with pytest.raises(LifespanFailed, match=f"startup: {why}"):
            async with lifespan_of(each):
                pytest.fail("it was entered")


async def test_an_app_that_stands_still_as_it_starts_is_let_go_with_its_user() -> None:
    left: list[Any] = []

    async def stands(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            left.append(True)

    async def held() -> None:
        async with lifespan_of(stands):
            pytest.fail("it was entered")

    holding = asyncio.create_task(held())
    for _ in range(5):
        await asyncio.sleep(0)
    holding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await holding
    assert left == [True]

"""One test database for all tests, made once: each test is a transaction in it that's rolled back at its end."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import fastjobs
from fastjobs.testing import fixtures

from . import main

jobs = fixtures.jobs(main.q, autouse=True)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"  # one event loop for all tests, as the engine is theirs together


@pytest.fixture(scope="session")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[AsyncEngine]:
    file: Path = tmp_path_factory.mktemp("club") / "test.db"
    engine = create_async_engine(f"sqlite+aiosqlite:///{file}")  # or the URL of your test server
    fastjobs.sqlite.configure(engine)  # without it, SQLite keeps what a savepoint released
    async with engine.begin() as connection:
        await connection.run_sync(main.Base.metadata.create_all)
    yield engine
    await engine.dispose()


@pytest.fixture(autouse=True)
async def rolled_back(engine: AsyncEngine) -> AsyncGenerator[None]:
    async with engine.connect() as connection:
        around = await connection.begin()
        for each in (main.sessions, main.reading):  # for routes, handlers and the test
            each.configure(bind=connection, join_transaction_mode="create_savepoint")
        yield
        await around.rollback()

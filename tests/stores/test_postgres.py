"""SQLStore on Postgres keeps every promise of the suite.

The whole suite runs over asyncpg. What a driver can change runs over psycopg's two as well: the claims, the
transactions, what is heard of others, the opening and closing, and what is looked at and done from outside.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import ClassVar

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from fastjobs.store import Store
from fastjobs.stores.sql.store import SQLStore
from fastjobs.testing import Clock, StoreSuite
from fastjobs.testing.suite.cancel import Cancels
from fastjobs.testing.suite.claiming import Claiming
from fastjobs.testing.suite.counts import Counts
from fastjobs.testing.suite.failed import Failed
from fastjobs.testing.suite.lifecycle import Lifecycle
from fastjobs.testing.suite.listening import Listening
from fastjobs.testing.suite.looks_in_transactions import LooksInTransactions
from fastjobs.testing.suite.pause import Pause
from fastjobs.testing.suite.progress import Progress
from fastjobs.testing.suite.prune import Prune
from fastjobs.testing.suite.pushing import Pushing
from fastjobs.testing.suite.schedules import Schedules
from fastjobs.testing.suite.stops import Stops
from fastjobs.testing.suite.subject import Subject
from fastjobs.testing.suite.transactions import FewerWays, Transactions
from tests.databases.postgres import Database


@pytest.fixture(scope="module")
def made(postgres_module_database: Database) -> Database:
    """A database with the tables in it: to make them takes longer than most tests do."""

    async def make() -> None:
        store = SQLStore(create_async_engine(postgres_module_database.url("asyncpg"), poolclass=NullPool))
        await store.open()
        await store.close()

    asyncio.run(make())
    return postgres_module_database


class _OnPostgres(Subject):
    driver: ClassVar[str]
    """Of the app's async engine; the sync one has psycopg."""
    is_async: ClassVar[bool]
    """Whether the store has the app's async engine."""

    @pytest.fixture
    def database(self, made: Database) -> Database:
        made.clear(keep=["fastjobs_schema"])
        return made

    @pytest.fixture
    def engine(self, database: Database) -> Iterator[Engine]:
        engine = create_engine(database.url("psycopg"))
        yield engine
        engine.dispose()

    @pytest.fixture
    async def async_engine(self, database: Database) -> AsyncIterator[AsyncEngine]:
        engine = create_async_engine(database.url(self.driver))
        yield engine
        await engine.dispose()

    @pytest.fixture
    async def store(self, clock: Clock, engine: Engine, async_engine: AsyncEngine) -> AsyncIterator[SQLStore]:
        store = SQLStore(async_engine if self.is_async else engine, clock=clock)
        yield store
        await store.close()

    @pytest.fixture
    async def other(
        self, clock: Clock, engine: Engine, async_engine: AsyncEngine, store: SQLStore
    ) -> AsyncIterator[SQLStore]:
        other = SQLStore(async_engine if self.is_async else engine, clock=clock)
        yield other
        await other.close()

    @pytest.fixture(autouse=True)
    def _database(self, database: Database) -> None:
        self._looked_at = database

    async def writes(self, store: Store) -> int | None:
        """Whoever changes a row, or locks one, leaves the number of its transaction in it."""
        ((found,),) = self._looked_at.execute(
            "SELECT hashtext(coalesce(string_agg(row, ' ' ORDER BY row), '')) FROM ("
            " SELECT ctid::text || xmin::text || xmax::text AS row FROM fastjobs_jobs UNION ALL"
            " SELECT ctid::text || xmin::text || xmax::text AS row FROM fastjobs_kinds) AS rows"
        )
        return int(found)


class TestPostgres(_OnPostgres, StoreSuite):
    driver, is_async = "asyncpg", True


class _Acting(Failed, Counts, Cancels, Stops, Pause, Progress, Prune):
    """What is looked at and done from outside."""


class TestPostgresByPsycopg(
    _OnPostgres,
    FewerWays,
    Pushing,
    Claiming,
    Schedules,
    _Acting,
    LooksInTransactions,
    Transactions,
    Listening,
    Lifecycle,
):
    driver, is_async = "psycopg", True


class TestPostgresByPsycopgInThreads(
    _OnPostgres, Pushing, Claiming, Schedules, _Acting, Listening, Lifecycle
):
    driver, is_async = "psycopg", False


class TestPostgresTransactionsOverASyncEngine(_OnPostgres, FewerWays, Transactions):
    driver, is_async = "asyncpg", False

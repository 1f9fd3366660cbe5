"""SQLStore on MariaDB and MySQL keeps every promise of the suite.

The whole suite runs on both over asyncmy. What a driver can change runs over aiomysql and PyMySQL as well, on MariaDB.
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
from fastjobs.testing.suite.claiming import Claiming
from fastjobs.testing.suite.keys_in_transactions import KeysInTransactions
from fastjobs.testing.suite.lifecycle import Lifecycle
from fastjobs.testing.suite.pushing import Pushing
from fastjobs.testing.suite.schedules import Schedules
from fastjobs.testing.suite.subject import Subject
from fastjobs.testing.suite.transactions import Transactions
from tests.databases.mysql import Database, Server

_WROTE = ("Innodb_rows_inserted", "Innodb_rows_updated", "Innodb_rows_deleted")


def _made_on(server: Server) -> Iterator[Database]:
    database = server.create_database()

    async def make() -> None:
        store = SQLStore(create_async_engine(database.url("asyncmy"), poolclass=NullPool))
        await store.open()
        await store.close()

    asyncio.run(make())
    yield database
    database.drop()


@pytest.fixture(scope="module")
def on_mariadb(mariadb: Server) -> Iterator[Database]:
    """A database with the tables in it: to make them takes longer than most tests do."""
    yield from _made_on(mariadb)


@pytest.fixture(scope="module")
def on_mysql(mysql: Server) -> Iterator[Database]:
    """The same on MySQL."""
    yield from _made_on(mysql)


class _OnMySQL(Subject):
    driver: ClassVar[str]
    """Of the app's async engine; the sync one has PyMySQL."""
    is_async: ClassVar[bool]
    """Whether the store has the app's async engine."""

    @pytest.fixture
    def database(self, made: Database) -> Database:
        made.clear(keep=["fastjobs_schema"])
        return made

    @pytest.fixture
    def engine(self, database: Database) -> Iterator[Engine]:
        engine = create_engine(database.url("pymysql"))
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
        """How many rows the server has inserted, updated and deleted; no other test has it meanwhile."""
        names = ", ".join(f"'{name}'" for name in _WROTE)
        found = self._looked_at.execute(f"SHOW GLOBAL STATUS WHERE Variable_name IN ({names})")
        return sum(int(number) for _, number in found)


class _OnMariaDB(_OnMySQL):
    @pytest.fixture
    def made(self, on_mariadb: Database) -> Database:
        return on_mariadb


class TestMariaDB(_OnMariaDB, StoreSuite):
    driver, is_async = "asyncmy", True


class TestMySQL(_OnMySQL, StoreSuite):
    driver, is_async = "asyncmy", True

    @pytest.fixture
    def made(self, on_mysql: Database) -> Database:
        return on_mysql


class _Changed(Pushing, Claiming, Schedules, Transactions, KeysInTransactions, Lifecycle):
    """What a driver can change."""


class TestMariaDBByAiomysql(_OnMariaDB, _Changed):
    driver, is_async = "aiomysql", True


class TestMariaDBByPyMySQLInThreads(_OnMariaDB, Pushing, Claiming, Schedules, KeysInTransactions, Lifecycle):
    driver, is_async = "asyncmy", False

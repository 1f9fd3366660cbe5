"""SQLStore on SQLite keeps every promise of the suite.

The whole suite runs on one make-up, an async engine that is configured. What another make-up can change runs on the
others: the transactions on engines as they come and on those that begin at a write, and the writer's thread over a
sync engine.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

import fastjobs.sqlite
from fastjobs.store import Store
from fastjobs.stores.sql.store import SQLStore
from fastjobs.testing import Clock, StoreSuite
from fastjobs.testing.suite.claiming import Claiming
from fastjobs.testing.suite.done_in import DoneIn
from fastjobs.testing.suite.keys_in_transactions import KeysInTransactions
from fastjobs.testing.suite.lifecycle import Lifecycle
from fastjobs.testing.suite.listening import Listening
from fastjobs.testing.suite.subject import Subject
from fastjobs.testing.suite.transactions import FewerWays, Transactions


def _fast(engine: Engine) -> None:
    # The suite makes a file a test; what a power cut does to it is nothing that it looks at.
    def no_sync(connection: Any, _: object) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA synchronous = OFF")
        cursor.close()

    event.listen(engine, "connect", no_sync)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the tables in it: to make them takes longer than most tests do."""
    path = tmp_path_factory.mktemp("made") / "made.db"

    async def make() -> None:
        store = SQLStore(create_engine(f"sqlite:///{path}", poolclass=NullPool))
        await store.open()
        await store.close()

    asyncio.run(make())
    return path


class _OnSQLite(Subject):
    configured: ClassVar[bool]
    begin: ClassVar[Literal["immediate", "write"]] = "immediate"
    is_async: ClassVar[bool]
    """Whether the store has the app's async engine."""

    @pytest.fixture
    def path(self, tmp_path: Path, made: Path) -> Path:
        return Path(shutil.copy(made, tmp_path / "app.db"))

    @pytest.fixture
    def engine(self, path: Path) -> Iterator[Engine]:
        engine = create_engine(f"sqlite:///{path}")
        _fast(engine)
        if self.configured:
            fastjobs.sqlite.configure(engine, begin=self.begin)
        yield engine
        engine.dispose()

    @pytest.fixture
    async def async_engine(self, path: Path) -> AsyncIterator[AsyncEngine]:
        engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
        _fast(engine.sync_engine)
        if self.configured:
            fastjobs.sqlite.configure(engine, begin=self.begin)
        yield engine
        await engine.dispose()

    @pytest.fixture
    async def store(
        self, clock: Clock, path: Path, engine: Engine, async_engine: AsyncEngine
    ) -> AsyncIterator[SQLStore]:
        store = SQLStore(async_engine if self.is_async else engine, clock=clock, synchronous="NORMAL")
        yield store
        await store.close()

    @pytest.fixture
    async def other(self, clock: Clock, engine: Engine, store: SQLStore) -> AsyncIterator[SQLStore]:
        other = SQLStore(engine, clock=clock, synchronous="NORMAL")
        yield other
        await other.close()

    async def writes(self, store: Store) -> int | None:
        """All that is written goes to the file's log."""
        assert isinstance(store, SQLStore)
        found = os.stat(f"{store._engine.url.database}-wal")
        return hash((found.st_size, found.st_mtime_ns))


class TestSQLite(_OnSQLite, StoreSuite):
    configured, is_async = True, True


class TestSQLiteAsItComes(_OnSQLite, FewerWays, Transactions, KeysInTransactions, DoneIn):
    configured, is_async = False, False


class TestSQLiteThatBeginsAtWrites(_OnSQLite, FewerWays, Transactions, KeysInTransactions, DoneIn):
    configured, is_async = True, True
    begin = "write"


class TestSQLiteOverASyncEngine(_OnSQLite, Claiming, Lifecycle, Listening):
    configured, is_async = True, False

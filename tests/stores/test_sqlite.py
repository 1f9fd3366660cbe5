"""SQLStore on SQLite keeps every promise of the suite, over sync and async engines, configured or not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import fastjobs.sqlite
from fastjobs.stores.sql.store import SQLStore
from fastjobs.testing import Clock, StoreSuite


class _OnSQLite(StoreSuite):
    configured: ClassVar[bool]
    over: ClassVar[str]
    """Whether the store has the app's sync engine or its async one."""

    @pytest.fixture
    def engine(self, tmp_path: Path) -> Iterator[Engine]:
        engine = create_engine(f"sqlite:///{tmp_path}/app.db")
        if self.configured:
            fastjobs.sqlite.configure(engine)
        yield engine
        engine.dispose()

    @pytest.fixture
    async def async_engine(self, tmp_path: Path) -> AsyncIterator[AsyncEngine]:
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/app.db")
        if self.configured:
            fastjobs.sqlite.configure(engine)
        yield engine
        await engine.dispose()

    @pytest.fixture
    async def store(
        self, clock: Clock, engine: Engine, async_engine: AsyncEngine
    ) -> AsyncIterator[SQLStore]:
        store = SQLStore(engine if self.over == "sync" else async_engine, clock=clock)
        yield store
        await store.close()


class TestSQLiteConfigured(_OnSQLite):
    configured, over = True, "sync"


class TestSQLiteConfiguredAsync(_OnSQLite):
    configured, over = True, "async"


class TestSQLiteAsItComes(_OnSQLite):
    configured, over = False, "sync"


class TestSQLiteAsItComesAsync(_OnSQLite):
    configured, over = False, "async"

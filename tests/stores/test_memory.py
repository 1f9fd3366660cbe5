"""Memory keeps every promise of the suite, in an app whose own database is SQLite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from fastjobs.stores.memory import Memory
from fastjobs.testing import Clock, StoreSuite


class TestMemory(StoreSuite):
    histories = 200

    @pytest.fixture
    async def store(self, clock: Clock) -> Memory:
        return Memory(clock=clock)

    @pytest.fixture
    async def other(self, store: Memory) -> Memory:
        return store

    @pytest.fixture
    def engine(self, tmp_path: Path) -> Iterator[Engine]:
        engine = create_engine(f"sqlite:///{tmp_path}/app.db")
        yield engine
        engine.dispose()

    @pytest.fixture
    async def async_engine(self, tmp_path: Path) -> AsyncIterator[AsyncEngine]:
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/app.db")
        yield engine
        await engine.dispose()

"""The database's file: who may read it, where it can't be, its tables' versions, and what happens when it goes."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

import fastjobs.sqlite
from fastjobs.core.claiming import Claimable
from fastjobs.core.errors import StoreError
from fastjobs.core.job import NewJob
from fastjobs.stores.sql import migrations
from fastjobs.stores.sql.dialects.sqlite import files
from fastjobs.stores.sql.store import SQLStore
from fastjobs.stores.sql.tables import Tables

pytestmark = pytest.mark.anyio

MAIL = Claimable(kind="mail", hold=60_000_000, attempts=5)
JOB = NewJob(kind="mail", payload="1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(path: Path) -> dict[str, int]:
    return {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}


@pytest.mark.usefixtures("no_umask")
async def test_nobody_else_can_read_the_files_that_the_store_makes(path: Path) -> None:
    store = SQLStore(create_async_engine(f"sqlite+aiosqlite:///{path}"))
    await store.push([JOB])
    assert modes(path) == {"app.db": 0o600, "app.db-wal": 0o600, "app.db-shm": 0o600}
    await store.close()


@pytest.mark.usefixtures("no_umask")
async def test_nobody_else_can_read_the_files_that_a_configured_engine_makes(path: Path) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    fastjobs.sqlite.configure(engine)
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE t (n INT)"))
        assert modes(path) == {"app.db": 0o600, "app.db-wal": 0o600, "app.db-shm": 0o600}
    await engine.dispose()


async def test_a_file_that_is_there_keeps_its_mode(path: Path) -> None:
    path.touch(0o640)
    store = SQLStore(create_engine(f"sqlite:///{path}"))
    await store.push([JOB])
    assert modes(path)["app.db"] == 0o640
    await store.close()


async def test_a_link_to_nothing_is_refused(path: Path) -> None:
    path.symlink_to(path.parent / "elsewhere.db")
    store = SQLStore(create_engine(f"sqlite:///{path}"))
    with pytest.raises(StoreError, match="symbolic link to a file that isn't there"):
        await store.open()
    assert not (path.parent / "elsewhere.db").exists()


async def test_a_folder_that_anyone_may_write_to_is_warned_of_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.chmod(0o777)
    for name in ("a.db", "b.db"):
        store = SQLStore(create_engine(f"sqlite:///{path.parent}/{name}"))
        await store.open()
        await store.close()
    assert sum("anyone may write to the folder" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///:memory:",
        "sqlite+aiosqlite:///:memory:",
        "sqlite:///file::memory:?cache=shared&uri=true",
        "sqlite:///file:name?mode=memory&cache=shared&uri=true",
    ],
)
@pytest.mark.filterwarnings("ignore:Selection of the")
def test_a_database_that_says_it_is_in_memory_is_refused_at_once(url: str) -> None:
    engine = create_async_engine(url) if "aiosqlite" in url else create_engine(url)
    with pytest.raises(StoreError, match=r"fastjobs\.Memory"):
        SQLStore(engine)


@pytest.mark.parametrize("url", ["sqlite://", "sqlite+aiosqlite://", "sqlite:///"])
async def test_a_database_without_a_path_is_refused_as_it_is_opened(url: str) -> None:
    store = SQLStore(create_async_engine(url) if "aiosqlite" in url else create_engine(url))
    with pytest.raises(StoreError, match=r"fastjobs\.Memory"):
        await store.open()
    with pytest.raises(StoreError, match=r"fastjobs\.Memory"):
        await store.push([JOB])


async def test_a_file_by_a_creator_of_the_app_s_own_is_found(path: Path) -> None:
    engine = create_engine("sqlite://", creator=lambda: sqlite3.connect(path, check_same_thread=False))
    store = SQLStore(engine)
    assert await store.push([JOB]) == ["1"]
    await store.close()
    assert path.exists()
    engine.dispose()


async def test_a_connection_that_is_bound_to_its_thread_is_told_clearly(path: Path) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}", connect_args={"check_same_thread": True})
    store = SQLStore(engine)
    with pytest.raises(StoreError, match="check_same_thread"):
        await store.open()


async def test_a_schema_is_refused(path: Path) -> None:
    with pytest.raises(StoreError, match="SQLite has no schemas"):
        SQLStore(create_engine(f"sqlite:///{path}"), schema="jobs")


async def test_a_folder_that_is_not_there_is_the_database_s_own_error(path: Path) -> None:
    store = SQLStore(create_engine(f"sqlite:///{path.parent}/none/app.db"))
    told = f"unable to open database file: {path.parent}/none/app.db: there is no folder {path.parent}/none"
    for _ in range(2):
        with pytest.raises(sqlite3.OperationalError, match=f"^{re.escape(told)}$"):
            await store.open()
    (path.parent / "none").mkdir()
    assert await store.push([JOB]) == ["1"]
    await store.close()


async def test_a_file_that_is_no_database_is_the_database_s_own_error(path: Path) -> None:
    path.write_bytes(b"no database at all" * 100)
    store = SQLStore(create_engine(f"sqlite:///{path}"))
    with pytest.raises(sqlite3.DatabaseError, match="file is not a database"):
        await store.open()


# Versions


async def test_the_tables_are_made_once_and_it_is_logged(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fastjobs")
    for _ in range(2):
        store = SQLStore(create_engine(f"sqlite:///{path}"))
        await store.open()
        await store.close()
    assert [record.getMessage() for record in caplog.records] == ["made the tables fastjobs_*, version 1"]


async def test_without_migrate_missing_tables_are_an_error_that_says_what_to_do(path: Path) -> None:
    store = SQLStore(create_engine(f"sqlite:///{path}"), migrate=False)
    with pytest.raises(StoreError, match="migrate=True"):
        await store.open()
    maker = SQLStore(create_engine(f"sqlite:///{path}"))
    await maker.open()
    await maker.close()
    await store.open()
    assert await store.push([JOB]) == ["1"]
    await store.close()


async def test_older_tables_are_upgraded_step_by_step_and_newer_ones_left(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fastjobs")
    engine = create_engine(f"sqlite:///{path}")
    old = SQLStore(engine)
    await old.push([JOB])
    await old.close()

    def add(column: str) -> migrations.Step:
        def step(connection: Connection, tables: Tables) -> None:
            connection.execute(text(f"ALTER TABLE {tables.jobs.name} ADD COLUMN {column} INTEGER"))

        return step

    with monkeypatch.context() as patch:
        patch.setattr(migrations, "STEPS", {2: add("two"), 3: add("three")})
        kept_out = SQLStore(engine, migrate=False)
        with pytest.raises(StoreError, match="tables of version 1, and this fastjobs needs version 3"):
            await kept_out.open()
        new = SQLStore(engine)
        await new.open()
        await new.close()
    with engine.connect() as connection:
        assert connection.execute(text("SELECT id, two, three FROM fastjobs_jobs")).fetchall() == [
            (1, None, None)
        ]
        assert connection.scalar(text("SELECT version FROM fastjobs_schema")) == 3
    caplog.clear()
    assert len((await old.claim([MAIL], 1)).jobs) == 1
    await old.close()
    assert not caplog.records
    engine.dispose()


async def test_an_upgrade_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = create_engine(f"sqlite:///{path}")
    store = SQLStore(engine)
    await store.push([JOB])
    await store.close()

    def half(connection: Connection, tables: Tables) -> None:
        connection.execute(text(f"ALTER TABLE {tables.jobs.name} ADD COLUMN half INTEGER"))
        raise RuntimeError("killed in the middle")

    with monkeypatch.context() as patch:
        patch.setattr(migrations, "STEPS", {2: half})
        with pytest.raises(RuntimeError, match="killed in the middle"):
            await store.open()
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT version FROM fastjobs_schema")) == 1
        columns = list(connection.execute(text("SELECT * FROM fastjobs_jobs")).keys())
        assert "half" not in columns
    assert len((await store.claim([MAIL], 1)).jobs) == 1
    await store.close()
    engine.dispose()


# What happens to an open file


async def test_a_file_that_was_removed_is_told_and_opened_anew(path: Path) -> None:
    store = SQLStore(create_engine(f"sqlite:///{path}"))
    await store.push([JOB])
    for each in path.parent.iterdir():
        each.unlink()
    with pytest.raises(sqlite3.OperationalError, match="was moved or removed"):
        await store.push([JOB])
    assert await store.push([JOB]) == ["1"]
    assert len((await store.claim([MAIL], 5)).jobs) == 1
    await store.close()


async def test_a_full_disk_fails_the_push_and_nothing_else(path: Path) -> None:
    store = SQLStore(create_engine(f"sqlite:///{path}"))
    await store.push([JOB])
    raw = _raw(store)
    raw.execute(f"PRAGMA max_page_count = {raw.execute('PRAGMA page_count').fetchone()[0]}")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        await store.push([NewJob(kind="mail", payload="x" * 500_000)])
    assert len((await store.claim([MAIL], 5)).jobs) == 1
    raw.execute("PRAGMA max_page_count = 100000")
    assert len(await store.push([NewJob(kind="mail", payload="x" * 500_000)])) == 1
    assert len((await store.claim([MAIL], 5)).jobs) == 1
    await store.close()


def _raw(store: SQLStore) -> Any:
    database: Any = store._database
    return database._running().opened.result().raw


async def test_an_open_that_is_cancelled_leaves_the_others_and_the_store_well(path: Path) -> None:
    store = SQLStore(create_async_engine(f"sqlite+aiosqlite:///{path}"))
    opens = [asyncio.create_task(store.open()) for _ in range(3)]
    await asyncio.sleep(0)
    opens[1].cancel()
    results = await asyncio.gather(*opens, return_exceptions=True)
    assert [type(result) for result in results] == [type(None), asyncio.CancelledError, type(None)]
    assert await store.push([JOB]) == ["1"]
    await store.close()
    await store.close()


def test_a_key_tells_files_apart_and_not_paths(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    a, b, link = (files.file_key(str(tmp_path / name)) for name in ("a", "b", "link"))
    assert a == link
    assert a != b
    assert files.file_key(str(tmp_path / "none")) is None

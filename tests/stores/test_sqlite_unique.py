"""Keys and names on SQLite beyond the suite: the same rows by whichever way they're pushed, and a driver's own
connection."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import aiosqlite
import pytest
from sqlalchemy import create_engine, text

import fastjobs
from fastjobs.core.claiming import Claimable
from fastjobs.core.job import Job, NewJob
from fastjobs.core.marks import Done, Extend, Kept, TryAgain
from fastjobs.stores.sql.store import SQLStore
from fastjobs.testing import Clock

pytestmark = pytest.mark.anyio

SECOND = 1_000_000
MAIL = Claimable(kind="mail", hold=60 * SECOND, attempts=5)
KEY, OTHER = b"k" * 32, b"o" * 32


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


@pytest.fixture
async def store(clock: Clock, path: Path) -> AsyncIterator[SQLStore]:
    store = SQLStore(create_engine(f"sqlite:///{path}"), clock=clock, synchronous="NORMAL")
    await store.open(["mail"])
    yield store
    await store.close()


def keyed(payload: str, key: bytes = KEY, *, after: int = 0, latest: bool = False) -> NewJob:
    return NewJob(kind="mail", payload=payload, key=key, after=after, latest=latest, one_at_a_time=True)


def named(payload: str, name: str = "n") -> NewJob:
    return NewJob(kind="mail", payload=payload, name=name, keep_name=60 * SECOND)


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def push_in(store: SQLStore, tx: object, jobs: list[NewJob]) -> list[str | None]:
    ids = store.within(tx, lambda: None).push(jobs)
    assert isinstance(ids, list)
    return ids


def end_in(store: SQLStore, tx: object, job: Job) -> bool:
    was_held = store.done_within(tx, job).done()
    assert isinstance(was_held, bool)
    return was_held


JOBS = [
    NewJob(kind="mail", payload="1", carried='{"a":"b"}'),
    NewJob(kind="mail", payload="2", key=KEY, after=SECOND),
    NewJob(kind="mail", payload="3", key=KEY),
    NewJob(kind="mail", payload="4", key=KEY, latest=True, at_most=3 * SECOND, after=9 * SECOND),
    NewJob(kind="photo", payload="5", key=KEY, one_at_a_time=True, name="n", keep_name=7),
    NewJob(kind="mail", payload="6", key=OTHER, name="n"),
    NewJob(kind="mail", payload="7", key=OTHER, latest=True, name="m", carried="{}"),
]


async def test_every_way_to_push_keys_and_names_leaves_the_same_rows(tmp_path: Path, clock: Clock) -> None:
    found: list[tuple[list[int | None], list[tuple[object, ...]]]] = []
    for way in ("store", "sqlalchemy", "sqlite3", "aiosqlite"):
        path = tmp_path / f"{way}.db"
        engine = create_engine(f"sqlite:///{path}")
        store = SQLStore(engine, clock=clock, synchronous="NORMAL")
        await store.open()
        match way:
            case "store":
                ids = await store.push(JOBS)
            case "sqlalchemy":
                with engine.begin() as connection:
                    ids = push_in(store, connection, JOBS)
            case "sqlite3":
                raw = sqlite3.connect(path)
                with raw:
                    raw.execute("BEGIN IMMEDIATE")
                    ids = push_in(store, fastjobs.raw(raw), JOBS)
                raw.close()
            case _:
                async with aiosqlite.connect(path) as driver:
                    await driver.execute("BEGIN IMMEDIATE")
                    pushed = store.within(fastjobs.raw(driver), lambda: None).push(JOBS)
                    assert not isinstance(pushed, list)
                    ids = await pushed
                    await driver.commit()
        await store.close()
        engine.dispose()
        first = min(int(id) for id in ids if id is not None)
        numbers = [None if id is None else int(id) - first for id in ids]
        found.append((numbers, rows(path, "SELECT * FROM fastjobs_jobs ORDER BY id")))
    numbers, kept = found[0]
    assert [number is None for number in numbers] == [False, False, True, False, False, True, False]
    assert numbers[3] == numbers[1]
    assert len(kept) == 4
    for other, theirs in found[1:]:
        assert other == numbers
        assert [row[1:] for row in theirs] == [row[1:] for row in kept]


async def test_a_push_that_pushes_nothing_leaves_the_apps_transaction_as_it_was(
    store: SQLStore, path: Path
) -> None:
    await store.push([keyed("1"), named("2")])
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id INTEGER)"))
        assert push_in(store, connection, [keyed("3"), named("4"), keyed("5", OTHER)])[:2] == [None, None]
        connection.execute(text("INSERT INTO orders VALUES (1)"))
    engine.dispose()
    assert rows(path, "SELECT id FROM orders") == [(1,)]
    assert [job.payload for job in (await store.claim([MAIL], 9)).jobs] == ["1", "2", "5"]


async def test_a_key_goes_with_its_savepoint(store: SQLStore, path: Path) -> None:
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        assert push_in(store, connection, [keyed("0", OTHER)]) != [None]
        nested = connection.begin_nested()
        assert None not in push_in(store, connection, [keyed("1"), named("2")])
        assert push_in(store, connection, [keyed("3"), named("4")]) == [None, None]
        nested.rollback()
        assert None not in push_in(store, connection, [keyed("5"), named("6")])
    engine.dispose()
    assert [job.payload for job in (await store.claim([MAIL], 9)).jobs] == ["0", "5", "6"]


@pytest.mark.parametrize("factory", [str, bytes], ids=["text", "bytes"])
async def test_a_job_done_on_a_drivers_connection_frees_its_name_and_wakes_the_next_of_its_key(
    store: SQLStore, path: Path, clock: Clock, factory: type
) -> None:
    await store.push([keyed("1")._replace(name="n", keep_name=60 * SECOND)])
    (job,) = (await store.claim([MAIL], 9)).jobs
    await store.push([keyed("2")])
    assert (await store.claim([MAIL], 9)).jobs == []
    connection = sqlite3.connect(path)
    connection.text_factory = factory
    connection.execute("BEGIN IMMEDIATE")
    assert end_in(store, fastjobs.raw(connection), job)
    connection.rollback()
    assert (await store.claim([MAIL], 9)).jobs == []
    connection.execute("BEGIN IMMEDIATE")
    assert end_in(store, fastjobs.raw(connection), job)
    assert not end_in(store, fastjobs.raw(connection), job)
    connection.commit()
    connection.close()
    assert rows(path, "SELECT name, until FROM fastjobs_names") == [("n", clock.now() + 60 * SECOND)]
    assert [job.payload for job in (await store.claim([MAIL], 9)).jobs] == ["2"]
    assert await store.push([named("3")]) == [None]
    clock.advance(60)
    assert await store.push([named("3")]) != [None]


async def test_a_late_mark_of_a_job_that_waits_for_its_key_is_kept(store: SQLStore, clock: Clock) -> None:
    """Its hold ran out, another of its key was claimed, and it was put aside: no later claim has taken it."""
    await store.push([keyed("1")])
    (late,) = (await store.claim([MAIL], 9)).jobs
    clock.advance(30)
    await store.push([keyed("2")._replace(at=0)])
    assert (await store.claim([MAIL], 9)).jobs == []
    clock.advance(31)
    (second,) = (await store.claim([MAIL], 9)).jobs
    assert second.payload == "2"
    assert await store.mark([Extend(late.id, late.claim, SECOND), Done(late.id, late.claim)]) == [
        Kept.LOST,
        Kept.YES,
    ]
    assert await store.mark([Done(second.id, second.claim)]) == [Kept.YES]
    assert await store.sweep() == 0


async def test_a_latest_push_that_moves_the_next_of_a_key_lets_another_go_first(
    store: SQLStore, clock: Clock
) -> None:
    """Rows of one key: the one that waits with it, and one that was tried and waits to be tried again."""
    await store.push([keyed("tried")])
    (tried,) = (await store.claim([MAIL], 9)).jobs
    await store.mark([TryAgain(tried.id, tried.claim, 2 * SECOND, "x")])
    await store.push([keyed("runs")])
    (runs,) = (await store.claim([MAIL], 9)).jobs
    await store.push([keyed("next", latest=True)])
    clock.advance(2)
    assert (await store.claim([MAIL], 9)).jobs == []  # both of them wait for their key
    await store.mark([Done(runs.id, runs.claim)])
    assert await store.push([keyed("next", after=3600 * SECOND, latest=True)]) != [None]
    assert [job.payload for job in (await store.claim([MAIL], 9)).jobs] == ["tried"]

"""The guide's statements on Postgres, run as they're printed: what they show of a job, and the rights they give."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from fastjobs import Permanent, Queue, Retry, SQLStore
from fastjobs.store import Claimable
from tests.databases.postgres import Database

pytestmark = pytest.mark.anyio

PAGE = (Path(__file__).parent.parent.parent / "docs" / "guide" / "postgres.md").read_text()
GRANT, WAITS, RUNS, AFTER_AN_ERROR, FAILED, DELETE = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def made(postgres_database: Database) -> Iterator[tuple[SQLStore, Database]]:
    engine = create_engine(postgres_database.url("psycopg"), poolclass=NullPool)
    yield SQLStore(engine), postgres_database
    engine.dispose()


async def test_the_guides_statements_show_each_job_where_it_is(made: tuple[SQLStore, Database]) -> None:
    store, database = made
    queue = Queue(store)

    @queue.kind("mail")
    async def mail(how: str) -> None:
        raise Permanent("no such address") if how == "failed" else Retry("it's down", after=60)

    @queue.kind("report")
    async def report() -> None: ...

    await mail.push("failed")
    await mail.push("tried again")
    assert await queue.drain() == 2
    held = await report.push()
    await store.claim([Claimable(kind="report", hold=60_000_000, attempts=3)], 1)
    await report.push()
    assert [row[:2] for row in database.execute(WAITS)] == [("mail", 1), ("report", 1)]
    assert [(str(row[0]), row[1], row[2]) for row in database.execute(RUNS)] == [(held, "report", 1)]
    # Behind each error is where it was raised.
    ((_, kind, attempts, _, error, *_),) = database.execute(AFTER_AN_ERROR)
    assert (kind, attempts, error.partition(" [")[0]) == ("mail", 1, "Retry: it's down")
    ((_, kind, _, _, error, value, *_),) = database.execute(FAILED)
    assert (kind, error.partition(" [")[0], value) == ("mail", "Permanent: no such address", '"failed"')
    database.execute(DELETE)
    assert [row[:2] for row in database.execute(WAITS)] == [("mail", 1)]
    assert len(database.execute(RUNS)) == 1


async def test_a_role_with_the_rights_that_the_guide_gives_runs_jobs(made: tuple[SQLStore, Database]) -> None:
    store, database = made
    await store.open()
    await store.close()
    database.execute("CREATE ROLE few LOGIN")
    try:
        for statement in GRANT.replace("TO app", "TO few").split(";"):
            if statement.strip():
                database.execute(statement)
        engine = create_engine(database.url("psycopg", user="few"), poolclass=NullPool)
        few = SQLStore(engine, migrate=False)
        queue = Queue(few)
        ran: list[int] = []

        @queue.kind("mail")
        async def mail(number: int) -> None:
            ran.append(number)
            if number == 2:
                raise Permanent("no")

        with engine.begin() as connection:
            mail.in_(connection).push(1)
        await mail.push(2)
        assert await queue.drain() == 2
        (failed,) = await few.failed()
        assert await few.run_again([failed.id]) == [True]
        assert await queue.drain() == 1
        assert await few.delete([failed.id]) == [True]
        assert ran == [1, 2, 2]
        await few.close()
    finally:
        database.execute("DROP OWNED BY few")
        database.execute("DROP ROLE few")

"""Claims, marks and pushes on Postgres read by indexes alone, whatever the statistics say, and no more than they take.

It's counted what each reads among 200,000 jobs that it has nothing to do with: on a connection that planned all of it
while the table was empty and on a new one, with statistics of the empty table and of the full one.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from fastjobs.core.job import NewJob
from fastjobs.core.marks import Done, Extend, Fail, GiveBack, Kept, TryAgain
from fastjobs.stores.sql.tables import make_tables
from tests.databases.postgres import Database, Server
from tests.stores.postgres_link import HOLD, NOW, SECOND, Hot, connect, make, of

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

# What no claim of mail has anything to do with: future ones, those of a kind held back, failed ones, held ones.
_BACKLOG = f"""
INSERT INTO fastjobs_jobs (kind, payload, run_at, state, held_until, failed_at, claim, attempts)
SELECT kind, 'null', run_at + n, state, held_until, failed_at, 1, 1 FROM generate_series(1, 50000) AS n, (VALUES
  ('mail', {NOW + 60 * SECOND}, 0::smallint, 0::bigint, NULL::bigint),
  ('back', {NOW - 600 * SECOND}, 0, 0, NULL),
  ('mail', {NOW - 600 * SECOND}, 3, 0, {NOW}),
  ('mail', {NOW - 600 * SECOND}, 1, {NOW + HOLD}, NULL)
) AS each(kind, run_at, state, held_until, failed_at)
"""
_READ = """
SELECT seq_tup_read, seq_scan, (
  SELECT sum(pg_stat_get_xact_tuples_returned(indexrelid))::bigint FROM pg_index WHERE indrelid = relid
) FROM pg_stat_xact_user_tables WHERE relname = 'fastjobs_jobs'
"""


class _Read(NamedTuple):
    rows: int
    """By scans of the whole table."""
    scans: int
    entries: int
    """Of indexes."""


@pytest.fixture(params=["postgres", "postgres_old"])
async def database(request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    server: Server = request.getfixturevalue(request.param)
    database = server.create_database()
    make(database, make_tables())
    database.execute("ALTER TABLE fastjobs_jobs SET (autovacuum_enabled = off)")
    database.execute(f"INSERT INTO fastjobs_kinds (kind, held_until) VALUES ('back', {NOW + 60 * SECOND})")
    yield database
    database.drop()


async def _read(hot: Hot, work: Callable[[], Awaitable[object]]) -> _Read:
    async with hot.connection.transaction():
        before = tuple(await hot.connection.fetchrow(_READ) or (0, 0, 0))
        await work()
        after = tuple(await hot.connection.fetchrow(_READ) or (0, 0, 0))
    return _Read(*(b - a for a, b in zip(before, after, strict=True)))


async def _uses_indexes_alone(hot: Hot, most: int) -> None:
    """Does each thing once, and sees that none has read more than `most` entries of indexes, or the whole table."""

    async def reads_little(name: str, work: Callable[[], Awaitable[object]]) -> None:
        read = await _read(hot, work)
        assert read.scans == 0, f"{name} read the whole table"
        assert read.entries <= most, f"{name} read {read.entries} entries"

    for n in range(4):
        await reads_little("a push of many", lambda: hot.push(*"abcdefghij", kind="photo"))
        await reads_little("a push", lambda n=n: hot.push(str(n)))  # type: ignore[misc]
    await hot.push_jobs([NewJob(kind="photo", payload="lost")])
    await hot.connection.execute("UPDATE fastjobs_jobs SET lost = 1, attempts = 5 WHERE payload = 'lost'")
    found: list[Any] = []

    async def claim(*kinds: Any, **more: Any) -> None:
        found.extend((await hot.claim(*kinds, **more)).jobs)

    await reads_little("a claim of one kind", lambda: claim(limit=2))
    await reads_little("a claim of one kind that is short", lambda: claim(limit=10))
    await reads_little("a claim of a kind held back", lambda: claim(of("back"), limit=10))
    await reads_little(
        "a claim of many kinds", lambda: claim(of(), of("back"), of("photo"), of("none", priority=1), limit=9)
    )
    await reads_little(
        "a claim of others",
        lambda: claim(of(), others=of("", limit=9, ahead_ok=False), limit=10, ahead=5),
    )
    await reads_little("a claim that fails one", lambda: claim(of("photo"), others=of(""), limit=30))
    await reads_little("a claim that finds nothing", lambda: claim(of(), others=of("")))
    assert sorted(job.payload for job in found) == sorted([*"0123", *("abcdefghij" * 4)])
    jobs = found[:15]
    await reads_little("Extend", lambda: hot.mark(*(Extend(job.id, job.claim, HOLD) for job in jobs)))
    await reads_little("Done", lambda: hot.mark(*(Done(job.id, job.claim) for job in jobs[:6])))
    await reads_little(
        "others",
        lambda: hot.mark(
            *(TryAgain(job.id, job.claim, 99 * SECOND, "x") for job in jobs[6:9]),
            *(Fail(job.id, job.claim, "x") for job in jobs[9:12]),
            *(GiveBack(job.id, job.claim, 99 * SECOND) for job in jobs[12:]),
        ),
    )
    kept: list[Kept] = []

    async def late() -> None:
        kept.extend(await hot.mark(*(Done(job.id, job.claim) for job in jobs)))

    await reads_little("marks that come late", late)
    assert set(kept) == {Kept.LOST}
    hot.now += HOLD // 2
    await hot.connection.execute(
        "UPDATE fastjobs_jobs SET held_until = $1 WHERE id = ANY($2)",
        hot.now,
        [int(job.id) for job in found[15:20]],
    )
    again: list[Any] = []

    async def reap() -> None:
        again.extend((await hot.claim(of("photo"), of(), limit=10)).jobs)

    await reads_little("a claim that ends holds", reap)
    assert len(again) == 5
    hot.now -= HOLD // 2
    await hot.connection.execute("DELETE FROM fastjobs_jobs WHERE kind = 'photo' OR payload <> 'null'")


async def test_nothing_hot_reads_more_than_it_takes_whatever_the_statistics(database: Database) -> None:
    early = Hot(await connect(database))
    try:
        # All of it is planned while the table is empty, and as empty it goes into the statistics.
        await _uses_indexes_alone(early, 250)
        database.execute("ANALYZE fastjobs_jobs")
        await early.connection.execute(_BACKLOG)
        for statistics in ("of the empty table", "of the full table"):
            if statistics == "of the full table":
                database.execute("ANALYZE fastjobs_jobs")
            late = Hot(await connect(database))
            try:
                for hot in (early, late):
                    await _uses_indexes_alone(hot, 250)
            finally:
                await late.connection.close()
    finally:
        await early.connection.close()


async def test_a_claim_among_many_jobs_reads_few_pages(database: Database) -> None:
    hot = Hot(await connect(database))
    try:
        await hot.connection.execute(_BACKLOG)
        await hot.push(*"abcdefghij")
        found = await hot.connection.fetchval(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {hot.statements.claim}",
            *(["mail", "back"], [HOLD] * 2, [5] * 2, [None] * 2, [0] * 2, [0], [True] * 2, [0] * 2),
            *(False, 10, 10, True, NOW, [None] * 2),
        )
        plan = json.loads(found)[0]["Plan"]
        assert plan["Actual Rows"] == 11
        # The first plan of a connection reads the catalog, too.
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 1500
    finally:
        await hot.connection.close()

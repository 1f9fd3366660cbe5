"""What limits, keys and names cost on Postgres: a claim among jobs that are blocked reads no more than it takes.

It's counted what is read of tables and indexes, with statistics of the empty tables, and of the full ones.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from fastjobs.core.claiming import Claimed
from fastjobs.core.job import Job, NewJob
from fastjobs.core.marks import Done, Extend, Fail, GiveBack, HoldBack, Kept, Mark, TryAgain
from fastjobs.stores.sql.tables import make_tables
from tests.databases.postgres import Database, Server
from tests.stores.postgres_link import HOLD, NOW, SECOND, Hot, connect, make, of

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

_LATE = NOW - 600 * SECOND
# First in due order: a kind that's held back, one with two held of its two, one key that's held and keys that aren't.
_BLOCKED = f"""
INSERT INTO fastjobs_jobs (kind, payload, run_at, state, held_until, claim, attempts, alone_key, own_key)
SELECT kind, 'null', {_LATE} + n, 0, 0, 0, 0, key, key FROM generate_series(1, 100000) AS n, (VALUES
  ('back', NULL::bytea), ('limited', NULL), ('alone', decode('{"00" * 32}', 'hex'))
) AS each(kind, key)
"""
_KEYS = f"""
INSERT INTO fastjobs_jobs (kind, payload, run_at, alone_key, own_key)
SELECT 'alone', n, {_LATE} + 200000 + n, sha256(n::text::bytea), sha256(n::text::bytea) FROM generate_series(1, 10000) n
"""
_HELD = f"""
WITH held AS (
  INSERT INTO fastjobs_jobs (kind, payload, run_at, state, held_until, claim, attempts, alone_key, own_key)
  SELECT kind, 'held', {_LATE}, 1, {NOW + 10 * HOLD}, 1, 1, key, key FROM (VALUES
    ('limited', NULL::bytea), ('limited', NULL), ('alone', decode('{"00" * 32}', 'hex'))) AS each(kind, key)
  RETURNING id, kind, alone_key, claim, held_until)
INSERT INTO fastjobs_slots (kind, alone_key, job_id, claim, held_until)
SELECT kind, alone_key, id, claim, held_until FROM held WHERE alone_key IS NOT NULL
"""
_READ = """
SELECT sum(seq_tup_read)::bigint, (
  SELECT sum(pg_stat_get_xact_tuples_returned(indexrelid))::bigint FROM pg_index
  WHERE indrelid = ANY (array_agg(relid))
) FROM pg_stat_xact_user_tables
"""
_KINDS = of(), of("back"), of("limited", at_once=2, ahead_ok=False), of("alone", ahead_ok=False)


class _Read(NamedTuple):
    rows: int
    """By scans of whole tables."""
    entries: int
    """Of indexes."""


@pytest.fixture
async def database(postgres: Server) -> AsyncIterator[Database]:
    database = postgres.create_database()
    make(database, make_tables())
    for table in ("jobs", "slots", "names", "throttles", "kinds"):
        database.execute(f"ALTER TABLE fastjobs_{table} SET (autovacuum_enabled = off)")
    database.execute(f"INSERT INTO fastjobs_kinds (kind, held_until) VALUES ('back', {NOW + 20 * HOLD})")
    database.execute("INSERT INTO fastjobs_kinds (kind) VALUES ('mail'), ('limited'), ('alone')")
    yield database
    database.drop()


async def _read(hot: Hot, work: Callable[[], Awaitable[object]]) -> _Read:
    async with hot.connection.transaction():
        before = tuple(await hot.connection.fetchrow(_READ) or (0, 0))
        await work()
        after = tuple(await hot.connection.fetchrow(_READ) or (0, 0))
    return _Read(*(b - a for a, b in zip(before, after, strict=True)))


async def test_blocked_jobs_cost_a_claim_nothing_once_they_are_parked(database: Database) -> None:
    hot = Hot(await connect(database))
    try:
        database.execute("ANALYZE")
        await hot.claim(*_KINDS)
        for statement in (_BLOCKED, _KEYS, _HELD):
            database.execute(statement)
        await hot.push(*(f'"{n}"' for n in range(2000)), at=NOW - SECOND)
        calls = itertools.count(1)
        mails: list[Job] = []
        # Of the one key's jobs none is returned; they are parked in a few dozen claims, which are full nevertheless.
        for call in calls:
            found = await hot.claim(*_KINDS, limit=20)
            assert len(found.jobs) == 20
            assert {job.kind for job in found.jobs} <= {"mail", "alone"}
            mails.extend(job for job in found.jobs if job.kind == "mail")
            if any(job.kind == "alone" for job in found.jobs):
                break
            assert call < 80
        assert [job.payload for job in mails] == [f'"{n}"' for n in range(len(mails))]
        database.execute("VACUUM ANALYZE")
        late = Hot(await connect(database))
        try:
            for each, (limit, most) in itertools.product((hot, late), ((1, 20), (10, 60), (100, 400))):
                # Or the first would meet the entries of those that the one before it took.
                database.execute("VACUUM (INDEX_CLEANUP on) fastjobs_jobs")
                claimed: list[Claimed] = []

                async def claim(each: Hot = each, limit: int = limit, into: list[Claimed] = claimed) -> None:
                    into.append(await each.claim(*_KINDS, limit=limit))

                read = await _read(each, claim)
                assert len(claimed[0].jobs) == limit
                assert read.rows < 100, f"a claim of {limit} read a whole table"
                assert read.entries <= most, f"a claim of {limit} read {read.entries} entries"
        finally:
            await late.connection.close()
        # Its holder's end wakes one of those 100,000, and the next claim has it.
        (holder,) = database.execute(
            "SELECT id::text FROM fastjobs_jobs WHERE kind = 'alone' AND payload = 'held'"
        )
        read = await _read(hot, lambda: hot.mark(Done(holder[0], 1)))
        assert read.rows < 100
        assert read.entries <= 40
        (first,) = (await hot.claim(of("alone"), limit=1)).jobs
        assert first.payload == "null"
    finally:
        await hot.connection.close()


async def test_nothing_with_keys_or_names_reads_more_than_it_takes(database: Database) -> None:
    early = Hot(await connect(database))
    try:
        await _everything(early, "planned as all is empty", 600)
        database.execute("ANALYZE")
        for statement in (_BLOCKED, _KEYS, _HELD):
            database.execute(statement)
        database.execute(
            "UPDATE fastjobs_jobs SET state = 2 WHERE kind = 'alone' AND state = 0 AND id % 2 = 0"
        )
        database.execute(
            f"INSERT INTO fastjobs_names SELECT 'name ' || n, {NOW + HOLD} FROM generate_series(1, 50000) n"
        )
        database.execute(
            "INSERT INTO fastjobs_throttles SELECT 'mails', n::text, 0,"
            f" {NOW}, {NOW + HOLD} FROM generate_series(1, 50000) n ON CONFLICT DO NOTHING"
        )
        for statistics in ("of empty tables", "of full tables"):
            if statistics == "of full tables":
                database.execute("ANALYZE")
            late = Hot(await connect(database))
            try:
                for each in (early, late):
                    await _everything(each, statistics, 600)
            finally:
                await late.connection.close()
    finally:
        await early.connection.close()


async def _everything(hot: Hot, when: str, most: int) -> None:
    async def reads_little(name: str, work: Callable[[], Awaitable[object]], most: int = most) -> None:
        read = await _read(hot, work)
        assert read.rows < 100, f"{name} read a whole table, {when}"
        assert read.entries <= most, f"{name} read {read.entries} entries, {when}"

    def new(key: str, **more: Any) -> NewJob:
        return NewJob("keyed", f'"{key}"', key=key.encode().ljust(32), one_at_a_time=True)._replace(**more)

    many = [new(str(n)) for n in range(20)]
    for _ in range(2):
        await reads_little("a push of keys", lambda: hot.push_jobs(many))
    await reads_little("a latest push", lambda: hot.push_jobs([new("0", latest=True, at=NOW)]))
    await reads_little("a push of a name", lambda: hot.push_jobs([new("n", name="me", keep_name=HOLD)]))
    await reads_little("one that's taken", lambda: hot.push_jobs([new("m", name="me")]))
    found: list[Job] = []

    async def claim() -> None:
        found.extend((await hot.claim(of("keyed", at_once=30), limit=30)).jobs)

    await reads_little("a claim", claim)
    assert len(found) == 21
    await hot.push_jobs(many)
    await reads_little("a claim that parks", claim)
    assert len(found) == 21

    some = iter(found)

    def marks(make: Callable[[Job], Mark], count: int) -> Callable[[], Awaitable[list[Kept]]]:
        made = [make(job) for job in itertools.islice(some, count)]
        assert len(made) == count
        return lambda: hot.mark(*made)

    await reads_little("Extend", lambda: hot.mark(*(Extend(job.id, job.claim, 2 * HOLD) for job in found)))
    await reads_little("Done", marks(lambda job: Done(job.id, job.claim), 5))
    await reads_little("TryAgain", marks(lambda job: TryAgain(job.id, job.claim, 99 * SECOND, "x"), 4))
    await reads_little("Fail", marks(lambda job: Fail(job.id, job.claim, "x"), 4))
    await reads_little("GiveBack", marks(lambda job: GiveBack(job.id, job.claim, 99 * SECOND), 4))
    await reads_little("HoldBack", marks(lambda job: HoldBack(job.id, job.claim, -HOLD), 4))
    throttled = ["mails", "others"], ["1", "2"], [10, 10], [SECOND, SECOND], [2, 2]
    await reads_little("taking places", lambda: hot.fetch(hot.statements.take, *throttled, hot.now))
    settled = ["mails"] * 2, ["1"] * 2, [0, 1], [hot.now + 10 * SECOND] * 2, [hot.now, None]
    await reads_little("settling places", lambda: hot.fetch(hot.statements.settle, *settled))
    await reads_little("a prune", lambda: hot.fetch(hot.statements.prune, NOW + HOLD, 5, hot.now))
    # Of each key that jobs wait for: itself, its slot and its holder, and the job that's woken.
    await reads_little("a sweep", lambda: hot.fetch(hot.statements.sweep, hot.now), 5 * 5001)
    await hot.connection.execute("DELETE FROM fastjobs_jobs WHERE kind = 'keyed'")
    await hot.connection.execute("DELETE FROM fastjobs_slots WHERE kind = 'keyed'")
    await hot.connection.execute("DELETE FROM fastjobs_names WHERE name = 'me'")

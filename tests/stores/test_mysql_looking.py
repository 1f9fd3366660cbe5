"""Looks and counts on MySQL and MariaDB beyond the suite: what is read, and what a look sees.

It's counted what each reads among jobs that it has nothing to do with, with statistics of the empty table and of the
full one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Connection, TextClause, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from fastjobs.core.job import JobState, NewJob
from fastjobs.core.marks import Fail, Kept
from fastjobs.stores.sql import looking, operations
from fastjobs.stores.sql.looks import Pages, make_looks
from fastjobs.stores.sql.store import SQLStore
from fastjobs.stores.sql.tables import make_tables
from fastjobs.testing import Clock
from fastjobs.testing.suite.subject import HOLD, SECOND, Heard, of
from tests.databases.mysql import Database, Server

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

TABLES = make_tables(dialect="mysql")
NOW = 1_700_000_000 * SECOND
EACH = 30_000
"""How many jobs of the kind `mail` are in each state. None of them is of the other kinds, and all are of one time."""
_DIGITS = " CROSS JOIN ".join(f"(SELECT {' UNION ALL SELECT '.join('0123456789')}) AS d{n}" for n in range(4))
_BACKLOG = f"""
INSERT INTO fastjobs_jobs (kind, payload, run_at, state, held_until, failed_at, claim, attempts, alone_key)
SELECT 'mail', 'null', {NOW - SECOND}, state, held_until, failed_at, 1, 1, alone_key FROM
 (SELECT 0 AS state, 0 AS held_until, NULL AS failed_at, NULL AS alone_key
  UNION ALL SELECT 1, {NOW + HOLD}, NULL, NULL
  UNION ALL SELECT 2, 0, NULL, REPEAT('0', 32)
  UNION ALL SELECT 3, 0, {NOW}, NULL) AS each_state
 CROSS JOIN {_DIGITS} CROSS JOIN (SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3) AS thrice
"""


class _Read(NamedTuple):
    entries: int
    """Of indexes, and rows by their ids."""
    scanned: int
    """Rows of whole tables; those of derived ones are counted with them."""


def _status(connection: Connection) -> _Read:
    found = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'").all()
    numbers = {name: int(number) for name, number in found}
    scanned = numbers.pop("Handler_read_rnd_next")
    numbers.pop("Handler_read_rnd_deleted", None)
    return _Read(sum(numbers.values()), scanned)


async def _read(store: SQLStore, work: Callable[[Connection], object], *, writes: bool = False) -> _Read:
    def counted(connection: Connection) -> _Read:
        # To ask for the counts reads something itself.
        before, start = _status(connection), _status(connection)
        work(connection)
        end = _status(connection)
        return _Read(*(e - s - (s - b) for b, s, e in zip(before, start, end, strict=True)))

    return await (store._database.run(counted) if writes else store._database.look(counted))


@asynccontextmanager
async def _opened(database: Database) -> AsyncGenerator[SQLStore]:
    engine = create_async_engine(database.url("asyncmy"), poolclass=NullPool)
    store = SQLStore(engine, clock=Clock(NOW))
    await store.open(["mail", "rare", "report"])
    try:
        yield store
    finally:
        await store.close()
        await engine.dispose()


@pytest.fixture(scope="module")
def made(mysql_server: Server) -> Iterator[Database]:
    """A database with the tables in it, of which the statistics say that they're empty."""
    database = mysql_server.create_database()

    async def make() -> None:
        async with _opened(database):
            pass

    asyncio.run(make())
    for table in ("jobs", "kinds", "slots"):
        database.execute(f"ALTER TABLE fastjobs_{table} STATS_PERSISTENT = 1, STATS_AUTO_RECALC = 0")
        database.execute(f"ANALYZE TABLE fastjobs_{table}")
    yield database
    database.drop()


@pytest.fixture
async def store(made: Database) -> AsyncIterator[SQLStore]:
    made.clear()
    async with _opened(made) as store:
        yield store


async def _fill(store: SQLStore) -> tuple[list[int], dict[str, list[str]]]:
    """Pushes jobs of the kind `rare`; the ids of all, and of those in some state."""
    ids = [id for id in await store.push([NewJob("rare", str(n)) for n in range(20)]) if id is not None]
    held = (await store.claim([of("rare")], 15)).jobs
    kept = await store.mark([Fail(job.id, job.claim, "x") for job in held[5:]])
    assert kept == [Kept.YES] * 10
    return [int(id) for id in ids], {
        "held": [job.id for job in held[:5]],
        "failed": [job.id for job in held[5:]],
        "waiting": ids[15:],
    }


async def _everything(store: SQLStore, database: Database, when: str) -> None:
    """Does each thing, and sees that none has read more than it may, or a whole table."""
    numbers, ids = await _fill(store)
    parked = int(ids["waiting"].pop())
    database.execute(f"UPDATE fastjobs_jobs SET state = 2, alone_key = REPEAT('x', 32) WHERE id = {parked}")
    claims = [(id, 1) for id in ids["held"]]
    # So many that a server takes its statistics' word for where they are.
    many = [str(number) for number in range(10**9, 10**9 + 400)]
    found = database.execute("SELECT id FROM fastjobs_jobs WHERE kind = 'mail' LIMIT 1 OFFSET 9000")
    middle = str(found[0][0]) if found else "9000"
    last = (NOW, middle)

    def check(name: str, read: _Read, most: int, scanned: int = 0) -> None:
        assert read.entries <= most, f"{name} read {read.entries} entries, {when}"
        # One more ends each scan of a derived table.
        assert read.scanned <= scanned + 10, f"{name} read {read.scanned} rows of whole tables, {when}"

    c, now = TABLES, NOW
    looks: dict[str, tuple[int, int, Callable[[Connection], object]]] = {
        "counts": (700, 700, lambda x: looking.counts(x, c, 100, now)),
        "a job": (20, 10, lambda x: looking.job(x, c, ids["waiting"][0], None, now)),
        "a parked job": (20, 10, lambda x: looking.job(x, c, str(parked), None, now)),
        "no job": (20, 10, lambda x: looking.job(x, c, "999999999", None, now)),
        "waiting": (30, 10, lambda x: looking.jobs(x, c, "rare", JobState.WAITING, None, 10, 9, now)),
        "held": (30, 10, lambda x: looking.jobs(x, c, "rare", JobState.HELD, None, 10, 9, now)),
        "more that wait": (
            1100,
            1001,
            lambda x: looking.jobs(x, c, "mail", JobState.WAITING, (NOW - SECOND, middle), 10, 9, now),
        ),
        "more held": (
            1100,
            1001,
            lambda x: looking.jobs(x, c, "mail", JobState.HELD, (NOW + HOLD, middle), 10, 9, now),
        ),
        "failed": (50, 0, lambda x: looking.failed(x, c, None, None, 10, 9)),
        "more failed": (50, 0, lambda x: looking.failed(x, c, None, last, 10, 9)),
        "failed of a kind": (20, 0, lambda x: looking.failed(x, c, "rare", None, 20, 9)),
        "failed of none": (5, 0, lambda x: looking.failed(x, c, "none", None, 20, 9)),
        "more failed of many": (20, 0, lambda x: looking.failed(x, c, "mail", last, 10, 9)),
        "asked": (15, 0, lambda x: looking.asked(x, c, claims)),
        "many asked": (810, 0, lambda x: looking.asked(x, c, [(id, 1) for id in many])),
    }
    for name, (most, scanned, look) in looks.items():
        check(name, await _read(store, look), most, scanned)
    again, gone = ids["failed"][:5], ids["failed"][5:]
    none = await _read(store, lambda x: operations.run_again(x, c, many, now), writes=True)
    check("many run again", none, 810)
    check("run again", await _read(store, lambda x: operations.run_again(x, c, again, now), writes=True), 30)
    check("delete", await _read(store, lambda x: operations.delete(x, c, gone, now), writes=True), 40)
    check("a pause", await _read(store, lambda x: operations.pause(x, c, "rare", False), writes=True), 5)
    database.execute(f"DELETE FROM fastjobs_jobs WHERE id BETWEEN {numbers[0]} AND {numbers[-1]}")


def _texts() -> Iterator[tuple[str, TextClause]]:
    looks = make_looks(TABLES, "mysql")
    for name in ("counts", "job", "waiting", "held", "failed", "failed_kind", "these", "kind"):
        value = getattr(looks, name)
        for n, each in enumerate([value.first, *value.after] if isinstance(value, Pages) else [value]):
            yield f"{name} {n}", each


async def _plans(store: SQLStore, id: int, when: str) -> None:
    def explain(connection: Connection) -> None:
        values: dict[str, Any] = {
            "kind": "mail", "id": id, "ids": [id, id + 1], "cut": 9, "most": 9, "now": NOW, "at": NOW - 1, "last": id,
        }  # fmt: skip
        for name, statement in _texts():
            explained = text(f"EXPLAIN FORMAT=TRADITIONAL {statement.text}").bindparams(
                *statement._bindparams.values()
            )
            asked = {key: values[key] for key in statement._bindparams}
            plan = connection.execute(explained, asked).mappings().all()
            reads = [step for step in plan if step["table"] in ("j", "h", "s", "k")]
            assert reads, f"{name}: {plan}"
            for step in reads:
                assert step["type"] in ("const", "eq_ref", "ref", "range"), f"{name}, {when}: {step}"
                assert step["key"] in ("PRIMARY", "fastjobs_jobs_due"), f"{name}, {when}: {step}"
                extra = step["Extra"] or ""
                assert "filesort" not in extra, f"{name}, {when}: {step}"
                assert "temporary" not in extra, f"{name}, {when}: {step}"

    await store._database.look(explain)


async def test_no_look_and_no_act_reads_more_than_it_takes_whatever_the_statistics(
    store: SQLStore, made: Database
) -> None:
    await _everything(store, made, "as all is empty but for these")
    made.execute(_BACKLOG)
    ((count, id),) = made.execute("SELECT COUNT(*), MIN(id) FROM fastjobs_jobs")
    assert count == 4 * EACH
    for statistics in ("of the empty tables", "of the full tables"):
        if statistics == "of the full tables":
            made.execute("ANALYZE TABLE fastjobs_jobs, fastjobs_kinds, fastjobs_slots")
        await _plans(store, id, f"with statistics {statistics}")
        await _everything(store, made, f"with statistics {statistics}")
    # The next test has statistics of a full table and an empty one.
    made.execute("TRUNCATE fastjobs_jobs")


async def test_the_failed_of_all_kinds_come_in_one_order_and_each_once(
    store: SQLStore, made: Database
) -> None:
    """Several of each kind failed at the same moment, and pages end among them."""
    rows = ", ".join(
        f"('{('mail', 'rare', 'report')[n * 7 % 3]}', '{n}', {NOW}, 3, {NOW + n // 10})" for n in range(60)
    )
    made.execute(f"INSERT INTO fastjobs_jobs (kind, payload, run_at, state, failed_at) VALUES {rows}")
    expected = [
        str(id) for (id,) in made.execute("SELECT id FROM fastjobs_jobs ORDER BY failed_at DESC, id DESC")
    ]
    for limit in (1, 7, 60, 100):
        seen: list[str] = []
        after = None
        while page := await store.failed(after=after, limit=limit, cut=0):
            assert len(page) == min(limit, 60 - len(seen))
            seen += [job.id for job in page]
            after = (page[-1].failed_at, page[-1].id)
        assert seen == expected
    assert await store.failed(limit=0) == []


async def test_a_look_sees_one_moment_and_can_write_nothing(store: SQLStore, made: Database) -> None:
    await store.push([NewJob("mail", "1"), NewJob("rare", "1")])

    def look(connection: Connection) -> list[list[int]]:
        seen: list[list[int]] = []
        for _ in range(2):
            seen.append([each.waiting for each in looking.counts(connection, TABLES, 9, NOW)])
            made.execute("DELETE FROM fastjobs_jobs")
        return seen

    assert await store._database.look(look) == [[1, 1, 0]] * 2
    assert [each.waiting for each in await store.counts()] == [0, 0, 0]
    with pytest.raises(Exception, match="READ ONLY transaction"):
        await store._database.look(lambda connection: connection.execute(text("DELETE FROM fastjobs_jobs")))
    # The link is as it was.
    assert await store._database.run(lambda x: x.execute(text("DELETE FROM fastjobs_jobs")).rowcount) == 0
    ask = text("SELECT 1 FROM fastjobs_kinds LIMIT 1")
    await store.push([NewJob("mail", "1")])

    def run(connection: Connection) -> list[int]:
        connection.execute(ask)
        made.execute("DELETE FROM fastjobs_jobs")
        return [each.waiting for each in looking.counts(connection, TABLES, 9, NOW)]

    assert await store._database.run(run) == [0, 0, 0], "what writes doesn't see what is committed"


async def test_a_payload_is_cut_by_characters_and_its_size_is_in_bytes(store: SQLStore) -> None:
    payload = '"máil 😀 € 漢字"'
    (id,) = await store.push([NewJob("mail", payload)])
    assert id is not None
    for cut in (0, 1, 7, 8, 100, None):
        shown = await store.job(id, cut=cut)
        assert shown is not None
        assert (shown.payload, shown.size) == (payload[:cut], len(payload.encode()))


async def test_a_name_that_is_no_kinds_finds_nothing_and_reads_nothing(
    store: SQLStore, made: Database
) -> None:
    """A text of other letters has the server compare all rows, and blanks behind one count for nothing."""
    await store.push([NewJob("mail", "1"), NewJob("mail", "2")])
    (job,) = (await store.claim([of("mail")], 1)).jobs
    assert await store.mark([Fail(job.id, job.claim, "x")]) == [Kept.YES]
    for kind in ("mail ", "Mail", "máil", "mаil", "", "mail\0", "x" * 101, "\ud800"):
        assert await store.jobs(kind, JobState.WAITING) == []
        assert await store.failed(kind=kind) == []
        assert await store.pause(kind, True) is False
        read = await _read(store, lambda x, kind=kind: looking.failed(x, TABLES, kind, None, 9, 9))  # type: ignore[misc]
        assert read.entries <= 2
        assert read.scanned <= 2
    assert len(await store.jobs("mail", JobState.WAITING)) == 1


async def test_a_job_that_may_be_claimed_again_is_heard_of_by_other_instances(
    store: SQLStore, made: Database
) -> None:
    """None of these gives a job a new id."""
    async with _opened(made) as other:
        await store.push([NewJob("mail", "1")])
        (job,) = (await store.claim([of("mail")], 1)).jobs
        assert await store.mark([Fail(job.id, job.claim, "x")]) == [Kept.YES]
        heard = Heard(10)
        async with other.listen(heard.wake):
            for n in range(2):
                await store.push([NewJob("mail", str(n))])
                await heard.once_more("a push woke nobody")
                await heard.settled()
                heard.clear()
                if n:
                    assert await store.pause("mail", False)
                else:
                    assert await store.run_again([job.id]) == [True]
                await heard.once_more(f"number {n} woke nobody")
    assert [each.kind for each in await store.counts()] == ["mail", "rare", "report"]

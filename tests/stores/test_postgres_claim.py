"""The claim and the push on Postgres beyond the suite: who is in whose way, what is walked, what is written."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import asyncpg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from fastjobs.core.claiming import Claimable
from fastjobs.core.exhausted import exhausted_text
from fastjobs.core.job import Job, NewJob
from fastjobs.core.marks import Done, Extend, GiveBack, Kept, TryAgain
from fastjobs.core.text import kept_text
from fastjobs.stores.sql import operations
from fastjobs.stores.sql.server.floors import Floors
from fastjobs.stores.sql.tables import make_tables
from tests.databases.postgres import Database
from tests.stores.postgres_link import HOLD, NOW, SECOND, Hot, connect, make, of

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def made(postgres_module_database: Database) -> Database:
    make(postgres_module_database, make_tables())
    return postgres_module_database


@pytest.fixture
def database(made: Database) -> Database:
    made.clear(keep=["fastjobs_schema"])
    return made


@pytest.fixture
async def hot(database: Database) -> AsyncIterator[Hot]:
    connection = await connect(database)
    yield Hot(connection)
    await connection.close()


@pytest.fixture
async def other(database: Database) -> AsyncIterator[Hot]:
    connection = await connect(database)
    yield Hot(connection)
    await connection.close()


def payloads(jobs: list[Job]) -> list[str]:
    return [job.payload for job in jobs]


# Who is in whose way


async def test_claims_of_many_connections_never_share_a_job(database: Database, hot: Hot) -> None:
    await hot.push(*map(str, range(600)), kind="mail")
    await hot.push(*map(str, range(600, 1000)), kind="photo")
    connections = [await connect(database) for _ in range(8)]
    try:

        async def claimer(connection: asyncpg.Connection[asyncpg.Record]) -> list[Job]:
            mine = Hot(connection)
            got: list[Job] = []
            while jobs := (await mine.claim(of("mail"), of("photo", priority=len(got) % 2), limit=7)).jobs:
                got += jobs
            return got

        got = [job for mine in await asyncio.gather(*map(claimer, connections)) for job in mine]
    finally:
        for connection in connections:
            await connection.close()
    got += (await hot.claim(of("mail"), of("photo"), limit=1000)).jobs
    assert sorted(int(job.payload) for job in got) == list(range(1000))


async def test_a_job_that_is_extended_as_its_hold_ends_is_counted(hot: Hot, other: Hot) -> None:
    await hot.push("1", "2")
    (job,) = (await hot.claim(of(at_once=1))).jobs
    async with other.connection.transaction():
        other.now = NOW + HOLD - 1
        assert await other.mark(Extend(job.id, job.claim, HOLD)) == [Kept.YES]
        hot.now = NOW + HOLD + 1
        assert (await hot.claim(of(at_once=1))).jobs == []
        assert (await hot.claim(of(at_once=1), of("photo"))).jobs == []
    assert (await hot.claim(of(at_once=1))).jobs == []


@pytest.mark.parametrize("kinds", [(of(),), (of(), of("photo"))], ids=["of one kind", "of two"])
async def test_jobs_that_a_transaction_has_locked_are_passed_over_at_once(
    hot: Hot, other: Hot, kinds: tuple[Claimable, ...]
) -> None:
    ids = await hot.push("1", "2", "3")
    async with other.connection.transaction():
        await other.connection.execute("SELECT FROM fastjobs_jobs WHERE id = $1 FOR UPDATE", int(str(ids[0])))
        async with asyncio.timeout(5):
            found = await hot.claim(*kinds, limit=1)
            assert payloads(found.jobs) == ["2"]
            found = await hot.claim(*kinds)
        assert payloads(found.jobs) == ["3"]
        assert found.next_in == 0
    assert payloads((await hot.claim(*kinds)).jobs) == ["1"]


async def test_a_hold_that_ran_out_on_a_locked_row_keeps_no_other_waiting(hot: Hot, other: Hot) -> None:
    ids = await hot.push("1", "2")
    await hot.claim()
    hot.now += HOLD + 1
    async with other.connection.transaction():
        await other.connection.execute("SELECT FROM fastjobs_jobs WHERE id = $1 FOR UPDATE", int(str(ids[0])))
        async with asyncio.timeout(5):
            assert payloads((await hot.claim()).jobs) == ["2"]
    assert [(job.payload, job.lost) for job in (await hot.claim()).jobs] == [("1", 1)]


async def test_at_repeatable_read_a_claim_may_fail_but_never_takes_anothers_job(
    database: Database, hot: Hot
) -> None:
    await hot.push(*map(str, range(400)))
    connections = [await connect(database, default_transaction_isolation="repeatable read") for _ in range(4)]
    try:

        async def claimer(connection: asyncpg.Connection[asyncpg.Record]) -> list[Job]:
            mine = Hot(connection)
            got: list[Job] = []
            for _ in range(40):
                try:
                    got += (await mine.claim(limit=5)).jobs
                except asyncpg.SerializationError:
                    continue
            return got

        got = [job for mine in await asyncio.gather(*map(claimer, connections)) for job in mine]
    finally:
        for connection in connections:
            await connection.close()
    assert len(got) == len({job.id for job in got}) > 0
    got += (await hot.claim(limit=1000)).jobs
    assert sorted(int(job.payload) for job in got) == list(range(400))


# What is written


async def test_a_claim_that_finds_nothing_writes_nothing(hot: Hot) -> None:
    await hot.push("1", kind="photo")
    await hot.push("2", at=NOW + SECOND)
    await hot.push("3", kind="report")
    await hot.claim(of("report"))
    number = "SELECT pg_current_xact_id_if_assigned()::text"
    async with hot.connection.transaction():
        for kinds, ahead in (((of(),), 0), ((of(), of("news")), 0), ((of(), of("report", priority=3)), 100)):
            assert (await hot.claim(*kinds, ahead=ahead)).jobs == []
        assert (await hot.claim(of(), of("photo", limit=0))).jobs == []
        assert await hot.connection.fetchval(number) is None
        assert len((await hot.claim(of("photo"))).jobs) == 1
        assert await hot.connection.fetchval(number) is not None


@pytest.mark.parametrize(
    ("attempts", "lost", "error", "limit"),
    [
        (3, 1, None, 3),
        (4, 2, "ValueError: x", 3),
        (1, 0, "", 1),
        (9, 0, kept_text("nul \0 and \ud800"), 2),
        *((7, lost, letter * 4096, 7) for lost in (0, 3) for letter in ("x", "é", "€", "🙂")),
        *((7, 1, "x" * shift + "🙂" * 1020, 7) for shift in range(4)),
        *((7, 0, "x" * (4096 - shift), 7) for shift in range(60, 80)),
    ],
)
async def test_a_claim_keeps_the_text_of_an_exhausted_job_as_it_is_told(
    hot: Hot, attempts: int, lost: int, error: str | None, limit: int
) -> None:
    error = None if error is None else kept_text(error)
    (id,) = await hot.push("1")
    await hot.connection.execute(
        "UPDATE fastjobs_jobs SET attempts = $1, lost = $2, error = $3", attempts, lost, error
    )
    found = await hot.claim(of(attempts=limit))
    assert found.exhausted == [Job(str(id), "mail", "1", NOW, attempts, 0, lost, error)]
    (row,) = await hot.connection.fetch("SELECT state, failed_at, claim, error FROM fastjobs_jobs")
    assert tuple(row) == (3, NOW, 1, exhausted_text(attempts, lost, error, limit))


async def test_more_exhausted_jobs_than_a_claim_looks_at_are_asked_for_again(hot: Hot) -> None:
    await hot.push(*map(str, range(50)))
    await hot.connection.execute("UPDATE fastjobs_jobs SET attempts = 5")
    await hot.push("last")
    found = await hot.claim(limit=2)
    assert found.again
    exhausted = len(found.exhausted)
    for _ in range(20):
        found = await hot.claim(limit=2)
        exhausted += len(found.exhausted)
        if not found.again:
            break
    assert (exhausted, payloads(found.jobs)) == (50, ["last"])


# Which kinds


async def test_a_kind_that_is_held_back_or_paused_drops_out_as_a_whole(hot: Hot) -> None:
    for kind in ("mail", "photo", "report"):
        await hot.push(kind, kind=kind)
    await hot.connection.execute(
        "UPDATE fastjobs_kinds SET held_until = $1 WHERE kind = 'mail'", NOW + 7 * SECOND
    )
    await hot.connection.execute("UPDATE fastjobs_kinds SET paused = 1 WHERE kind = 'photo'")
    found = await hot.claim(of(), of("photo"), of("report", priority=1))
    assert payloads(found.jobs) == ["report"]
    assert found.next_in == 7 * SECOND
    assert (await hot.claim(of(), others=of(""))).jobs == []
    hot.now += 7 * SECOND
    assert payloads((await hot.claim(of(), others=of(""))).jobs) == ["mail"]


async def test_others_have_one_limit_together_and_the_order_goes_over_all(hot: Hot) -> None:
    for n, kind in enumerate(("photo", "mail", "report", "news", "photo", "report")):
        await hot.push(f"{kind} {n}", kind=kind, at=NOW - 100 + n)
    found = await hot.claim(of(), others=of("", limit=3))
    assert payloads(found.jobs) == ["photo 0", "mail 1", "report 2", "news 3"]
    assert found.next_in == 0
    assert payloads((await hot.claim(of(), others=of("", limit=3))).jobs) == ["photo 4", "report 5"]


async def test_a_kind_named_twice_is_one(hot: Hot) -> None:
    await hot.push("1", "2")
    assert payloads((await hot.claim(of(), of())).jobs) == ["1", "2"]


async def test_no_claim_returns_more_than_its_limit_whatever_is_asked(hot: Hot) -> None:
    kinds = ("mail", "photo", "report")
    for limit, ahead, room, ok in itertools.product((0, 1, 5, 9), (0, 3, 9), (None, 0, 2), (True, False)):
        for kind in kinds:
            await hot.push(*"abcdef", kind=kind)
        asked = [
            of("mail", limit=room, ahead_ok=ok),
            of("photo", priority=1),
            of("report", priority=int(ok), limit=4),
        ]
        found = await hot.claim(*asked, limit=limit, ahead=ahead)
        of_kind = [sum(job.kind == kind for job in found.jobs) for kind in kinds]
        free = limit - min(ahead, limit)
        mail = min(6 if room is None else room, 6 if ok else free)
        assert len(found.jobs) == min(limit, mail + 6 + 4)
        assert of_kind[0] <= mail
        assert of_kind[2] <= 4
        await hot.connection.execute("DELETE FROM fastjobs_jobs")


# What is walked


async def test_a_transaction_left_open_elsewhere_makes_no_claim_walk_past_all_that_was_done(
    database: Database, hot: Hot, other: Hot
) -> None:
    async with other.connection.transaction(isolation="repeatable_read"):
        await other.connection.execute("SELECT FROM fastjobs_jobs")
        await hot.push(*map(str, range(4000)))
        while jobs := (await hot.claim(limit=200)).jobs:
            assert set(await hot.mark(*(Done(job.id, job.claim) for job in jobs))) == {Kept.YES}
        walked: list[int] = []
        for n in range(100):
            hot.now += SECOND // 100
            await hot.push(str(n))
            (job,) = (await hot.claim(limit=1 + n % 2)).jobs
            assert job.payload == str(n)
            await hot.mark(Done(job.id, job.claim))
            walked.append(hot.met)
        assert sum(met > 1000 for met in walked) in (2, 3), "it looks at all about twice a second"
        assert sorted(walked)[95] < 300
        # What is due from before is found by the next claim that looks at all, or at once if it's told of.
        await hot.push("old", at=NOW - 1)
        found = await hot.claim()
        assert found.jobs == []
        assert found.next_in is not None
        assert 0 < found.next_in <= SECOND // 2
        hot.now += found.next_in
        assert payloads((await hot.claim()).jobs) == ["old"]
        await hot.push("older", at=NOW - 2)
        hot.floors.forget()
        assert payloads((await hot.claim()).jobs) == ["older"]


async def test_while_nothing_is_in_the_way_each_claim_looks_at_all(hot: Hot) -> None:
    for n in range(300):
        hot.now += 1000
        await hot.push(str(n), at=NOW - n)
        (job,) = (await hot.claim()).jobs
        await hot.mark(Done(job.id, job.claim))
        assert hot.floors.is_full(hot.now)


def test_a_clock_that_is_set_back_puts_no_look_at_all_off() -> None:
    floors = Floors()
    floors.met(10_000, NOW, 0)
    assert floors.is_full(NOW + 1), "the first to meet them takes them out of the way of the next"
    floors.met(10_000, NOW, 0)
    assert not floors.is_full(NOW + 1)
    assert floors.is_full(NOW + SECOND)
    assert floors.is_full(NOW - SECOND)


def test_what_comes_back_while_a_claim_looks_at_all_is_looked_for_by_the_next() -> None:
    floors = Floors()
    floors.met(10_000, NOW, 0)
    forgets = floors.forgets
    floors.forget()
    floors.met(10_000, NOW, forgets)
    assert floors.is_full(NOW + 1)
    floors.met(10_000, NOW, floors.forgets)
    assert not floors.is_full(NOW + 1)


@pytest.mark.parametrize("end", ["give back", "try again"])
async def test_a_job_that_comes_back_is_found_by_the_next_claim_that_looks_at_all(hot: Hot, end: str) -> None:
    await hot.push("1", "2", at=NOW - SECOND)
    (job, _) = (await hot.claim()).jobs
    hot.floors.met(10_000, hot.now, 0)
    hot.floors.met(10_000, hot.now, 0)
    await hot.mark(GiveBack(job.id, job.claim) if end == "give back" else TryAgain(job.id, job.claim, 0, "x"))
    found = await hot.claim()
    hot.now += found.next_in or 0
    found.jobs.extend((await hot.claim()).jobs)
    assert payloads(found.jobs) == ["1"]


# Pushes


async def test_ids_are_in_the_order_of_the_jobs(hot: Hot) -> None:
    jobs = [NewJob(kind=f"k{n % 7}", payload=str(n), at=NOW - n) for n in range(3000)]
    ids = [int(str(id)) for id in await hot.push_jobs(jobs)]
    assert ids == sorted(ids)
    rows = await hot.connection.fetch("SELECT id, payload FROM fastjobs_jobs ORDER BY id")
    assert [tuple(row) for row in rows] == [(id, job.payload) for id, job in zip(ids, jobs, strict=True)]


async def test_a_push_by_either_way_leaves_the_same_row(database: Database, hot: Hot) -> None:
    jobs = [
        NewJob(kind="mail", payload='{"a":1}', carried='{"x":"y"}'),
        NewJob(kind="mail", payload="null", at=NOW + 5),
        NewJob(kind="mail", payload="3", after=7 * SECOND),
    ]
    await hot.push_jobs(jobs)
    for job in jobs:
        await hot.push_jobs([job])
    tables = make_tables()
    engine = create_engine(database.url("psycopg"), poolclass=NullPool)
    with engine.begin() as connection:
        ids = operations.push(connection, tables, jobs, NOW)
        ids += [operations.push(connection, tables, [job], NOW)[0] for job in jobs]
    assert ids == sorted(ids, key=lambda id: int(str(id)))
    rows = [
        tuple(row.values())[1:]
        for row in await hot.connection.fetch("SELECT * FROM fastjobs_jobs ORDER BY id")
    ]
    assert rows == rows[:3] * 4


async def test_a_push_notes_its_kinds_once(hot: Hot) -> None:
    await hot.push_jobs([NewJob(kind=kind, payload="1") for kind in ("b", "a", "b")])
    hot.kinds.forget()
    hot.now += SECOND
    await hot.push("2", kind="a")
    rows = await hot.connection.fetch("SELECT kind, first_seen FROM fastjobs_kinds ORDER BY kind")
    assert [tuple(row) for row in rows] == [("a", NOW), ("b", NOW)]


@pytest.mark.parametrize("many", [1, 3])
async def test_a_push_that_notifies_is_heard_and_another_is_not(hot: Hot, other: Hot, many: int) -> None:
    heard: asyncio.Queue[object] = asyncio.Queue()

    def hear(connection: object, pid: object, channel: object, said: object) -> None:
        heard.put_nowait(said)

    await other.connection.add_listener(hot.statements.channel, hear)
    jobs = [NewJob(kind="mail", payload=str(n)) for n in range(many)]
    await hot.push_jobs(jobs)
    assert len(await hot.push_jobs(jobs, notify=True)) == many
    async with asyncio.timeout(10):
        assert await heard.get() == ""
    assert heard.empty()
    # asyncpg warns of a listener that is left.
    await other.connection.reset()

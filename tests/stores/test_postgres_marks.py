"""The marks on Postgres beyond the suite: rows that others have locked, several marks of one job, many of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from fastjobs.core.errors import StoreError
from fastjobs.core.marks import Done, Extend, Fail, GiveBack, Kept, Mark, TryAgain
from fastjobs.stores.sql.tables import make_tables
from tests.databases.postgres import Database
from tests.stores.postgres_link import HOLD, NOW, SECOND, Hot, connect, make, of

pytestmark = pytest.mark.anyio

YES, LOST, BUSY, STOP = Kept.YES, Kept.LOST, Kept.BUSY, Kept.STOP


@pytest.fixture(scope="module")
def made(postgres_module_database: Database) -> Database:
    make(postgres_module_database, make_tables())
    return postgres_module_database


@pytest.fixture
async def hot(made: Database) -> AsyncIterator[Hot]:
    made.clear(keep=["fastjobs_schema"])
    connection = await connect(made)
    yield Hot(connection)
    await connection.close()


@pytest.fixture
async def other(made: Database) -> AsyncIterator[Hot]:
    connection = await connect(made)
    yield Hot(connection)
    await connection.close()


async def test_a_row_that_a_transaction_has_locked_is_busy_and_keeps_no_other_waiting(
    hot: Hot, other: Hot
) -> None:
    await hot.push(*"123456")
    jobs = (await hot.claim()).jobs
    async with other.connection.transaction():
        await other.connection.execute(
            "SELECT FROM fastjobs_jobs WHERE payload IN ('1', '3', '5') FOR UPDATE"
        )
        asked: list[Mark] = [
            *(Done(job.id, job.claim) for job in jobs[:2]),
            *(TryAgain(job.id, job.claim, 0, "x") for job in jobs[2:4]),
            *(Extend(job.id, job.claim, HOLD) for job in jobs[4:]),
        ]
        async with asyncio.timeout(5):
            assert await hot.mark(*asked) == [BUSY, YES, BUSY, YES, BUSY, YES]
            assert await hot.mark(*asked) == [BUSY, LOST, BUSY, LOST, BUSY, YES]
            assert await hot.mark(Done(jobs[0].id, jobs[0].claim + 1)) == [LOST]
    assert await hot.mark(*asked) == [YES, LOST, YES, LOST, YES, YES]


async def test_a_row_that_is_locked_by_the_end_of_its_claim_is_lost_once_that_commits(
    hot: Hot, other: Hot
) -> None:
    await hot.push("1")
    (job,) = (await hot.claim()).jobs
    async with other.connection.transaction():
        assert await other.mark(Done(job.id, job.claim)) == [YES]
        assert await hot.mark(Done(job.id, job.claim)) == [BUSY]
    assert await hot.mark(Done(job.id, job.claim)) == [LOST]


async def test_several_marks_of_one_job_are_kept_as_one_after_the_other(hot: Hot) -> None:
    await hot.push(*"1234")
    one, two, three, four = (await hot.claim()).jobs
    hot.now += SECOND
    kept = await hot.mark(
        Extend(one.id, one.claim, 5 * HOLD),
        Done(two.id, two.claim),
        TryAgain(three.id, three.claim, SECOND, "first"),
        Done(one.id, one.claim),
        Fail(two.id, two.claim, "x"),
        GiveBack(three.id, three.claim, 0, "second"),
        Fail(four.id, four.claim, "fourth"),
        Done(four.id, four.claim),
        Extend(one.id, one.claim, HOLD),
    )
    assert kept == [YES, YES, YES, YES, LOST, LOST, YES, LOST, LOST]
    rows = await hot.connection.fetch("SELECT payload, state, run_at, error FROM fastjobs_jobs ORDER BY id")
    assert [tuple(row) for row in rows] == [
        ("3", 0, NOW + 2 * SECOND, "first"),
        ("4", 3, NOW, "fourth"),
    ]


async def test_only_an_extend_tells_of_a_stop_that_was_asked(hot: Hot) -> None:
    await hot.push("1", "2")
    one, two = (await hot.claim()).jobs
    await hot.connection.execute("UPDATE fastjobs_jobs SET stop_asked = 1")
    kept = await hot.mark(Extend(one.id, one.claim, HOLD), TryAgain(two.id, two.claim, 0, "x"))
    assert kept == [STOP, YES]
    (again,) = (await hot.claim()).jobs
    assert (again.id, again.stop_asked) == (two.id, True)
    assert await hot.mark(Extend(again.id, again.claim, HOLD)) == [STOP]


async def test_each_mark_changes_its_own_columns_and_no_other(hot: Hot) -> None:
    await hot.push("0", "1", "2", "3", "4")
    jobs = (await hot.claim(of(hold=9 * SECOND))).jobs
    hot.now += SECOND
    await hot.mark(
        TryAgain(jobs[0].id, jobs[0].claim, 3, "a\0b"),
        Fail(jobs[1].id, jobs[1].claim, "failed"),
        GiveBack(jobs[2].id, jobs[2].claim),
        GiveBack(jobs[3].id, jobs[3].claim, 4, "given"),
        Extend(jobs[4].id, jobs[4].claim, HOLD),
    )
    columns = "state, run_at, held_until, attempts, claim, failed_at, error"
    rows = await hot.connection.fetch(f"SELECT {columns} FROM fastjobs_jobs ORDER BY id")
    now = hot.now
    assert [tuple(row) for row in rows] == [
        (0, now + 3, 0, 1, 2, None, "a\\x00b"),
        (3, NOW, 0, 1, 2, now, "failed"),
        (0, NOW, 0, 0, 2, None, None),
        (0, now + 4, 0, 0, 2, None, "given"),
        (1, NOW, now + HOLD, 1, 1, None, None),
    ]


async def test_thousands_of_marks_are_each_answered(hot: Hot) -> None:
    await hot.push(*map(str, range(2500)))
    jobs = (await hot.claim(limit=2500)).jobs
    assert len(jobs) == 2500
    marks: list[Mark] = [
        Done(job.id, job.claim + (n % 50 == 0)) if n % 3 else TryAgain(job.id, job.claim, 0, str(n))
        for n, job in enumerate(jobs)
    ]
    kept = await hot.mark(*marks)
    assert kept == [LOST if n % 3 and n % 50 == 0 else YES for n in range(2500)]


async def test_a_mark_that_this_store_does_not_keep_is_refused_before_any_is_kept(hot: Hot) -> None:
    await hot.push("1")
    (job,) = (await hot.claim()).jobs
    with pytest.raises(StoreError, match="Job"):
        await hot.mark(Done(job.id, job.claim), cast("Mark", job))
    assert await hot.mark(Done(job.id, job.claim)) == [YES]

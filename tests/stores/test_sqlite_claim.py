"""The claim and the marks on SQLite beyond the suite: plans, columns of issues to come, ids, texts, the twin push."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from fastjobs.core.claiming import Claimable
from fastjobs.core.errors import StoreError
from fastjobs.core.exhausted import exhausted_text
from fastjobs.core.job import NewJob
from fastjobs.core.marks import Done, Extend, Fail, Kept, TryAgain
from fastjobs.stores.sql.dialects.sqlite.keyed_statements import Keyed, make_keyed
from fastjobs.stores.sql.dialects.sqlite.statements import Statements, make_statements
from fastjobs.stores.sql.store import SQLStore
from fastjobs.stores.sql.tables import make_tables
from fastjobs.testing import Clock

pytestmark = pytest.mark.anyio

SECOND = 1_000_000
MAIL = Claimable(kind="mail", hold=60 * SECOND, attempts=5)


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


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def execute(path: Path, sql: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute(sql)
    finally:
        connection.close()


def _parameters(name: str) -> tuple[object, ...]:
    return {
        "look": ('["mail"]',),
        "look_all": ('["mail"]',),
        "news": (),
        "reap": ("mail", 5),
        "heads": ("mail", 5, 0, 9),
        "take": (5, "[1]"),
        "exhaust": (5, "x", 1),
        "done": (1, 1),
        "try_again": (5, "x", 1, 1),
        "fail": (5, "x", 1, 1),
        "give_back": (5, "x", 1, 1),
        "extend": (5, 1, 1, 5),
        "runs": ('["nightly"]',),
        "note_run": ("nightly", 5),
        "insert": ("mail", "1", 5, 5, None, b"k", b"k", b"k", 5, "n", 5),
        "insert_unique": ("mail", "1", 5, 5, None, b"k", None),
        "named": ("n", "n", 5),
        "waiting": ("mail", b"k"),
        "move": (5, 1),
        "holder": ("mail", b"k", 5),
        "park": ("[1]",),
        "wake": ("mail", b"k"),
        "wake_reaped": ("mail", 5),
        "held": ("mail", 5, 9),
        "keep_name": ("n", 5),
        "cancel": (1, 5),
        "ask_to_stop": (1,),
        "progress": ("1", 1, 1),
        "delete": ("[1]",),
        "hold_back": ("mail", 5, 5),
        "keys": ("", b"", 9, 5),
        "old": (5, 5, 5),
        "prune_failed": (5, 9),
        "prune_names": (5, 9),
        "prune_throttles": (5, 9),
        "places": ("n", "k", 5, 5),
        "take_places": ("n", "k", 5, 5, "[1]"),
        "settle_places": (5, 5, "n", "k", 5, "[1]"),
        "free_places": ("n", "k", 5, "[1]"),
    }[name]


@pytest.mark.parametrize("statistics", ["none", "of an empty table", "wrong"])
async def test_no_statement_of_a_claim_or_a_mark_reads_all_jobs(
    store: SQLStore, path: Path, statistics: str
) -> None:
    if statistics == "of an empty table":
        execute(path, "ANALYZE")
    await store.push([NewJob(kind="mail", payload=str(n)) for n in range(200)])
    if statistics == "wrong":
        execute(path, "ANALYZE")
        execute(path, "UPDATE sqlite_stat1 SET stat = '3 3 3' WHERE idx IS NOT NULL")
    tables = make_tables()
    both = (Statements, make_statements(tables)), (Keyed, make_keyed(tables))
    connection = sqlite3.connect(path)
    try:
        for name, text in ((name, getattr(texts, name)) for kind, texts in both for name in kind.__slots__):
            if name in ("push", "new_kind", "known_kinds"):
                continue
            plan = connection.execute("EXPLAIN QUERY PLAN " + text, _parameters(name)).fetchall()
            steps = [str(step[3]) for step in plan]
            reads = [
                step for step in steps if re.match(r"(SCAN|SEARCH) (fastjobs_(?!kinds)|[jphwn]\b)", step)
            ]
            assert reads or name in (
                "insert",
                "insert_unique",
                "keep_name",
                "hold_back",
                "take_places",
                "note_run",
            ), f"{name}: {steps}"
            assert all(step.startswith("SEARCH") for step in reads), f"{name}: {steps}"
            assert not any("TEMP B-TREE FOR ORDER" in step for step in steps), f"{name}: {steps}"
    finally:
        connection.close()


@pytest.mark.parametrize(
    "text",
    ["a\0b", '"\\u0000\\ud800"', "é∑🎉", "'; DROP TABLE fastjobs_jobs; --", "x" * 200_000, ""],
    ids=len,
)
async def test_a_payload_comes_back_as_it_was_pushed(store: SQLStore, text: str) -> None:
    await store.push([NewJob(kind="mail", payload=text, carried=text)])
    (job,) = (await store.claim([MAIL], 1)).jobs
    assert job.payload == text
    assert job.carried == text


@pytest.mark.parametrize("error", ["x\0y", "\ud800", "x" * 50_000, "naïve ☠"], ids=len)
async def test_any_text_of_an_error_is_kept(store: SQLStore, error: str) -> None:
    await store.push([NewJob(kind="mail", payload="1")])
    (job,) = (await store.claim([MAIL], 1)).jobs
    assert await store.mark([TryAgain(job.id, job.claim, 0, error)]) == [Kept.YES]
    (job,) = (await store.claim([MAIL], 1)).jobs
    assert job.error
    assert len(job.error.encode()) <= 4096
    assert "\0" not in job.error
    assert await store.mark([Fail(job.id, job.claim, error)]) == [Kept.YES]
    (failed,) = await store.failed()
    assert failed.error == job.error


@pytest.mark.parametrize("id", ["", "x", "-1", "1.0", "01", "١", " 1", str(2**63), "9" * 400, "1; --"])
async def test_an_id_of_no_job_is_lost_and_no_error(store: SQLStore, id: str) -> None:
    await store.push([NewJob(kind="mail", payload="1")])
    (job,) = (await store.claim([MAIL], 1)).jobs
    assert await store.mark([Done(id, 1), Extend(id, 1, SECOND), Fail(id, 1, "x")]) == [Kept.LOST] * 3
    assert await store.run_again([id]) == [False]
    assert await store.delete([id]) == [False]
    assert await store.failed(after=(5, id)) == []
    assert await store.mark([Done(job.id, 2**70), Done(job.id, -1), Done(job.id, job.claim)]) == [
        Kept.LOST,
        Kept.LOST,
        Kept.YES,
    ]


async def test_marks_of_one_batch_are_kept_in_their_order(store: SQLStore, clock: Clock) -> None:
    await store.push([NewJob(kind="mail", payload=str(n)) for n in range(3)])
    a, b, c = (await store.claim([MAIL], 3)).jobs
    kept = await store.mark(
        [
            Done(b.id, b.claim + 1),
            TryAgain(a.id, a.claim, 0, "first"),
            Done(a.id, a.claim),
            Done(b.id, b.claim),
            Done(b.id, b.claim),
            Done(c.id, c.claim),
            Fail(c.id, c.claim, "late"),
        ]
    )
    assert kept == [Kept.LOST, Kept.YES, Kept.LOST, Kept.YES, Kept.LOST, Kept.YES, Kept.LOST]
    assert [job.error for job in (await store.claim([MAIL], 5)).jobs] == ["first"]


async def test_a_kind_that_is_held_back_or_paused_is_passed_over_until_it_is_not(
    store: SQLStore, path: Path, clock: Clock
) -> None:
    await store.push([NewJob(kind="mail", payload="1"), NewJob(kind="photo", payload="2")])
    execute(path, f"UPDATE fastjobs_kinds SET held_until = {clock.now() + 5 * SECOND} WHERE kind = 'mail'")
    execute(path, "UPDATE fastjobs_kinds SET paused = 1 WHERE kind = 'photo'")
    kinds = [MAIL, Claimable(kind="photo", hold=SECOND, attempts=1)]
    found = await store.claim(kinds, 5)
    assert (found.jobs, found.next_in) == ([], 5 * SECOND)
    clock.advance(5)
    assert [job.payload for job in (await store.claim(kinds, 5)).jobs] == ["1"]
    execute(path, "UPDATE fastjobs_kinds SET paused = 0")
    assert [job.payload for job in (await store.claim(kinds, 5)).jobs] == ["2"]


async def test_an_extend_of_a_job_that_was_asked_to_stop_says_so(store: SQLStore, path: Path) -> None:
    await store.push([NewJob(kind="mail", payload="1")])
    (job,) = (await store.claim([MAIL], 1)).jobs
    execute(path, "UPDATE fastjobs_jobs SET stop_asked = 1")
    assert await store.mark([Extend(job.id, job.claim, SECOND)]) == [Kept.STOP]


async def test_thousands_of_exhausted_jobs_are_failed_in_steps(store: SQLStore) -> None:
    await store.push([NewJob(kind="mail", payload=str(n)) for n in range(25)])
    spent = Claimable(kind="mail", hold=SECOND, attempts=0)
    found = await store.claim([spent], 10)
    assert (len(found.jobs), len(found.exhausted), found.again) == (0, 10, True)
    while found.again:
        found = await store.claim([spent], 10)
    assert len(await store.failed()) == 25


async def test_a_lost_worker_is_named_in_the_error_of_a_job_out_of_attempts(
    store: SQLStore, clock: Clock
) -> None:
    await store.push([NewJob(kind="mail", payload="1")])
    once = Claimable(kind="mail", hold=SECOND, attempts=2)
    for _ in range(2):
        assert len((await store.claim([once], 1)).jobs) == 1
        clock.advance(2)
    (job,) = (await store.claim([once], 1)).exhausted
    assert (job.attempts, job.lost, job.error) == (2, 2, None)
    (failed,) = await store.failed()
    assert failed.error == exhausted_text(2, 2, None, 2)


async def test_the_raw_push_and_the_push_of_a_transaction_leave_the_same_rows(
    clock: Clock, path: Path, store: SQLStore
) -> None:
    jobs = [
        NewJob(kind="mail", payload='"a\\u0000"', carried='{"x":"y"}'),
        NewJob(kind="new-kind", payload="1", after=3 * SECOND),
        NewJob(kind="mail", payload="[]", at=12345),
    ]
    ids = await store.push(jobs)
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        more = store.within(connection, lambda: None).push(jobs)
    engine.dispose()
    assert isinstance(more, list)
    raw = rows(path, f"SELECT * FROM fastjobs_jobs WHERE id <= {ids[-1]} ORDER BY id")
    twin = rows(path, f"SELECT * FROM fastjobs_jobs WHERE id > {ids[-1]} ORDER BY id")
    assert [row[1:] for row in raw] == [row[1:] for row in twin]
    assert [str(row[0]) for row in twin] == more
    assert rows(path, "SELECT kind FROM fastjobs_kinds ORDER BY 1") == [("mail",), ("new-kind",)]


async def test_every_name_begins_with_the_prefix(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "two.db"
    engine = create_engine(f"sqlite:///{path}")
    stores = [SQLStore(engine, prefix=prefix, clock=clock) for prefix in ("fastjobs_", "other_")]
    for n, store in enumerate(stores):
        await store.push([NewJob(kind="mail", payload=str(n))])
    for n, store in enumerate(stores):
        assert [job.payload for job in (await store.claim([MAIL], 5)).jobs] == [str(n)]
        await store.close()
    names = [name for (name,) in rows(path, "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite%'")]
    assert all(str(name).startswith(("fastjobs_", "other_")) for name in names)
    assert sum(str(name).startswith("other_") for name in names) * 2 == len(names)


@pytest.mark.parametrize("prefix", ["", "1x", "X", 'a"b', "a" * 32, "a b", "é"])
def test_a_prefix_that_is_no_identifier_is_refused(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(StoreError, match="a prefix is"):
        SQLStore(create_engine(f"sqlite:///{tmp_path}/a.db"), prefix=prefix)

"""Claims, marks and pushes on MySQL and MariaDB read by indexes alone, whatever the statistics say, and lock what they
take.

Each statement's plan is looked at before it's run, and what it reads is counted, among 60,000 jobs that it has nothing
to do with: with statistics of the empty table and of the full one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import pymysql
import pytest
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.core.job import NewJob
from fastjobs.core.marks import Done, Extend, Fail, GiveBack, HoldBack, Kept, Mark, TryAgain
from fastjobs.stores.sql.dialects.mysql import acting, keyed, marks, push, upkeep
from fastjobs.stores.sql.dialects.mysql import claim as claiming
from fastjobs.stores.sql.dialects.mysql.statements import make_statements
from fastjobs.stores.sql.dialects.mysql.steps import Found, Step, Steps, sent
from fastjobs.stores.sql.server.floors import FULL_EACH, Floors
from fastjobs.stores.sql.server.wanted import Wanted
from fastjobs.stores.sql.store import SQLStore
from fastjobs.stores.sql.tables import make_tables
from tests.databases.mysql import Database, Server

pytestmark = pytest.mark.timeout(120)

_T = TypeVar("_T")

TEXTS = make_statements(make_tables(dialect="mysql"))
SECOND = 1_000_000
HOLD = 60 * SECOND
NOW = 1_700_000_000 * SECOND
EACH = 10_000
KINDS = ("mail", "photo", "report", "back", "few")
_DIGITS = " CROSS JOIN ".join(f"(SELECT {' UNION ALL SELECT '.join('0123456789')}) AS d{n}" for n in range(4))
# What no claim here takes: future ones, those of a kind held back, failed ones, held ones, parked ones, other kinds'.
_BACKLOG = f"""
INSERT INTO fastjobs_jobs (kind, payload, run_at, state, held_until, failed_at, claim, attempts, alone_key)
SELECT kind, 'null', run_at, state, held_until, failed_at, 1, 1, alone_key FROM (
 SELECT 'mail' AS kind, {NOW + 99 * SECOND} AS run_at, 0 AS state, 0 AS held_until, NULL AS failed_at, NULL AS alone_key
 UNION ALL SELECT 'back', {NOW - 600 * SECOND}, 0, 0, NULL, NULL
 UNION ALL SELECT 'mail', {NOW - 600 * SECOND}, 3, 0, {NOW}, NULL
 UNION ALL SELECT 'mail', {NOW - 600 * SECOND}, 1, {NOW + HOLD}, NULL, NULL
 UNION ALL SELECT 'photo', {NOW - 600 * SECOND}, 2, 0, NULL, REPEAT('z', 32)
 UNION ALL SELECT 'other', {NOW - 600 * SECOND}, 0, 0, NULL, NULL
) AS each_sort CROSS JOIN {_DIGITS}
"""


def of(kind: str = "mail", **numbers: Any) -> Claimable:
    """A claimer's numbers for a kind."""
    return replace(Claimable(kind=kind, hold=HOLD, attempts=5), **numbers)


class Hot:
    """The hot statements on one connection."""

    def __init__(self, connection: pymysql.Connection[Any]) -> None:
        self._cursor = connection.cursor()
        self._cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        self.read: list[tuple[int, str]] = []
        """How many rows and entries of indexes each statement has read."""
        self.explains = True

    def take(self, steps: Steps[_T]) -> _T:
        """Takes the steps in one transaction, and looks at each statement's plan before."""
        with self.transaction():
            return self.go(steps)

    @contextmanager
    def transaction(self) -> Generator[None]:
        self._cursor.execute("START TRANSACTION")
        try:
            yield
        except BaseException:
            self._cursor.execute("ROLLBACK")
            raise
        self._cursor.execute("COMMIT")

    def go(self, steps: Steps[_T]) -> _T:
        """Takes the steps."""
        try:
            step = next(steps)
            while True:
                step = steps.send(self._do(step))
        except StopIteration as end:
            answer: _T = end.value
            return answer

    def _do(self, step: Step) -> Found:
        text, values = sent(step)
        if not self.explains:
            return self._run(text, values)
        self._explain(text, values)
        before, start = self._reads(), self._reads()
        found = self._run(text, values)
        # To ask for the counts reads something itself.
        self.read.append((self._reads() - start - (start - before), text))
        return found

    def _run(self, text: str, values: Any) -> Found:
        self._cursor.execute(text, values)
        rows = self._cursor.fetchall() if self._cursor.description else ()
        return Found(rows, self._cursor.lastrowid or 0)

    def _reads(self) -> int:
        self._cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
        return sum(int(number) for _, number in self._cursor.fetchall())

    def _explain(self, text: str, values: Any) -> None:
        self._cursor.execute(f"EXPLAIN FORMAT=TRADITIONAL {text}", values)
        assert self._cursor.description is not None
        names = [column[0] for column in self._cursor.description]
        for row in self._cursor.fetchall():
            plan = dict(zip(names, row, strict=True))
            table, extra = str(plan["table"]), plan["Extra"] or ""
            assert "filesort" not in extra, (text, plan)
            assert "temporary" not in extra or _may_have_temporary(plan), (text, plan)
            is_one = table != "None" and not table.startswith("<") and plan["select_type"] != "INSERT"
            # There are as many slots as jobs that are held one at a time, and a prune looks at each.
            if is_one and not _is_derived(text, table) and text != TEXTS.old_slots:
                assert plan["key"] is not None, (text, plan)
                assert plan["type"] not in ("ALL", "index") or int(plan["rows"]) <= len(KINDS), (text, plan)

    def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        return self.take(push.push(TEXTS, jobs, NOW, 1 << 24, 1, waits=False))

    def claim(
        self, *kinds: Claimable, limit: int, others: Claimable | None = None, now: int = NOW, ahead: int = 0
    ) -> Claimed:
        asked = claiming.Asked(TEXTS, Wanted(kinds, limit, ahead, others), now, Floors())
        with self.transaction():
            return self.claim_within(asked)

    def claim_within(self, asked: claiming.Asked) -> Claimed:
        seen = self.go(claiming.look(asked))
        nothing = claiming.found_nothing(asked, seen)
        return self.go(claiming.claim(asked, seen)) if nothing is None else nothing

    def mark(self, *some: Mark, now: int = NOW) -> list[Kept]:
        answers = [Kept.LOST] * len(some)
        for batch in marks.batches(some):
            for place, kept in self.take(marks.mark(TEXTS, batch, now)).answers.items():
                answers[place] = kept
        return answers

    def reads_at_most(self, most: int) -> None:
        """None of the statements since the last call has read more."""
        seen, self.read = self.read, []
        assert seen
        worst = max(seen)
        assert worst[0] <= most, worst


def _may_have_temporary(plan: dict[str, Any]) -> bool:
    # MariaDB and MySQL put a UNION's rows into one, and what an INSERT … SELECT reads from a derived table.
    return str(plan["table"]).startswith(("<union", "<derived")) or "json_table" in plan["Extra"]


def _is_derived(text: str, table: str) -> bool:
    """Whether the name is one of constants that the statement has itself."""
    return re.search(rf"\) AS {re.escape(table)}\b", text) is not None


def _made_on(server: Server) -> Database:
    database = server.create_database()

    async def make() -> None:
        engine = create_async_engine(database.url("asyncmy"), poolclass=NullPool)
        store = SQLStore(engine)
        await store.open(KINDS)
        await store.close()
        await engine.dispose()

    asyncio.run(make())
    return database


@pytest.fixture(scope="module")
def made(mysql_server: Server) -> Iterator[Database]:
    """A database with the tables in it."""
    database = _made_on(mysql_server)
    yield database
    database.drop()


@pytest.fixture
def database(made: Database) -> Database:
    made.clear(keep=["fastjobs_schema", "fastjobs_kinds"])
    return made


def _uses_indexes_alone(hot: Hot) -> None:
    """Does each thing once, and sees that nothing has read much more than it has to do with."""
    plain = [NewJob("mail", f"{n}") for n in range(200)]
    keyed_ones = [
        NewJob("photo", f"{n}", key=bytes([n // 2 + 1]) * 32, one_at_a_time=True) for n in range(0, 40, 2)
    ]
    hot.push(plain)
    hot.push([*keyed_ones, *(NewJob("photo", "0", key=b"\x01" * 32, one_at_a_time=True) for _ in range(2))])
    hot.push([NewJob("report", "0", name="report-1", keep_name=SECOND)])
    hot.push([NewJob("report", "0", key=b"k" * 32, latest=True, after=HOLD)])
    hot.reads_at_most(150)

    assert len(hot.claim(of(), limit=10).jobs) == 10
    hot.reads_at_most(40)
    hundred = hot.claim(of(), of("back"), limit=100).jobs
    assert len(hundred) == 100
    hot.reads_at_most(310)
    assert not hot.claim(of("back"), limit=10).jobs
    hot.reads_at_most(10)
    photos = hot.claim(of("photo"), limit=100).jobs
    assert len(photos) == 20
    hot.reads_at_most(150)
    # Those of the same keys are parked, and woken as these end.
    assert len({*hot.push(keyed_ones)} - {None}) == 20
    assert not hot.claim(of("photo"), limit=100).jobs
    hot.reads_at_most(250)
    assert {*hot.mark(*(Done(job.id, job.claim) for job in photos))} == {Kept.YES}
    hot.reads_at_most(150)
    photos = hot.claim(of("photo"), limit=100).jobs
    assert len(photos) == 20
    hot.mark(*(Fail(job.id, job.claim, "it failed") for job in photos[:10]))
    hot.mark(*(GiveBack(job.id, job.claim) for job in photos[10:]))
    hot.reads_at_most(150)

    few = [NewJob("few", "0") for _ in range(10)]
    hot.push(few)
    held = hot.claim(of("few", at_once=4), limit=10).jobs
    assert len(held) == 4
    assert not hot.claim(of("few", at_once=4), limit=10).jobs
    hot.reads_at_most(60)
    hot.mark(*(HoldBack(job.id, job.claim, kind_for=0) for job in held))
    rest = hot.claim(of(), of("few"), others=of("", limit=20, ahead_ok=False), limit=300, ahead=5).jobs
    assert {job.kind for job in rest} >= {"mail", "few"}
    hot.reads_at_most(900)

    some = hundred[:40]
    hot.mark(*(Extend(job.id, job.claim, HOLD) for job in some))
    hot.mark(*(TryAgain(job.id, job.claim, 99 * SECOND, "later") for job in some[:10]))
    hot.mark(*(Fail(job.id, job.claim, "it failed") for job in some[10:20]))
    hot.mark(*(Done(job.id, job.claim) for job in some[20:]))
    hot.reads_at_most(250)
    assert {*hot.mark(*(Done(job.id, job.claim) for job in some[20:]))} == {Kept.LOST}
    hot.reads_at_most(60)

    # Their holds run out.
    late = hundred[40:]
    hot.mark(*(Extend(job.id, job.claim, SECOND) for job in late))
    again = hot.claim(of(), limit=10, now=NOW + 2 * SECOND).jobs
    assert [job.lost for job in again] == [1] * 10
    hot.reads_at_most(330)

    found: dict[int, Any] = {}
    hot.take(acting._cancel(TEXTS, [int(job.id) for job in again], NOW, found))
    assert len(found) == 10
    hot.take(keyed.promote(TEXTS, {("photo", bytes([n]) * 32) for n in range(20)}))
    assert hot.take(upkeep._parked_kinds(TEXTS)) is not None
    hot.take(upkeep._asleep(TEXTS, "photo", NOW))
    hot.reads_at_most(130)
    hot.take(upkeep._prune(TEXTS, NOW - SECOND, 50, NOW))
    hot.reads_at_most(120)


def test_nothing_hot_reads_more_than_it_takes_whatever_the_statistics(database: Database) -> None:
    with closing(database.connect(user="root")) as owner, owner.cursor() as cursor:
        cursor.execute("ALTER TABLE fastjobs_jobs STATS_PERSISTENT = 1, STATS_AUTO_RECALC = 0")
        cursor.execute("ANALYZE TABLE fastjobs_jobs")
        cursor.fetchall()
        cursor.execute(f"UPDATE fastjobs_kinds SET held_until = {NOW + HOLD} WHERE kind = 'back'")
        cursor.execute(_BACKLOG)
        assert cursor.rowcount == 6 * EACH
        for statistics in ("of the empty table", "of the full one"):
            if statistics == "of the full one":
                cursor.execute("DELETE FROM fastjobs_jobs WHERE payload <> 'null'")
                cursor.execute("DELETE FROM fastjobs_slots")
                cursor.execute("DELETE FROM fastjobs_names")
                cursor.execute("ANALYZE TABLE fastjobs_jobs")
                cursor.fetchall()
            with closing(database.connect()) as connection:
                _uses_indexes_alone(Hot(connection))


def _free(connection: pymysql.Connection[Any]) -> dict[str, int]:
    """How many rows of each kind nobody has locked."""
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        cursor.execute("START TRANSACTION")
        cursor.execute("SELECT kind FROM fastjobs_jobs FORCE INDEX (PRIMARY) FOR UPDATE SKIP LOCKED")
        kinds = [row[0] for row in cursor.fetchall()]
        cursor.execute("ROLLBACK")
        return {kind: kinds.count(kind) for kind in KINDS}


def test_a_claim_and_its_marks_lock_no_more_than_they_take(database: Database) -> None:
    with closing(database.connect()) as first, closing(database.connect()) as second:
        hot = Hot(first)
        hot.explains = False
        hot.push([NewJob("mail", "0") for _ in range(100)])
        hot.push([NewJob("mail", "0", after=HOLD) for _ in range(5)])
        hot.push([NewJob("photo", "0", key=bytes([n]) * 32, one_at_a_time=True) for n in range(1, 6)])
        hot.push([NewJob("few", "0") for _ in range(5)])
        everything = {"mail": 105, "photo": 5, "report": 0, "back": 0, "few": 5}
        assert _free(second) == everything
        for kinds, limit, locked in (
            ([of()], 10, {"mail": 10}),
            # It takes all that is due: what is due later stands right behind.
            ([of()], 200, {"mail": 100}),
            # The jobs that were due first are mail's.
            ([of(), of("photo"), of("few")], 102, {"mail": 100, "photo": 2}),
            ([of("few", at_once=2)], 5, {"few": 2}),
        ):
            asked = claiming.Asked(TEXTS, Wanted(tuple(kinds), limit, 0, None), NOW, Floors())
            with pytest.raises(ZeroDivisionError), hot.transaction():
                claimed = hot.claim_within(asked)
                assert len(claimed.jobs) == sum(locked.values())
                assert _free(second) == {
                    kind: many - locked.get(kind, 0) for kind, many in everything.items()
                }
                raise ZeroDivisionError
        jobs = hot.claim(of(), limit=10).jobs
        (batch,) = marks.batches([Done(job.id, job.claim) for job in jobs[:5]])
        with hot.transaction():
            hot.go(marks.mark(TEXTS, batch, NOW))
            assert _free(second) == {**everything, "mail": 100}


def test_claims_begin_at_floors_while_a_transaction_keeps_what_is_done_in_their_way(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    # There are some thousand entries here; what is slow begins at tens of thousands.
    monkeypatch.setattr(claiming, "_SLOW", 300)
    with (
        closing(database.connect()) as older,
        closing(database.connect()) as connection,
        older.cursor() as cursor,
    ):
        hot = Hot(connection)
        hot.explains = False
        hot.push([NewJob("mail", f"{n}", at=NOW - SECOND + n) for n in range(2_600)])
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        cursor.execute("UPDATE fastjobs_kinds SET first_seen = 1 WHERE kind = 'few'")
        floors, at = Floors(), NOW

        def claims(most: int, now: int) -> list[str]:
            asked = claiming.Asked(TEXTS, Wanted((of(),), most, 0, None), now, floors)
            with hot.transaction():
                jobs = hot.claim_within(asked).jobs
            hot.mark(*(Done(job.id, job.claim) for job in jobs))
            return [job.payload for job in jobs]

        assert len(claims(1_000, at) + claims(1_000, at)) == 2_000
        taken = 2_000
        while not floors.is_used():
            # Two in a row are slow, unless the machine had the quick one of them wait.
            assert claims(1, at) == [str(taken)]
            taken += 1
        assert claims(1, at) == [str(taken)]
        # Another instance's, which is due before those, is found by one of each half second that looks at all.
        database.execute(
            f"INSERT INTO fastjobs_jobs (kind, payload, run_at) VALUES ('mail', 'early', {NOW - HOLD})"
        )
        assert claims(1, at) == [str(taken + 1)]
        asked = claiming.Asked(TEXTS, Wanted((of("photo"),), 1, 0, None), at, floors)
        with hot.transaction():
            assert hot.claim_within(asked).next_in == FULL_EACH
        assert claims(2, at + FULL_EACH) == ["early", str(taken + 2)]
        cursor.execute("ROLLBACK")

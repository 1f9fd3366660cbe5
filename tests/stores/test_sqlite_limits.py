"""What holds a kind's jobs back costs SQLite's claims nothing, however many wait: counted in steps of its machine."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sqlalchemy import create_engine

from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.core.job import NewJob
from fastjobs.core.marks import Done, Fail, GiveBack, HoldBack, Kept, Mark, TryAgain
from fastjobs.store import Throttled
from fastjobs.stores.sql.dialects.sqlite.database import SQLite
from fastjobs.stores.sql.dialects.sqlite.picking import PARKED
from fastjobs.stores.sql.dialects.sqlite.writer import Call
from fastjobs.stores.sql.store import SQLStore
from fastjobs.testing import Clock

pytestmark = pytest.mark.anyio

_T = TypeVar("_T")
SECOND = 1_000_000
HOLD = 600 * SECOND
MAIL = Claimable(kind="mail", hold=HOLD, attempts=5)
HELD = Claimable(kind="held", hold=HOLD, attempts=5)
PHOTO = Claimable(kind="photo", hold=HOLD, attempts=5, at_once=2, ahead_ok=False)
ACCOUNT = Claimable(kind="account", hold=HOLD, attempts=5, ahead_ok=False)
MANY = 100_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


@pytest.fixture
async def store(clock: Clock, path: Path) -> AsyncIterator[SQLStore]:
    store = SQLStore(create_engine(f"sqlite:///{path}"), clock=clock, synchronous="NORMAL")
    await store.open([MAIL.kind, HELD.kind, PHOTO.kind, ACCOUNT.kind])
    yield store
    await store.close()


def insert(path: Path, kind: str, many: int, run_at: int, *, key: str = "NULL") -> None:
    """Jobs that are due; `key` is the SQL of their alone key, of `value` from 1 on."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(
            "WITH RECURSIVE n(value) AS (VALUES (1) UNION ALL SELECT value + 1 FROM n WHERE value < ?)"
            f" INSERT INTO fastjobs_jobs (kind, payload, run_at, own_key, alone_key)"
            f" SELECT ?, '1', ?, {key}, {key} FROM n",
            (many, kind, run_at),
        )
    connection.close()


@contextmanager
def write_lock(path: Path) -> Generator[None]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield
    connection.execute("ROLLBACK")
    connection.close()


def value(path: Path, sql: str) -> int:
    connection = sqlite3.connect(path)
    try:
        found: int = connection.execute(sql).fetchone()[0]
        return found
    finally:
        connection.close()


def alone(key: bytes, payload: str = "1", after: int = 0, name: str | None = None) -> NewJob:
    return NewJob(
        kind="account", payload=payload, after=after, key=key.ljust(32), one_at_a_time=True, name=name
    )


async def steps(store: SQLStore, work: Callable[[], Coroutine[Any, Any, _T]]) -> tuple[int, _T]:
    """How many steps SQLite's machine makes on the writer's connection, in tens."""
    database = store._database
    assert isinstance(database, SQLite)
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    await database._call(Call(lambda opened: opened.raw.set_progress_handler(step, 10)))
    answer = await work()
    await database._call(Call(lambda opened: opened.raw.set_progress_handler(None, 10)))
    return count, answer


KINDS = [MAIL, HELD, PHOTO, ACCOUNT]


@pytest.mark.timeout(120)
async def test_a_claim_is_as_cheap_with_a_hundred_thousand_blocked_jobs_of_each_sort(
    store: SQLStore, path: Path, clock: Clock
) -> None:
    now = clock.now()
    insert(path, "mail", 2000, now - SECOND)

    async def cost() -> dict[int, int]:
        found: dict[int, int] = {}
        for n in (1, 10, 100):

            async def one(n: int = n) -> Claimed:
                return await store.claim(KINDS, n)

            found[n], claimed = await steps(store, one)
            assert len(claimed.jobs) == n
        return found

    without = await cost()
    # A kind that is held back, one at its limit, and one key that is held: all before the others in due order.
    await store.push(
        [NewJob(kind="held", payload="1"), *[NewJob(kind="photo", payload="1")] * 2, alone(b"1")]
    )
    first = (await store.claim([HELD], 1)).jobs[0]
    assert await store.mark([HoldBack(first.id, first.claim, 3600 * SECOND)]) == [Kept.YES]
    assert len((await store.claim([PHOTO], 5)).jobs) == 2
    (holder,) = (await store.claim([ACCOUNT], 1)).jobs
    insert(path, "held", MANY, now - 9 * SECOND)
    insert(path, "photo", MANY, now - 8 * SECOND)
    insert(path, "account", MANY, now - 7 * SECOND, key=f"x'{holder_key(b'1')}'")
    insert(path, "account", 10_000, now - 6 * SECOND, key="cast(printf('%032d', value) AS BLOB)")

    # Each of the blocked jobs of the key is passed over once, and no claim that does so comes back empty.
    for _ in range(MANY // PARKED):
        count, claimed = await steps(store, lambda: store.claim(KINDS, 1))
        assert len(claimed.jobs) == 1
        assert not claimed.again
        assert count < 20 * PARKED, "a claim did more than its part of the blocked jobs"
    assert value(path, "SELECT count(*) FROM fastjobs_jobs WHERE state = 2") == MANY
    with_all = await cost()
    for n, count in without.items():
        assert with_all[n] < 2 * count + 20, f"a claim of {n}: {without} without, {with_all} with all"

    # The key's next is woken by the end of its holder, one of a hundred thousand.
    count, kept = await steps(store, lambda: store.mark([Done(holder.id, holder.claim)]))
    assert kept == [Kept.YES]
    assert count < 50
    count, woken = await steps(store, store.sweep)
    assert woken == 1
    assert count < 50


def holder_key(key: bytes) -> str:
    return key.ljust(32).hex()


async def test_a_claim_of_blocked_kinds_alone_is_answered_by_a_read(store: SQLStore, path: Path) -> None:
    await store.push(
        [NewJob(kind="held", payload="1"), *[NewJob(kind="photo", payload="1")] * 9, alone(b"1")]
    )
    (held,) = (await store.claim([HELD], 1)).jobs
    await store.mark([HoldBack(held.id, held.claim, 60 * SECOND)])
    await store.claim([PHOTO, ACCOUNT], 5)
    await store.push([alone(b"1", "2")])
    kinds = [HELD, PHOTO, ACCOUNT]
    assert (await store.claim(kinds, 5)).jobs == []  # the job of the key is put aside here
    with write_lock(path):
        found = await store.claim(kinds, 5)
    assert (found.jobs, found.again, found.next_in) == ([], False, 60 * SECOND)


async def test_a_kind_without_room_says_that_it_has_due_jobs_and_writes_nothing(
    store: SQLStore, path: Path, clock: Clock
) -> None:
    none = Claimable(kind="mail", hold=SECOND, attempts=5, limit=0)
    await store.push([NewJob(kind="mail", payload="1")])
    with write_lock(path):  # a claim that would write waits here, and fails
        found = await store.claim([none], 5)
        assert (found.jobs, found.next_in) == ([], 0)
        found = await store.claim(
            [Claimable(kind="mail", hold=SECOND, attempts=5, ahead_ok=False)], 5, ahead=5
        )
        assert (found.jobs, found.next_in) == ([], 0)
    await store.claim([Claimable(kind="mail", hold=SECOND, attempts=5)], 1)
    assert (await store.claim([none], 5)).next_in is None
    clock.advance(2)
    assert (await store.claim([none], 5)).next_in == 0, "a job that lost its worker is due"


async def test_a_claim_that_leaves_blocked_jobs_for_the_next_asks_to_be_made_again(
    store: SQLStore, path: Path, clock: Clock
) -> None:
    await store.push([alone(b"1")])
    await store.claim([ACCOUNT], 1)
    insert(path, "account", PARKED + 1, clock.now() - SECOND, key=f"x'{holder_key(b'1')}'")
    await store.push([alone(b"2", '"free"')])
    found = await store.claim([ACCOUNT], 5)
    assert (found.jobs, found.again) == ([], True)
    found = await store.claim([ACCOUNT], 5)
    assert ([job.payload for job in found.jobs], found.again) == (['"free"'], False)


async def test_kinds_that_are_not_named_have_their_limit_together(store: SQLStore) -> None:
    await store.push([NewJob(kind=kind, payload="1") for kind in ("a", "b", "c", "mail") for _ in range(3)])
    others = Claimable(kind="", hold=HOLD, attempts=5, limit=4)
    found = await store.claim([MAIL], 20, others=others)
    kinds = [job.kind for job in found.jobs]
    assert (kinds.count("mail"), len(kinds)) == (3, 7)
    assert found.next_in == 0


async def test_an_exhausted_jobs_key_goes_to_the_next(store: SQLStore, clock: Clock) -> None:
    once = Claimable(kind="account", hold=SECOND, attempts=1)
    await store.push([alone(b"1", "1")])
    await store.claim([once], 1)
    await store.push([alone(b"1", "2")])
    assert (await store.claim([once], 1)).jobs == []
    clock.advance(2)
    found = await store.claim([once], 1)
    assert [job.payload for job in found.exhausted] == ["1"]
    assert [job.payload for job in [*found.jobs, *(await store.claim([once], 1)).jobs]] == ["2"]


async def test_a_waiting_job_without_attempts_left_wakes_the_next_of_its_key(
    store: SQLStore, clock: Clock
) -> None:
    await store.push([alone(b"1", "1")])
    (one,) = (await store.claim([ACCOUNT], 1)).jobs
    await store.push([alone(b"1", "2")])
    await store.claim([ACCOUNT], 1)
    await store.mark([TryAgain(one.id, one.claim, SECOND, "x")])
    (two,) = (await store.claim([ACCOUNT], 1)).jobs
    assert two.payload == "2"
    clock.advance(1)
    await store.push([alone(b"1", "3")])
    assert (await store.claim([ACCOUNT], 5)).jobs == []
    # Both of these come before the third in due order, one of them in its line, and neither may run once more.
    await store.mark([TryAgain(two.id, two.claim, 0, "x")])
    spent = Claimable(kind="account", hold=HOLD, attempts=1)
    first, second = await store.claim([spent], 1), await store.claim([spent], 1)
    assert (len(first.exhausted), first.jobs, first.again) == (1, [], True)
    assert (len(second.exhausted), [job.payload for job in second.jobs]) == (1, ["3"])


async def test_a_sweep_goes_on_past_what_one_read_answers(store: SQLStore, path: Path, clock: Clock) -> None:
    for n in range(3):
        insert(path, "account", 600, clock.now() - n, key="cast(printf('%032d', value) AS BLOB)")
    insert(path, "mail", 600, clock.now(), key="cast(printf('%032d', value) AS BLOB)")
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE fastjobs_jobs SET state = 2")
    connection.close()
    assert await store.sweep() == 1200
    assert value(path, "SELECT count(*) FROM fastjobs_jobs WHERE state = 0") == 1200
    late = value(
        path, "SELECT count(DISTINCT run_at) FROM fastjobs_jobs WHERE kind = 'account' AND state = 0"
    )
    assert late == 1, "it woke others than the earliest"
    assert await store.sweep() == 600
    found = await store.claim([MAIL, ACCOUNT], 5000)
    assert len(found.jobs) == 1200
    assert await store.sweep() == 0


async def test_a_prune_takes_no_more_than_it_was_asked_to(store: SQLStore, path: Path, clock: Clock) -> None:
    for n in range(4):
        await store.push([NewJob(kind="mail", payload="1", name=f"failed {n}", keep_name=9 * SECOND)])
        await store.push([NewJob(kind="mail", payload="1", name=f"done {n}", keep_name=SECOND)])
        failed, done = (await store.claim([MAIL], 2)).jobs
        await store.mark([Fail(failed.id, failed.claim, "x"), Done(done.id, done.claim)])
    (places,) = await store.take([Throttled("mails", "", 3, SECOND, 3)])
    await store.settle([(places, 3, clock.now())])
    assert await store.prune(SECOND, 100) == 0
    clock.advance(2)
    assert [await store.prune(SECOND, 3) for _ in range(5)] == [3, 3, 3, 2, 0]
    assert value(path, "SELECT count(*) FROM fastjobs_names") == 4, (
        "the names of what was pruned are kept still"
    )
    assert value(path, "SELECT count(*) FROM fastjobs_jobs") == 0
    clock.advance(10)
    assert await store.prune(SECOND, 0) == 0
    assert await store.prune(SECOND, 100) == 4


async def test_a_prune_lets_others_have_the_file_between_its_steps(
    store: SQLStore, path: Path, clock: Clock
) -> None:
    insert(path, "mail", 450, clock.now())
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE fastjobs_jobs SET state = 3, failed_at = 1")
    connection.close()
    database = store._database
    assert isinstance(database, SQLite)
    said: list[str] = []
    await database._call(Call(lambda opened: opened.raw.set_trace_callback(said.append)))
    said.clear()
    assert await store.prune(0, 500) == 450
    assert said.count("COMMIT") == 5
    assert sum("DELETE" in each and "jobs_failed" in each for each in said) == 5


async def test_a_counter_is_pruned_once_it_says_nothing_any_more(
    store: SQLStore, path: Path, clock: Clock
) -> None:
    week = 7 * 86_400
    (places,) = await store.take([Throttled("mails", "", 5, week * SECOND, 5)])
    clock.advance(5)
    await store.settle([(places, 5, clock.now())])
    clock.advance(week - 1)
    assert await store.prune(0, 100) == 0
    assert (await store.take([Throttled("mails", "", 5, week * SECOND, 5)]))[0].slots == ()
    clock.advance(1)
    assert await store.prune(0, 100) == 5
    assert value(path, "SELECT count(*) FROM fastjobs_throttles") == 0


async def test_starts_of_a_throttle_that_had_more_places_count_in_the_fewer(
    store: SQLStore, clock: Clock
) -> None:
    low = (await store.take([Throttled("mails", "", 5, SECOND, 3)]))[0]
    high = (await store.take([Throttled("mails", "", 5, SECOND, 2)]))[0]
    await store.settle([(low, 0, clock.now()), (high, 2, clock.now())])
    (taken,) = await store.take([Throttled("mails", "", 3, SECOND, 3)])
    assert len(taken.slots) == 1
    assert taken.wait == SECOND


async def test_marks_of_every_sort_in_one_batch_do_what_they_do_alone(store: SQLStore, path: Path) -> None:
    await store.push(
        [
            NewJob(kind="mail", payload='"plain"'),
            NewJob(kind="mail", payload='"named"', name="n", keep_name=60 * SECOND),
            NewJob(kind="mail", payload='"unique"', key=b"u" * 32),
            alone(b"1", '"alone"'),
        ]
    )
    jobs = (await store.claim([MAIL, ACCOUNT], 9)).jobs
    await store.push([alone(b"1", '"next"')])
    assert (await store.claim([ACCOUNT], 9)).jobs == []
    marks: list[Mark] = [
        Done(jobs[0].id, 1),
        Done(jobs[1].id, 1),
        GiveBack(jobs[2].id, 1),
        Done(jobs[3].id, 1),
    ]
    late: list[Mark] = [GiveBack(job.id, 1) for job in jobs]
    assert await store.mark([*marks, *late]) == [Kept.YES] * 4 + [Kept.LOST] * 4
    found = await store.claim([MAIL, ACCOUNT], 9)
    assert [json.loads(job.payload) for job in found.jobs] == ["unique", "next"]
    assert await store.push([NewJob(kind="mail", payload="2", name="n")]) == [None]

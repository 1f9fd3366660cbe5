"""Marks and a claim that are asked in one turn of the loop go as one statement, and each is answered for itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Generator, Sequence
from dataclasses import asdict
from typing import Any, cast

import psycopg
import pytest
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.core.job import Job, NewJob
from fastjobs.core.marks import Done, Extend, Fail, GiveBack, Kept, Mark, TryAgain
from fastjobs.store import Ender
from fastjobs.stores.sql.dialects.postgres.database import Postgres
from fastjobs.stores.sql.dialects.postgres.links import Link
from fastjobs.stores.sql.server import gathering, on_loop, pairing
from fastjobs.stores.sql.server.question import Question
from fastjobs.stores.sql.store import SQLStore
from fastjobs.testing import Clock
from tests.databases.postgres import Database
from tests.stores.test_postgres_gathering import DRIVERS, engine_of, locked, until_blocked

pytestmark = pytest.mark.anyio

HOLD = 60_000_000
MAIL = Claimable(kind="mail", hold=HOLD, attempts=5)
_NAMES = (
    "mark",
    "claim",
    "mark_and_claim",
    "push_and_claim",
    "push_many_and_claim",
    "push",
    "push_many",
    "push_alike",
)


@pytest.fixture(params=DRIVERS)
async def store(request: pytest.FixtureRequest, postgres_database: Database) -> AsyncIterator[SQLStore]:
    store = SQLStore(engine_of(postgres_database, request.param), clock=Clock())
    await store.open(["mail"])
    yield store
    await store.close()


@pytest.fixture
def sent(store: SQLStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was sent, in order."""
    sent: list[str] = []
    of_links: type[on_loop.OnLoop[Link]] = on_loop.OnLoop
    on_link, take = store._database, of_links.take
    assert isinstance(on_link, Postgres)
    names = {
        text: name
        for name, text in asdict(on_link.statements).items()
        if name.removesuffix("_notify") in _NAMES
    }

    async def taken(here: on_loop.OnLoop[Link]) -> Link:
        link = await take(here)
        if "fetch" not in vars(link):
            fetch = link.fetch

            async def noted(text: str, *values: object) -> Sequence[Sequence[object]]:
                if text in names:
                    sent.append(names[text].removesuffix("_notify"))
                return await fetch(text, *values)

            monkeypatch.setattr(link, "fetch", noted)
        return link

    monkeypatch.setattr(of_links, "take", taken)
    return sent


@contextlib.contextmanager
def _row_locked(database: Database, id: str) -> Generator[None, None, None]:
    with psycopg.connect(database.url()) as holder:
        holder.execute("SELECT FROM fastjobs_jobs WHERE id = %s FOR UPDATE", [int(id)])
        yield
        holder.rollback()


async def _push(store: SQLStore, *payloads: str, key: bytes | None = None) -> None:
    alone = key is not None
    await store.push([NewJob("mail", each, key=key, one_at_a_time=alone) for each in payloads])


async def _claim(store: SQLStore, limit: int = 1, term: Claimable = MAIL) -> list[Job]:
    return (await store.claim([term], limit)).jobs


def _both(
    store: SQLStore, *marks: Mark, limit: int = 1, term: Claimable = MAIL
) -> tuple[asyncio.Task[list[Kept]], asyncio.Task[Claimed]]:
    async def mark() -> list[Kept]:
        return await store.mark(marks)

    async def claim() -> Claimed:
        return await store.claim([term], limit)

    return asyncio.create_task(mark()), asyncio.create_task(claim())


async def test_a_place_that_a_mark_frees_is_taken_by_the_claim_beside_it(
    store: SQLStore, sent: list[str]
) -> None:
    term = Claimable(kind="mail", hold=HOLD, attempts=5, at_once=1, ahead_ok=False)
    await _push(store, "1", "2", "3")
    (job,) = await _claim(store, 3, term)
    sent.clear()
    for payload in ("2", "3"):
        marked, claimed = _both(store, Done(job.id, job.claim), limit=3, term=term)
        assert await marked == [Kept.YES]
        (job,) = (await claimed).jobs
        assert (job.payload, job.attempts, job.claim) == (payload, 1, 1)
    assert sent == ["mark_and_claim"] * 2
    marked, claimed = _both(store, Done(job.id, job.claim), limit=3, term=term)
    assert (await marked, (await claimed).jobs, (await claimed).next_in) == ([Kept.YES], [], None)


async def test_what_was_claimed_starts_before_the_mark_beside_it_is_told(
    store: SQLStore, sent: list[str]
) -> None:
    await _push(store, "1", "2")
    (job,) = await _claim(store)
    sent.clear()
    order: list[str] = []
    # As a worker is that waits for what the claim's caller has for it: its turn comes after that one's.
    waits: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def worker() -> None:
        await waits
        order.append("started")

    async def feed() -> None:
        await store.claim([MAIL], 1)
        waits.set_result(None)

    async def ledger() -> None:
        await store.mark([Done(job.id, job.claim)])
        order.append("told")

    await asyncio.gather(worker(), ledger(), feed())
    assert sent == ["mark_and_claim"]
    assert order == ["started", "told"]


async def test_each_mark_of_a_pair_has_its_own_answer(
    store: SQLStore, sent: list[str], postgres_database: Database
) -> None:
    await _push(store, *"1234567")
    done, again, fails, longer, stops, late, busy = await _claim(store, 7)
    await store.mark([Done(late.id, late.claim)])
    postgres_database.execute(f"UPDATE fastjobs_jobs SET stop_asked = 1 WHERE id = {int(stops.id)}")
    await _push(store, "8")
    sent.clear()
    with _row_locked(postgres_database, busy.id):
        marked, claimed = _both(
            store,
            Done(done.id, done.claim),
            TryAgain(again.id, again.claim, 5_000_000, "x"),
            Fail(fails.id, fails.claim, "y"),
            Extend(longer.id, longer.claim, HOLD),
            Extend(stops.id, stops.claim, HOLD),
            Done(late.id, late.claim),
            Done(busy.id, busy.claim),
            Done("no number", 1),
            limit=9,
        )
        assert await marked == [
            Kept.YES, Kept.YES, Kept.YES, Kept.YES, Kept.STOP, Kept.LOST, Kept.BUSY, Kept.LOST,
        ]  # fmt: skip
    assert [job.payload for job in (await claimed).jobs] == ["8"]
    # The claim saw what the marks beside it had put back.
    assert (await claimed).next_in == 5_000_000
    assert [job.error for job in await store.failed()] == ["y"]
    assert sent == ["mark_and_claim"]


async def test_marks_that_free_a_key_are_kept_before_the_claim_is_sent(
    store: SQLStore, sent: list[str]
) -> None:
    await _push(store, "1", key=b"k" * 32)
    (job,) = await _claim(store)
    await _push(store, "1", key=b"k" * 32)
    claimed = await store.claim([MAIL], 1)
    assert (claimed.jobs, claimed.again) == ([], True)  # it's parked
    sent.clear()
    marked, beside = _both(store, Done(job.id, job.claim))
    assert await marked == [Kept.YES]
    assert [each.payload for each in (await beside).jobs] == ["1"]
    # One transaction that has a slot and waits for another's might wait for ever.
    assert sent == ["mark_and_claim", "claim"]


@pytest.mark.parametrize("first", ["mark", "claim"])
async def test_what_is_wrong_with_a_claim_leaves_the_mark_beside_it(
    store: SQLStore, sent: list[str], first: str
) -> None:
    await _push(store, "1", "2")
    (job,) = await _claim(store)
    sent.clear()
    too_long = Claimable(kind="mail", hold=(1 << 63) - 1, attempts=5)
    if first == "mark":
        marked, claimed = _both(store, Done(job.id, job.claim), term=too_long)
    else:
        claimed = asyncio.ensure_future(store.claim([too_long], 1))
        marked = asyncio.ensure_future(store.mark([Done(job.id, job.claim)]))
    assert await marked == [Kept.YES]
    with pytest.raises(Exception, match="out of range"):
        await claimed
    assert sent == ["mark_and_claim", "mark", "claim"]
    assert [job.payload for job in await _claim(store, 9)] == ["2"]


async def test_what_is_wrong_with_a_mark_leaves_the_claim_beside_it(store: SQLStore) -> None:
    await _push(store, "1", "2")
    (job,) = await _claim(store)
    marked, claimed = _both(store, Extend(job.id, job.claim, (1 << 63) - 1))
    with pytest.raises(Exception, match=r"out of range|int64"):
        await marked
    assert [each.payload for each in (await claimed).jobs] == ["2"]


async def test_of_a_pair_the_claim_alone_is_cancelled_and_given_back(
    store: SQLStore, postgres_database: Database
) -> None:
    await _push(store, "1", "2")
    (job,) = await _claim(store)
    with locked(postgres_database):
        marked, claimed = _both(store, Done(job.id, job.claim))
        await until_blocked(postgres_database)
        claimed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claimed
        assert not marked.done()
    assert await marked == [Kept.YES]
    async with asyncio.timeout(10):
        while not (jobs := await _claim(store, 9)):
            await asyncio.sleep(0.01)
    assert [(job.payload, job.attempts) for job in jobs] == [("2", 1)]


async def test_of_a_pair_the_mark_alone_is_cancelled(store: SQLStore, postgres_database: Database) -> None:
    await _push(store, "1", "2")
    (job,) = await _claim(store)
    with locked(postgres_database):
        marked, claimed = _both(store, Done(job.id, job.claim))
        await until_blocked(postgres_database)
        marked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await marked
    assert [each.payload for each in (await claimed).jobs] == ["2"]
    assert await store.mark([Done(job.id, job.claim)]) == [Kept.LOST]  # it had been kept


async def test_a_claim_that_is_answered_in_the_turn_of_its_cancellation_is_given_back(
    store: SQLStore,
) -> None:
    await _push(store, "1")
    claim = asyncio.create_task(store.claim([MAIL], 1))
    settle: Any = cast("Any", Question).settle

    def settled(asked: Question[object, object], answer: object) -> bool:
        told: bool = settle(asked, answer)
        claim.cancel()
        return told

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Question, "settle", settled)
        with pytest.raises(asyncio.CancelledError):
            await claim
    async with asyncio.timeout(10):
        while not (jobs := await _claim(store, 9)):
            await asyncio.sleep(0.01)
    assert [job.attempts for job in jobs] == [1]


async def test_a_pair_whose_connection_ends_fails_for_both_and_is_asked_again(
    store: SQLStore, postgres_database: Database
) -> None:
    await _push(store, "1", "2")
    (job,) = await _claim(store)
    with locked(postgres_database):
        marked, claimed = _both(store, Done(job.id, job.claim))
        await until_blocked(postgres_database)
        postgres_database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        for task in (marked, claimed):
            with pytest.raises(Exception, match=r"terminating connection|connection was closed"):
                await task
    assert await store.mark([Done(job.id, job.claim)]) == [Kept.YES]
    assert [job.payload for job in await _claim(store, 9)] == ["2"]


@pytest.mark.parametrize("many", [False, True])
async def test_what_may_wait_goes_alone(store: SQLStore, sent: list[str], many: bool) -> None:
    """A mark that gives a key back waits for an app's transaction, and many marks take their time."""
    count = pairing.FEW + 1 if many else 1
    await _push(store, *map(str, range(count + 1)))
    jobs = await _claim(store, count)
    sent.clear()
    marks = [Done(job.id, job.claim) if many else GiveBack(job.id, job.claim, 5_000_000) for job in jobs]
    marked, claimed = _both(store, *marks)
    assert await marked == [Kept.YES] * count
    assert [job.payload for job in (await claimed).jobs] == [str(count)]
    assert sorted(sent) == ["claim", "mark"]


async def test_a_claim_that_waits_for_a_key_keeps_none_that_a_mark_has_freed(
    store: SQLStore, postgres_database: Database
) -> None:
    """Two that each had one and waited for the other's would be a deadlock."""
    x, y = b"x" * 32, b"y" * 32
    await store.push([NewJob("mail", key.decode(), key=key, one_at_a_time=True) for key in (x, y)])
    (job,) = await _claim(store)
    with psycopg.connect(postgres_database.url()) as other:
        other.execute(
            "INSERT INTO fastjobs_slots (kind, alone_key, job_id, claim, held_until) VALUES ('mail', %s, 0, 0, 0)",
            [y],
        )
        marked, claimed = _both(store, Done(job.id, job.claim))
        await until_blocked(postgres_database)
        freed = other.execute("SELECT FROM fastjobs_slots WHERE alone_key = %s FOR UPDATE NOWAIT", [x])
        assert freed.fetchall() == []
        other.rollback()
    assert await marked == [Kept.YES]
    assert [each.payload for each in (await claimed).jobs] == [y.decode()]


async def test_a_job_that_is_parked_as_the_transaction_commits_that_did_the_one_before_is_woken(
    store: SQLStore, postgres_database: Database
) -> None:
    key = b"k" * 32
    await _push(store, "1", key=key)
    (first,) = await _claim(store)
    await _push(store, "2", key=key)
    async with asyncio.timeout(20):
        with psycopg.connect(postgres_database.url()) as claim:
            # As a claim does that found the first one held, and hasn't committed yet.
            claim.execute("SELECT FROM fastjobs_slots FOR UPDATE")
            claim.execute("UPDATE fastjobs_jobs SET state = 2 WHERE payload = '2'")
            engine = create_async_engine(postgres_database.url("asyncpg"), poolclass=NullPool)
            async with engine.begin() as tx:
                assert await cast("Ender", store.done_within(tx, first)).done()
            await until_blocked(postgres_database)
            claim.commit()
        while not (jobs := await _claim(store)):
            await asyncio.sleep(0.01)
    assert [job.payload for job in jobs] == ["2"]


# A push and the claim beside it.


def _pushed(
    store: SQLStore, *payloads: str, limit: int = 9, term: Claimable = MAIL, **more: Any
) -> tuple[asyncio.Task[list[str | None]], asyncio.Task[Claimed]]:
    async def push() -> list[str | None]:
        return await store.push([NewJob("mail", each, **more) for each in payloads])

    async def claim() -> Claimed:
        return await store.claim([term], limit)

    return asyncio.create_task(push()), asyncio.create_task(claim())


@pytest.mark.parametrize("payloads", [("1",), ("1", "2", "3")])
async def test_a_claim_beside_a_push_has_its_jobs(
    store: SQLStore, sent: list[str], payloads: tuple[str, ...]
) -> None:
    await _push(store, "0")
    await _claim(store)
    sent.clear()
    pushed, claimed = _pushed(store, *payloads)
    ids = await pushed
    assert [(job.id, job.payload, job.attempts) for job in (await claimed).jobs] == [
        (id, payload, 1) for id, payload in zip(ids, payloads, strict=True)
    ]
    assert sent == ["push_and_claim" if len(payloads) == 1 else "push_many_and_claim"]


async def test_pushes_of_several_callers_and_a_claim_are_one_statement(
    store: SQLStore, sent: list[str]
) -> None:
    first, claimed = _pushed(store, "1", limit=2)
    second, third = (asyncio.create_task(store.push([NewJob("mail", each)])) for each in "23")
    ids = [id for each in (first, second, third) for id in await each]
    assert [job.id for job in (await claimed).jobs] == ids[:2]
    assert sent == ["push_many_and_claim"]
    assert [job.id for job in await _claim(store)] == ids[2:]


async def test_others_hear_of_a_push_beside_a_claim_only_where_the_claim_left_some(
    store: SQLStore, postgres_database: Database
) -> None:
    heard = asyncio.Event()
    other = SQLStore(engine_of(postgres_database, "asyncpg"), clock=Clock())
    async with other.listen(heard.set):
        pushed, claimed = _pushed(store, "1")
        await asyncio.gather(pushed, claimed)
        await asyncio.sleep(0.05)
        assert not heard.is_set()
        pushed, claimed = _pushed(store, "2", "3", limit=1)
        await asyncio.gather(pushed, claimed)
        async with asyncio.timeout(10):
            await heard.wait()
    await other.close()


async def test_what_is_wrong_with_a_push_leaves_the_claim_beside_it(store: SQLStore) -> None:
    await _push(store, "1")
    pushed, claimed = _pushed(store, '"\0"')
    with pytest.raises(Exception, match=r"0x00|NUL"):
        await pushed
    assert [job.payload for job in (await claimed).jobs] == ["1"]


async def test_what_is_wrong_with_a_claim_leaves_the_push_beside_it(store: SQLStore, sent: list[str]) -> None:
    pushed, claimed = _pushed(store, "1", term=Claimable(kind="mail", hold=(1 << 63) - 1, attempts=5))
    assert len(await pushed) == 1
    with pytest.raises(Exception, match="out of range"):
        await claimed
    assert sent == ["push_and_claim", "push", "claim"]
    assert [job.payload for job in await _claim(store, 9)] == ["1"]


@pytest.mark.parametrize("gone", ["push", "claim"])
async def test_of_a_push_and_its_claim_one_is_cancelled(
    store: SQLStore, postgres_database: Database, gone: str
) -> None:
    await _push(store, "0")
    await _claim(store)
    with locked(postgres_database):
        pushed, claimed = _pushed(store, "1")
        await until_blocked(postgres_database)
        one, other = (pushed, claimed) if gone == "push" else (claimed, pushed)
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one
        assert not other.done()
    if gone == "push":
        assert [job.payload for job in (await claimed).jobs] == ["1"]
        return
    (id,) = await pushed
    async with asyncio.timeout(10):
        while not (jobs := await _claim(store, 9)):
            await asyncio.sleep(0.01)
    assert [(job.id, job.attempts) for job in jobs] == [(id, 1)]


async def test_both_are_cancelled_before_they_are_sent_and_nothing_is_kept(store: SQLStore) -> None:
    pushed, claimed = _pushed(store, "1")
    await asyncio.sleep(0)
    pushed.cancel()
    claimed.cancel()
    await asyncio.gather(pushed, claimed, return_exceptions=True)
    async with asyncio.timeout(10):
        assert await store.push([NewJob("mail", "2")])
        assert [job.payload for job in await _claim(store, 9)] == ["2"]


@pytest.mark.parametrize("case", ["keyed", "many"])
async def test_a_push_that_may_wait_goes_apart_from_the_claim(
    store: SQLStore, sent: list[str], case: str
) -> None:
    if case == "keyed":
        pushed, claimed = _pushed(store, "1", key=b"k" * 32)
    else:
        pushed, claimed = _pushed(store, *map(str, range(gathering.FEW + 1)))
    await asyncio.gather(pushed, claimed)
    assert not [each for each in sent if each.endswith("_and_claim")]
    assert "claim" in sent


async def test_a_claim_that_comes_as_a_push_is_under_way_goes_by_itself(
    store: SQLStore, sent: list[str], postgres_database: Database
) -> None:
    await _push(store, "0")
    sent.clear()
    with locked(postgres_database):
        pushed = asyncio.create_task(store.push([NewJob("mail", "1")]))
        await until_blocked(postgres_database)
        claimed = asyncio.create_task(store.claim([MAIL], 9))
        behind = asyncio.create_task(store.push([NewJob("mail", "2")]))
        async with asyncio.timeout(5):
            while "claim" not in sent:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert sent == ["push", "claim"]
    await asyncio.gather(pushed, claimed, behind)
    assert {job.payload for job in [*claimed.result().jobs, *await _claim(store, 9)]} == {"0", "1", "2"}

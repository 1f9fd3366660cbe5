"""Connections that break, hang or refuse: no fault of the job's, and the work goes on once they're well."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from fastjobs import Outcome, Queue, Ran, SQLStore, current_job
from fastjobs.clock import SystemClock
from fastjobs.runtime import waiting
from fastjobs.store import Claimable
from fastjobs.stores.sql.dialects.sqlite.database import SQLite
from fastjobs.stores.sql.dialects.sqlite.opened import Opened
from fastjobs.testing import Clock
from tests.runtime.faulty import Unsteady

pytestmark = pytest.mark.anyio

MAIL = Claimable(kind="mail", hold=2_000_000, attempts=2)
FULL, BROKEN = 13, 10
"""SQLITE_FULL, and SQLITE_IOERR, after which the connection is no good."""


class Breaks:
    """A connection that fails once: at the statement with this number, or that begins so."""

    def __init__(self, raw: Any, at: int | str, code: int) -> None:
        self.raw, self.at, self.code, self.count = raw, at, code, 0

    def execute(self, text: str, *values: Any) -> Any:
        self.count += 1
        if self.at == self.count or (isinstance(self.at, str) and text.startswith(self.at)):
            self.at = 0
            error = sqlite3.OperationalError("it broke")
            error.sqlite_errorcode = self.code
            raise error
        return self.raw.execute(text, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def _opened(store: SQLStore) -> Opened:
    database = store._database
    assert isinstance(database, SQLite)
    return database._running().opened.result(5)


def _break(store: SQLStore, at: int | str, code: int) -> None:
    opened = _opened(store)
    raw: Any = opened.raw
    broken: Any = Breaks(raw.raw if isinstance(raw, Breaks) else raw, at, code)
    opened.raw = broken


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(path: Path, clock: Clock) -> AsyncIterator[SQLStore]:
    engine = create_engine(f"sqlite:///{path}")
    store = SQLStore(engine, clock=clock, synchronous="NORMAL")
    await store.open(["mail"])
    yield store
    await store.close()
    engine.dispose()


def _row(path: Path) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT * FROM fastjobs_jobs").fetchall()
    finally:
        connection.close()


@pytest.mark.parametrize("code", [FULL, BROKEN])
@pytest.mark.parametrize("attempts", [1, 2])
async def test_a_claim_that_fails_at_any_of_its_statements_costs_its_job_nothing(
    store: SQLStore, path: Path, clock: Clock, code: int, attempts: int
) -> None:
    # Held by a worker that was lost: with one attempt the claim fails it, with two it takes it.
    await store.push(Queue(store).kind("mail")(_nothing).jobs([None], None, None)[0])
    assert len((await store.claim([MAIL], 1)).jobs) == 1
    clock.advance(3)
    before, failures = _row(path), 0
    while True:
        _break(store, failures + 1, code)
        try:
            claimed = await store.claim([replace(MAIL, attempts=attempts)], 1)
            break
        except sqlite3.OperationalError:
            failures += 1
            assert _row(path) == before
    assert failures >= 6, "the look, BEGIN, the look, the reap, the walk, the write and COMMIT"
    assert [(job.attempts, job.lost) for job in claimed.jobs] == ([(2, 1)] if attempts == 2 else [])
    assert [job.attempts for job in claimed.exhausted] == ([1] if attempts == 1 else [])


async def _nothing() -> None: ...


@pytest.mark.parametrize("code", [FULL, BROKEN])
@pytest.mark.parametrize("statement", ["BEGIN", "DELETE", "COMMIT"])
async def test_a_job_whose_connection_breaks_while_it_runs_is_marked_on_another_and_not_run_twice(
    path: Path, statement: str, code: int
) -> None:
    engine = create_engine(f"sqlite:///{path}")
    store = SQLStore(engine, synchronous="NORMAL")
    told: asyncio.Queue[Ran] = asyncio.Queue()
    queue = Queue(store, poll=0.05, observe=told.put_nowait)
    runs = 0

    @queue.kind("mail")
    async def mail() -> None:
        nonlocal runs
        runs += 1
        _break(store, statement, code)

    async with asyncio.timeout(20):
        async with queue.running():
            first = _opened(store)
            await mail.push()
            ran = await told.get()
            assert (ran.outcome, ran.attempt) == (Outcome.DONE, 1)
            if statement != "DELETE":  # which may be in a group, where each is tried alone before
                assert (_opened(store) is first) == (code == FULL)
    assert runs == 1
    assert _row(path) == []
    engine.dispose()


@pytest.mark.parametrize("lasts", [60, 200])
async def test_no_job_is_lost_by_an_outage_and_none_runs_twice_within_its_hold(
    clock: Clock, lasts: float, caplog: pytest.LogCaptureFixture
) -> None:
    store = Unsteady(clock=clock)
    seen: list[Ran] = []
    queue = Queue(store, clock=clock, workers=200, observe=seen.append)
    runs: Counter[int] = Counter()
    end = asyncio.Event()

    @queue.kind("mail", timeout=600)
    async def mail(number: int) -> None:
        runs[number] += 1
        await end.wait()

    async with queue.running():
        await mail.push_many(list(range(200)))
        await clock.pass_time(1)
        assert len(runs) == 200
        store.before |= {"claim", "mark", "extend"}
        end.set()
        await clock.pass_time(lasts)
        store.before.clear()
        await clock.pass_time(5, turns=60)
    assert {ran.outcome for ran in seen} == {Outcome.DONE}
    assert sorted({ran.job for ran in seen}) == sorted(ran.job for ran in seen)
    assert len(seen) == 200
    assert set(runs.values()) == ({1} if lasts < 120 else {2})
    own = [
        line
        for line in caplog.messages
        if not line.startswith(("a job runs again", "the end of a job was not"))
    ]
    assert len(own) <= 4 + 3 * lasts / 60, own


@pytest.mark.parametrize("verb", ["claim", "mark", "extend"])
async def test_a_call_that_never_answers_is_given_up_and_the_work_goes_on_once_the_store_is_well(
    monkeypatch: pytest.MonkeyPatch, verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="fastjobs")
    for part in ("feed", "ledger"):
        monkeypatch.setattr(f"fastjobs.runtime.{part}.limited", partial(waiting.limited, limit=0.1))
    store = Unsteady(clock=SystemClock())
    told: asyncio.Queue[Ran] = asyncio.Queue()
    queue = Queue(store, poll=0.02, hold=0.6, observe=told.put_nowait)
    attempts: list[int] = []

    @queue.kind("mail")
    async def mail() -> None:
        attempts.append(current_job().attempt)
        if verb == "extend":
            while not any("store" in line for line in caplog.messages):
                await asyncio.sleep(0.01)
            store.hang.clear()
            await asyncio.sleep(0.7)

    async with asyncio.timeout(20):
        async with queue.running():
            store.hang.add(verb)
            await mail.push()
            while not any(line.startswith("the store failed") for line in caplog.messages):
                await asyncio.sleep(0.01)
            store.hang.clear()
            assert (await told.get()).outcome is Outcome.DONE
    assert attempts == [1]
    told_of = [line for line in caplog.messages if line.startswith("the store")]
    assert len(told_of) == 2, told_of
    assert "StoreTimeout" in told_of[0]

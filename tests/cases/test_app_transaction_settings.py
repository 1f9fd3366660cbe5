"""How the app set its transactions doesn't change the queue's: each claim is its own, and sees what was committed."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, event, text

from fastjobs import Queue, SQLStore, current_job
from fastjobs.store import Claimable, Done, Kept, NewJob

pytestmark = pytest.mark.anyio

MAIL = Claimable(kind="mail", hold=60_000_000, attempts=3)

SETTINGS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "SERIALIZABLE": {"isolation_level": "SERIALIZABLE"},
    "READ UNCOMMITTED": {"isolation_level": "READ UNCOMMITTED"},
    "AUTOCOMMIT": {"isolation_level": "AUTOCOMMIT"},
    "the driver's EXCLUSIVE": {"connect_args": {"isolation_level": "EXCLUSIVE"}},
    "the driver's none": {"connect_args": {"isolation_level": None}},
    "a snapshot of its own": {},
}
if sys.version_info >= (3, 12):
    SETTINGS["always in a transaction"] = {"connect_args": {"autocommit": False}}


def _begin_and_read(connection: sqlite3.Connection, _: object) -> None:
    # As an app does that looks something up as it connects: the connection comes in a transaction, with its snapshot.
    connection.execute("BEGIN")
    connection.execute("SELECT * FROM sqlite_master").fetchall()


@pytest.mark.parametrize("how", SETTINGS)
async def test_claims_see_new_jobs_and_pushes_are_kept_however_the_app_set_its_transactions(
    tmp_path: Path, how: str
) -> None:
    path = tmp_path / "app.db"
    engine = create_engine(f"sqlite:///{path}", **SETTINGS[how])
    if how == "a snapshot of its own":
        event.listen(engine, "connect", _begin_and_read)
    plain = create_engine(f"sqlite:///{path}")
    store, other = SQLStore(engine), SQLStore(plain)
    await store.open(["mail"])
    with plain.connect() as reading:
        # A reader that lives long sees no new job, and keeps nobody else from them.
        reading.execute(text("BEGIN"))
        assert reading.execute(text("SELECT count(*) FROM fastjobs_jobs")).scalar() == 0
        for number in range(5):
            assert (await store.claim([MAIL], 1)).jobs == []
            await other.push([NewJob(kind="mail", payload=str(number))])
            (job,) = (await store.claim([MAIL], 1)).jobs
            assert (job.payload, job.attempts) == (str(number), 1)
            assert (await other.claim([MAIL], 1)).jobs == []
            assert await store.mark([Done(job.id, job.claim)]) == [Kept.YES]
        await store.push([NewJob(kind="mail", payload="9")])
        assert [job.payload for job in (await other.claim([MAIL], 1)).jobs] == ["9"]
        assert reading.execute(text("SELECT count(*) FROM fastjobs_jobs")).scalar() == 0
    await store.close()
    await other.close()
    engine.dispose()
    plain.dispose()


@pytest.mark.parametrize("how", [each for each in SETTINGS if each != "a snapshot of its own"])
async def test_a_handler_that_is_refused_by_a_lock_of_the_app_fails_its_own_attempt_alone(
    tmp_path: Path, how: str
) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'app.db'}", **SETTINGS[how])
    store = SQLStore(engine)
    queue = Queue(store)
    attempts: list[int] = []

    @queue.kind("mail", backoff=0)
    async def mail() -> None:
        attempts.append(current_job().attempt)
        if len(attempts) == 1:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = 5
            raise error

    await mail.push()
    assert await queue.drain() == 2
    assert attempts == [1, 2]
    await store.close()
    engine.dispose()

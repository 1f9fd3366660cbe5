"""Texts, numbers and ids at their edges, through a whole queue on SQLite: one bad job keeps no other from running."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from pydantic import BaseModel
from sqlalchemy import create_engine

from fastjobs import Outcome, Queue, Ran, SQLStore
from fastjobs.core.claiming import Claimable
from fastjobs.core.marks import Done, Extend, Fail, GiveBack, Kept
from fastjobs.testing import Clock

pytestmark = pytest.mark.anyio

MAIL = Claimable(kind="mail", hold=60_000_000, attempts=5)


class Reading(BaseModel):
    name: str
    at: float


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


@pytest.fixture
async def store(path: Path, clock: Clock) -> AsyncIterator[SQLStore]:
    store = SQLStore(create_engine(f"sqlite:///{path}"), synchronous="NORMAL", clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def write(path: Path, sql: str, *values: object) -> None:
    connection = sqlite3.connect(path)
    try:
        with connection:
            connection.execute(sql, values)
    finally:
        connection.close()


@pytest.mark.parametrize("name", ["a\0b", "é", "😀", "\\u0000", "</script>", "a\r\n\x1b[2J\u2028"])
async def test_any_text_of_a_value_comes_to_its_handler_as_it_was_pushed(store: SQLStore, name: str) -> None:
    queue = Queue(store)
    found: list[Reading] = []

    @queue.kind("reading")
    async def reading(value: Reading) -> None:
        found.append(value)

    await reading.push(Reading(name=name, at=-0.0))
    assert await queue.drain() == 1
    assert found == [Reading(name=name, at=-0.0)]
    assert str(found[0].at) == "-0.0"


ERRORS: dict[str, Callable[[], BaseException]] = {
    "NUL": lambda: ValueError("x\0y"),
    "half a surrogate pair": lambda: ValueError("\ud800"),
    "a path that is no text": lambda: FileNotFoundError(
        2, "none", b"/tmp/\xff\xfe".decode("utf-8", "surrogateescape")
    ),
    "fifty megabytes": lambda: ValueError("é" * 25_000_000),
    "a str() that raises": Unspeakable,
}


@pytest.mark.parametrize("how", ERRORS)
async def test_a_job_is_retried_whatever_the_text_of_its_error_is(
    store: SQLStore, path: Path, clock: Clock, how: str
) -> None:
    seen: list[Ran] = []
    queue = Queue(store, observe=seen.append, clock=clock)

    @queue.kind("mail", backoff=5)
    async def mail(user: int) -> None:
        if len(seen) == 0:
            raise ERRORS[how]()

    await mail.push(1)
    assert await queue.drain() == 1
    connection = sqlite3.connect(path)
    ((kept,),) = connection.execute("SELECT error FROM fastjobs_jobs").fetchall()
    connection.close()
    assert 0 < len(kept.encode()) <= 4096
    assert "\0" not in kept
    clock.advance(10)
    assert await queue.drain() == 1
    assert [ran.outcome for ran in seen] == [Outcome.RETRIED, Outcome.DONE]


@pytest.mark.parametrize(
    "payload",
    [
        '{"name": "n", "at": ' + "1" * 5000 + "." + "}",
        '{"name": "n", "at": "NaN and more"}',
        '{"name": "\\ud800", "at": 1}',
        '{"name": ' + "[" * 100_000,
        "not JSON",
        "",
    ],
    ids=["5,000 digits", "no number", "half a surrogate pair", "nested deep", "no JSON", "nothing"],
)
async def test_a_payload_that_someone_else_wrote_fails_alone_and_at_once(
    store: SQLStore, path: Path, payload: str
) -> None:
    seen: list[Ran] = []
    queue = Queue(store, observe=seen.append)

    @queue.kind("reading")
    async def reading(value: Reading) -> None: ...

    write(path, "INSERT INTO fastjobs_jobs (kind, run_at, payload) VALUES ('reading', 0, ?)", payload)
    await reading.push(Reading(name="good", at=1))
    assert await queue.drain() == 2
    assert [ran.outcome for ran in seen] == [Outcome.FAILED, Outcome.DONE]
    assert [job.attempts for job in await store.failed()] == [1]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e309"])
async def test_a_number_that_is_none_in_a_row_that_someone_else_wrote_stops_nothing(
    store: SQLStore, path: Path, number: str
) -> None:
    seen: list[Ran] = []
    queue = Queue(store, observe=seen.append)

    @queue.kind("reading")
    async def reading(value: Reading) -> None: ...

    write(
        path,
        "INSERT INTO fastjobs_jobs (kind, run_at, payload) VALUES ('reading', 0, ?)",
        f'{{"name": "n", "at": {number}}}',
    )
    await reading.push(Reading(name="good", at=1))
    assert await queue.drain() == 2
    assert seen[0].outcome in (Outcome.DONE, Outcome.FAILED)
    assert seen[1].outcome is Outcome.DONE
    assert seen[0].attempt == 1


@pytest.mark.parametrize("id", [2**53 + 1, 2**63 - 1], ids=["2**53+1", "2**63-1"])
async def test_every_verb_works_on_a_job_whose_id_no_float_can_be(
    store: SQLStore, path: Path, id: int
) -> None:
    write(path, "INSERT INTO fastjobs_jobs (id, kind, run_at, payload) VALUES (?, 'mail', 0, '1')", id)
    (job,) = (await store.claim([MAIL], 1)).jobs
    assert job.id == str(id)
    assert await store.mark([Extend(job.id, job.claim, 1_000_000)]) == [Kept.YES]
    assert await store.mark([GiveBack(job.id, job.claim)]) == [Kept.YES]
    (job,) = (await store.claim([MAIL], 1)).jobs
    assert await store.mark([Fail(job.id, job.claim, "no")]) == [Kept.YES]
    (failed,) = await store.failed()
    assert failed.id == str(id)
    assert await store.failed(after=(failed.failed_at, failed.id)) == []
    assert await store.run_again([job.id]) == [True]
    (job,) = (await store.claim([MAIL], 1)).jobs
    assert await store.mark([Done(job.id, job.claim)]) == [Kept.YES]
    write(path, "INSERT INTO fastjobs_jobs (id, kind, run_at, state, failed_at, payload) VALUES (?, 'a', 0, 3, 1, '1')",
          id)  # fmt: skip
    assert await store.delete([str(id)]) == [True]

"""What `within` and `done_within` answer for a driver's own connection.

A driver tells nobody of a commit: the queue is woken around the moment of the push, and on Postgres by a NOTIFY, which
is delivered at the commit exactly. Longer than 300 lines, as what is sent stands beside how each driver is given it.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar

from sqlalchemy import BigInteger, ClauseElement, Engine, String, bindparam, func, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql.asyncpg import dialect as asyncpg_dialect
from sqlalchemy.dialects.postgresql.psycopg import dialect as psycopg_dialect
from sqlalchemy.engine.interfaces import Dialect

from fastjobs.core.errors import StoreError
from fastjobs.core.job import Job, NewJob
from fastjobs.store import Ender, SyncEnder
from fastjobs.stores.sql.dialects.mysql.raw import RawMySQL
from fastjobs.stores.sql.dialects.postgres import keyed as postgres_keyed
from fastjobs.stores.sql.dialects.postgres.statements import channel
from fastjobs.stores.sql.dialects.sqlite import files, keyed
from fastjobs.stores.sql.raw import Driver, RawAsync, RawSync
from fastjobs.stores.sql.tables import MYSQL, Tables
from fastjobs.stores.sql.values import has_keys, row_id
from fastjobs.stores.sql.waking import call_around

if TYPE_CHECKING:
    from fastjobs.stores.sql.transaction import Committed, Home, SyncThrough, Through

_T = TypeVar("_T")


class _Statement(NamedTuple):
    text: str
    order: tuple[str, ...] | None
    """The names of its parameters, where the driver takes them in order."""

    def given(self, values: Any) -> Any:
        """The parameters, as the driver takes them."""
        return values if self.order is None else tuple(values[name] for name in self.order)


_Steps = Generator[tuple[_Statement, Any], Sequence[Any], _T]


@dataclass(frozen=True, slots=True)
class _Statements:
    """What is sent, as text in a driver's way with parameters. All but `files` answer rows of one column."""

    push: _Statement
    push_keyed: _Statement
    kind: _Statement
    new_kind: _Statement
    done: _Statement
    notify: _Statement
    files: _Statement


_DIALECTS: dict[Driver, type[Dialect]] = {
    "sqlite3": sqlite.dialect,
    "aiosqlite": sqlite.dialect,
    "asyncpg": asyncpg_dialect,
    "psycopg": psycopg_dialect,
    "psycopg async": psycopg_dialect,
}


@lru_cache(maxsize=32)
def _statements(tables: Tables, driver: Driver) -> _Statements:
    dialect = _DIALECTS[driver]()
    jobs, kinds = tables.jobs, tables.kinds

    def made(statement: ClauseElement) -> _Statement:
        compiled: Any = statement.compile(dialect=dialect)
        return _Statement(str(compiled), tuple(compiled.positiontup) if compiled.positional else None)

    columns = ("kind", "payload", "run_at", "created_at", "carried")
    new_kind = (sqlite if dialect.name == "sqlite" else postgresql).insert(kinds)
    return _Statements(
        push=made(
            jobs.insert()
            .values({name: bindparam(name, type_=jobs.c[name].type) for name in columns})
            .returning(jobs.c.id)
        ),
        push_keyed=made(postgres_keyed.push_text(tables)),
        kind=made(select(kinds.c.kind).where(kinds.c.kind == bindparam("kind", type_=String))),
        new_kind=made(
            new_kind.values(
                kind=bindparam("kind", type_=String), first_seen=bindparam("first_seen", type_=BigInteger)
            )
            .on_conflict_do_nothing()
            .returning(kinds.c.kind)
        ),
        done=made(postgres_keyed.done_text(tables)),
        notify=made(
            select(func.pg_notify(bindparam("channel", type_=String), bindparam("text", type_=String)))
        ),
        files=made(text("PRAGMA database_list")),
    )


class _Raw:
    """What is sent through one connection, step by step: whoever takes the steps awaits their answers, or doesn't."""

    def __init__(
        self, home: Home, tables: Tables, engine: Engine, tx: RawSync | RawAsync, committed: Committed
    ) -> None:
        self._home = home
        self._tables = tables
        self._engine = engine
        self._connection = tx.connection
        driver: Driver = tx.driver
        self._driver = driver
        self.committed = committed
        self._texts = _statements(tables, driver)

    def push(self, jobs: Sequence[NewJob]) -> _Steps[list[str | None]]:
        """Inserts the jobs, and answers their ids."""
        now = self._home.now()
        yield from self._check()
        for kind in sorted({job.kind for job in jobs}):
            if not (yield self._texts.kind, {"kind": kind}):
                yield self._texts.new_kind, {"kind": kind, "first_seen": now}
        keys = has_keys(jobs)
        if keys and self._home.name == "sqlite":
            return (yield from _in_order(keyed.push(keyed.make_keyed(self._tables), jobs, now)))
        ids: list[str | None] = []
        if keys:
            ((answer,),) = yield self._texts.push_keyed, postgres_keyed.values(jobs, now)
            ids = postgres_keyed.ids_of(answer)
        for job in () if keys else jobs:
            run_at = now + job.after if job.at is None else job.at
            values = {"kind": job.kind, "payload": job.payload, "run_at": run_at, "created_at": now}
            ((id,),) = yield self._texts.push, {**values, "carried": job.carried}
            ids.append(str(id))
        if jobs and self._home.name == "postgresql":
            yield self._texts.notify, {"channel": channel(self._tables), "text": ""}
        return ids

    def done(self, job: Job) -> _Steps[bool]:
        """Removes the job, and answers whether its claim had it."""
        yield from self._check()
        number = row_id(job.id)
        if number is None:
            return False
        if self._home.name == "sqlite":
            texts, now = keyed.make_keyed(self._tables), self._home.now()
            return (yield from _in_order(keyed.done(texts, number, job.claim, now)))
        values = {"id": number, "claim": job.claim, "now": self._home.now()}
        (row,) = yield self._texts.done, values
        return postgres_keyed.ended(row).was_held

    def _check(self) -> _Steps[None]:
        """Refuses a connection that is in no transaction, where each statement would be kept by itself, and one of
        another file."""
        if not self._is_in_transaction():
            raise StoreError(
                "this connection is in no transaction, so what is pushed or done in it would be kept at once:"
                f" {'execute BEGIN IMMEDIATE on it' if self._home.name == 'sqlite' else 'begin one'} first, and"
                " commit it afterwards"
            )
        if self._home.name == "sqlite":
            path = files.plain_path(self._engine.url)
            found = yield self._texts.files, {}
            theirs = next((os.fsdecode(row[2] or "") for row in found if row[1] in ("main", b"main")), "")
            if path is not None and (not theirs or files.file_key(theirs) != files.file_key(path)):
                raise StoreError(
                    f"the connection is one of {theirs or 'a database in memory'}, and the queue's database is {path}:"
                    " push through a connection of the queue's own file"
                )

    def _is_in_transaction(self) -> bool:
        connection = self._connection
        match self._driver:
            case "sqlite3" | "aiosqlite":
                return bool(connection.in_transaction)
            case "asyncpg":
                return bool(connection.is_in_transaction())
            case _:  # psycopg begins one by itself, at the next statement, unless it's in autocommit
                return int(connection.info.transaction_status) != 0 or not connection.autocommit

    def execute(self, step: tuple[_Statement, Any]) -> Sequence[Any]:
        """One step, by a sync driver. The rows are tuples whatever the app has its connection make of them."""
        statement, values = step
        cursor = self._cursor()
        try:
            cursor.execute(statement.text, statement.given(values))
            return cursor.fetchall() if cursor.description else ()
        finally:
            cursor.close()

    async def execute_async(self, step: tuple[_Statement, Any]) -> Sequence[Any]:
        """One step, by an async driver."""
        statement, values = step
        if self._driver == "asyncpg":
            found: Sequence[Any] = await self._connection.fetch(statement.text, *statement.given(values))
            return found
        cursor = await self._connection.cursor() if self._driver == "aiosqlite" else self._cursor()
        if self._driver == "aiosqlite":
            cursor.row_factory = None
        try:
            await cursor.execute(statement.text, statement.given(values))
            return list(await cursor.fetchall()) if cursor.description else ()
        finally:
            await cursor.close()

    def _cursor(self) -> Any:
        if self._driver == "sqlite3":
            cursor = self._connection.cursor()
            cursor.row_factory = None
            return cursor
        return self._connection.cursor(row_factory=_as_tuples)


def _in_order(steps: keyed.Steps[_T]) -> _Steps[_T]:
    """Steps whose parameters stand in order already."""
    try:
        text, values = next(steps)
        while True:
            text, values = steps.send((yield _Statement(text, None), values))
    except StopIteration as end:
        answer: _T = end.value
        return answer


def _as_tuples(_: object) -> type[tuple[Any, ...]]:
    return tuple


class _Sync:
    sync: ClassVar[Literal[True]] = True

    def __init__(self, raw: _Raw | RawMySQL) -> None:
        self._raw = raw

    def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        ids = self._take(self._raw.push(jobs))
        if jobs:
            call_around([self._raw.committed])
        return ids

    def ender(self, job: Job) -> SyncEnder:
        return _SyncEnder(self, job)

    def done(self, job: Job) -> bool:
        """Marks the job done."""
        return self._take(self._raw.done(job))

    def _take(self, steps: Generator[Any, Any, _T]) -> _T:
        try:
            step = next(steps)
            while True:
                step = steps.send(self._raw.execute(step))
        except StopIteration as end:
            answer: _T = end.value
            return answer


class _SyncEnder:
    sync: ClassVar[Literal[True]] = True

    def __init__(self, through: _Sync, job: Job) -> None:
        self._through = through
        self._job = job

    def done(self) -> bool:
        return self._through.done(self._job)


class _Async:
    sync: ClassVar[Literal[False]] = False

    def __init__(self, raw: _Raw | RawMySQL) -> None:
        self._raw = raw

    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        ids = await self._take(self._raw.push(jobs))
        if jobs:
            call_around([self._raw.committed])
        return ids

    def ender(self, job: Job) -> Ender:
        return _Ender(self, job)

    async def done(self, job: Job) -> bool:
        """Marks the job done."""
        return await self._take(self._raw.done(job))

    async def _take(self, steps: Generator[Any, Any, _T]) -> _T:
        try:
            step = next(steps)
            while True:
                step = steps.send(await self._raw.execute_async(step))
        except StopIteration as end:
            answer: _T = end.value
            return answer


class _Ender:
    sync: ClassVar[Literal[False]] = False

    def __init__(self, through: _Async, job: Job) -> None:
        self._through = through
        self._job = job

    async def done(self) -> bool:
        return await self._through.done(self._job)


def through(
    home: Home, tables: Tables, engine: Engine, tx: RawSync | RawAsync, committed: Committed
) -> Through | SyncThrough:
    """What pushes and ends jobs through this connection. Nothing is asked of it yet."""
    dialect = _DIALECTS[tx.driver].name if tx.driver in _DIALECTS else "mysql"
    if dialect != ("mysql" if home.name in MYSQL else home.name):
        raise StoreError(f"the connection is one of {dialect}, and the queue's store is on {home.name}")
    made: _Raw | RawMySQL
    if dialect == "mysql":
        made = RawMySQL(home.now, home.beside, tables, engine, tx, committed)
    else:
        made = _Raw(home, tables, engine, tx, committed)
    return _Sync(made) if tx.sync else _Async(made)

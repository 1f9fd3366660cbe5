"""Looks at a queue's database and says what isn't as the queue needs it: what `fastjobs doctor` prints.

Each database has its checks in a file of its own; here are those that all share. A check only reads, reads no more
than is bounded, and one that fails says so and ends no other.
"""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Index,
    Integer,
    and_,
    func,
    inspect,
    literal_column,
    select,
)
from sqlalchemy.schema import CreateIndex
from sqlalchemy.util import greenlet_spawn

from fastjobs.clock import Clock, SystemClock
from fastjobs.core.duration import SECOND
from fastjobs.core.errors import StoreError
from fastjobs.core.text import error_text, one_line
from fastjobs.stores.sql import migrations
from fastjobs.stores.sql.tables import READY, Tables, indexes

MANY = 10_000
"""The most jobs that are counted of a kind."""
_KINDS = 1000
_UNKNOWN = 20
_IS_READY = literal_column(str(READY), Integer)


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    REMARK = "remark"
    """Worth knowing; nothing is lost by it."""
    WARNING = "warning"
    """Jobs run, and something is late, at risk, or couldn't be looked at."""
    WRONG = "wrong"
    """Jobs don't run, or a promise doesn't hold."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found, and what to do about it, if anything is."""

    level: Level
    check: str
    said: str
    do: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is looked at, and how far."""

    engine: Engine
    tables: Tables
    kinds: frozenset[str]
    """The kinds that the app has."""
    synchronous: str
    """The store's own, on SQLite."""
    deep: bool
    """Whether to read the whole database, too."""
    max_payload: int
    """How many bytes a value of the app's may have."""
    clock: Clock


Check = Callable[[Connection, Asked], Iterable[Finding]]
Checks = Sequence[tuple[str, Check]]

_DOCTORS: Mapping[str, str] = {
    "sqlite": "fastjobs.stores.sql.dialects.sqlite.doctor",
    "postgresql": "fastjobs.stores.sql.dialects.postgres.doctor",
    "mysql": "fastjobs.stores.sql.dialects.mysql.doctor",
    "mariadb": "fastjobs.stores.sql.dialects.mysql.doctor",
}


async def examine(
    engine: Engine,
    tables: Tables,
    *,
    kinds: Iterable[str],
    synchronous: str,
    deep: bool,
    max_payload: int = 0,
    clock: Clock | None = None,
) -> list[Finding]:
    """Everything that is found. What keeps it from connecting is raised."""
    found = _DOCTORS.get(engine.dialect.name)
    if found is None:
        raise StoreError(f"nothing is known of what may be wrong with {engine.dialect.name}")
    doctor = importlib.import_module(found)
    asked = Asked(
        engine=engine,
        tables=tables,
        kinds=frozenset(kinds),
        synchronous=synchronous,
        deep=deep,
        max_payload=max_payload,
        clock=SystemClock() if clock is None else clock,
    )
    look: Callable[[Asked], list[Finding]] = doctor.look
    if engine.dialect.is_async and engine.dialect.name != "sqlite":
        return await greenlet_spawn(look, asked)
    return await _in_a_thread(lambda: look(asked))


async def _in_a_thread(work: Callable[[], list[Finding]]) -> list[Finding]:
    # A daemon, as one of asyncio's would keep the command from its end where a database doesn't answer.
    found: Future[list[Finding]] = Future()

    def run() -> None:
        try:
            found.set_result(work())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, name="fastjobs doctor", daemon=True).start()
    return await asyncio.wrap_future(found)


def carry_out(
    checks: Checks,
    of_tables: Checks,
    connection: Connection,
    asked: Asked,
    begin: Callable[[Connection], object] = lambda connection: None,
) -> list[Finding]:
    """Does each check in a transaction of its own, which `begin` may say more of and which is rolled back.

    Those of the tables are left out where there are none.
    """
    found: list[Finding] = []

    def do(name: str, check: Check) -> None:
        try:
            begin(connection)
            found.extend(check(connection, asked))
        except StoreError as error:
            found.append(Finding(Level.WRONG, name, one_line(str(error))))
        except Exception as error:
            first = one_line(error_text(error).partition("\n")[0], 300)
            found.append(Finding(Level.WARNING, name, f"couldn't look: {first}"))
        finally:
            connection.rollback()

    try:
        for name, check in checks:
            do(name, check)
        do("tables", tables_are_there)
        if found[-1].said != _none(asked.tables):
            for name, check in of_tables:
                do(name, check)
    except Exception as error:
        # Of the rollback: there's no connection any more.
        found.append(Finding(Level.WARNING, "connection", f"lost: {one_line(error_text(error), 300)}"))
    return found


def _none(tables: Tables) -> str:
    return f"there are none with the prefix {tables.prefix!r}"


def tables_are_there(connection: Connection, asked: Asked) -> Iterable[Finding]:
    """Compares the tables, their columns and their indexes with those that this version makes."""
    tables, check = asked.tables, "tables"
    version, latest = migrations.found_version(connection, tables), migrations.latest()
    made = "open the store once with migrate=True, its default, or run what `fastjobs schema` prints"
    if not version:
        yield Finding(Level.WRONG, check, _none(tables), made)
        return
    if version < latest:
        said = f"they are of version {version}, and this fastjobs needs version {latest}"
        yield Finding(Level.WRONG, check, said, "open the store once with migrate=True, its default")
        return
    inspector = inspect(connection)
    good = True
    for table in tables.metadata.sorted_tables:
        if not inspector.has_table(table.name, schema=tables.schema):
            good = False
            yield Finding(Level.WRONG, check, f"{table.name} is gone", made)
            continue
        columns = {each["name"] for each in inspector.get_columns(table.name, schema=tables.schema)}
        lacks = [each.name for each in table.columns if each.name not in columns]
        if lacks:
            good = False
            yield Finding(Level.WRONG, check, f"{table.name} lacks {', '.join(lacks)}", "restore the column")
        there = {each["name"] for each in inspector.get_indexes(table.name, schema=tables.schema)}
        for index in indexes(table, connection.dialect.name):
            if index.name not in there:
                good = False
                why = (
                    "two of what may be there once can be"
                    if index.unique
                    else "claims fail, or read the whole table"
                )
                said = f"{table.name} has no index {index.name}: {why}"
                yield Finding(Level.WRONG, check, said, _created(index, connection))
    if good:
        more = f", made by a newer fastjobs than this, which needs {latest}" if version > latest else ""
        yield Finding(Level.OK, check, f"{tables.prefix}* of version {version}{more}, with all their indexes")


def _created(index: Index, connection: Connection) -> str:
    return " ".join(str(CreateIndex(index).compile(dialect=connection.dialect)).split())


def unknown_kinds(connection: Connection, asked: Asked, now: int | None = None) -> Iterable[Finding]:
    """Names the kinds whose jobs wait for a handler that this app doesn't have."""
    check, table, jobs = "unknown kinds", asked.tables.kinds, asked.tables.jobs
    now = asked.clock.now() if now is None else now
    names = connection.scalars(select(table.c.kind).order_by(table.c.kind).limit(_KINDS)).all()
    unknown = 0
    for kind in names:
        if kind in asked.kinds:
            continue
        waiting = and_(jobs.c.kind == kind, jobs.c.state == _IS_READY)
        # Where the index is on another column, that is the same for jobs that wait.
        at = jobs.c.get("due", jobs.c.run_at)
        first = connection.scalar(select(at).where(waiting).order_by(jobs.c.kind, at).limit(1))
        if first is None:
            continue
        many = _waiting(connection, asked, jobs.c.kind == kind)
        unknown += 1
        if unknown > _UNKNOWN:
            yield Finding(Level.WARNING, check, "there are more")
            return
        due = f"the first was due {lasted(now - first)} ago" if first <= now else "none is due yet"
        yield Finding(
            Level.WARNING if first <= now else Level.REMARK,
            check,
            f"{_jobs_wait(many)} of kind {one_line(kind, 100)!r}, which this app has no handler for; {due}",
            "run an instance of the app that has it; where none is to come, delete these rows",
        )
    if not unknown:
        yield Finding(Level.OK, check, "no job waits for a handler that this app doesn't have")


def paused_kinds(connection: Connection, asked: Asked) -> Iterable[Finding]:
    """Names the kinds that are paused while jobs of theirs wait: someone may have forgotten one."""
    check, table, jobs = "paused kinds", asked.tables.kinds, asked.tables.jobs
    paused = select(table.c.kind).where(table.c.paused != 0).order_by(table.c.kind).limit(_KINDS)
    found = 0
    for kind in connection.scalars(paused).all():
        many = _waiting(connection, asked, jobs.c.kind == kind)
        if not many:
            continue
        found += 1
        if found > _UNKNOWN:
            yield Finding(Level.REMARK, check, "there are more")
            return
        yield Finding(
            Level.REMARK,
            check,
            f"{_jobs_wait(many)} of kind {one_line(kind, 100)!r}, which is paused: none of them runs",
            f"once they may run: `fastjobs resume QUEUE {one_line(kind, 100)}`, or await q.resume(…)",
        )
    if not found:
        yield Finding(Level.OK, check, "no job waits as its kind is paused")


def _waiting(connection: Connection, asked: Asked, of: ColumnElement[bool]) -> int:
    """How many jobs wait of these, counted up to one more than many."""
    jobs = asked.tables.jobs
    some = select(jobs.c.id).where(of, jobs.c.state == _IS_READY).limit(MANY + 1).subquery()
    return connection.scalar(select(func.count()).select_from(some)) or 0


def _jobs_wait(many: int) -> str:
    return "1 job waits" if many == 1 else f"{MANY:,}+ jobs wait" if many > MANY else f"{many:,} jobs wait"


def lasted(micros: int) -> str:
    """So long, to a person."""
    seconds = micros / SECOND
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"

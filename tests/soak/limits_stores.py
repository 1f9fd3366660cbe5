"""Stores that are broken on purpose in one limit each: a check that can't see that says nothing.

On SQLite, MySQL and MariaDB a limit is kept by code in the process, which is replaced in each process here. On Postgres
it is kept by functions of the database's, which are made anew without a line of theirs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import psycopg
from sqlalchemy.ext.asyncio import AsyncEngine

from fastjobs import SQLStore
from fastjobs.clock import SystemClock
from fastjobs.store import Claimable, Claimed, Extra, Places, Throttled
from fastjobs.stores.sql.dialects.postgres import functions
from fastjobs.stores.sql.dialects.sqlite import claim as sqlite_claim
from fastjobs.stores.sql.dialects.sqlite import database as sqlite_database
from fastjobs.stores.sql.dialects.sqlite import keyed as sqlite_keyed
from fastjobs.stores.sql.dialects.sqlite import throttles as sqlite_throttles
from fastjobs.stores.sql.dialects.sqlite.keyed_statements import Keyed
from fastjobs.stores.sql.dialects.sqlite.picking import Pick
from fastjobs.stores.sql.tables import MYSQL, Tables
from tests.soak import limits_on_mysql, mysql_place
from tests.soak.limits_kinds import AT_ONCE
from tests.soak.recording import Recorder
from tests.soak.stores import Recorded

CAUGHT_BY = {
    "no-lock": "at once",
    "no-count": "at once",
    "no-slot": "one at a time",
    "no-index": "unique",
    "no-names": "named once",
    "no-rate": "rate",
}
"""Each control, and the rule that it breaks."""
_COUNT = "SELECT count(*) FROM fastjobs_jobs WHERE kind = ? AND state = 1 AND held_until > ?"


class Limited(Recorded):
    """Writes down each claim and mark, and the places that it took of throttles."""

    extras: ClassVar[Extra] = SQLStore.extras | (
        Extra.UNIQUE | Extra.LATEST | Extra.ONE_AT_A_TIME | Extra.AT_ONCE | Extra.HOLD_BACK
        | Extra.NAMES | Extra.THROTTLE | Extra.PRUNE
    )  # fmt: skip

    def __init__(self, engine: AsyncEngine, recorder: Recorder, told: Recorder) -> None:
        """The machine's clock, which all processes have in common: what each measures of a server's is a bit apart."""
        super().__init__(engine, recorder, clock=SystemClock())
        self._told = told

    async def take(self, asked: Sequence[Throttled]) -> list[Places]:
        places = await super().take(asked)
        for each in places:
            if each.slots:
                self._told.write("took", each.name, each.key, len(each.slots), each.until)
        return places


class _CountsBefore(Limited):
    """Counts what is held before it has the file's lock, and goes by that once it has it."""

    def __init__(self, engine: AsyncEngine, recorder: Recorder, told: Recorder) -> None:
        super().__init__(engine, recorder, told)
        self._path = str(engine.url.database)
        self._counts: dict[str, int] = {}
        sqlite_claim._held = lambda opened, kind, most, now: min(self._counts.get(kind, 0), most)

    async def claim(
        self, kinds: Sequence[Claimable], limit: int, *, ahead: int = 0, others: Claimable | None = None
    ) -> Claimed:
        connection = sqlite3.connect(self._path, timeout=10)
        try:
            now = SystemClock().now()
            for kind in AT_ONCE:
                (self._counts[kind],) = connection.execute(_COUNT, (kind, now)).fetchone()
        finally:
            connection.close()
        return await super().claim(kinds, limit, ahead=ahead, others=others)


def broken_here(control: str, dialect: str) -> type[Limited]:
    """The store that a process is to have; what its own code keeps is broken in this process from now on."""
    if dialect in MYSQL:
        limits_on_mysql.break_here(control)
    return _broken_on_sqlite(control) if dialect == "sqlite" else Limited


def _broken_on_sqlite(control: str) -> type[Limited]:
    if control == "no-lock":
        return _CountsBefore
    if control == "no-count":
        sqlite_claim._held = lambda opened, kind, most, now: 0
    elif control == "no-slot":
        Pick._is_busy = lambda self, kind, alone: False  # type: ignore[method-assign]
    elif control == "no-rate":
        sqlite_throttles._busy = lambda opened, each, now: {}
    elif control == "no-index":
        conflict = " ON CONFLICT (kind, unique_key) WHERE unique_key IS NOT NULL DO NOTHING"
        _restate(lambda texts: replace(texts, insert=_without(texts.insert, conflict)))
    elif control == "no-names":
        _restate(lambda texts: replace(texts, named="SELECT 1 WHERE ? IS ? AND ? IS NULL"))
    return Limited


def _restate(changed: Callable[[Keyed], Keyed]) -> None:
    make: Callable[[Tables], Keyed] = sqlite_keyed.make_keyed

    def remade(tables: Tables) -> Keyed:
        return changed(make(tables))

    modules: tuple[Any, ...] = (sqlite_keyed, sqlite_database)
    for module in modules:
        module.make_keyed = remade


def _without(text: str, part: str, put: str = "") -> str:
    assert part in text, f"there is no {part!r} to take out"
    return text.replace(part, put)


def break_database(control: str, url: str | None, path: str | None) -> None:
    """Takes out of the tables, or of the functions on a server, what the control says. The tables were made."""
    if url is not None and url.startswith("mysql"):
        return limits_on_mysql.break_tables(control, url)
    indexes = {"no-index": ("unique", "kind, unique_key"), "no-names": ("name", "name")}
    if control in indexes:
        name, columns = indexes[control]
        some = [
            f"DROP INDEX fastjobs_jobs_{name}",
            f"CREATE INDEX fastjobs_jobs_{name} ON fastjobs_jobs ({columns})"
            f" WHERE {columns.rpartition(' ')[2]} IS NOT NULL",
        ]
        for each in some:
            execute(each, url, path)
    if url is None:
        return
    if control == "no-lock":
        # As slow a claim as an app's server may have on a bad day: two of them meet sooner.
        _remake(url, "claim", [("ORDER BY k.kind FOR UPDATE SKIP LOCKED)", "ORDER BY k.kind)")])
        _remake(url, "claim", [("o_what := 2;", "PERFORM pg_sleep(0.01); o_what := 2;")])
    elif control == "no-count":
        held = f"AND j.state = 1 AND j.held_until > p_now - {functions._EXTENDING})"
        _remake(url, "claim", [(held, "AND j.state = 1 AND false)")])
    elif control == "no-slot":
        _remake(url, "claim", [("WHERE s.held_until <= p_now\n", "WHERE true\n")])
    elif control == "no-names":
        _remake(url, "push", [("r.name IS NOT NULL AND (", "false AND (")])
    elif control == "no-rate":
        _remake(url, "take", [("AND t.at + r.per > p_now", "AND false")])


def _remake(url: str, function: str, changes: Sequence[tuple[str, str]]) -> None:
    found = execute(
        f"SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname LIKE 'fastjobs_{function}_%'", url, None
    )
    ((text,),) = found
    for part, put in changes:
        text = _without(text, part, put)
    execute(text, url, None)


def execute(statement: str, url: str | None, path: str | None) -> list[tuple[Any, ...]]:
    """Runs one statement past the store, on the server or in the file."""
    if url is None:
        assert path is not None
        connection = sqlite3.connect(path, timeout=10, isolation_level=None)
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()
    if url.startswith("mysql"):
        return mysql_place.execute(url, statement)
    with psycopg.connect(url, autocommit=True, connect_timeout=10) as server:
        cursor = server.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []

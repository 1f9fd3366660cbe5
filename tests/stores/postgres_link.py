"""A link as thin as can be, over asyncpg, and the words that the tests of the SQL on Postgres are written in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import asyncpg
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.core.job import NewJob
from fastjobs.core.marks import Kept, Mark
from fastjobs.stores.sql import migrations
from fastjobs.stores.sql.dialects.postgres import claim, marks, push
from fastjobs.stores.sql.dialects.postgres.kinds import make_kinds
from fastjobs.stores.sql.dialects.postgres.links import Link
from fastjobs.stores.sql.dialects.postgres.statements import Statements, make_statements
from fastjobs.stores.sql.server.floors import Floors
from fastjobs.stores.sql.server.wanted import Wanted
from fastjobs.stores.sql.tables import Tables, make_tables
from tests.databases.postgres import Database

SECOND = 1_000_000
HOLD = 60 * SECOND
NOW = 1_700_000_000 * SECOND


def of(kind: str = "mail", **numbers: Any) -> Claimable:
    """A claimer's numbers for a kind."""
    return replace(Claimable(kind=kind, hold=HOLD, attempts=5), **numbers)


def make(database: Database, tables: Tables) -> None:
    """Makes the tables, as the app's own role."""
    engine = create_engine(database.url("psycopg"), poolclass=NullPool)
    with engine.begin() as connection:
        migrations.migrate(connection, tables)


class Hot:
    """The hot statements on one connection, at a time that the test moves."""

    def __init__(self, connection: asyncpg.Connection[Any], tables: Tables | None = None) -> None:
        self.connection = connection
        self.statements: Statements = make_statements(tables or make_tables())
        self.kinds = make_kinds(self.statements)
        self.floors = Floors()
        self.now = NOW
        self.met = 0
        """How many index entries of rows that are gone the last claim met."""

    async def fetch(self, text: str, *values: object) -> Sequence[Sequence[Any]]:
        rows = cast("Sequence[Sequence[Any]]", await self.connection.fetch(text, *values))
        if text == self.statements.claim:
            self.met = rows[-1][5]
        return rows

    @property
    def _link(self) -> Link:
        return cast("Link", self)

    async def push(self, *payloads: str, kind: str = "mail", at: int | None = None) -> list[str | None]:
        jobs = [NewJob(kind=kind, payload=payload, at=at) for payload in payloads]
        return await push.push(self._link, self.statements, jobs, self.now, False, self.kinds)

    async def push_jobs(self, jobs: Sequence[NewJob], notify: bool = False) -> list[str | None]:
        return await push.push(self._link, self.statements, jobs, self.now, notify, self.kinds)

    async def claim(
        self, *kinds: Claimable, limit: int = 100, ahead: int = 0, others: Claimable | None = None
    ) -> Claimed:
        wanted = Wanted(kinds or (of(),), limit, ahead, others)
        return await claim.claim(self._link, self.statements, wanted, self.now, self.floors)

    async def mark(self, *some: Mark) -> list[Kept]:
        return await marks.mark(self._link, self.statements, some, self.now, self.floors.forget)


async def connect(database: Database, *, user: str = "app", **settings: str) -> asyncpg.Connection[Any]:
    """A connection of a role, the app's if none is named."""
    url = database.url(None, user=user)
    return cast("asyncpg.Connection[Any]", await asyncpg.connect(url, server_settings=settings))

"""How the rows of the kinds are written on Postgres."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection
from sqlalchemy.dialects.postgresql import insert

from fastjobs.stores.sql.dialects.postgres.links import Link
from fastjobs.stores.sql.dialects.postgres.opening import hurry
from fastjobs.stores.sql.dialects.postgres.statements import Statements
from fastjobs.stores.sql.server.kinds import Kinds, Ways
from fastjobs.stores.sql.tables import Tables


def make_kinds(tables: Tables, statements: Statements) -> Kinds[Link]:
    """What one store knows of its kinds' rows."""
    return Kinds(tables, _Ways(tables, statements))


class _Ways(Ways[Link]):
    def __init__(self, tables: Tables, statements: Statements) -> None:
        self._tables = tables
        self._statements = statements

    async def insert(self, link: Link, kinds: Sequence[str], now: int) -> None:
        await link.fetch(self._statements.new_kinds, kinds, now)

    def insert_within(self, connection: Connection, kinds: Sequence[str], now: int) -> None:
        for kind in kinds:
            row = insert(self._tables.kinds).values(kind=kind, first_seen=now).on_conflict_do_nothing()
            connection.execute(row)

    def hurry(self, connection: Connection) -> None:
        hurry(connection)

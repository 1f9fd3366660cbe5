"""How the rows of the kinds are written on Postgres."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, Engine
from sqlalchemy.dialects.postgresql import insert

from fastjobs.stores.sql.dialects.postgres.links import Link
from fastjobs.stores.sql.dialects.postgres.opening import hurry
from fastjobs.stores.sql.dialects.postgres.statements import Statements
from fastjobs.stores.sql.known_kinds import new_kinds
from fastjobs.stores.sql.server.aside import aside
from fastjobs.stores.sql.server.kinds import Kinds
from fastjobs.stores.sql.tables import Tables


def make_kinds(statements: Statements) -> Kinds[Link]:
    """What one store knows of its kinds' rows."""

    async def insert_by(link: Link, kinds: Sequence[str], now: int) -> None:
        await link.fetch(statements.new_kinds, kinds, now)

    return Kinds(insert_by)


def note_within(
    known: Kinds[Link], tables: Tables, engine: Engine, connection: Connection, kinds: Sequence[str], now: int
) -> None:
    """Sees to it that each kind has a row, for a push through the app's connection, where SQLAlchemy may do I/O."""
    unknown = known.unknown(kinds)
    new = new_kinds(connection, tables, unknown) if unknown else []
    if not new:
        return

    def insert_within(other: Connection) -> None:
        for kind in new:
            row = insert(tables.kinds).values(kind=kind, first_seen=now).on_conflict_do_nothing()
            other.execute(row)

    # A row in the app's transaction is what others wait for until it ends; and at REPEATABLE READ one that came
    # after its first statement is a serialization failure of the app's.
    if aside(engine, connection, insert_within, hurry):
        known.are_there(new)
    else:
        insert_within(connection)

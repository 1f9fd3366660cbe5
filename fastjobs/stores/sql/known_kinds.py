"""Which kinds have a row: asked on a sync Connection, the same in every database."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, select

from fastjobs.stores.sql.tables import Tables
from fastjobs.stores.sql.values import chunks


def new_kinds(connection: Connection, tables: Tables, kinds: Iterable[str]) -> list[str]:
    """Those of the kinds that have no row yet."""
    table = tables.kinds
    wanted = sorted(set(kinds))
    there: set[str] = set()
    for some in chunks(wanted):
        there.update(connection.scalars(select(table.c.kind).where(table.c.kind.in_(some))))
    return [kind for kind in wanted if kind not in there]

"""The tables' DDL as one script, for psql or sqlite3: for databases where the app may not make tables itself."""

from __future__ import annotations

from collections.abc import Mapping

from fastjobs.core.errors import StoreError
from fastjobs.stores.sql import migrations
from fastjobs.stores.sql.tables import Tables

_RUN_BY: Mapping[str, str] = {
    "sqlite": "sqlite3 -bail app.db < schema.sql",
    "postgresql": "psql -v ON_ERROR_STOP=1 -f schema.sql …",
}


def script(tables: Tables, dialect: str) -> str:
    """All statements in one transaction. StoreError for a database that has no tables here."""
    if dialect == "sqlite" and tables.schema is not None:
        raise StoreError("SQLite has no schemas: leave it out, and use a prefix")
    statements = migrations.ddl(tables, dialect)
    lines = [
        f"-- The tables {tables.prefix}* of fastjobs, version {migrations.latest()}, for {dialect}.",
        f"-- {_RUN_BY[dialect]}",
        "BEGIN;",
        *(f"{each.strip()};" for each in statements),
        "COMMIT;",
    ]
    return "\n".join(lines) + "\n"

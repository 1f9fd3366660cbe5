"""The tables' DDL as one script, for psql, sqlite3 or mysql: for databases where the app may not make tables itself."""

from __future__ import annotations

from collections.abc import Mapping

from fastjobs.core.errors import StoreError
from fastjobs.stores.sql import migrations
from fastjobs.stores.sql.tables import MYSQL, Tables

_RUN_BY: Mapping[str, str] = {
    "sqlite": "sqlite3 -bail app.db < schema.sql",
    "postgresql": "psql -v ON_ERROR_STOP=1 -f schema.sql …",
    "mysql": "mysql … app < schema.sql",
    "mariadb": "mariadb … app < schema.sql",
}


def script(tables: Tables, dialect: str) -> str:
    """All statements, in one transaction where the database can make tables in one. StoreError for a database that has
    no tables here."""
    if dialect == "sqlite" and tables.schema is not None:
        raise StoreError("SQLite has no schemas: leave it out, and use a prefix")
    statements = [f"{each.strip()};" for each in migrations.ddl(tables, dialect)]
    head = [
        f"-- The tables {tables.prefix}* of fastjobs, version {migrations.latest()}, for {dialect}.",
        f"-- {_RUN_BY[dialect]}",
    ]
    if dialect in MYSQL:
        head.append(
            "-- Each statement commits: where it broke off, drop what it has made before it's run again."
        )
        lines = [*head, *statements]
    else:
        lines = [*head, "BEGIN;", *statements, "COMMIT;"]
    return "\n".join(lines) + "\n"

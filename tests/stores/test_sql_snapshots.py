"""The SQL of each dialect as it was seen last: a change of a table, a function or a hot statement is to be meant.

With FASTJOBS_SNAPSHOTS=write the files in `snapshots/` are written anew. What a released version has made stays as it
is in databases: a change there is a new version of the tables, with a step that leads to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from fastjobs.stores.sql import migrations
from fastjobs.stores.sql.dialects.mysql import statements as mysql
from fastjobs.stores.sql.dialects.postgres import statements as postgres
from fastjobs.stores.sql.dialects.sqlite import statements as sqlite
from fastjobs.stores.sql.looks import Pages, make_looks
from fastjobs.stores.sql.tables import Tables, make_tables

SNAPSHOTS = Path(__file__).parent / "snapshots"
STATEMENTS: dict[str, Any] = {"sqlite": sqlite, "postgresql": postgres, "mysql": mysql, "mariadb": mysql}


def compiled(dialect: str, tables: Tables) -> Iterator[str]:
    for statement in migrations.ddl(tables, dialect):
        # SQLAlchemy's versions differ in the blanks at the ends of lines.
        yield "\n".join(line.rstrip() for line in statement.strip().splitlines()) + ";\n"
    made: Any = STATEMENTS[dialect].make_statements(tables)
    for field in fields(made):
        made_of: str | tuple[str, ...] = getattr(made, field.name)
        yield f"-- {field.name}\n{made_of if isinstance(made_of, str) else ' … '.join(made_of)};\n"
    looks = make_looks(tables, dialect)
    for field in fields(looks):
        value = getattr(looks, field.name)
        each = (value.first, *value.after) if isinstance(value, Pages) else (value,)
        for text in each:
            yield f"-- looks.{field.name}\n{text};\n"


@pytest.mark.parametrize(
    ("name", "dialect", "schema"),
    [
        ("sqlite", "sqlite", None),
        ("postgresql", "postgresql", None),
        ("postgresql-in-a-schema", "postgresql", "own"),
        ("mysql", "mysql", None),
        ("mysql-in-another-database", "mysql", "own"),
    ],
)
def test_the_sql_is_as_it_was_seen_last(name: str, dialect: str, schema: str | None) -> None:
    path = SNAPSHOTS / f"{name}.sql"
    found = "\n".join(compiled(dialect, make_tables(schema=schema, dialect=dialect)))
    if os.environ.get("FASTJOBS_SNAPSHOTS") == "write":
        path.write_text(found)
    assert found == path.read_text(), (
        "if the change is meant, write the snapshots anew by FASTJOBS_SNAPSHOTS=write, and look at their diff"
    )


def test_mariadb_has_what_mysql_has() -> None:
    of = {dialect: list(compiled(dialect, make_tables(dialect=dialect))) for dialect in ("mysql", "mariadb")}
    assert of["mariadb"] == of["mysql"]

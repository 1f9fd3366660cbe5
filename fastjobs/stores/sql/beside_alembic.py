"""What an app with Alembic needs: its autogenerate leaves the queue's tables alone, or a migration of its makes them.

The tables aren't in the app's MetaData, and autogenerate proposes to drop what its MetaData lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from sqlalchemy import Connection

from fastjobs.core.errors import StoreError
from fastjobs.stores.sql import migrations
from fastjobs.stores.sql.dialects.sqlite.begin import begin_to_write
from fastjobs.stores.sql.tables import make_tables

IncludeName = Callable[[str | None, Any, Any], bool]
"""What Alembic's `include_name=` takes: a function of a name, its type, and its parents' names."""


class Operations(Protocol):
    """Alembic's `op`, as far as it's used."""

    def get_bind(self) -> Any: ...
    def get_context(self) -> Any: ...


def include_name_for(prefix: str = "fastjobs_", *, within: IncludeName | None = None) -> IncludeName:
    """A filter for `context.configure(include_name=…)` that leaves out the tables of `SQLStore(prefix=…)`.

    Exactly these tables are left out, in any schema, with their indexes: with the prefix "mail_", a table
    mail_templates stays the app's own. `within` is the app's own filter, asked for all else. For several queues, put
    one within another. Raises StoreError for what can't be a prefix.
    """
    names = {table.name for table in make_tables(prefix).metadata.tables.values()}

    def include_name(name: str | None, type_: str, parent_names: Mapping[Any, str | None], /) -> bool:
        if type_ == "table" and name in names:
            return False
        return within is None or within(name, type_, parent_names)

    return include_name


_of_the_default = include_name_for()


def include_name(name: str | None, type_: str, parent_names: Mapping[Any, str | None]) -> bool:
    """Leaves the tables of `SQLStore(engine)` out of what Alembic compares: `context.configure(include_name=…)`.

    So `alembic revision --autogenerate` doesn't propose to drop them. For another prefix, or beside a filter of the
    app's own: `include_name_for`.
    """
    return _of_the_default(name, type_, parent_names)


def upgrade(op: Operations, *, prefix: str = "fastjobs_", schema: str | None = None) -> None:
    """Makes the queue's tables inside a migration, or brings older ones up to date: `fastjobs.alembic.upgrade(op)`.

    It's for `SQLStore(engine, migrate=False)`, and takes the same `prefix` and `schema`. The tables come as the
    installed fastjobs needs them; where they're there already, nothing is done. A fastjobs whose tables are newer says
    so as it starts: then a migration that calls this again brings them there. In Alembic's offline mode (`--sql`)
    nobody can tell what is there, and it raises StoreError: `fastjobs schema` prints the statements.
    """
    if op.get_context().as_sql:
        raise StoreError(
            "with --sql nobody can tell whether the queue's tables are there: put what `fastjobs schema` prints into"
            " the script instead"
        )
    connection: Connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        begin_to_write(connection)
    migrations.migrate(connection, make_tables(prefix, schema, dialect=connection.dialect.name))

"""Whether the queue's tables are there, which are made otherwise, and in which database: asked once, then known."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from sqlalchemy import Connection, Engine, RootTransaction

from fastjobs.core.errors import StoreError
from fastjobs.stores.sql import migrations
from fastjobs.stores.sql.server.aside import aside
from fastjobs.stores.sql.server.link import Link
from fastjobs.stores.sql.tables import Tables


class Presence:
    """What one store knows of its tables and their database."""

    def __init__(
        self,
        engine: Engine,
        tables: Tables,
        *,
        migrate: bool,
        name_of: Callable[[Connection], str | None],
        hurry: Callable[[Connection], object],
        makes_within: bool,
    ) -> None:
        """`name_of` asks the server for the database's name. `makes_within`: whether tables can be made in someone's
        transaction, and go with it."""
        self._engine = engine
        self._tables = tables
        self._migrates = migrate
        self._name_of = name_of
        self._hurry = hurry
        self._makes_within = makes_within
        self._name: str | None = None
        """The database's own name for itself, once it was opened."""
        self._are_there = False
        self._made_in: weakref.ref[RootTransaction] | None = None

    def forget(self) -> None:
        """Whoever opens the database again may have made it anew."""
        self._are_there = False

    async def see(self, link: Link) -> None:
        """Sees to it that the tables are there, by a connection of the store's own."""
        if not self._are_there:
            await link.run(self._make_and_name)
            self._are_there = True

    def see_within(self, connection: Connection) -> bool:
        """The same for a push through this connection of the app's, where SQLAlchemy may do I/O.

        It answers whether it has just made them apart, so that this transaction may not see into them. Raises
        StoreError for a connection to another database than the queue's.
        """
        self._check_database(connection)
        if self._are_there:
            return False
        made: list[bool] = []

        def make(other: Connection) -> None:
            made.append(self._make(other))

        # Where they can't be made within, the app's transaction isn't even to ask for them first: what it asked for it
        # keeps locked, and whoever makes them would wait for its end.
        if not self._makes_within and aside(self._engine, connection, make, self._hurry):
            self._are_there = True
            return made[-1]
        # The store's first call is this push. The tables are made apart: whoever starts meanwhile would wait for them
        # until the app's transaction ends. Where that can't be, they come with it, or go with it. That they are there
        # is remembered once they were found in a transaction that hadn't made them itself.
        made_in = self._made_in() if self._made_in is not None else None
        if migrations.found_version(connection, self._tables) >= migrations.latest():
            self._are_there = made_in is None or made_in is not connection.get_transaction()
            return False
        if not self._makes_within:
            raise StoreError(
                f"the queue's tables {self._tables.prefix}* aren't there yet, and to make them in the app's transaction"
                " would commit that: open the store before the first push, as fastjobs.lifespan(queue) does"
            )
        if aside(self._engine, connection, make, self._hurry):
            self._are_there = True
            return made[-1]
        self._make(connection)
        transaction = connection.get_transaction()
        self._made_in = None if transaction is None else weakref.ref(transaction)
        return False

    def _check_database(self, connection: Connection) -> None:
        theirs, ours = connection.engine.url.database, self._engine.url.database
        if connection.engine is self._engine or theirs == ours or theirs is None or ours is None:
            return
        # A pooler may have names of its own for databases, so the server is asked.
        found = self._name_of(connection)
        if found not in (self._name, ours):
            raise StoreError(
                f"the transaction is one of the database {found!r}, and the queue's jobs are in"
                f" {self._name or ours!r}: push through a session or connection of the queue's own database"
            )

    def _make_and_name(self, connection: Connection) -> None:
        self._make(connection)
        self._name = self._name_of(connection)

    def _make(self, connection: Connection) -> bool:
        if migrations.found_version(connection, self._tables) >= migrations.latest():
            return False
        if not self._migrates:
            migrations.check(connection, self._tables)
        migrations.migrate(connection, self._tables)
        return True

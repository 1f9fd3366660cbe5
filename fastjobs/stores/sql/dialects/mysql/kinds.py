"""How the rows of the kinds are written on MySQL and MariaDB."""

from __future__ import annotations

from collections.abc import Sequence

from fastjobs.stores.sql.dialects.mysql.link import Link
from fastjobs.stores.sql.dialects.mysql.statements import Statements, make_statements
from fastjobs.stores.sql.dialects.mysql.steps import Step, Steps
from fastjobs.stores.sql.server.kinds import Kinds, Ways
from fastjobs.stores.sql.tables import Tables


def make_kinds(tables: Tables) -> Kinds[Link]:
    """What one store knows of its kinds' rows."""
    return Kinds(tables, _Ways(make_statements(tables)))


class _Ways(Ways[Link]):
    def __init__(self, texts: Statements) -> None:
        self._texts = texts

    async def insert(self, link: Link, kinds: Sequence[str], now: int) -> None:
        await link.transact(self._insert(kinds, now))

    def _insert(self, kinds: Sequence[str], now: int) -> Steps[None]:
        rows = ", ".join(["(%s, %s)"] * len(kinds))
        values = tuple(value for kind in sorted(kinds) for value in (kind, now))
        yield Step(self._texts.new_kinds + rows + self._texts.new_kinds_end, values)

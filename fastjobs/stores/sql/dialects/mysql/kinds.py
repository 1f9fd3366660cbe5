"""How the rows of the kinds are written on MySQL and MariaDB."""

from __future__ import annotations

from collections.abc import Sequence

from fastjobs.stores.sql.dialects.mysql.link import Link
from fastjobs.stores.sql.dialects.mysql.statements import Statements
from fastjobs.stores.sql.dialects.mysql.steps import Step, Steps
from fastjobs.stores.sql.server.kinds import Kinds


def make_kinds(texts: Statements) -> Kinds[Link]:
    """What one store knows of its kinds' rows."""

    def steps(kinds: Sequence[str], now: int) -> Steps[None]:
        yield inserted(texts, kinds, now)

    async def insert_by(link: Link, kinds: Sequence[str], now: int) -> None:
        await link.transact(steps(kinds, now))

    return Kinds(insert_by)


def inserted(texts: Statements, kinds: Sequence[str], now: int) -> Step:
    """What inserts the rows of these kinds, in one order, and leaves those that are there as they are."""
    rows = ", ".join(["(%s, %s)"] * len(kinds))
    values = tuple(value for kind in sorted(kinds) for value in (kind, now))
    return Step(texts.new_kinds + rows + texts.new_kinds_end, values)

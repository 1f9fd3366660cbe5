"""The push of a schedule's run on Postgres: its row is moved on in the transaction that pushes its job.

Of several instances that push a run, one moves the row; the others wait for its commit, and then find that it's there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sqlalchemy import Connection, func, select
from sqlalchemy.dialects.postgresql import insert

from fastjobs.store import Run
from fastjobs.stores.sql import operations
from fastjobs.stores.sql.dialects.postgres.links import Link, is_locked_out
from fastjobs.stores.sql.server.kinds import Kinds
from fastjobs.stores.sql.server.on_loop import OnLoop
from fastjobs.stores.sql.tables import Tables

_PAUSE = 0.1


async def push_run(
    here: OnLoop[Link], kinds: Kinds[Link], tables: Tables, run: Run, now: Callable[[], int]
) -> bool:
    """Pushes the run unless one due then or later was pushed already, and says whether it did.

    One whose key a transaction of the app's has pushed and not committed is tried again until that has ended, or its
    caller has had enough: it must not have a link for so long.
    """

    async def send(link: Link) -> bool:
        await kinds.note(link, [run.job.kind], now())
        return await link.run(lambda connection: _push_run(connection, tables, run, now()))

    while True:
        try:
            return await here.use(send)
        except Exception as error:
            if not is_locked_out(error):
                raise
        await asyncio.sleep(_PAUSE)


def _push_run(connection: Connection, tables: Tables, run: Run, now: int) -> bool:
    table = tables.schedules
    connection.execute(select(func.set_config("lock_timeout", "200ms", True)))
    row = insert(table).values(name=run.schedule, run_at=run.due)
    moved = connection.execute(
        row.on_conflict_do_update(
            index_elements=[table.c.name],
            set_={"run_at": row.excluded.run_at},
            where=table.c.run_at < row.excluded.run_at,
        ).returning(table.c.run_at)
    )
    if moved.first() is None:
        return False
    operations.push(connection, tables, [run.job._replace(latest=False)], now)
    return True

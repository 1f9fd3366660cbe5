"""The runs of schedules on MySQL and MariaDB: a schedule's row is moved on in the transaction that pushes its job.

Of several instances that push a run, one moves the row; the others wait for its commit, and then find that it's there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from fastjobs.store import Run
from fastjobs.stores.sql.dialects.mysql import push
from fastjobs.stores.sql.dialects.mysql.link import Link
from fastjobs.stores.sql.dialects.mysql.statements import Statements
from fastjobs.stores.sql.dialects.mysql.steps import Step, Steps
from fastjobs.stores.sql.server.kinds import Kinds
from fastjobs.stores.sql.server.on_loop import OnLoop
from fastjobs.stores.sql.values import chunks

_PAUSE = 0.1


def runs(texts: Statements, names: Sequence[str]) -> Steps[Mapping[str, int]]:
    """The last run of each of these that had one."""
    found: dict[str, int] = {}
    for some in chunks([name.encode() for name in names]):
        rows = (yield Step(texts.runs, (tuple(some),))).rows
        found.update((bytes(name).decode(), run_at) for name, run_at in rows)
    return found


async def push_run(
    here: OnLoop[Link], kinds: Kinds[Link], texts: Statements, run: Run, now: Callable[[], int]
) -> bool:
    """Pushes the run unless one due then or later was pushed already, and says whether it did.

    One whose key a transaction of the app's has pushed and not committed is tried again until that has ended, or its
    caller has had enough: it must not have a link for so long.
    """

    async def send(link: Link) -> bool:
        await kinds.note(link, [run.job.kind], now())
        return await link.transact(_push_run(texts, run, now(), link.greeting.packet, link.greeting.step))

    while True:
        try:
            return await here.use(send)
        except push.KeyIsOpen:
            pass
        await asyncio.sleep(_PAUSE)


def _push_run(texts: Statements, run: Run, now: int, packet: int, step: int) -> Steps[bool]:
    name = run.schedule.encode()
    # Its row first, so that there is one to lock: a lock of no row would keep nobody out.
    last = (yield Step(texts.runs, ((name,),))).rows
    if last and last[0][1] >= run.due:
        return False
    if not last:
        found = yield Step(texts.first_run, (name, run.due), meets_others=True)
        if found.is_locked:
            raise push.KeyIsOpen
        if not found.is_duplicate:
            yield from push.push(texts, [run.job._replace(latest=False)], now, packet, step, waits=False)
            return True
    last = (yield Step(texts.run, (name,))).rows
    if last and last[0][0] >= run.due:
        return False
    yield Step(texts.move_run, (run.due, name))
    yield from push.push(texts, [run.job._replace(latest=False)], now, packet, step, waits=False)
    return True

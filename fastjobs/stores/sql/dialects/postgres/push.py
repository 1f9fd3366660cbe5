"""The push on Postgres by the store's own connection; one through the app's transaction is in `operations`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastjobs.core.claiming import Claimed
from fastjobs.core.job import NewJob
from fastjobs.stores.sql.dialects.postgres import keyed
from fastjobs.stores.sql.dialects.postgres.claim import Asked
from fastjobs.stores.sql.dialects.postgres.keyed_pushes import PATIENCE
from fastjobs.stores.sql.dialects.postgres.statements import Statements
from fastjobs.stores.sql.operations import has_keys, job_values

if TYPE_CHECKING:
    from fastjobs.stores.sql.dialects.postgres.kinds import Kinds
    from fastjobs.stores.sql.dialects.postgres.links import Link


async def push(
    link: Link,
    statements: Statements,
    jobs: Sequence[NewJob],
    now: int,
    notify: bool,
    kinds: Kinds | None = None,
) -> list[str | None]:
    """Inserts the jobs, all or none, and answers their ids in the same order.

    With `notify` the other instances hear of it as it commits. `kinds` sees to it that each has its row.
    """
    if not jobs:
        return []
    if has_keys(jobs):
        return await _push_keyed(link, statements, jobs, now, notify, kinds)
    rows = [job_values(job, now) for job in jobs]
    if kinds is not None:
        await kinds.note(link, (row[0] for row in rows), now)
    if len(rows) == 1:
        found = await (
            link.fetch(statements.push_notify, *rows[0], statements.channel)
            if notify
            else link.fetch(statements.push, *rows[0])
        )
        return [str(found[0][0])]
    names, payloads, run_ats, _, carried = zip(*rows, strict=True)
    if len(set(names)) == len(set(run_ats)) == len(set(carried)) == 1:
        found = await (
            link.fetch(
                statements.push_alike_notify,
                names[0],
                list(payloads),
                run_ats[0],
                now,
                carried[0],
                statements.channel,
            )
            if notify
            else link.fetch(statements.push_alike, names[0], list(payloads), run_ats[0], now, carried[0])
        )
    else:
        columns = list(names), list(payloads), list(run_ats), now, list(carried)
        found = await (
            link.fetch(statements.push_many_notify, *columns, statements.channel)
            if notify
            else link.fetch(statements.push_many, *columns)
        )
    return [str(id) for id in found[0][0]]


async def push_and_claim(
    link: Link, statements: Statements, jobs: Sequence[NewJob], now: int, claim: Asked
) -> tuple[list[str | None], Claimed]:
    """Inserts jobs that have neither a key nor a name, and claims, all or nothing; the claim sees the jobs."""
    rows = [job_values(job, now) for job in jobs]
    if len(rows) == 1:
        found = await link.fetch(statements.push_and_claim, *rows[0], *claim.values())
    else:
        names, payloads, run_ats, _, carried = zip(*rows, strict=True)
        columns = list(names), list(payloads), list(run_ats), now, list(carried)
        found = await link.fetch(statements.push_many_and_claim, *columns, *claim.values())
    pushed, *claimed = found
    return [*pushed[2][1:-1].split(",")], claim.answered(claimed)


async def _push_keyed(
    link: Link,
    statements: Statements,
    jobs: Sequence[NewJob],
    now: int,
    notify: bool,
    kinds: Kinds | None,
) -> list[str | None]:
    if kinds is not None:
        await kinds.note(link, (job.kind for job in jobs), now)
    told = statements.channel if notify else None
    found = await link.fetch(statements.push_keyed, *keyed.columns(jobs, now), now, PATIENCE, told)
    return keyed.ids_of(found[0][0])

"""The push on Postgres by the store's own connection; one through the app's transaction is in `operations`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastjobs.core.claiming import Claimed
from fastjobs.core.job import Alike, NewJob
from fastjobs.stores.sql.dialects.postgres import keyed
from fastjobs.stores.sql.dialects.postgres.claim import Asked
from fastjobs.stores.sql.dialects.postgres.statements import Statements
from fastjobs.stores.sql.values import has_keys, rows_of

if TYPE_CHECKING:
    from fastjobs.stores.sql.dialects.postgres.links import Link
    from fastjobs.stores.sql.server.kinds import Kinds

PATIENCE = 20
"""Milliseconds that a push with a key or a name waits for another transaction. Then it's tried again."""


async def push(
    link: Link,
    statements: Statements,
    jobs: Sequence[NewJob],
    now: int,
    notify: bool,
    kinds: Kinds[Link] | None = None,
    *,
    sorts: bool = True,
) -> list[str | None]:
    """Inserts the jobs, all or none, and answers their ids in the same order.

    With `notify` the other instances hear of it as it commits. `kinds` sees to it that each has its row. Without
    `sorts` the keys are taken in the order of the jobs where that is quicker: two such pushes of the same keys may
    each have what the other waits for, and both give up after `PATIENCE`.
    """
    if not jobs:
        return []
    if isinstance(jobs, Alike) and len(jobs) > 1:
        return await _push_alike(link, statements, jobs, now, notify, kinds)
    if has_keys(jobs):
        if kinds is not None:
            await kinds.note(link, (job.kind for job in jobs), now)
        told = statements.channel if notify else None
        if not sorts and _are_only_unique(jobs):
            return await _push_unique(link, statements, jobs, now, told)
        found = await link.fetch(statements.push_keyed, *keyed.columns(jobs, now), now, PATIENCE, told)
        return keyed.ids_of(found[0][0])
    rows = rows_of(jobs, now)
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
        alike = Alike(names[0], list(payloads), run_ats[0], carried=carried[0])
        return await _push_alike(link, statements, alike, now, notify)
    columns = list(names), list(payloads), list(run_ats), now, list(carried)
    found = await (
        link.fetch(statements.push_many_notify, *columns, statements.channel)
        if notify
        else link.fetch(statements.push_many, *columns)
    )
    return [*map(str, found[0][0])]


async def _push_alike(
    link: Link, statements: Statements, jobs: Alike, now: int, notify: bool, kinds: Kinds[Link] | None = None
) -> list[str | None]:
    if kinds is not None:
        await kinds.note(link, (jobs.kind,), now)
    due = now + jobs.after if jobs.at is None else jobs.at
    found = await (
        link.fetch(
            statements.push_alike_notify,
            jobs.kind,
            jobs.payloads,
            due,
            now,
            jobs.carried,
            statements.channel,
        )
        if notify
        else link.fetch(statements.push_alike, jobs.kind, jobs.payloads, due, now, jobs.carried)
    )
    return [*map(str, found[0][0])]


async def push_and_claim(
    link: Link, statements: Statements, jobs: Sequence[NewJob], now: int, claim: Asked
) -> tuple[list[str | None], Claimed]:
    """Inserts jobs that have neither a key nor a name, and claims, all or nothing; the claim sees the jobs."""
    rows = rows_of(jobs, now)
    if len(rows) == 1:
        found = await link.fetch(statements.push_and_claim, *rows[0], *claim.values())
    else:
        names, payloads, run_ats, _, carried = zip(*rows, strict=True)
        columns = list(names), list(payloads), list(run_ats), now, list(carried)
        found = await link.fetch(statements.push_many_and_claim, *columns, *claim.values())
    pushed, *claimed = found
    return [*pushed[2][1:-1].split(",")], claim.answered(claimed)


def _are_only_unique(jobs: Sequence[NewJob]) -> bool:
    """Whether each has a key, moves none that waits, and has no name."""
    for job in jobs:  # noqa: SIM110 - an any() takes twice as long, and most are of one job or a few
        if job.key is None or job.latest or job.name is not None:
            return False
    return True


async def _push_unique(
    link: Link, statements: Statements, jobs: Sequence[NewJob], now: int, told: str | None
) -> list[str | None]:
    """Inserts those whose keys don't wait, as one set."""
    found = await link.fetch(
        statements.push_unique,
        [job.kind for job in jobs],
        [job.payload for job in jobs],
        [now + job.after if job.at is None else job.at for job in jobs],
        now,
        [job.carried for job in jobs],
        [job.key for job in jobs],
        [job.one_at_a_time for job in jobs],
        str(PATIENCE),
        told,
    )
    new, kinds, keys, _ = found[0]
    if new is None:
        return [None] * len(jobs)
    if kinds is None:
        return [*map(str, new)]
    # The new ones are in the order of the jobs, so each is the next of these that is its like.
    ids: list[str | None] = []
    rows = zip(new, kinds, map(bytes, keys), strict=True)
    row = next(rows, None)
    for job in jobs:
        if row is not None and row[1:] == (job.kind, job.key):
            ids.append(str(row[0]))
            row = next(rows, None)
        else:
            ids.append(None)
    return ids

"""Cancels and progress on MySQL and MariaDB."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from fastjobs.store import Cancelled
from fastjobs.stores.sql.dialects.mysql import keyed
from fastjobs.stores.sql.dialects.mysql.link import Link
from fastjobs.stores.sql.dialects.mysql.statements import Statements
from fastjobs.stores.sql.dialects.mysql.steps import Step, Steps
from fastjobs.stores.sql.server.on_loop import OnLoop
from fastjobs.stores.sql.tables import HELD, PARKED
from fastjobs.stores.sql.values import chunks, claimed_row, row_id

_AGAIN_AFTER = (0.01, 0.05)
"""Seconds until a row is asked for again that was locked: a claim, a mark or a push has one for a moment."""


async def cancel(
    here: OnLoop[Link],
    texts: Statements,
    ids: Sequence[str],
    now: Callable[[], int],
    woke: Callable[[], None],
) -> list[Cancelled]:
    """Removes the jobs that wait and asks the held ones to stop. `woke` is called where a parked job waits again."""
    found: dict[int, Cancelled] = {}

    async def ask(link: Link, some: Sequence[int]) -> None:
        if await link.transact(_cancel(texts, some, now(), found)):
            woke()

    numbers = [row_id(id) for id in ids]
    wanted = sorted({number for number in numbers if number is not None})
    for again_after in (*_AGAIN_AFTER, None):
        for some in chunks(wanted):
            await here.use(lambda link, some=some: ask(link, some))  # type: ignore[misc]
        wanted = [number for number, outcome in found.items() if outcome is Cancelled.BUSY]
        if not wanted or again_after is None:
            break
        await asyncio.sleep(again_after)
    answers: list[Cancelled] = []
    for number in numbers:
        answers.append(Cancelled.NOT_THERE if number is None else found[number])
        if number is not None and found[number] is Cancelled.REMOVED:
            found[number] = Cancelled.NOT_THERE  # to a second cancel of it
    return answers


def _cancel(texts: Statements, ids: Sequence[int], now: int, told: dict[int, Cancelled]) -> Steps[bool]:
    rows = (yield Step(texts.standing, (tuple(ids),))).rows
    locked = {row[0] for row in rows}
    told.update(dict.fromkeys(ids, Cancelled.NOT_THERE))
    if len(locked) < len(ids):
        there = (yield Step(texts.there, (tuple(ids),))).rows
        told.update((row[0], Cancelled.BUSY) for row in there if row[0] not in locked)
    asked = tuple(row[0] for row in rows if row[2] == HELD and row[4] > now)
    if asked:
        yield Step(texts.ask_to_stop, (asked,))
        told.update(dict.fromkeys(asked, Cancelled.ASKED))
    gone = [row for row in rows if row[0] not in asked]
    if not gone:
        return False
    told.update((row[0], Cancelled.REMOVED) for row in gone)
    # One that was parked frees nothing. One that waits may be the one that was to run next of its key, and one whose
    # hold ran out has its key's slot still, unless another has taken it.
    freed = {(row[1], bytes(row[5])): row[0] for row in gone if row[5] is not None and row[2] != PARKED}
    for kind in sorted({kind for kind, _ in freed}):
        of_kind = {key: id for (of, key), id in freed.items() if of == kind}
        yield Step(texts.lock_slots, (kind, tuple(sorted(of_kind))))
        yield Step(texts.free_slots, (kind, tuple(sorted(of_kind)), tuple(of_kind.values())))
    yield Step(texts.done, (tuple(row[0] for row in gone),))
    yield from keyed.keep_names(texts, ((row[6], row[7]) for row in gone), now)
    return (yield from keyed.promote(texts, freed.keys()))


def progress(texts: Statements, reports: Sequence[tuple[str, int, str]]) -> Steps[None]:
    """Keeps the text of each (id, claim, text) whose claim has the job; of several of one claim the last."""
    rows = {row: text for id, claim, text in reports if (row := claimed_row(id, claim)) is not None}
    if not rows:
        return
    found = yield Step(texts.locked_claims, (tuple(sorted({number for number, _ in rows})),))
    for id, claim in found.rows:
        if (id, claim) in rows:
            yield Step(texts.progress, (rows[id, claim], id))

"""Cancels and progress on Postgres: what is asked of the functions, and the cancel's answer told to each id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fastjobs.store import Cancelled
from fastjobs.stores.sql.dialects.postgres.statements import Statements
from fastjobs.stores.sql.server.on_loop import OnLoop
from fastjobs.stores.sql.values import chunks, claimed_row, row_id

if TYPE_CHECKING:
    from fastjobs.stores.sql.dialects.postgres.links import Link

_AGAIN_AFTER = (0.01, 0.05)
"""Seconds until a row is asked for again that was locked: a claim, a mark or a push has one for a moment."""


async def cancel(
    here: OnLoop[Link],
    statements: Statements,
    ids: Sequence[str],
    now: Callable[[], int],
    woke: Callable[[], None],
) -> list[Cancelled]:
    """Removes the jobs that wait and asks the held ones to stop. `woke` is called where a parked job waits again."""
    found: dict[int, Cancelled] = {}

    async def ask(link: Link, some: Sequence[int]) -> None:
        ((removed, asked, busy, has_woken),) = await link.fetch(statements.cancel, some, now())
        for numbers, outcome in (
            (removed, Cancelled.REMOVED),
            (asked, Cancelled.ASKED),
            (busy, Cancelled.BUSY),
        ):
            found.update(dict.fromkeys(numbers or (), outcome))
        if has_woken:
            woke()

    numbers = [row_id(id) for id in ids]
    wanted = sorted({number for number in numbers if number is not None})
    for again_after in (*_AGAIN_AFTER, None):
        for some in chunks(wanted):
            found.update(dict.fromkeys(some, Cancelled.NOT_THERE))
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


async def progress(link: Link, statements: Statements, reports: Sequence[tuple[str, int, str]]) -> None:
    """Keeps the text of each (id, claim, text) whose claim has the job; of several of one claim the last."""
    rows = {row: text for id, claim, text in reports if (row := claimed_row(id, claim)) is not None}
    if rows:
        # Of several claims of one job one has it at most.
        ids, claims = [number for number, _ in rows], [claim for _, claim in rows]
        await link.fetch(statements.progress, ids, claims, list(rows.values()))

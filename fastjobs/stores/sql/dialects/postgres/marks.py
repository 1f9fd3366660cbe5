"""The marks on Postgres: batches for one call of the function, and its answer told to each mark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fastjobs.core.errors import StoreError
from fastjobs.core.marks import Done, Extend, Fail, GiveBack, HoldBack, Kept, Mark, TryAgain
from fastjobs.core.text import kept_text
from fastjobs.stores.sql.dialects.postgres import functions
from fastjobs.stores.sql.dialects.postgres.statements import Statements
from fastjobs.stores.sql.operations import row_id

if TYPE_CHECKING:
    from fastjobs.stores.sql.dialects.postgres.links import Link

_TOGETHER = 1_000
"""How many marks one call keeps: so many rows are locked for a few milliseconds."""

_Numbered = tuple[int, int, Mark]
"""Its place among the marks, its job's number, and itself."""


def check(marks: Sequence[Mark]) -> None:
    """Raises a StoreError for a mark that this store doesn't keep."""
    for mark in marks:
        if not isinstance(mark, (Done, TryAgain, Fail, GiveBack, HoldBack, Extend)):
            raise StoreError(f"SQLStore keeps no mark {type(mark).__name__}")


async def mark(
    link: Link,
    statements: Statements,
    marks: Sequence[Mark],
    now: int,
    woke: Callable[[], None] = lambda: None,
) -> list[Kept]:
    """Keeps what became of claimed jobs; several marks of one job as one after the other.

    `woke` is called where a parked job, which may have been due for long, waits again.
    """
    check(marks)
    answers = [Kept.LOST] * len(marks)
    for batch in batches(marks):
        ((*told, has_woken, _),) = await link.fetch(statements.mark, *batch.values(now))
        batch.tell(answers, *told)
        if has_woken:
            woke()
    return answers


def batches(marks: Sequence[Mark]) -> list[Batch]:
    """The marks that can change something, in batches in which no job is twice."""
    layers: list[list[_Numbered]] = []
    seen: dict[int, int] = {}
    for place, mark in enumerate(marks):
        number = row_id(mark.id)
        if number is None or not 0 <= mark.claim < 1 << 63:
            continue
        layer = seen[number] = seen.get(number, -1) + 1
        if layer == len(layers):
            layers.append([])
        layers[layer].append((place, number, mark))
    return [
        Batch(some[at : at + _TOGETHER])
        for layer in layers
        for some in _apart(layer)
        for at in range(0, len(some), _TOGETHER)
    ]


def _apart(layer: list[_Numbered]) -> list[list[_Numbered]]:
    # What takes a key back may wait a moment for an open transaction of the app's: no other mark is to wait with it.
    back = [each for each in layer if isinstance(each[2], (GiveBack, HoldBack))]
    if not back or len(back) == len(layer):
        return [layer]
    return [[each for each in layer if not isinstance(each[2], (GiveBack, HoldBack))], back]


class Batch:
    """Marks that go in one call of the function."""

    def __init__(self, numbered: list[_Numbered]) -> None:
        self._numbered = numbered

    def values(self, now: int) -> tuple[object, ...]:
        """What the statement takes."""
        done: list[int] = []
        done_claims: list[int] = []
        ids: list[int] = []
        claims: list[int] = []
        what: list[int] = []
        at: list[int | None] = []
        errors: list[str | None] = []
        kinds_until: list[int | None] = []
        for _, number, mark in self._numbered:
            if isinstance(mark, Done):
                done.append(number)
                done_claims.append(mark.claim)
                continue
            ids.append(number)
            claims.append(mark.claim)
            kind, when, error = _change(mark, now)
            what.append(kind)
            at.append(when)
            errors.append(None if error is None else kept_text(error))
            kinds_until.append(now + mark.kind_for if isinstance(mark, HoldBack) else None)
        return done, done_claims, ids, claims, what, at, errors, kinds_until, now

    def tell(
        self,
        answers: list[Kept],
        lost: Sequence[int] | None,
        locked: Sequence[int] | None,
        asked: Sequence[int] | None,
    ) -> None:
        """Puts each one's answer in its place: which weren't kept, which of those are locked, which are to stop."""
        missed, busy, stop = set(lost or ()), set(locked or ()), set(asked or ())
        for place, number, _ in self._numbered:
            if number not in missed:
                answers[place] = Kept.STOP if number in stop else Kept.YES
            elif number in busy:
                answers[place] = Kept.BUSY


def _change(mark: Mark, now: int) -> tuple[int, int | None, str | None]:
    match mark:
        case TryAgain():
            return functions.TRY_AGAIN, now + mark.after, mark.error
        case Fail():
            return functions.FAIL, now, mark.error
        case GiveBack():
            return functions.GIVE_BACK, None if mark.after is None else now + mark.after, mark.error
        case HoldBack():
            return functions.HOLD_BACK, None if mark.after is None else now + mark.after, None
        case Extend():
            return functions.EXTEND, now + mark.hold, None
        case _:
            raise StoreError(f"SQLStore keeps no mark {type(mark).__name__}")

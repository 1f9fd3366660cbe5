"""The marks on Postgres: batches for one call of the function, and its answer told to each mark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fastjobs.core.errors import StoreError
from fastjobs.core.marks import Done, Extend, Fail, GiveBack, HoldBack, Kept, Mark, TryAgain
from fastjobs.core.text import kept_text
from fastjobs.stores.sql.dialects.postgres import functions
from fastjobs.stores.sql.dialects.postgres.statements import Statements
from fastjobs.stores.sql.server.on_loop import in_turn
from fastjobs.stores.sql.values import check_marks, claimed_row

if TYPE_CHECKING:
    from fastjobs.stores.sql.dialects.postgres.links import Link

_TOGETHER = 1_000
"""How many marks one call keeps: so many rows are locked for a few milliseconds."""

_Numbered = tuple[int, int, Mark]
"""Its place among the marks, its job's number, and itself."""


_NUMBERS = 1 << 63


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
    answers = [Kept.LOST] * len(marks)
    some = batches(marks)
    sends = [lambda batch=batch: link.fetch(statements.mark, *batch.values(now)) for batch in some]
    for batch, ((*told, has_woken, _),) in zip(some, await in_turn(link, sends), strict=True):
        batch.tell(answers, *told)
        if has_woken:
            woke()
    return answers


def batches(marks: Sequence[Mark]) -> list[Batch]:
    """The marks that can change something, in batches in which no job is twice."""
    check_marks(marks)
    if len(marks) <= _TOGETHER and (done := _done(marks)) is not None:
        return [done]
    layers: list[list[_Numbered]] = []
    seen: dict[int, int] = {}
    for place, mark in enumerate(marks):
        row = claimed_row(mark.id, mark.claim)
        if row is None:
            continue
        number, _ = row
        layer = seen[number] = seen.get(number, -1) + 1
        if layer == len(layers):
            layers.append([])
        layers[layer].append((place, number, mark))
    return [
        Batch([], [], some[at : at + _TOGETHER])
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


def _done(marks: Sequence[Mark]) -> Batch | None:
    """Marks that are all Done, of a job each, as a busy queue has in hundreds: without a look at each by itself."""
    if {*map(type, marks)} != {Done}:
        return None
    ids, claims = [mark.id for mark in marks], [mark.claim for mark in marks]
    try:
        numbers = [*map(int, ids)]
    except (TypeError, ValueError):
        return None
    # What int() takes may be no id of this store's all the same.
    if [*map(str, numbers)] != ids or len(set(numbers)) < len(numbers):
        return None
    if min(numbers) < 0 or max(numbers) >= _NUMBERS or min(claims) < 0 or max(claims) >= _NUMBERS:
        return None
    return Batch(numbers, claims)


class Batch:
    """Marks that go in one call of the function: all Done, or some by their place among the marks."""

    def __init__(
        self, done: list[int], done_claims: list[int], numbered: list[_Numbered] | None = None
    ) -> None:
        self._done = done
        self._done_claims = done_claims
        self._numbered = numbered

    def values(self, now: int) -> tuple[object, ...]:
        """What the statement takes."""
        done, done_claims = [*self._done], [*self._done_claims]
        ids: list[int] = []
        claims: list[int] = []
        what: list[int] = []
        at: list[int | None] = []
        errors: list[str | None] = []
        kinds_until: list[int | None] = []
        for _, number, mark in self._numbered or ():
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
        if self._numbered is None and not lost:
            answers[:] = [Kept.YES] * len(answers)
            return
        places = enumerate(self._done) if self._numbered is None else ((n, id) for n, id, _ in self._numbered)
        missed, busy, stop = set(lost or ()), set(locked or ()), set(asked or ())
        for place, number in places:
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

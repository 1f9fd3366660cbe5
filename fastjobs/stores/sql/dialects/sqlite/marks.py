"""The marks on SQLite, in the order they were given, inside a transaction of the writer's."""

from __future__ import annotations

from collections.abc import Sequence

from fastjobs.core.errors import StoreError
from fastjobs.core.marks import Done, Extend, Fail, GiveBack, HoldBack, Kept, Mark, TryAgain
from fastjobs.core.text import kept_text
from fastjobs.stores.sql.dialects.sqlite import keyed
from fastjobs.stores.sql.dialects.sqlite.opened import Opened
from fastjobs.stores.sql.values import claimed_row


def mark(opened: Opened, marks: Sequence[Mark], now: int) -> list[Kept]:
    """Keeps what became of claimed jobs, one by one: with two numbers to match that's cheaper than as a set."""
    return [_one(opened, each, now) for each in marks]


def _one(opened: Opened, each: Mark, now: int) -> Kept:
    pair = claimed_row(each.id, each.claim)
    if pair is None:
        return Kept.LOST
    texts, execute = opened.statements, opened.raw.execute
    match each:
        case Done():
            done = execute(texts.done, pair)
        case TryAgain():
            done = execute(texts.try_again, (now + each.after, kept_text(each.error), *pair))
        case Fail():
            done = execute(texts.fail, (now, kept_text(each.error), *pair))
        case GiveBack():
            done = execute(texts.give_back, (*keyed.given_back(each, now), *pair))
        case HoldBack():
            return _of_any(opened, each, pair[0], now)
        case Extend():
            rows = execute(texts.extend, (now + each.hold, *pair, now)).fetchall()
            return Kept.LOST if not rows else Kept.STOP if rows[0][0] else Kept.YES
        case _:
            raise StoreError(f"SQLStore keeps no mark {type(each).__name__}")
    return Kept.YES if done.rowcount else _of_any(opened, each, pair[0], now)


def _of_any(opened: Opened, each: Done | TryAgain | Fail | GiveBack | HoldBack, id: int, now: int) -> Kept:
    # The statements above are those of most jobs, and leave the others as they are.
    if isinstance(each, Done):
        steps = keyed.done(opened.keyed, id, each.claim, now)
    else:
        steps = keyed.mark(opened.keyed, each, id, now)
    return Kept.YES if keyed.in_line(opened.raw, steps) else Kept.LOST

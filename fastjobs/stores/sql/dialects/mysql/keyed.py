"""Keys and names on MySQL and MariaDB: the slots of one at a time, whom an end wakes, and names that stay taken."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from fastjobs.stores.sql.dialects.mysql.statements import Statements
from fastjobs.stores.sql.dialects.mysql.steps import Step, Steps

_TOGETHER = 200
"""How many keys are asked for in one statement."""

Key = tuple[str, bytes]
"""A kind and a key of its jobs."""


class Slot(NamedTuple):
    """Who holds a key."""

    kind: str
    key: bytes
    job: int
    claim: int
    until: int


def take_slots(texts: Statements, slots: Sequence[Slot], now: int) -> Steps[set[int]]:
    """Takes the slots, given by kind and key, that nobody has; answers the jobs that have theirs now.

    Each is locked, also where another has it: a mark that lets it go then wakes whom this claim parks. A slot whose job
    has ended in a transaction of the app's is nobody's, which the job itself says.
    """
    before, after = texts.take_slots
    won: set[int] = set()
    for at in range(0, len(slots), _TOGETHER):
        some = slots[at : at + _TOGETHER]
        values = tuple(value for slot in some for value in slot)
        yield Step(before + " UNION ALL ".join([texts.slot] * len(some)) + after, (*values, now, now, now))
    for kind, each in groupby(slots, key=lambda slot: slot.kind):
        of_kind = {slot.key: slot for slot in each}
        found = yield Step(texts.slots, (kind, tuple(of_kind)))
        for key, job, claim, is_held in found.rows:
            slot = of_kind[bytes(key)]
            if (job, claim) != (slot.job, slot.claim):
                if is_held:
                    continue
                yield Step(texts.set_slot, (slot.job, slot.claim, slot.until, kind, slot.key))
            won.add(slot.job)
    return won


def promote(texts: Statements, keys: Collection[Key], *, looks_on: bool = True) -> Steps[bool]:
    """Has the earliest parked job of each of these keys wait again, and says whether there was one.

    Called once the key was let go, so that it sees who parked meanwhile. Those that someone has locked are passed over:
    the sweep finds them. To wake one too many does no harm: the next claim parks it again. `looks_on`: whether the next
    is looked for then, which at REPEATABLE READ locks where others insert.
    """
    woken: list[int] = []
    for some in _chunks(sorted(keys)):
        values = tuple(value for key in some for value in key)
        found = yield Step(" UNION ALL ".join([texts.first_parked] * len(some)), values)
        if not found.rows:
            continue
        ids = tuple(row[0] for row in found.rows)
        locked = {row[0] for row in (yield Step(texts.lock_parked, (ids,))).rows}
        woken.extend(locked)
        for id, kind, key in found.rows:
            if id not in locked and looks_on:
                woken.extend(row[0] for row in (yield Step(texts.next_parked, (kind, bytes(key)))).rows)
    if woken:
        yield Step(texts.wake, (tuple(woken),))
    return bool(woken)


def promote_freed(texts: Statements, keys: Collection[Key]) -> Steps[bool]:
    """As `promote`, for keys whose slots were left where they are: a claim that still found one had, and has not
    committed yet, is waited for, or whom it parks nobody would wake."""
    for kind, of_kind in groupby(sorted(keys), key=lambda key: key[0]):
        yield Step(texts.lock_slots, (kind, kind, tuple(key for _, key in of_kind)))
    return (yield from promote(texts, keys))


def keep_names(texts: Statements, kept: Iterable[tuple[bytes | None, int | None]], now: int) -> Steps[None]:
    """Keeps names of jobs that have ended taken for as long as each was to be."""
    for name, keep in sorted((name, keep) for name, keep in kept if name is not None and keep):
        yield Step(texts.keep_name, (bytes(name), now + keep))


def keep_name_within(texts: Statements, name: bytes, until: int) -> Steps[None]:
    """Keeps a name taken until then. An INSERT that met its row would lock names beside it at REPEATABLE READ."""
    is_there = (yield Step(texts.name_row, (name,), verified=True)).rows
    if is_there and (yield Step(texts.lock_name, (name,))).rows:
        yield Step(texts.keep_longer, (until, name))
    else:
        yield Step(texts.keep_name, (name, until))


def _chunks(keys: Sequence[Key]) -> Iterable[Sequence[Key]]:
    return (keys[at : at + _TOGETHER] for at in range(0, len(keys), _TOGETHER))

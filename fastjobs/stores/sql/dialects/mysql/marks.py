"""The marks on MySQL and MariaDB: the rows are locked and looked at, and then changed as a set."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from fastjobs.core.marks import Done, Extend, Fail, GiveBack, HoldBack, Kept, Mark, TryAgain
from fastjobs.core.text import kept_text
from fastjobs.stores.sql.dialects.mysql import keyed
from fastjobs.stores.sql.dialects.mysql.statements import Statements
from fastjobs.stores.sql.dialects.mysql.steps import Step, Steps
from fastjobs.stores.sql.tables import FAILED, HELD, READY
from fastjobs.stores.sql.values import claimed_row

TOGETHER = 1_000
"""How many marks one transaction keeps."""
_ROWS = 200
"""How many rows one statement changes."""
_FAILED_ROWS = 50
"""How many where they have errors, which are long: a statement fits into a packet of 1 MiB."""

_Numbered = tuple[int, int, Mark]
"""Its place among the marks, its job's number, and itself."""


Batch = list[_Numbered]
"""Marks of which no two are of one job."""


class Marked(NamedTuple):
    """What came of marks."""

    answers: dict[int, Kept]
    """By the mark's place; those that aren't named are LOST."""
    has_woken: bool
    """Whether a parked job waits again."""
    has_keys: bool
    """Whether slots or names are locked, beside which the same transaction may wait for no others."""


class _Row(NamedTuple):
    id: int
    kind: str
    state: int
    claim: int
    attempts: int
    run_at: int
    held_until: int
    failed_at: int | None
    own_key: bytes | None
    unique_key: bytes | None
    alone_key: bytes | None
    name: bytes | None
    keep_name: int | None
    stop_asked: int


def batches(marks: Sequence[Mark]) -> list[Batch]:
    """The marks that can change something, in batches in which no job is twice; several of one job go in turn."""
    layers: list[list[_Numbered]] = []
    seen: dict[int, int] = {}
    for place, mark in enumerate(marks):
        row = claimed_row(mark.id, mark.claim)
        if row is None:
            continue
        layer = seen[row[0]] = seen.get(row[0], -1) + 1
        if layer == len(layers):
            layers.append([])
        layers[layer].append((place, row[0], mark))
    return [layer[at : at + TOGETHER] for layer in layers for at in range(0, len(layer), TOGETHER)]


def mark(
    texts: Statements, batch: Sequence[_Numbered], now: int, without: Collection[int] = ()
) -> Steps[Marked]:
    """Keeps what became of claimed jobs. What someone else's transaction has locked is passed over: BUSY.

    `without` are the jobs that don't have their keys again as they are given back. Others whose keys open transactions
    may have pushed are KeysAreLocked.
    """
    answers: dict[int, Kept] = {}
    found = yield Step(texts.claimed, (tuple(sorted(number for _, number, _ in batch)),))
    rows = {row[0]: _Row(*row) for row in found.rows}
    mine = [
        (rows[number], each, place)
        for place, number, each in batch
        if number in rows and _is_its(rows[number], each, now)
    ]
    missed = {number: (place, each) for place, number, each in batch if number not in rows}
    if missed:
        for id, claim, state, held_until in (yield Step(texts.missed, (tuple(missed),))).rows:
            place, each = missed[id]
            held = not isinstance(each, Extend) or (state == HELD and held_until > now)
            if claim == each.claim and held:
                answers[place] = Kept.BUSY
    for kind, until in sorted(_held_back(mine, now).items()):
        yield Step(texts.hold_back, (kind, until, now))
    freed, out = yield from _slots(texts, mine, now)
    mine = [each for each in mine if each[0].id not in out]
    done = [row for row, each, _ in mine if isinstance(each, Done)]
    if done:
        yield Step(texts.done, (tuple(row.id for row in done),))
        yield from keyed.keep_names(texts, ((row.name, row.keep_name) for row in done), now)
    yield from _change(
        texts, [_changed(row, each, now) for row, each, _ in mine if not isinstance(each, Done)]
    )
    back = [row for row in _gives_back(mine) if row.id not in without]
    yield from _take_keys(texts, sorted(back, key=lambda row: (row.kind, row.own_key)))
    has_woken = yield from keyed.promote(texts, freed)
    for row, each, place in mine:
        answers[place] = Kept.STOP if isinstance(each, Extend) and row.stop_asked else Kept.YES
    has_keys = bool(freed) or any(row.keep_name for row in done)
    return Marked(answers, has_woken, has_keys)


_Mine = tuple[_Row, Mark, int]


def _is_its(row: _Row, each: Mark, now: int) -> bool:
    if row.claim != each.claim:
        return False
    return not isinstance(each, Extend) or (row.state == HELD and row.held_until > now)


def _held_back(mine: Sequence[_Mine], now: int) -> dict[str, int]:
    until: dict[str, int] = {}
    for row, each, _ in mine:
        if isinstance(each, HoldBack):
            until[row.kind] = max(until.get(row.kind, 0), now + each.kind_for)
    return until


def _slots(texts: Statements, mine: Sequence[_Mine], now: int) -> Steps[tuple[set[keyed.Key], set[int]]]:
    """Lets go and lengthens the slots of these; the keys that were let go, and the jobs whose slot another has by now:
    as by that one's clock their hold was over, they have no more of it."""
    freed: set[keyed.Key] = set()
    out: set[int] = set()
    by_kind: dict[str, list[tuple[bytes, _Row, Mark]]] = {}
    for row, each, _ in mine:
        if row.alone_key is not None:
            by_kind.setdefault(row.kind, []).append((bytes(row.alone_key), row, each))
    for kind, some in sorted(by_kind.items()):
        found = yield Step(texts.lock_slots, (kind, kind, tuple(key for key, _, _ in some)))
        has = {bytes(key): (job, claim) for key, job, claim, _ in found.rows}
        ends = [(key, row) for key, row, each in some if not isinstance(each, Extend)]
        if ends:
            yield Step(
                texts.free_slots, (tuple(key for key, _ in ends), kind, tuple(row.id for _, row in ends))
            )
            freed.update((kind, key) for key, _ in ends)
        longer: dict[int, list[bytes]] = {}
        for key, row, each in some:
            if isinstance(each, Extend):
                if has.get(key) == (row.id, row.claim):
                    longer.setdefault(now + each.hold, []).append(key)
                else:
                    out.add(row.id)
        for until, keys in longer.items():
            yield Step(texts.extend_slots, (until, kind, tuple(keys)))
    return freed, out


def _changed(row: _Row, each: Mark, now: int) -> tuple[object, ...]:
    """The row as the mark leaves it, as `Statements.change` takes it."""
    run_at, failed_at, attempts, drops_key = row.run_at, row.failed_at, row.attempts, 0
    state, held_until, claim = READY, 0, row.claim + 1
    error: str | None = None
    match each:
        case Extend():
            state, held_until, claim = row.state, now + each.hold, row.claim
        case Fail():
            state, failed_at, drops_key, error = FAILED, now, 1, each.error
        case TryAgain():
            run_at, error = now + each.after, each.error
        case GiveBack() | HoldBack():
            attempts = max(attempts - 1, 0)
            run_at = row.run_at if each.after is None else now + each.after
            error = each.error if isinstance(each, GiveBack) else None
        case Done():
            raise AssertionError("it's removed")
    if row.stop_asked and state == READY:
        # It's removed by the next claim, and keeps its place in the line until then.
        run_at = row.run_at
    kept = None if error is None else kept_text(error)
    return row.id, state, held_until, claim, attempts, run_at, failed_at, drops_key, kept


def _change(texts: Statements, rows: Sequence[tuple[object, ...]]) -> Steps[None]:
    before, one, after = texts.change
    for some in _in_chunks(rows):
        values = tuple(value for row in some for value in row)
        yield Step(before + " UNION ALL ".join([one] * len(some)) + after, values)


def _in_chunks(rows: Sequence[tuple[object, ...]]) -> Iterator[Sequence[tuple[object, ...]]]:
    most = _ROWS if all(row[-1] is None for row in rows) else _FAILED_ROWS
    for at in range(0, len(rows), most):
        yield rows[at : at + most]


def _gives_back(mine: Sequence[_Mine]) -> Iterator[_Row]:
    for row, each, _ in mine:
        is_free = row.own_key is not None and row.unique_key is None and not row.stop_asked
        if isinstance(each, (GiveBack, HoldBack)) and is_free:
            yield row


def _take_keys(texts: Statements, rows: Sequence[_Row]) -> Steps[None]:
    """Gives the jobs their keys back, but for those that another has."""
    free: dict[tuple[str, bytes | None], int] = {}
    locked: set[int] = set()
    for row in rows:
        found = yield Step(texts.has_key, (row.kind, row.own_key), meets_others=True)
        if found.is_locked:
            locked.add(row.id)
        elif not found.rows:
            free.setdefault((row.kind, row.own_key), row.id)
    for id in () if locked else free.values():
        found = yield Step(texts.take_key, (id,), meets_others=True)
        if found.is_locked:
            # That took its time, and once is enough.
            locked.update(free.values())
            break
    if locked:
        # Nor may this go on: a server may have undone the whole transaction as it gave up one statement
        # (innodb_rollback_on_timeout).
        raise KeysAreLocked(locked)


class KeysAreLocked(Exception):
    """Open transactions may have pushed keys that were to be given back: the marks are to be kept without them."""

    def __init__(self, ids: Collection[int]) -> None:
        super().__init__(f"the keys of {len(ids)} jobs are locked")
        self.ids = frozenset(ids)

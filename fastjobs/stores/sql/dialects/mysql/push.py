"""The push on MySQL and MariaDB, by the store's own links and through the app's transaction: the same steps.

Nothing in the app's transaction takes a lock that a claim would wait for until that transaction ends: whether a key or
a name is there already is read without one. The exception is a key that comes to be there between the read and the
INSERT, or while the INSERT waits for another's transaction. Then the server locks it; its job is locked with it, so
that claims and marks pass it over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastjobs.core.errors import StoreError
from fastjobs.core.job import NewJob
from fastjobs.stores.sql.dialects.mysql import keyed
from fastjobs.stores.sql.dialects.mysql.statements import Statements, among
from fastjobs.stores.sql.dialects.mysql.steps import Step, Steps
from fastjobs.stores.sql.tables import READY
from fastjobs.stores.sql.values import has_keys, rows_of

TOGETHER = 500
"""The most jobs in one statement."""
_BESIDE = 4096
"""How many bytes of a statement are something else than its values, and than the quotes of these."""


def push(
    texts: Statements, jobs: Sequence[NewJob], now: int, packet: int, step: int, *, waits: bool
) -> Steps[list[str | None]]:
    """Inserts the jobs, all or none, and answers their ids in the same order; None for one that's there already.

    `packet` is how many bytes a statement may have, and `step` how far apart the connection's ids are. `waits`: for an
    open transaction that pushes the same key or name; without it that's a KeyIsOpen.
    """
    if has_keys(jobs):
        # All are looked at before the first is sent: of some that are too long the app's transaction is to have none.
        _fitting([_row(job, now) for job in jobs], packet)
        if not waits:
            yield from _refuse_to_wait(texts, jobs)
        return (yield from _push_keyed(texts, jobs, now, packet, step, waits))
    return [str(id) for id in (yield from _insert(texts.insert, rows_of(jobs, now), packet, step))]


def is_one_statement(jobs: Sequence[NewJob], packet: int) -> bool:
    """Whether the push of these is certainly a single INSERT, which needs no transaction to be kept whole."""
    if len(jobs) > TOGETHER or has_keys(jobs):
        return False
    # A character is four bytes at most, or two where it's escaped; numbers and a kind are less than the rest.
    letters = sum(len(job.payload) + len(job.carried or "") for job in jobs)
    return 4 * letters + 640 * len(jobs) + _BESIDE <= packet


def _insert(text: str, rows: Sequence[tuple[object, ...]], packet: int, step: int) -> Steps[list[int]]:
    """Inserts rows that have their ids one after the other, as the server gives them to one statement's rows."""
    ids: list[int] = []
    for some in _fitting(rows, packet):
        values = tuple(value for row in some for value in row)
        found = yield Step(text + ", ".join([_brackets(len(some[0]))] * len(some)), values)
        ids.extend(range(found.id, found.id + len(some) * step, step))
    return ids


def _brackets(count: int) -> str:
    return f"({', '.join(['%s'] * count)})"


def _fitting(rows: Sequence[tuple[object, ...]], packet: int) -> list[Sequence[tuple[object, ...]]]:
    """The rows in as many at a time as a statement takes; a StoreError where one alone is too long for any."""
    groups: list[list[tuple[object, ...]]] = []
    length = 0
    for row in rows:
        size = sum(_size(value) for value in row)
        if size + _BESIDE > packet:
            raise StoreError(
                f"a job of kind {row[0]!r} makes a statement of up to {size + _BESIDE:,} bytes, and the server takes"
                f" {packet:,}: push less (a key, an id, a path), or raise the server's max_allowed_packet"
            )
        if not groups or len(groups[-1]) >= TOGETHER or length + size > packet:
            groups.append([])
            length = _BESIDE
        groups[-1].append(row)
        length += size
    return list(groups)


def _size(value: object) -> int:
    """How many bytes it has in a statement, at most: a quote or a backslash is doubled."""
    if isinstance(value, str):
        # Asked of each payload, so the usual one is not to be encoded twice.
        length = len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
        return length + value.count('"') + value.count("'") + value.count("\\") + value.count("\n") + 8
    return len(value) * 2 + 16 if isinstance(value, bytes) else 24


def _push_keyed(
    texts: Statements, jobs: Sequence[NewJob], now: int, packet: int, step: int, waits: bool
) -> Steps[list[str | None]]:
    there: set[keyed.Key] | None = None
    ids: list[str | None] = [None] * len(jobs)
    order = list(range(len(jobs)))
    if not any(job.name is not None or job.latest for job in jobs):
        there = yield from _there(texts, jobs)
        order = yield from _push_together(texts, jobs, now, packet, step, there, ids)
    # By kind and key, so that no two pushes of the same keys wait for each other; those with names in their own order.
    if not any(job.name is not None for job in jobs):
        order.sort(key=lambda nth: (jobs[nth].kind, jobs[nth].key or b"", nth))
    for nth in order:
        job = jobs[nth]
        # One that wasn't there before is what the server has locked.
        is_locked = there is not None and job.key is not None and (job.kind, job.key) not in there
        ids[nth] = yield from _push_one(texts, job, now, packet, waits, is_locked)
    return ids


def _refuse_to_wait(texts: Statements, jobs: Sequence[NewJob]) -> Steps[None]:
    """Finds the keys and names that open transactions have pushed, by looks that wait for no lock. Those of jobs that
    wait are left out: their rows aren't to be locked, or no claim could have them under many pushes."""
    names = sorted({job.name.encode() for job in jobs if job.name is not None})
    keys: dict[str, set[bytes]] = {}
    for job in jobs:
        if job.key is not None:
            keys.setdefault(job.kind, set()).add(job.key)
    for at in range(0, len(names), TOGETHER):
        some = tuple(names[at : at + TOGETHER])
        there = {bytes(row[0]) for row in (yield Step(texts.names_taken, (some, 0, some))).rows}
        some = tuple(name for name in some if name not in there)
        if some and (yield Step(among(texts.open_names, len(some)), some, meets_others=True)).is_locked:
            raise KeyIsOpen
    for kind, of_kind in sorted(keys.items()):
        wanted = sorted(of_kind)
        for at in range(0, len(wanted), TOGETHER):
            some = tuple(wanted[at : at + TOGETHER])
            found = yield Step(among(texts.waiting_keys, len(some)), (*some, kind))
            there = {bytes(row[0]) for row in found.rows}
            some = tuple(key for key in some if key not in there)
            if not some:
                continue
            if (yield Step(among(texts.open_keys, len(some)), (*some, kind), meets_others=True)).is_locked:
                raise KeyIsOpen


def _there(texts: Statements, jobs: Sequence[NewJob]) -> Steps[set[keyed.Key]]:
    """Those keys of the jobs that wait already."""
    wanted: dict[str, set[bytes]] = {}
    for job in jobs:
        if job.key is not None:
            wanted.setdefault(job.kind, set()).add(job.key)
    there: set[keyed.Key] = set()
    for kind, keys in sorted(wanted.items()):
        all_keys = sorted(keys)
        for at in range(0, len(all_keys), TOGETHER):
            some = all_keys[at : at + TOGETHER]
            found = yield Step(among(texts.waiting_keys, len(some)), (*some, kind), verified=True)
            there.update((kind, bytes(row[0])) for row in found.rows)
    return there


def _push_together(
    texts: Statements,
    jobs: Sequence[NewJob],
    now: int,
    packet: int,
    step: int,
    there: set[keyed.Key],
    ids: list[str | None],
) -> Steps[list[int]]:
    """Inserts those whose keys don't wait, as sets, and notes their ids; answers the places of those that are left, as
    one of them came to wait just then."""
    new: list[int] = []
    taken = set(there)
    for nth, job in enumerate(jobs):
        if job.key is not None:
            if (job.kind, job.key) in taken:
                continue
            taken.add((job.kind, job.key))
        new.append(nth)
    at = 0
    for some_rows in _fitting([_row(jobs[nth], now) for nth in new], packet):
        # In the order that they were given in, as jobs that are due at once are claimed by their ids.
        text = texts.insert_keyed + ", ".join([_brackets(len(some_rows[0]))] * len(some_rows))
        found = yield Step(text, tuple(value for row in some_rows for value in row), meets_others=True)
        if found.is_duplicate:
            return new[at:]
        if found.is_locked:
            raise KeyIsOpen
        for place in range(len(some_rows)):
            ids[new[at + place]] = str(found.id + place * step)
        at += len(some_rows)
    return []


def _row(job: NewJob, now: int) -> tuple[object, ...]:
    return (
        job.kind,
        job.payload,
        now + job.after if job.at is None else job.at,
        now,
        job.carried,
        job.key,
        job.key,
        job.key if job.one_at_a_time else None,
        None if job.key is None else now,
        None if job.name is None else job.name.encode(),
        None if job.name is None else job.keep_name,
    )


def _push_one(
    texts: Statements, job: NewJob, now: int, packet: int, waits: bool, is_locked: bool
) -> Steps[str | None]:
    """`is_locked`: whether an INSERT before met the key."""
    name = None if job.name is None else job.name.encode()
    while True:
        if name is not None:
            taken = [row[0] for row in (yield Step(texts.name_taken, (name, now, name), verified=True)).rows]
            if taken:
                if is_locked:
                    yield from _lock(texts, taken)
                return None
        if job.key is not None:
            found = yield Step(texts.waiting, (job.kind, job.key), verified=True)
            if found.rows:
                id = found.rows[0][0]
                if is_locked:
                    yield from _lock(texts, [id])
                if not job.latest:
                    return None
                moved = yield from _move(texts, job, id, now, waits)
                if moved is not None:
                    return moved
                continue  # it was claimed meanwhile
        (row,) = _fitting([_row(job, now)], packet)
        found = yield Step(texts.insert_keyed + _brackets(len(row[0])), row[0], meets_others=True)
        if found.is_locked:
            raise KeyIsOpen
        if not found.is_duplicate:
            break
        is_locked = True
    if name is not None and (yield Step(texts.name_kept, (name, now), verified=True)).rows:
        # The job that had the name may have ended since the look of before.
        yield Step(texts.unpush, (found.id,))
        return None
    return str(found.id)


def _lock(texts: Statements, ids: Sequence[int]) -> Steps[None]:
    """Locks the rows of jobs whose keys or names the server has locked, as an INSERT met them."""
    for id in ids:
        if id:
            yield Step(texts.lock, (id,))


def _move(texts: Statements, job: NewJob, id: int, now: int, waits: bool) -> Steps[str | None]:
    """Gives the job that waits the new one's time; None where it waits no more."""
    found = yield Step(texts.waiting_now, (id, job.key), meets_others=True)
    if found.is_locked:
        raise KeyIsOpen
    rows: Sequence[Sequence[Any]] = found.rows
    if not rows:
        return None
    _, had, first, alone, state = rows[0]
    run_at = now + job.after if job.at is None else job.at
    if job.at_most is not None:
        run_at = min(run_at, first + job.at_most)
    if run_at != had:
        yield Step(texts.move, (run_at, id))
    if state == READY and alone is not None and run_at > had:
        # It was to run, and its end to wake the next of its key.
        yield from keyed.promote(texts, {(job.kind, bytes(alone))}, looks_on=not waits)
    return str(id)


class KeyIsOpen(Exception):
    """An open transaction has pushed the same key or name, and its outcome isn't known yet: to be tried again."""

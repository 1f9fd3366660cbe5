"""What the store says of the jobs it keeps and of their kinds: functions on a sync Connection that only read.

As in `operations`, each runs inside whatever its caller has open, and never ends it. What they send is in `looks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Integer, literal_column, select

from fastjobs.core.errors import StoreError
from fastjobs.core.job import FailedJob, JobState, KeptJob
from fastjobs.store import KindCount
from fastjobs.stores.sql.looks import ByKind, Pages, by_id, make_looks, may_be_kind
from fastjobs.stores.sql.tables import FAILED, HELD, PARKED, READY, Tables
from fastjobs.stores.sql.values import chunks, row_id

_STATES = {
    READY: JobState.WAITING,
    PARKED: JobState.PARKED,
    HELD: JobState.HELD,
    FAILED: JobState.FAILED,
}
_WHOLE = 1 << 30
"""More characters than a payload has."""
_ALL = 1 << 62


def counts(connection: Connection, tables: Tables, cap: int, now: int) -> list[KindCount]:
    """A row for each kind, in the order of their names; no number goes past `cap` + 1."""
    looks = make_looks(tables, connection.dialect.name)
    asked = {"most": max(cap, 0) + 1, "now": now}
    each: list[dict[str, Any]] = [{}]
    if isinstance(looks, ByKind):
        each = [{"kind": kind} for kind in connection.scalars(looks.kinds)]
    rows = [row for of in each for row in connection.execute(looks.counts, {**asked, **of})]
    return [
        KindCount(
            kind=kind,
            waiting=waiting,
            due=due,
            held=held,
            parked=parked,
            failed=failed,
            oldest=None if first is None or first > now else now - first,
            held_back=max(held_until - now, 0),
            paused=bool(paused),
        )
        for kind, waiting, due, held, parked, failed, first, held_until, paused in rows
    ]


def job(connection: Connection, tables: Tables, id: str, cut: int | None, now: int) -> KeptJob | None:
    """One job, or None where there's none of this id."""
    number = row_id(id)
    if number is None:
        return None
    looks = make_looks(tables, connection.dialect.name)
    asked: dict[str, Any] = {"id": number, "cut": _cut(cut), "now": now}
    if isinstance(looks, ByKind):
        asked["kind"] = connection.scalar(looks.kind, {"id": number})
    row = connection.execute(looks.job, asked).first()
    return None if row is None else _kept(row, now)


def jobs(
    connection: Connection,
    tables: Tables,
    kind: str,
    state: JobState,
    after: tuple[int, str] | None,
    limit: int,
    cut: int | None,
    now: int,
) -> list[KeptJob]:
    """A page of a kind's jobs that wait, or are held."""
    looks = make_looks(tables, connection.dialect.name)
    if state is JobState.WAITING:
        pages = looks.waiting
    elif state is JobState.HELD:
        pages = looks.held
    else:
        raise StoreError(f"the jobs that are waiting or held are listed here, not those that are {state}")
    if not may_be_kind(connection.dialect.name, kind):
        return []
    rows = _page(connection, pages, after, limit, kind=kind, cut=_cut(cut), now=now)
    return [_kept(row, now) for row in rows]


def failed(
    connection: Connection,
    tables: Tables,
    kind: str | None,
    after: tuple[int, str] | None,
    limit: int,
    cut: int | None,
) -> list[FailedJob]:
    """A page of the failed jobs, the latest first."""
    looks = make_looks(tables, connection.dialect.name)
    if kind is not None:
        if not may_be_kind(connection.dialect.name, kind):
            return []
        rows = _page(connection, looks.failed_kind, after, limit, kind=kind, cut=_cut(cut))
    elif isinstance(looks, ByKind):
        rows = _newest(connection, looks, after, limit, _cut(cut))
    else:
        rows = _page(connection, looks.failed, after, limit, cut=_cut(cut))
    return [_failed(row) for row in rows]


def asked(connection: Connection, tables: Tables, held: Sequence[tuple[str, int]]) -> set[str]:
    """Of these jobs, each with its claim, the ids of those whose claim was asked to stop."""
    table = tables.jobs
    claims = {(number, claim) for id, claim in held if (number := row_id(id)) is not None}
    found: set[str] = set()
    for some in chunks(sorted({number for number, _ in claims})):
        # Not the state itself, or an index of all that failed would do, too.
        asked = select(table.c.id, table.c.claim).where(
            table.c.id.in_(some),
            table.c.stop_asked != literal_column("0", Integer),
            table.c.state + literal_column("0", Integer) != FAILED,
        )
        rows = connection.execute(by_id(asked, table))
        found.update(str(id) for id, claim in rows if (id, claim) in claims)
    return found


def _page(
    connection: Connection, pages: Pages, after: tuple[int, str] | None, limit: int, **of: Any
) -> list[Sequence[Any]]:
    most = min(max(limit, 0), _ALL)
    if after is None:
        return [*connection.execute(pages.first, {**of, "most": most})]
    place = {"at": after[0], "last": row_id(after[1]) or 0}
    rows: list[Sequence[Any]] = []
    for each in pages.after:
        rows.extend(connection.execute(each, {**of, **place, "most": most - len(rows)}))
        if len(rows) >= most:
            break
    return rows


def _newest(
    connection: Connection, looks: ByKind, after: tuple[int, str] | None, limit: int, cut: int
) -> list[Sequence[Any]]:
    """A page of the failed of all kinds: when those of each failed is put in order, and the first are read."""
    places: list[tuple[Any, Any]] = []
    for kind in connection.scalars(looks.kinds).all():
        page = _page(connection, looks.failed, after, limit, kind=kind)
        # One that was written by hand may say of no time when it failed.
        places = sorted([*places, *((at or 0, id) for id, at in page)], reverse=True)[: max(limit, 0)]
    ids = [id for _, id in places]
    found: dict[int, Sequence[Any]] = {}
    for some in chunks(ids):
        found.update((row[0], row) for row in connection.execute(looks.these, {"ids": some, "cut": cut}))
    return [found[id] for id in ids]


def _cut(cut: int | None) -> int:
    return _WHOLE if cut is None else min(max(cut, 0), _WHOLE)


def _failed(row: Sequence[Any]) -> FailedJob:
    (
        id, kind, payload, attempts, error, failed_at, created_at, carried, size, lost, name, has_key, progress,
    ) = row  # fmt: skip
    return FailedJob(
        id=str(id),
        kind=kind,
        payload=_text(payload) or "",
        attempts=attempts,
        error=_text(error),
        failed_at=failed_at or 0,  # a row that was written by hand may have none
        created_at=created_at,
        carried=_text(carried),
        size=size,
        lost=lost,
        name=_text(name),
        has_key=bool(has_key),
        progress=_text(progress),
    )


def _text(kept: Any) -> str | None:
    """What is kept as text. In SQLite anything may stand in any column, and one such row would hide all others."""
    if kept is None or isinstance(kept, str):
        return kept
    return kept.decode("utf-8", "replace") if isinstance(kept, bytes) else str(kept)


def _state(state: int, id: int) -> JobState:
    found = _STATES.get(state)
    if found is None:
        raise StoreError(f"job {id} is in a state, {state!r:.40}, that this version of fastjobs doesn't know")
    return found


def _kept(row: Sequence[Any], now: int) -> KeptJob:
    (
        id, kind, state, payload, size, run_at, created_at, attempts, lost, error, held_until, failed_at, carried,
        name, has_key, stop_asked, progress, behind, kind_held_until, kind_paused, kind_held,
    ) = row  # fmt: skip
    return KeptJob(
        id=str(id),
        kind=kind,
        state=_state(state, id),
        payload=_text(payload) or "",
        size=size,
        run_at=run_at,
        created_at=created_at,
        attempts=attempts,
        lost=lost,
        error=_text(error),
        held_until=held_until if state == HELD else None,
        failed_at=failed_at if state == FAILED else None,
        carried=_text(carried),
        name=_text(name),
        has_key=bool(has_key),
        stop_asked=state != FAILED and bool(stop_asked),
        progress=_text(progress),
        behind=None if behind is None else str(behind),
        kind_held_until=kind_held_until or 0,
        kind_paused=bool(kind_paused),
        kind_held=kind_held,
        now=now,
    )

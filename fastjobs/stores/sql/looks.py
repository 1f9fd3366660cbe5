"""What is asked to look at jobs and to count them, as text: the same in every database but for how its plan is pinned.

Nothing here reads more than it answers, whatever the statistics are. On SQLite INDEXED BY sees to that. On Postgres
the transaction allows nothing but nested loops over indexes, without sorts. There are two indexes of failed jobs, and
one that is of all kinds would be read from end to end for those of one kind: so these are asked for as a range of
kinds, in the order that one index alone has.

On MySQL and MariaDB, FORCE INDEX names the one index that there is, by kind, state and the time that counts in that
state. No derived table there may ask for what is outside it, and no index is of all kinds: so each kind is asked for
by itself, of the failed as by when they failed, and only the newest of all of them are read.
"""

# ruff: noqa: S608 - the names in the texts are the tables' own, which were checked as they were made

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import BigInteger, Integer, String, Table, TextClause, Update, bindparam, text
from sqlalchemy.types import TypeEngine

from fastjobs.core.job import is_kind_name
from fastjobs.stores.sql.tables import MYSQL, Tables

COUNTED = 1001
"""As far as the held jobs of a kind are counted beside one of them."""

_S = TypeVar("_S")
_TYPES: Mapping[str, TypeEngine[Any]] = {
    "id": BigInteger(),
    "ids": BigInteger(),
    "kind": String(),
    "cut": Integer(),
    "most": BigInteger(),
    "now": BigInteger(),
    "at": BigInteger(),
    "last": BigInteger(),
}


@dataclass(frozen=True, slots=True)
class Pages:
    """A list that is read page by page, in its order."""

    first: TextClause
    """cut, most, and what the list is of"""
    after: tuple[TextClause, ...]
    """As `first`, and the `at` and `last` of the last row seen. They're asked in turn, until the page is full."""


@dataclass(frozen=True, slots=True)
class Looks:
    """Each statement, with named parameters."""

    counts: TextClause
    """most, now -> kind, waiting, due, held, parked, failed, the first job's run_at, held_until, paused"""
    job: TextClause
    """id, cut, now -> what `looking.kept` takes"""
    waiting: Pages
    """kind, now -> what `looking.kept` takes"""
    held: Pages
    """As `waiting`."""
    failed: Pages
    """-> id, kind, payload, attempts, error, failed_at, created_at, carried, size, lost, name, has a key, progress"""
    failed_kind: Pages
    """kind -> as `failed`"""


@dataclass(frozen=True, slots=True)
class ByKind(Looks):
    """For a database that looks at one kind at a time: `counts`, `job` and `failed` take a kind, and `failed` answers
    no more than id, failed_at."""

    kinds: TextClause
    """-> each kind, in the order of their names"""
    kind: TextClause
    """id -> its kind"""
    these: TextClause
    """ids, cut -> those of them that failed, as `failed_kind`, in no order"""


@lru_cache(maxsize=32)
def make_looks(tables: Tables, dialect: str) -> Looks:
    """The statements for these tables, in SQLAlchemy's dialect of this name."""
    is_sqlite, is_mysql, is_postgres = dialect == "sqlite", dialect in MYSQL, dialect == "postgresql"
    quote = "`" if is_mysql else '"'
    schema = f"{quote}{tables.schema}{quote}." if tables.schema else ""
    jobs = f"{schema}{quote}{tables.jobs.name}{quote}"
    kinds = f"{schema}{quote}{tables.kinds.name}{quote}"
    slots = f"{schema}{quote}{tables.slots.name}{quote}"
    by_due = f" FORCE INDEX (`{tables.prefix}jobs_due`)" if is_mysql else ""
    by_ready = f' INDEXED BY "{tables.prefix}jobs_ready"' if is_sqlite else by_due
    by_held = f' INDEXED BY "{tables.prefix}jobs_held"' if is_sqlite else by_due
    by_busy = f' INDEXED BY "{tables.prefix}jobs_busy"' if is_sqlite else by_due
    by_parked = f' INDEXED BY "{tables.prefix}jobs_parked"' if is_sqlite else by_due
    by_failed = f' INDEXED BY "{tables.prefix}jobs_failed"' if is_sqlite else by_due
    by_failed_kind = f' INDEXED BY "{tables.prefix}jobs_failed_kind"' if is_sqlite else by_due
    by_id = " FORCE INDEX (PRIMARY)" if is_mysql else ""
    join = "STRAIGHT_JOIN" if is_mysql else "JOIN"
    run_at = "j.due" if is_mysql else "j.run_at"
    held_until = "j.due" if is_mysql else "j.held_until"
    failed_at = "j.due" if is_mysql else "j.failed_at"
    payload = "substr(j.payload, 1, :cut)"
    size = "length(CAST(j.payload AS BLOB))" if is_sqlite else "octet_length(j.payload)"

    of = ":kind" if is_mysql else "k.kind"
    counted = "(SELECT count(*) FROM (SELECT 1 FROM %s LIMIT :most) AS few)"
    ready = f"{jobs} AS j{by_ready} WHERE j.kind = {of} AND j.state = 0"
    held = f"{jobs} AS j{by_held} WHERE j.kind = {of} AND j.state = 1"
    parked = f"{jobs} AS j{by_parked} WHERE j.kind = {of} AND j.state = 2"
    failed = (
        f"{jobs} AS j{by_failed_kind} WHERE j.kind = {of} AND j.state = 3"
        if is_mysql
        else f"{jobs} AS j{by_failed_kind} WHERE j.kind >= k.kind AND j.kind <= k.kind AND j.state = 3"
        " ORDER BY j.kind, j.failed_at, j.id"
    )
    counts = (
        f"SELECT k.kind, {counted % ready}, {counted % f'{ready} AND {run_at} <= :now'}, {counted % held},"
        f" {counted % parked}, {counted % failed},"
        f" (SELECT {run_at} FROM {ready} ORDER BY {run_at}, j.id LIMIT 1), k.held_until, k.paused"
        f" FROM {kinds} AS k{' WHERE k.kind = :kind' if is_mysql else ''} ORDER BY k.kind"
    )

    # Who holds the key: on a server its slot says so, of which the job itself tells whether it's still true.
    holder = (
        f"SELECT h.id FROM {jobs} AS h{by_busy} WHERE h.kind = j.kind AND h.alone_key = j.alone_key"
        " AND h.state = 1 AND h.held_until > :now LIMIT 1"
        if is_sqlite
        else f"SELECT h.id FROM {slots} AS s{by_id} {join} {jobs} AS h{by_id} ON h.id = s.job_id WHERE s.kind = j.kind"
        " AND s.alone_key = j.alone_key AND h.claim = s.claim AND h.state + 0 = 1 AND h.held_until > :now LIMIT 1"
    )
    kept = (
        f"SELECT j.id, j.kind, j.state, {payload}, {size}, j.run_at, j.created_at, j.attempts, j.lost, j.error,"
        " j.held_until, j.failed_at, j.carried, j.name, j.own_key IS NOT NULL, j.stop_asked, j.progress"
    )
    of_kind = (
        f"(SELECT k.held_until FROM {kinds} AS k WHERE k.kind = %s),"
        f" (SELECT k.paused FROM {kinds} AS k WHERE k.kind = %s),"
        f" (SELECT count(*) FROM (SELECT 1 FROM {jobs} AS h{by_held} WHERE h.kind = %s AND h.state = 1"
        f" AND {'h.due' if is_mysql else 'h.held_until'} > :now LIMIT {int(COUNTED)}) AS few)"
    )
    of_this_kind = of_kind % (":kind", ":kind", ":kind")
    of_its_kind = of_this_kind if is_mysql else of_kind % ("j.kind", "j.kind", "j.kind")
    job = f"{kept}, CASE WHEN j.state = 2 THEN ({holder}) END, {of_its_kind} FROM {jobs} AS j{by_id} WHERE j.id = :id"
    waits = f"{kept}, NULL, {of_this_kind} FROM {jobs} AS j{by_ready} WHERE j.kind = :kind AND j.state = 0"
    holds = f"{kept}, NULL, {of_this_kind} FROM {jobs} AS j{by_held} WHERE j.kind = :kind AND j.state = 1"
    waiting_order, held_order = (
        f"ORDER BY {run_at}, j.id LIMIT :most",
        f"ORDER BY {held_until}, j.id LIMIT :most",
    )

    shown = (
        f"SELECT j.id, j.kind, {payload}, j.attempts, j.error, j.failed_at, j.created_at, j.carried, {size}, j.lost,"
        " j.name, j.own_key IS NOT NULL, j.progress"
    )
    fails = (
        f"SELECT j.id, j.due FROM {jobs} AS j{by_failed} WHERE j.kind = :kind AND j.state = 3"
        if is_mysql
        else f"{shown} FROM {jobs} AS j{by_failed} WHERE j.state = 3"
    )
    kind_fails = f"{shown} FROM {jobs} AS j{by_failed_kind} WHERE j.state = 3"
    its_kind = "j.kind >= :kind AND j.kind <= :kind" if is_postgres else "j.kind = :kind"
    failed_order = f"ORDER BY {failed_at} DESC, j.id DESC LIMIT :most"
    kind_order = (
        "ORDER BY j.kind DESC, j.failed_at DESC, j.id DESC LIMIT :most" if is_postgres else failed_order
    )
    waiting_after: tuple[str, ...]
    held_after: tuple[str, ...]
    failed_after: tuple[str, ...]
    kind_after: tuple[str, ...]
    if is_postgres:
        waiting_after = (f"{waits} AND (j.run_at, j.id) > (:at, :last) {waiting_order}",)
        held_after = (
            f"{holds} AND j.held_until >= :at AND (j.held_until, j.id) > (:at, :last) {held_order}",
        )
        failed_after = (f"{fails} AND (j.failed_at, j.id) < (:at, :last) {failed_order}",)
        kind_after = (
            f"{kind_fails} AND j.kind >= :kind AND (j.kind, j.failed_at, j.id) < (:kind, :at, :last) {kind_order}",
        )
    else:
        # Both at once would be looked for by the time alone, past all that have the same one.
        waiting_after = (
            f"{waits} AND {run_at} = :at AND j.id > :last {waiting_order}",
            f"{waits} AND {run_at} > :at {waiting_order}",
        )
        held_after = (
            f"{holds} AND {held_until} = :at AND j.id > :last {held_order}",
            f"{holds} AND {held_until} > :at {held_order}",
        )
        failed_after = (
            f"{fails} AND {failed_at} = :at AND j.id < :last {failed_order}",
            f"{fails} AND {failed_at} < :at {failed_order}",
        )
        kind_after = (
            f"{kind_fails} AND {its_kind} AND {failed_at} = :at AND j.id < :last {kind_order}",
            f"{kind_fails} AND {its_kind} AND {failed_at} < :at {kind_order}",
        )
    looks = Looks(
        counts=_typed(counts),
        job=_typed(job),
        waiting=_pages(f"{waits} {waiting_order}", waiting_after),
        held=_pages(f"{holds} {held_order}", held_after),
        failed=_pages(f"{fails} {failed_order}", failed_after),
        failed_kind=_pages(f"{kind_fails} AND {its_kind} {kind_order}", kind_after),
    )
    if not is_mysql:
        return looks
    return ByKind(
        **{field.name: getattr(looks, field.name) for field in fields(looks)},
        kinds=text(f"SELECT kind FROM {kinds} ORDER BY kind"),
        kind=_typed(f"SELECT j.kind FROM {jobs} AS j{by_id} WHERE j.id = :id"),
        these=_typed(f"{shown} FROM {jobs} AS j{by_id} WHERE j.id IN :ids AND j.state = 3"),
    )


def _pages(first: str, after: tuple[str, ...]) -> Pages:
    return Pages(_typed(first), tuple(_typed(each) for each in after))


def _typed(statement: str) -> TextClause:
    # A driver guesses the types of what has none, and takes a small number for an integer of four bytes.
    made = text(statement)
    names = made.compile().params
    return made.bindparams(*(bindparam(name, type_=_TYPES[name], expanding=name == "ids") for name in names))


def by_id(statement: _S, table: Table) -> _S:
    """The statement, told on MySQL and MariaDB to find its rows by their ids, whatever else statistics speak for."""
    hint = "FORCE INDEX (PRIMARY)"
    told: Any = statement
    for dialect in MYSQL:
        told = told.with_hint(*((hint, table) if isinstance(told, Update) else (table, hint)), dialect)
    answer: _S = told
    return answer


def may_be_kind(dialect: str, kind: str) -> bool:
    """Whether a kind may have this name, where to ask would find another: MySQL takes "mail " for "mail"."""
    return dialect not in MYSQL or is_kind_name(kind)

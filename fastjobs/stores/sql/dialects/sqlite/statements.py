"""The hot statements as text, built once per store from checked names.

States are written as literals, as SQLite uses a partial index only where the statement says the state itself.
INDEXED BY pins the plan: with statistics of another day, or none, SQLite may think that all jobs are ready ones.
"""

# ruff: noqa: S608 - the names in the texts are the tables' own, which were checked as they were made

from __future__ import annotations

from dataclasses import dataclass

from fastjobs.stores.sql.tables import Tables


@dataclass(frozen=True, slots=True)
class Statements:
    """Each statement's text; its parameters are said beside it."""

    push: str
    """kind, payload, run_at, created_at, carried"""
    new_kind: str
    """kind, first_seen"""
    known_kinds: str
    look: str
    """kinds as JSON -> kind, held_until, paused, the first job's run_at, the first end of a hold"""
    look_all: str
    """As `look`, for every kind that has a row, too."""
    news: str
    """-> kind, its first job's run_at unless the kind is paused, the highest id that was ever given"""
    reap: str
    """kind, now"""
    heads: str
    """kind, now, most lost, its kind's attempts
    -> id, kind, payload, run_at, attempts, claim, lost, error, carried, stop_asked, alone_key

    Due soonest first: those lost no more often than that, and those whose attempts are used up."""
    take: str
    """held_until, ids as JSON"""
    exhaust: str
    """failed_at, error, id"""
    done: str
    """id, claim; of a job that has neither a name nor a key that others may wait for"""
    try_again: str
    """run_at, error, id, claim; of a job that no other may wait for, as `fail`"""
    fail: str
    """failed_at, error, id, claim"""
    give_back: str
    """run_at or None, error or None, id, claim; of a job without a key"""
    extend: str
    """held_until, id, claim, now -> stop_asked"""
    runs: str
    """names as JSON -> name, run_at, of the schedules that have a row"""
    note_run: str
    """name, run_at"""


def make_statements(tables: Tables) -> Statements:
    """The statements for these tables."""
    jobs, kinds = f'"{tables.jobs.name}"', f'"{tables.kinds.name}"'
    ready, held = f'"{tables.prefix}jobs_ready"', f'"{tables.prefix}jobs_held"'
    first = (
        f"(SELECT j.run_at FROM {jobs} AS j INDEXED BY {ready}"
        " WHERE j.kind = %s AND j.state = 0 ORDER BY j.run_at LIMIT 1)"
    )
    look = (
        "SELECT k.value, s.held_until, s.paused, "
        + first % "k.value"
        + f", (SELECT j.held_until FROM {jobs} AS j INDEXED BY {held}"
        " WHERE j.kind = k.value AND j.state = 1 ORDER BY j.held_until LIMIT 1)"
        f" FROM %s AS k LEFT JOIN {kinds} AS s ON s.kind = k.value"
    )
    schedules = f'"{tables.schedules.name}"'
    # A held job, or one that was held, put back by a reap and not claimed again: the token alone tells. FAILED
    # is named so that a failed one is never met, whatever its token.
    mine = "id = ? AND claim = ? AND state <> 3"
    return Statements(
        push=f"INSERT INTO {jobs} (kind, payload, run_at, created_at, carried) VALUES (?, ?, ?, ?, ?)",
        new_kind=f"INSERT INTO {kinds} (kind, first_seen) VALUES (?, ?) ON CONFLICT DO NOTHING",
        known_kinds=f"SELECT kind FROM {kinds}",
        look=look % "json_each(?)",
        look_all=look % f"(SELECT value FROM json_each(?) UNION SELECT kind FROM {kinds})",
        news=(
            f"SELECT k.kind, CASE WHEN k.paused = 0 THEN {first % 'k.kind'} END,"
            f" (SELECT seq FROM sqlite_sequence WHERE name = '{tables.jobs.name}') FROM {kinds} AS k"
        ),
        reap=(
            f"UPDATE {jobs} INDEXED BY {held} SET state = 0, held_until = 0, lost = lost + 1"
            " WHERE kind = ? AND state = 1 AND held_until <= ?"
        ),
        heads=(
            "SELECT id, kind, payload, run_at, attempts, claim, lost, error, carried, stop_asked, alone_key"
            f" FROM {jobs} INDEXED BY {ready}"
            " WHERE kind = ? AND state = 0 AND run_at <= ? AND (lost <= ? OR attempts >= ?) ORDER BY run_at, id"
        ),
        take=(
            f"UPDATE {jobs} SET state = 1, held_until = ?, attempts = attempts + 1, claim = claim + 1,"
            " unique_key = NULL WHERE id IN (SELECT value FROM json_each(?))"
        ),
        exhaust=(
            f"UPDATE {jobs} SET state = 3, held_until = 0, claim = claim + 1, unique_key = NULL,"
            " failed_at = ?, error = ? WHERE id = ?"
        ),
        done=f"DELETE FROM {jobs} WHERE {mine} AND alone_key IS NULL AND name IS NULL",
        try_again=(
            f"UPDATE {jobs} SET state = 0, held_until = 0, claim = claim + 1,"
            " run_at = iif(stop_asked, run_at, ?), error = ?"
            f" WHERE {mine} AND alone_key IS NULL"
        ),
        fail=(
            f"UPDATE {jobs} SET state = 3, held_until = 0, claim = claim + 1, unique_key = NULL,"
            f" failed_at = ?, error = ? WHERE {mine} AND alone_key IS NULL"
        ),
        give_back=(
            f"UPDATE {jobs} SET state = 0, held_until = 0, claim = claim + 1, attempts = max(attempts - 1, 0),"
            " run_at = iif(stop_asked, run_at, coalesce(?, run_at)), error = coalesce(?, error)"
            f" WHERE {mine} AND own_key IS NULL"
        ),
        extend=(
            f"UPDATE {jobs} SET held_until = ? WHERE id = ? AND claim = ? AND state = 1 AND held_until > ?"
            " RETURNING stop_asked"
        ),
        runs=f"SELECT name, run_at FROM {schedules} WHERE name IN (SELECT value FROM json_each(?))",
        note_run=(
            f"INSERT INTO {schedules} (name, run_at) VALUES (?, ?)"
            " ON CONFLICT (name) DO UPDATE SET run_at = excluded.run_at"
        ),
    )

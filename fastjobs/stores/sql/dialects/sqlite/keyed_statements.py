"""What only jobs with a key or a name need, as text, and the counts of throttles. As `statements`, pinned the same way.

None of these is sent for a job that has neither.
"""

# ruff: noqa: S608 - the names in the texts are the tables' own, which were checked as they were made

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from fastjobs.stores.sql.tables import Tables


@dataclass(frozen=True, slots=True)
class Keyed:
    """Each statement's text; its parameters are said beside it."""

    insert: str
    """kind, payload, run_at, created_at, carried, own_key, unique_key, alone_key, first_push_at, name, keep_name -> id

    Nothing is inserted, and nothing answered, where the key waits."""
    insert_unique: str
    """kind, payload, run_at, created_at, carried, key, alone_key. As `insert`, for one without a name; how many rows it
    changed says whether it was inserted, as to be answered a row costs as much again as all else of it."""
    named: str
    """name, name, now -> a row where the name is taken"""
    waiting: str
    """kind, key -> id, run_at, when it was pushed first, alone_key"""
    move: str
    """run_at, id"""
    holder: str
    """kind, alone_key, now -> a row where a job of the key is held"""
    park: str
    """ids as JSON"""
    wake: str
    """kind, alone_key -> id"""
    wake_reaped: str
    """kind, now: those that wait for a job whose hold ran out"""
    held: str
    """kind, now, the most to count -> how many are held"""
    keep_name: str
    """name, until"""
    done: str
    """id, claim -> kind, alone_key, name, keep_name"""
    cancel: str
    """id, now -> kind, alone_key, name, keep_name, state, of a job that waits or whose hold has run out"""
    ask_to_stop: str
    """id -> a row where it's held"""
    progress: str
    """progress, id, claim"""
    delete: str
    """failed ids as JSON -> name, keep_name"""
    try_again: str
    """run_at, error, id, claim -> kind, alone_key"""
    fail: str
    """failed_at, error, id, claim -> kind, alone_key"""
    give_back: str
    """run_at or None, error or None, id, claim -> kind, alone_key"""
    hold_back: str
    """kind, held_until, first_seen"""
    keys: str
    """kind, alone_key after which to begin, the most to answer, now -> kind, alone_key of parked jobs, is held"""
    old: str
    """failed before, now, now -> a row where a prune has something to do"""
    prune_failed: str
    """failed before, limit -> name, keep_name"""
    prune_names: str
    """now, limit -> a row each"""
    prune_throttles: str
    """now, limit -> a row each"""
    places: str
    """name, key, per, now -> slot, at, of the places that are not free"""
    take_places: str
    """name, key, at, free_at, slots as JSON"""
    settle_places: str
    """started at, started at, name, key, until, slots as JSON"""
    free_places: str
    """name, key, until, slots as JSON"""


@lru_cache(maxsize=32)
def make_keyed(tables: Tables) -> Keyed:
    """The statements for these tables."""
    jobs, kinds, names = f'"{tables.jobs.name}"', f'"{tables.kinds.name}"', f'"{tables.names.name}"'
    throttles = f'"{tables.throttles.name}"'
    by_held = f'INDEXED BY "{tables.prefix}jobs_held"'
    by_busy = f'INDEXED BY "{tables.prefix}jobs_busy"'
    by_parked = f'INDEXED BY "{tables.prefix}jobs_parked"'
    by_failed = f'INDEXED BY "{tables.prefix}jobs_failed"'
    by_unique = f'INDEXED BY "{tables.prefix}jobs_unique"'
    by_name = f'INDEXED BY "{tables.prefix}jobs_name"'
    mine = "id = ? AND claim = ? AND state <> 3"
    ended = "held_until = 0, claim = claim + 1"
    whose = "RETURNING kind, alone_key"
    first_parked = (
        f"SELECT p.id FROM {jobs} AS p {by_parked} WHERE p.kind = %s AND p.alone_key = %s AND p.state = 2"
        " ORDER BY p.run_at, p.id LIMIT 1"
    )
    return Keyed(
        insert=(
            f"INSERT INTO {jobs} (kind, payload, run_at, created_at, carried, own_key, unique_key, alone_key,"
            " first_push_at, name, keep_name) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (kind, unique_key) WHERE unique_key IS NOT NULL DO NOTHING RETURNING id"
        ),
        insert_unique=(
            f"INSERT INTO {jobs} (kind, payload, run_at, created_at, carried, own_key, unique_key, alone_key)"
            " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7)"
            " ON CONFLICT (kind, unique_key) WHERE unique_key IS NOT NULL DO NOTHING"
        ),
        named=(
            f"SELECT 1 FROM {jobs} {by_name} WHERE name = ?"
            f" UNION ALL SELECT 1 FROM {names} WHERE name = ? AND until > ? LIMIT 1"
        ),
        waiting=(
            f"SELECT id, run_at, coalesce(first_push_at, created_at), alone_key FROM {jobs} {by_unique}"
            " WHERE kind = ? AND unique_key = ?"
        ),
        move=f"UPDATE {jobs} SET run_at = ? WHERE id = ?",
        holder=(
            f"SELECT 1 FROM {jobs} {by_busy}"
            " WHERE kind = ? AND alone_key = ? AND state = 1 AND held_until > ? LIMIT 1"
        ),
        park=f"UPDATE {jobs} SET state = 2 WHERE id IN (SELECT value FROM json_each(?))",
        wake=f"UPDATE {jobs} SET state = 0 WHERE id = ({first_parked % ('?', '?')}) RETURNING id",
        wake_reaped=(
            f"UPDATE {jobs} SET state = 0 WHERE id IN ("
            f"SELECT ({first_parked % ('h.kind', 'h.alone_key')}) FROM {jobs} AS h {by_held}"
            " WHERE h.kind = ? AND h.state = 1 AND h.held_until <= ? AND h.alone_key IS NOT NULL)"
        ),
        held=(
            f"SELECT count(*) FROM (SELECT 1 FROM {jobs} {by_held}"
            " WHERE kind = ? AND state = 1 AND held_until > ? LIMIT ?)"
        ),
        keep_name=(
            f"INSERT INTO {names} (name, until) VALUES (?, ?)"
            " ON CONFLICT (name) DO UPDATE SET until = max(until, excluded.until)"
        ),
        done=f"DELETE FROM {jobs} WHERE {mine} {whose}, name, keep_name",
        cancel=(
            f"DELETE FROM {jobs} WHERE id = ? AND (state IN (0, 2) OR (state = 1 AND held_until <= ?))"
            f" {whose}, name, keep_name, state"
        ),
        ask_to_stop=f"UPDATE {jobs} SET stop_asked = 1 WHERE id = ? AND state = 1 RETURNING 1",
        progress=f"UPDATE {jobs} SET progress = ? WHERE {mine}",
        delete=(
            f"DELETE FROM {jobs} WHERE id IN (SELECT value FROM json_each(?)) AND state = 3"
            " RETURNING name, keep_name"
        ),
        try_again=(
            f"UPDATE {jobs} SET state = 0, {ended}, run_at = iif(stop_asked, run_at, ?), error = ?"
            f" WHERE {mine} {whose}"
        ),
        fail=(
            f"UPDATE {jobs} SET state = 3, {ended}, unique_key = NULL, failed_at = ?, error = ?"
            f" WHERE {mine} {whose}"
        ),
        give_back=(
            f"UPDATE {jobs} AS j SET state = 0, {ended}, attempts = max(attempts - 1, 0),"
            " run_at = iif(stop_asked, run_at, coalesce(?, run_at)), error = coalesce(?, error),"
            f" unique_key = iif(stop_asked OR EXISTS (SELECT 1 FROM {jobs} AS w {by_unique}"
            " WHERE w.kind = j.kind AND w.unique_key = j.own_key AND w.id <> j.id), NULL, own_key)"
            f" WHERE {mine} {whose}"
        ),
        hold_back=(
            f"INSERT INTO {kinds} (kind, held_until, first_seen) VALUES (?, ?, ?)"
            " ON CONFLICT (kind) DO UPDATE SET held_until = max(held_until, excluded.held_until)"
        ),
        # From one key's first entry in the index to the next one's: a DISTINCT would read them all.
        keys=(
            "WITH RECURSIVE keys(kind, alone_key) AS (VALUES (?, ?) UNION ALL SELECT n.kind, n.alone_key"
            f" FROM keys CROSS JOIN {jobs} AS n ON n.id = coalesce("
            f"(SELECT p.id FROM {jobs} AS p {by_parked} WHERE p.kind = keys.kind"
            " AND p.alone_key > keys.alone_key AND p.state = 2 ORDER BY p.alone_key LIMIT 1), "
            f"(SELECT p.id FROM {jobs} AS p {by_parked} WHERE p.kind > keys.kind AND p.state = 2"
            " ORDER BY p.kind, p.alone_key LIMIT 1)) LIMIT ?)"
            f" SELECT kind, alone_key, EXISTS (SELECT 1 FROM {jobs} AS h {by_busy} WHERE h.kind = keys.kind"
            " AND h.alone_key = keys.alone_key AND h.state = 1 AND h.held_until > ?) FROM keys LIMIT -1 OFFSET 1"
        ),
        old=(
            f"SELECT * FROM (SELECT 1 FROM {jobs} {by_failed} WHERE state = 3 AND failed_at < ? LIMIT 1)"
            f" UNION ALL SELECT * FROM (SELECT 1 FROM {names} WHERE until <= ? LIMIT 1)"
            f" UNION ALL SELECT * FROM (SELECT 1 FROM {throttles} WHERE free_at <= ? LIMIT 1) LIMIT 1"
        ),
        prune_failed=(
            f"DELETE FROM {jobs} WHERE id IN (SELECT id FROM {jobs} {by_failed}"
            " WHERE state = 3 AND failed_at < ? ORDER BY failed_at LIMIT ?) RETURNING name, keep_name"
        ),
        prune_names=(
            f"DELETE FROM {names} WHERE name IN (SELECT name FROM {names} WHERE until <= ? LIMIT ?) RETURNING 1"
        ),
        prune_throttles=(
            f"DELETE FROM {throttles} WHERE (name, key, slot) IN"
            f" (SELECT name, key, slot FROM {throttles} WHERE free_at <= ? LIMIT ?) RETURNING 1"
        ),
        places=f"SELECT slot, at FROM {throttles} WHERE name = ? AND key = ? AND at + ? > ?",
        take_places=(
            f"INSERT INTO {throttles} (name, key, at, free_at, slot)"
            " SELECT ?, ?, ?, ?, value FROM json_each(?) WHERE true"
            " ON CONFLICT (name, key, slot) DO UPDATE SET at = excluded.at, free_at = excluded.free_at"
        ),
        settle_places=(
            f"UPDATE {throttles} SET free_at = free_at - at + ?, at = ? WHERE name = ? AND key = ? AND at = ?"
            " AND slot IN (SELECT value FROM json_each(?))"
        ),
        free_places=(
            f"DELETE FROM {throttles} WHERE name = ? AND key = ? AND at = ?"
            " AND slot IN (SELECT value FROM json_each(?))"
        ),
    )

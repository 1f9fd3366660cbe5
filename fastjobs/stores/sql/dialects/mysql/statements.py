"""The statements on MySQL and MariaDB as text, built once per store from checked names.

Each index is named, so that no statistics, old or none, have a whole table read; and no text has a function whose use
the server warns of, as two of the drivers ask for each warning.

Longer than 300 lines, as it's one list: each statement is a line or two where it's said what it takes, and where it's
built.
"""

# ruff: noqa: S608 - the names in the texts are the tables' own, which were checked as they were made

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from fastjobs.stores.sql.tables import Tables

LOCKED = "FOR UPDATE SKIP LOCKED"
_ONE = "SELECT %s AS one"


@dataclass(frozen=True, slots=True)
class Statements:
    """Each statement's text; its values are said beside it."""

    insert: str
    """Before the rows of `kind, payload, run_at, created_at, carried`."""
    insert_keyed: str
    """As `insert`, of rows that go on with own_key, unique_key, alone_key, first_push_at, name, keep_name."""
    new_kinds: str
    """Before the rows of `kind, first_seen`; those that are there are left as they are."""
    new_kinds_end: str
    known_kinds: str
    look: str
    """kind, kind, floor, kind, kind -> kind, held_until, paused, the microsecond of the minute, its first job's run_at,
    the first end of a hold, the microsecond after that"""
    look_low: str
    """kind, kind, floor, kind -> the same, None for the end of a hold"""
    look_limited: str
    """As `look`, with `held`'s values before the last -> the same, and how many are held"""
    look_low_limited: str
    heads: str
    """kind, kind, floor, now, most lost, its kind's attempts, how many -> run_at, id, kind; in brackets, for a UNION"""
    pick: str
    """As `heads` -> what a claim takes of a job, which is locked."""
    lock_keys: str
    """kind, keys -> id of the jobs that wait with these, whose keys are locked now"""
    take: str
    """held_until, ids"""
    exhaust: str
    """failed_at, error, id"""
    reap: str
    """kind, kind, now, how many -> id, alone_key, locked"""
    reaped: str
    """ids"""
    held: str
    """kind, kind, now, the most to count -> how many are held"""
    lock_kinds: str
    """kinds, now -> those that are locked now and neither held back nor paused"""
    slot: str
    """The columns of a slot as one row of a derived table."""
    take_slots: tuple[str, str]
    """What goes before and after such rows; then now, three times."""
    slots: str
    """kind, keys -> key, job_id, claim, whether that claim holds its job"""
    set_slot: str
    """job_id, claim, held_until, kind, key"""
    lock_slots: str
    """kind, kind, keys -> key, job_id, claim, held_until"""
    extend_slots: str
    """held_until, kind, keys"""
    free_slots: str
    """keys, kind, job ids"""
    park: str
    """ids"""
    behind: str
    """kind, kind, floor, now, keys, how many -> id of jobs that wait with one of these keys, locked"""
    first_parked: str
    """kind, key -> id, kind, key; in brackets, for a UNION"""
    next_parked: str
    """kind, key -> id, locked"""
    lock_parked: str
    """ids -> those that are locked now"""
    wake: str
    """ids"""
    claimed: str
    """ids -> what a mark asks of a job, which is locked"""
    missed: str
    """ids -> id, claim, state, held_until"""
    done: str
    """ids"""
    change: tuple[str, str, str]
    """Before the rows of a derived table, one such row, and after them."""
    has_key: str
    """kind, key -> id of the job that waits with it, locked; it waits for no lock"""
    take_key: str
    """id"""
    hold_back: str
    """kind, held_until, first_seen"""
    waiting: str
    """kind, key -> id, run_at, when it was pushed first, alone_key, state"""
    waiting_now: str
    """id, key -> as `waiting`, and locked"""
    lock: str
    """id -> id, locked, unless someone else has it"""
    open_keys: tuple[str, str]
    """`among` keys, and kind -> nothing, but for one that an open transaction has pushed: that is locked"""
    open_names: tuple[str, str]
    """`among` names -> the same"""
    waiting_keys: tuple[str, str]
    """`among` keys, and kind -> those of them that wait"""
    move: str
    """run_at, id"""
    name_taken: str
    """name, now, name -> the id of the job that has it, 0 where it's taken though its job has ended"""
    name_kept: str
    """name, now -> a row where it's taken though its job has ended"""
    names_taken: str
    """names, now, names -> those of them that are taken"""
    unpush: str
    """id"""
    keep_name: str
    """name, until"""
    name_row: str
    """name -> a row where there is one, free or taken"""
    lock_name: str
    """name -> the same, locked, unless someone else has it"""
    keep_longer: str
    """until, name"""
    mine: str
    """id, claim -> kind, alone_key, name, keep_name"""
    mine_locked: str
    """As `mine`, and locked."""
    standing: str
    """ids -> id, kind, state, claim, held_until, alone_key, name, keep_name, of those that haven't failed, locked"""
    there: str
    """ids -> those that haven't failed"""
    ask_to_stop: str
    """ids"""
    progress: str
    """text, id"""
    locked_claims: str
    """ids -> id, claim, locked"""
    parked_kinds: str
    """-> kinds that have a parked job"""
    next_key: str
    """kind, kind, key -> the first key of parked jobs behind this one"""
    is_held: str
    """kind, key, now -> a row where a job holds the key"""
    old_failed: str
    """kind, kind, failed before, how many -> id, name, keep_name, locked"""
    old_names: str
    """now, how many -> name, locked"""
    delete_names: str
    """names"""
    old_slots: str
    """now, how many -> kind, alone_key, locked"""
    delete_slot: str
    """kind, key"""
    old_places: str
    """now, how many -> name, key, slot, locked"""
    delete_place: str
    """name, key, slot"""
    failed: str
    """ids -> name, keep_name"""
    get_lock: str
    """name, seconds -> 1 where it's had"""
    release_lock: str
    """name"""
    places: str
    """name, key, per, now -> slot, at, of the places that are not free"""
    place: str
    """A place as one row of a derived table."""
    take_places: tuple[str, str]
    """What goes before and after such rows."""
    settle_places: str
    """started at, started at, name, key, until, slots"""
    free_places: str
    """name, key, until, slots"""
    runs: str
    """names -> name, run_at"""
    run: str
    """name -> run_at, locked"""
    first_run: str
    """name, run_at, of a schedule that has none"""
    move_run: str
    """run_at, name"""
    news: str
    """the highest id that was seen -> the highest id above it, how often the bell was rung"""
    ring: str
    """For what else the others are to hear of. The bell is the run of a schedule without a name, which no app has."""
    session: str
    """-> how far apart the connection's ids are, how many bytes a statement may have, its charsets, its
    database, its isolation"""


def among(text: tuple[str, str], count: int) -> str:
    """The text for so many values."""
    before, after = text
    return before + " UNION ALL ".join([_ONE] * count) + after


@lru_cache(maxsize=32)
def make_statements(tables: Tables) -> Statements:
    """The statements for these tables."""
    schema = f"`{tables.schema}`." if tables.schema else ""
    jobs, kinds = f"{schema}`{tables.jobs.name}`", f"{schema}`{tables.kinds.name}`"
    slots, names = f"{schema}`{tables.slots.name}`", f"{schema}`{tables.names.name}`"
    throttles = f"{schema}`{tables.throttles.name}`"
    schedules = f"{schema}`{tables.schedules.name}`"
    by_due = f"FORCE INDEX (`{tables.prefix}jobs_due`)"
    by_parked = f"FORCE INDEX (`{tables.prefix}jobs_parked`)"
    by_unique = f"FORCE INDEX (`{tables.prefix}jobs_unique`)"
    by_name = f"FORCE INDEX (`{tables.prefix}jobs_name`)"
    by_id = "FORCE INDEX (PRIMARY)"
    # With `kind = …` the server may look up by kind and state alone, and read all of them for the few in the range.
    of_kind = "kind >= %s AND kind <= %s"
    # A DELETE of several rows by `IN` reads a small table whole, and waits for whoever has one of its rows. What is in
    # no index has a SELECT that locks do as it says.
    numbers = "JSON_TABLE(%s, '$[*]' COLUMNS (it BIGINT PATH '$')) AS u"
    bytes_ = "JSON_TABLE(%s, '$[*]' COLUMNS (it VARCHAR(2040) PATH '$')) AS u"
    first = (
        f"(SELECT j.due FROM {jobs} AS j {by_due} WHERE j.kind >= %s AND j.kind <= %s AND j.state = 0"
        " AND j.due >= %s ORDER BY j.kind, j.due LIMIT 1)"
    )
    ends = (
        f"(SELECT h.due FROM {jobs} AS h {by_due} WHERE h.kind = %s AND h.state = 1 ORDER BY h.due LIMIT 1)"
    )
    # What is asked from left to right, row by row; unlike NOW it's the time at that moment.
    at = "EXTRACT(SECOND_MICROSECOND FROM SYSDATE(6))"
    held = (
        f"SELECT COUNT(*) FROM (SELECT 1 FROM {jobs} {by_due} WHERE {of_kind} AND state = 1 AND due > %s"
        " LIMIT %s) AS few"
    )
    of_its, its = "k.kind, k.held_until, k.paused,", f"FROM {kinds} AS k WHERE k.kind = %s"
    due = (
        f"FROM {jobs} {by_due} WHERE {of_kind} AND state = 0 AND due >= %s AND due <= %s"
        " AND (lost <= %s OR attempts >= %s) ORDER BY kind, due, id LIMIT %s"
    )
    plain = "kind, payload, run_at, created_at, carried"
    keyed = f"{plain}, own_key, unique_key, alone_key, first_push_at, name, keep_name"
    waiting = (
        f"SELECT id, run_at, COALESCE(first_push_at, created_at), alone_key, state FROM {jobs} %s WHERE %s"
    )
    by_key = waiting % (by_unique, "kind = %s AND unique_key = %s")
    return Statements(
        insert=f"INSERT INTO {jobs} ({plain}) VALUES ",
        insert_keyed=f"INSERT INTO {jobs} ({keyed}) VALUES ",
        new_kinds=f"INSERT INTO {kinds} (kind, first_seen) VALUES ",
        new_kinds_end=f" ON DUPLICATE KEY UPDATE first_seen = {kinds}.first_seen",
        known_kinds=f"SELECT kind FROM {kinds} ORDER BY kind",
        look=f"SELECT {of_its} {at}, {first}, {ends}, {at}, NULL {its}",
        look_low=f"SELECT {of_its} {at}, {first}, NULL, {at}, NULL {its}",
        look_limited=f"SELECT {of_its} {at}, {first}, {ends}, {at}, ({held}) {its}",
        look_low_limited=f"SELECT {of_its} {at}, {first}, NULL, {at}, ({held}) {its}",
        heads=f"(SELECT run_at, id, kind {due})",
        pick=(
            f"SELECT id, kind, payload, run_at, attempts, claim, lost, error, carried, stop_asked, alone_key,"
            f" unique_key {due} {LOCKED}"
        ),
        lock_keys=f"SELECT id FROM {jobs} {by_unique} WHERE kind = %s AND unique_key IN %s {LOCKED}",
        take=(
            f"UPDATE {jobs} {by_id} SET state = 1, held_until = %s, attempts = attempts + 1, claim = claim + 1,"
            " unique_key = NULL WHERE id IN %s"
        ),
        exhaust=(
            f"UPDATE {jobs} {by_id} SET state = 3, held_until = 0, claim = claim + 1, unique_key = NULL,"
            " failed_at = %s, error = %s WHERE id = %s"
        ),
        reap=(
            f"SELECT id, alone_key FROM {jobs} {by_due} WHERE {of_kind} AND state = 1 AND due <= %s"
            f" ORDER BY kind, due, id LIMIT %s {LOCKED}"
        ),
        reaped=f"UPDATE {jobs} {by_id} SET state = 0, held_until = 0, lost = lost + 1 WHERE id IN %s",
        held=held,
        lock_kinds=(
            f"SELECT kind FROM {kinds} {by_id} WHERE kind IN %s AND held_until <= %s AND paused = 0 ORDER BY kind"
            f" {LOCKED}"
        ),
        slot="SELECT %s AS kind, %s AS alone_key, %s AS job_id, %s AS claim, %s AS held_until",
        # Assignments are made from left to right, so the time that the others look at comes last.
        take_slots=(
            f"INSERT INTO {slots} (kind, alone_key, job_id, claim, held_until)"
            " SELECT u.kind, u.alone_key, u.job_id, u.claim, u.held_until FROM (",
            f") AS u ON DUPLICATE KEY UPDATE job_id = IF({slots}.held_until <= %s, u.job_id, {slots}.job_id),"
            f" claim = IF({slots}.held_until <= %s, u.claim, {slots}.claim),"
            f" held_until = IF({slots}.held_until <= %s, u.held_until, {slots}.held_until)",
        ),
        slots=(
            f"SELECT s.alone_key, s.job_id, s.claim, h.id IS NOT NULL FROM {slots} AS s {by_id}"
            f" LEFT JOIN {jobs} AS h {by_id} ON h.id = s.job_id AND h.claim = s.claim AND h.state = 1"
            " WHERE s.kind = %s AND s.alone_key IN %s"
        ),
        set_slot=(
            f"UPDATE {slots} {by_id} SET job_id = %s, claim = %s, held_until = %s WHERE kind = %s AND alone_key = %s"
        ),
        lock_slots=(
            f"SELECT alone_key, job_id, claim, held_until FROM {slots} {by_id} WHERE {of_kind} AND alone_key IN %s"
            " ORDER BY kind, alone_key FOR UPDATE"
        ),
        extend_slots=f"UPDATE {slots} {by_id} SET held_until = %s WHERE kind = %s AND alone_key IN %s",
        free_slots=(
            f"DELETE s FROM {bytes_} STRAIGHT_JOIN {slots} AS s {by_id} ON s.kind = %s AND s.alone_key = UNHEX(u.it)"
            " WHERE s.job_id IN %s"
        ),
        park=f"UPDATE {jobs} {by_id} SET state = 2 WHERE id IN %s",
        behind=(
            f"SELECT id FROM {jobs} {by_due} WHERE {of_kind} AND state = 0 AND due >= %s AND due <= %s"
            f" AND alone_key IN %s ORDER BY kind, due, id LIMIT %s {LOCKED}"
        ),
        first_parked=(
            f"(SELECT id, kind, parked_key FROM {jobs} {by_parked} WHERE kind = %s AND parked_key = %s"
            " ORDER BY run_at, id LIMIT 1)"
        ),
        next_parked=(
            f"SELECT id FROM {jobs} {by_parked} WHERE kind = %s AND parked_key = %s"
            f" ORDER BY run_at, id LIMIT 1 {LOCKED}"
        ),
        lock_parked=f"SELECT id FROM {jobs} {by_id} WHERE id IN %s AND state = 2 ORDER BY id {LOCKED}",
        wake=f"UPDATE {jobs} {by_id} SET state = 0 WHERE id IN %s",
        claimed=(
            "SELECT id, kind, state, claim, attempts, run_at, held_until, failed_at, own_key, unique_key, alone_key,"
            f" name, keep_name, stop_asked FROM {jobs} {by_id} WHERE id IN %s AND state <> 3 ORDER BY id {LOCKED}"
        ),
        missed=f"SELECT id, claim, state, held_until FROM {jobs} {by_id} WHERE id IN %s AND state <> 3",
        done=f"DELETE j FROM {numbers} STRAIGHT_JOIN {jobs} AS j {by_id} ON j.id = u.it",
        change=(
            "UPDATE (",
            "SELECT %s AS id, %s AS state, %s AS held_until, %s AS claim, %s AS attempts, %s AS run_at,"
            " %s AS failed_at, %s AS drops_key, %s AS error",
            f") AS u STRAIGHT_JOIN {jobs} AS j {by_id} ON j.id = u.id SET j.state = u.state,"
            " j.held_until = u.held_until, j.claim = u.claim, j.attempts = u.attempts, j.run_at = u.run_at,"
            " j.failed_at = u.failed_at, j.unique_key = IF(u.drops_key, NULL, j.unique_key),"
            " j.error = COALESCE(u.error, j.error)",
        ),
        has_key=f"SELECT id FROM {jobs} {by_unique} WHERE kind = %s AND unique_key = %s FOR UPDATE NOWAIT",
        take_key=f"UPDATE {jobs} {by_id} SET unique_key = own_key WHERE id = %s",
        hold_back=(
            f"INSERT INTO {kinds} (kind, held_until, first_seen) SELECT u.kind, u.held_until, u.first_seen FROM"
            " (SELECT %s AS kind, %s AS held_until, %s AS first_seen) AS u"
            f" ON DUPLICATE KEY UPDATE held_until = GREATEST({kinds}.held_until, u.held_until)"
        ),
        waiting=by_key,
        waiting_now=f"{waiting % (by_id, 'id = %s AND unique_key = %s')} FOR UPDATE",
        lock=f"SELECT id FROM {jobs} {by_id} WHERE id = %s {LOCKED}",
        # Joined, each is looked up by itself. By a range the server locks, and waits for, what stands beside them, too.
        open_keys=(
            "SELECT j.claim FROM (",
            f") AS u STRAIGHT_JOIN {jobs} AS j {by_unique} ON j.kind = %s AND j.unique_key = u.one FOR UPDATE NOWAIT",
        ),
        open_names=(
            "SELECT j.claim FROM (",
            f") AS u STRAIGHT_JOIN {jobs} AS j {by_name} ON j.name = u.one FOR UPDATE NOWAIT",
        ),
        waiting_keys=(
            "SELECT j.unique_key FROM (",
            f") AS u STRAIGHT_JOIN {jobs} AS j {by_unique} ON j.kind = %s AND j.unique_key = u.one",
        ),
        move=f"UPDATE {jobs} {by_id} SET run_at = %s WHERE id = %s",
        name_taken=(
            f"SELECT 0 FROM {names} {by_id} WHERE name = %s AND until > %s"
            f" UNION ALL SELECT id FROM {jobs} {by_name} WHERE name = %s"
        ),
        name_kept=f"SELECT 1 FROM {names} {by_id} WHERE name = %s AND until > %s",
        names_taken=(
            f"SELECT name FROM {names} {by_id} WHERE name IN %s AND until > %s"
            f" UNION ALL SELECT name FROM {jobs} {by_name} WHERE name IN %s"
        ),
        unpush=f"DELETE FROM {jobs} WHERE id = %s",
        keep_name=(
            f"INSERT INTO {names} (name, until) SELECT u.name, u.until FROM (SELECT %s AS name, %s AS until) AS u"
            f" ON DUPLICATE KEY UPDATE until = GREATEST({names}.until, u.until)"
        ),
        name_row=f"SELECT 1 FROM {names} {by_id} WHERE name = %s",
        lock_name=f"SELECT 1 FROM {names} {by_id} WHERE name = %s {LOCKED}",
        keep_longer=f"UPDATE {names} {by_id} SET until = GREATEST(until, %s) WHERE name = %s",
        mine=(
            f"SELECT kind, alone_key, name, keep_name FROM {jobs} {by_id}"
            " WHERE id = %s AND claim = %s AND state <> 3"
        ),
        mine_locked=(
            f"SELECT kind, alone_key, name, keep_name FROM {jobs} {by_id}"
            " WHERE id = %s AND claim = %s AND state <> 3 FOR UPDATE"
        ),
        standing=(
            f"SELECT id, kind, state, claim, held_until, alone_key, name, keep_name FROM {jobs} {by_id}"
            f" WHERE id IN %s AND state <> 3 ORDER BY id {LOCKED}"
        ),
        there=f"SELECT id FROM {jobs} {by_id} WHERE id IN %s AND state <> 3",
        ask_to_stop=f"UPDATE {jobs} {by_id} SET stop_asked = 1 WHERE id IN %s",
        progress=f"UPDATE {jobs} {by_id} SET progress = %s WHERE id = %s",
        locked_claims=f"SELECT id, claim FROM {jobs} {by_id} WHERE id IN %s AND state <> 3 ORDER BY id {LOCKED}",
        parked_kinds=(
            f"SELECT k.kind FROM {kinds} AS k WHERE (SELECT j.id FROM {jobs} AS j {by_due}"
            " WHERE j.kind = k.kind AND j.state = 2 LIMIT 1) IS NOT NULL"
        ),
        next_key=(
            f"SELECT parked_key FROM {jobs} {by_parked} WHERE {of_kind} AND parked_key > %s"
            " ORDER BY kind, parked_key LIMIT 1"
        ),
        is_held=(
            f"SELECT 1 FROM {slots} AS s {by_id} STRAIGHT_JOIN {jobs} AS h {by_id} ON h.id = s.job_id"
            " WHERE s.kind = %s AND s.alone_key = %s AND s.held_until > %s AND h.claim = s.claim AND h.state = 1"
        ),
        old_failed=(
            f"SELECT id, name, keep_name FROM {jobs} {by_due} WHERE {of_kind} AND state = 3 AND due < %s"
            f" ORDER BY kind, due, id LIMIT %s {LOCKED}"
        ),
        old_names=f"SELECT name FROM {names} WHERE until <= %s ORDER BY until LIMIT %s {LOCKED}",
        delete_names=f"DELETE n FROM {bytes_} STRAIGHT_JOIN {names} AS n {by_id} ON n.name = UNHEX(u.it)",
        old_slots=f"SELECT kind, alone_key FROM {slots} WHERE held_until <= %s LIMIT %s {LOCKED}",
        delete_slot=f"DELETE FROM {slots} WHERE kind = %s AND alone_key = %s",
        old_places=(
            f"SELECT name, `key`, slot FROM {throttles} WHERE free_at <= %s ORDER BY free_at LIMIT %s {LOCKED}"
        ),
        delete_place=f"DELETE FROM {throttles} WHERE name = %s AND `key` = %s AND slot = %s",
        failed=f"SELECT name, keep_name FROM {jobs} {by_id} WHERE id IN %s AND state = 3",
        get_lock="SELECT GET_LOCK(%s, %s)",
        release_lock="SELECT RELEASE_LOCK(%s)",
        places=(f"SELECT slot, at FROM {throttles} {by_id} WHERE name = %s AND `key` = %s AND at + %s > %s"),
        place="SELECT %s AS name, %s AS `key`, %s AS slot, %s AS at, %s AS free_at",
        take_places=(
            f"INSERT INTO {throttles} (name, `key`, slot, at, free_at)"
            " SELECT u.name, u.`key`, u.slot, u.at, u.free_at FROM (",
            ") AS u ON DUPLICATE KEY UPDATE at = u.at, free_at = u.free_at",
        ),
        settle_places=(
            f"UPDATE {throttles} {by_id} SET free_at = free_at - at + %s, at = %s"
            " WHERE name = %s AND `key` = %s AND at = %s AND slot IN %s"
        ),
        free_places=(
            f"DELETE t FROM {throttles} AS t {by_id} WHERE t.name = %s AND t.`key` = %s AND t.at = %s AND t.slot IN %s"
        ),
        runs=f"SELECT name, run_at FROM {schedules} {by_id} WHERE name IN %s",
        run=f"SELECT run_at FROM {schedules} WHERE name = %s FOR UPDATE",
        first_run=f"INSERT INTO {schedules} (name, run_at) VALUES (%s, %s)",
        move_run=f"UPDATE {schedules} {by_id} SET run_at = %s WHERE name = %s",
        news=(
            f"SELECT (SELECT id FROM {jobs} {by_id} WHERE id > %s ORDER BY id DESC LIMIT 1),"
            f" (SELECT run_at FROM {schedules} {by_id} WHERE name = '')"
        ),
        ring=(
            f"INSERT INTO {schedules} (name, run_at) VALUES ('', 1)"
            f" ON DUPLICATE KEY UPDATE run_at = {schedules}.run_at + 1"
        ),
        # Either server takes what is the other's for a comment.
        session=(
            "SELECT @@SESSION.auto_increment_increment, @@SESSION.max_allowed_packet, @@SESSION.character_set_client,"
            " @@SESSION.character_set_connection, DATABASE(), /*!80000 @@SESSION.transaction_isolation */"
            " /*M!100600 @@SESSION.tx_isolation */"
        ),
    )

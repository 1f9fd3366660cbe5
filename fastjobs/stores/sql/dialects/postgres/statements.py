"""The hot statements as text, built once per store from checked names. Placeholders are `$1`; their types are said.

The types are there as a driver guesses others: a list of small numbers is one of smallint to psycopg.
"""

# ruff: noqa: S608 - the names in the texts are the tables' own, which were checked as they were made

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from fastjobs.stores.sql.dialects.postgres.function import VERSION
from fastjobs.stores.sql.dialects.postgres.functions import BESIDE
from fastjobs.stores.sql.tables import Tables

_LONGEST_CHANNEL = 63


@dataclass(frozen=True, slots=True)
class Statements:
    """Each statement's text; its parameters are said beside it."""

    channel: str
    """What a push notifies and the other instances listen to."""
    push: str
    """kind, payload, run_at, created_at, carried -> id"""
    push_notify: str
    """As `push`, and the channel after them, which is notified as it commits."""
    push_many: str
    """An array of each of `push`, but created_at is one for all -> an array of ids, in the order of the jobs"""
    push_many_notify: str
    """As `push_many`, and the channel after them."""
    push_alike: str
    """As `push_many`, for jobs that differ in their payloads alone: an array of those, and one of each other"""
    push_alike_notify: str
    """As `push_alike`, and the channel after them."""
    new_kinds: str
    """kinds, first_seen"""
    known_kinds: str
    """-> kind"""
    claim: str
    """See `functions.claim`."""
    mark: str
    """See `functions.mark`."""
    push_and_claim: str
    """What `push` takes, then what `claim` takes -> a row of BESIDE with the ids, then what `claim` answers."""
    push_many_and_claim: str
    """What `push_many` takes, then what `claim` takes -> the same"""
    mark_and_claim: str
    """What `mark` takes, then what `claim` takes -> a row of BESIDE, then what `claim` answers. Where the marks have
    locked slots the claim is of nothing, as it may wait for others'."""
    push_unique: str
    """kinds, payloads, run_ats, now, carried, keys, one_at_a_time, milliseconds to wait for another, channel or none ->
    ids of those that are new, in the order of the jobs; their kinds and keys, where not all are new"""
    push_keyed: str
    """See `keyed_functions.push`."""
    promote: str
    """kinds, keys -> how many were woken. See `keyed_functions.promote_freed`."""
    sweep: str
    """now -> how many were woken"""
    prune: str
    """failed before, limit, now -> how many rows are gone"""
    take: str
    """See `throttle_functions.take`."""
    settle: str
    """See `throttle_functions.settle`."""
    cancel: str
    """See `acting_functions.cancel`."""
    progress: str
    """See `acting_functions.progress`."""
    runs: str
    """names -> name, run_at, of the schedules that have a row"""


def make_statements(tables: Tables) -> Statements:
    """The statements for these tables."""
    schema = f'"{tables.schema}".' if tables.schema else ""
    jobs, kinds = f'{schema}"{tables.jobs.name}"', f'{schema}"{tables.kinds.name}"'
    claim, mark = (
        f'{schema}"{tables.prefix}claim_{int(VERSION)}"',
        f'{schema}"{tables.prefix}mark_{int(VERSION)}"',
    )
    push_keyed, promote, sweep, prune = (
        f'{schema}"{tables.prefix}push_{int(VERSION)}"',
        f'{schema}"{tables.prefix}promote_freed_{int(VERSION)}"',
        f'{schema}"{tables.prefix}sweep_{int(VERSION)}"',
        f'{schema}"{tables.prefix}prune_{int(VERSION)}"',
    )
    take, settle = (
        f'{schema}"{tables.prefix}take_{int(VERSION)}"',
        f'{schema}"{tables.prefix}settle_{int(VERSION)}"',
    )
    cancel, progress = (
        f'{schema}"{tables.prefix}cancel_{int(VERSION)}"',
        f'{schema}"{tables.prefix}progress_{int(VERSION)}"',
    )
    schedules = f'{schema}"{tables.schedules.name}"'
    # One row at a time, as a statement that is one array's worth costs a third more where there's one job.
    push = (
        f"INSERT INTO {jobs} (kind, payload, run_at, created_at, carried)"
        " VALUES ($1::text, $2::text, $3::bigint, $4::bigint, $5::text)"
    )
    # The ids are given in the order of the rows, after the sort; and as they're sorted here, that's their order.
    pushed = (
        f"WITH pushed AS (INSERT INTO {jobs} (kind, payload, run_at, created_at, carried)"
        " SELECT u.kind, u.payload, u.run_at, $4::bigint, u.carried"
        " FROM unnest($1::text[], $2::text[], $3::bigint[], $5::text[]) WITH ORDINALITY"
        " AS u(kind, payload, run_at, carried, nth)"
        " ORDER BY u.nth RETURNING id)"
    )
    # The same for a push_many: arrays of what is the same in each are a tenth of the statement.
    alike = (
        f"WITH pushed AS (INSERT INTO {jobs} (kind, payload, run_at, created_at, carried)"
        " SELECT $1::text, u.payload, $3::bigint, $4::bigint, $5::text"
        " FROM unnest($2::text[]) WITH ORDINALITY AS u(payload, nth)"
        " ORDER BY u.nth RETURNING id)"
    )
    # In this order, as the claim's arguments are of the ids: so it sees the jobs.
    beside_ids = (
        f"SELECT {int(BESIDE)}, NULL::bigint, i.ids::text, NULL::text, NULL::bigint, NULL::integer, NULL::bigint,"
        " NULL::integer, NULL::text, NULL::text, NULL::boolean FROM ids i UNION ALL SELECT c.* FROM ids i"
        f" CROSS JOIN LATERAL {claim}($6::text[], $7::bigint[], $8::integer[], $9::integer[], $10::integer[],"
        " $11::integer[], $12::boolean[], $13::bigint[], $14::boolean,"
        " CASE WHEN i.ids IS NULL THEN 0 ELSE $15::integer END, $16::integer, $17::boolean, $18::bigint,"
        " $19::integer[]) c"
    )
    return Statements(
        channel=channel(tables),
        push=f"{push} RETURNING id",
        push_notify=f"{push} RETURNING id, pg_notify($6::text, '')",
        push_many=f"{pushed} SELECT array_agg(id ORDER BY id) FROM pushed",
        push_many_notify=f"{pushed} SELECT array_agg(id ORDER BY id), pg_notify($6::text, '') FROM pushed",
        push_alike=f"{alike} SELECT array_agg(id ORDER BY id) FROM pushed",
        push_alike_notify=f"{alike} SELECT array_agg(id ORDER BY id), pg_notify($6::text, '') FROM pushed",
        # In order, so that two that note the same kinds never wait for each other. Nor long for an app's transaction
        # that has noted one and stays open: that is an error soon, and nobody else's to have.
        new_kinds=(
            "WITH short AS MATERIALIZED (SELECT set_config('lock_timeout', '200ms', true))"
            f" INSERT INTO {kinds} (kind, first_seen) SELECT DISTINCT u.kind, $2::bigint"
            " FROM unnest($1::text[]) AS u(kind) CROSS JOIN short ORDER BY u.kind ON CONFLICT DO NOTHING"
        ),
        known_kinds=f"SELECT kind FROM {kinds}",
        push_and_claim=(
            f"WITH pushed AS ({push} RETURNING id), ids AS MATERIALIZED (SELECT array_agg(id) AS ids FROM pushed)"
            f" {beside_ids}"
        ),
        push_many_and_claim=(
            f"{pushed}, ids AS MATERIALIZED (SELECT array_agg(id ORDER BY id) AS ids FROM pushed) {beside_ids}"
        ),
        claim=(
            f"SELECT * FROM {claim}($1::text[], $2::bigint[], $3::integer[], $4::integer[], $5::integer[],"
            " $6::integer[], $7::boolean[], $8::bigint[], $9::boolean, $10::integer, $11::integer, $12::boolean,"
            " $13::bigint, $14::integer[])"
        ),
        mark=(
            f"SELECT * FROM {mark}($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::integer[],"
            " $6::bigint[], $7::text[], $8::bigint[], $9::bigint)"
        ),
        # In this order, as the claim's arguments are of the mark's answer: so it sees what the marks have changed.
        mark_and_claim=(
            f"WITH m AS MATERIALIZED (SELECT * FROM {mark}($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[],"
            " $5::integer[], $6::bigint[], $7::text[], $8::bigint[], $9::bigint))"
            f" SELECT {int(BESIDE)}, NULL::bigint, m.o_missed::text, m.o_busy::text, NULL::bigint, m.o_woke::integer,"
            " NULL::bigint, m.o_slots::integer, m.o_stop::text, NULL::text, NULL::boolean FROM m"
            f" UNION ALL SELECT c.* FROM m CROSS JOIN LATERAL {claim}($10::text[], $11::bigint[], $12::integer[],"
            " $13::integer[], $14::integer[], $15::integer[], $16::boolean[], $17::bigint[], $18::boolean,"
            " CASE WHEN m.o_slots THEN 0 ELSE $19::integer END, $20::integer, $21::boolean, $22::bigint,"
            " $23::integer[]) c"
        ),
        # A lock's time is set before the first row is inserted, as they're sorted. The keys are answered where not all
        # of the jobs are new.
        push_unique=(
            "WITH short AS MATERIALIZED (SELECT set_config('lock_timeout', $8::text, true)), pushed AS ("
            f"INSERT INTO {jobs} (kind, payload, run_at, created_at, carried, own_key, unique_key, alone_key)"
            " SELECT u.kind, u.payload, u.run_at, $4::bigint, u.carried, u.key, u.key, CASE WHEN u.alone THEN u.key END"
            " FROM unnest($1::text[], $2::text[], $3::bigint[], $5::text[], $6::bytea[], $7::boolean[])"
            " WITH ORDINALITY AS u(kind, payload, run_at, carried, key, alone, nth) CROSS JOIN short"
            " ORDER BY u.nth ON CONFLICT DO NOTHING RETURNING id, kind, unique_key)"
            " SELECT array_agg(id ORDER BY id),"
            " CASE WHEN count(*) < cardinality($1::text[]) THEN array_agg(kind ORDER BY id) END,"
            " CASE WHEN count(*) < cardinality($1::text[]) THEN array_agg(unique_key ORDER BY id) END,"
            " CASE WHEN count(*) > 0 AND $9::text IS NOT NULL THEN pg_notify($9::text, '')::text END FROM pushed"
        ),
        push_keyed=(
            f"SELECT {push_keyed}($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::boolean[],"
            " $7::bigint[], $8::boolean[], $9::text[], $10::bigint[], $11::bigint, $12::integer, $13::text)"
        ),
        promote=f"SELECT {promote}($1::text[], $2::bytea[])",
        sweep=f"SELECT {sweep}($1::bigint)",
        prune=f"SELECT {prune}($1::bigint, $2::integer, $3::bigint)",
        take=(
            f"SELECT * FROM {take}($1::text[], $2::text[], $3::integer[], $4::bigint[], $5::integer[], $6::bigint)"
        ),
        settle=f"SELECT {settle}($1::text[], $2::text[], $3::integer[], $4::bigint[], $5::bigint[])",
        cancel=f"SELECT * FROM {cancel}($1::bigint[], $2::bigint)",
        progress=f"SELECT {progress}($1::bigint[], $2::bigint[], $3::text[])",
        runs=f"SELECT name, run_at FROM {schedules} WHERE name = ANY($1::text[])",
    )


def channel(tables: Tables) -> str:
    """The name of the tables' channel, as short as Postgres wants names."""
    name = f"{tables.schema}.{tables.prefix}jobs" if tables.schema else f"{tables.prefix}jobs"
    if len(name) <= _LONGEST_CHANNEL:
        return name
    return f"{tables.prefix}{blake2b(name.encode(), digest_size=8).hexdigest()}"

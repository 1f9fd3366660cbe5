"""What may be wrong with a queue's own tables on Postgres, and what keeps vacuum from them."""

# ruff: noqa: S608 - the names in the texts are the tables' own, which were checked as they were made

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, text

from fastjobs.core.duration import SECOND
from fastjobs.core.text import one_line
from fastjobs.stores.sql.dialects.postgres.functions import make_functions
from fastjobs.stores.sql.inspecting import Asked, Check, Finding, Level, lasted, paused_kinds, unknown_kinds
from fastjobs.stores.sql.tables import Tables

CLOCK = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_OPEN_FOR = "10 minutes"
_OLD = 1_000_000
"""How many transactions ago what is held back is told of."""
_DEAD = 100_000


def setting(connection: Connection, name: str) -> str:
    """What the session has it set to."""
    return str(connection.scalar(text("SELECT current_setting(:name)"), {"name": name}))


def _rows(connection: Connection, sql: str, **values: object) -> Sequence[Any]:
    return connection.execute(text(sql), values).fetchall()


def _schema(tables: Tables) -> str:
    return f'"{tables.schema}".' if tables.schema else ""


def horizon(connection: Connection, asked: Asked) -> Iterable[Finding]:
    check, good = "horizon", True
    keeps = "keeps vacuum from the jobs that were done since, and claims get slower"
    for pid, name, state, seconds in _rows(
        connection,
        "SELECT pid, coalesce(application_name, ''), coalesce(state, ''),"
        " extract(epoch FROM now() - xact_start)::bigint FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND xact_start < now() - cast(:since AS text)::interval ORDER BY xact_start LIMIT 5",
        since=_OPEN_FOR,
    ):
        good = False
        who = f"{one_line(name, 60)!r}, " if name else ""
        said = f"a transaction is open for {lasted(seconds * SECOND)} ({who}{state}, pid {pid}): it {keeps}"
        yield Finding(
            Level.WARNING, check, said, "find what forgot it; SELECT pg_terminate_backend(its pid) ends it"
        )
    for gid, seconds in _rows(
        connection,
        "SELECT gid, extract(epoch FROM now() - prepared)::bigint FROM pg_prepared_xacts"
        " WHERE database = current_database() AND prepared < now() - cast(:since AS text)::interval LIMIT 5",
        since=_OPEN_FOR,
    ):
        good = False
        said = f"the prepared transaction {one_line(gid, 100)!r} waits for {lasted(seconds * SECOND)}: it {keeps}"
        yield Finding(Level.WARNING, check, said, "COMMIT PREPARED or ROLLBACK PREPARED it")
    for name, active, age in _rows(
        connection,
        "SELECT slot_name::text, active, coalesce(age(xmin), 0) FROM pg_replication_slots"
        " WHERE NOT active OR age(xmin) > :old LIMIT 5",
        old=_OLD,
    ):
        good = False
        what = keeps if age else "keeps all write-ahead log since, until the disk is full"
        said = f"the replication slot {name} is {'behind' if active else 'used by nobody'}: it {what}"
        yield Finding(
            Level.WARNING, check, said, "bring its reader back, or drop it by pg_drop_replication_slot"
        )
    for name, age in _rows(
        connection,
        "SELECT coalesce(application_name, ''), age(backend_xmin) FROM pg_stat_replication"
        " WHERE age(backend_xmin) > :old LIMIT 5",
        old=_OLD,
    ):
        good = False
        said = f"a query on the standby {one_line(name, 60)!r} is {age:,} transactions old: by its feedback it {keeps}"
        yield Finding(Level.WARNING, check, said, "end it, or limit it by max_standby_streaming_delay")
    hidden = connection.scalar(
        text(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND query = '<insufficient privilege>'"
        )
    )
    if hidden:
        said = f"can't see what {hidden} sessions of other roles are at"
        yield Finding(Level.REMARK, check, said, "GRANT pg_read_all_stats to the app's role, to look")
    elif good:
        yield Finding(Level.OK, check, f"nothing is open for {_OPEN_FOR}, and no slot is behind")


def functions(connection: Connection, asked: Asked) -> Iterable[Finding]:
    good = True
    for each in make_functions(asked.tables):
        may = connection.scalar(
            text("SELECT has_function_privilege(to_regproc(:name)::oid, 'EXECUTE')"), {"name": each.name}
        )
        if may is None:
            good = False
            said = f"the function {each.name} is gone: claims fail"
            yield Finding(Level.WRONG, "functions", said, "make it again: `fastjobs schema` prints it")
        elif not may:
            good = False
            said = f"the app's role may not call {each.name}: claims fail"
            yield Finding(Level.WRONG, "functions", said, f"GRANT EXECUTE ON FUNCTION {each.name} to it")
    if good:
        yield Finding(Level.OK, "functions", "all are there")


def rights(connection: Connection, asked: Asked) -> Iterable[Finding]:
    tables, good = asked.tables, True
    if tables.schema is not None and not connection.scalar(
        text("SELECT has_schema_privilege(:name, 'USAGE')"), {"name": tables.schema}
    ):
        said = f"the app's role may not use the schema {tables.schema}"
        yield Finding(Level.WRONG, "rights", said, f"GRANT USAGE ON SCHEMA {tables.schema} to it")
        return
    for table in tables.metadata.sorted_tables:
        name = f'{_schema(tables)}"{table.name}"'
        lacks = [
            right
            for right in ("SELECT", "INSERT", "UPDATE", "DELETE")
            if connection.scalar(
                text("SELECT has_table_privilege(to_regclass(:name)::oid, :right)"),
                {"name": name, "right": right},
            )
            is False
        ]
        if lacks and table is not tables.version:
            good = False
            said = f"the app's role lacks {', '.join(lacks)} on {name}"
            yield Finding(Level.WRONG, "rights", said, f"GRANT {', '.join(lacks)} ON {name} to it")
    if good:
        yield Finding(Level.OK, "rights", "the app's role may read and write the tables")


def plans(connection: Connection, asked: Asked) -> Iterable[Finding]:
    tables = asked.tables
    ready = f"{tables.prefix}jobs_ready"
    broken = _rows(
        connection,
        "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = to_regclass(:name)::oid AND NOT indisvalid",
        name=f'{_schema(tables)}"{tables.jobs.name}"',
    )
    for (name,) in broken:
        said = f"the index {name} isn't valid, and isn't used"
        yield Finding(Level.WRONG, "plan", said, f"REINDEX INDEX {name}")
    schema = f'"{tables.schema}".' if tables.schema else ""
    for off in ("enable_seqscan", "enable_bitmapscan", "enable_sort"):
        connection.execute(text("SELECT set_config(:name, 'off', true)"), {"name": off})
    rows = connection.exec_driver_sql(
        f"EXPLAIN SELECT id FROM {schema}\"{tables.jobs.name}\" WHERE kind = 'mail' AND state = 0 AND run_at <= 0"
        " ORDER BY run_at, id LIMIT 1"
    ).fetchall()
    plan = " ".join(str(row[0]) for row in rows)
    if f"using {ready} " in plan:
        yield Finding(Level.OK, "plan", f"claims go by {ready}")
    else:
        said = f"claims don't go by the index {ready}: {' '.join(plan.split())}"
        yield Finding(Level.WRONG, "plan", said, "make the index as it was: `fastjobs schema` prints it")


def vacuum(connection: Connection, asked: Asked) -> Iterable[Finding]:
    tables, check = asked.tables, "vacuum"
    schema = f'"{tables.schema}".' if tables.schema else ""
    name = f'{schema}"{tables.jobs.name}"'
    rows = _rows(
        connection,
        "SELECT s.n_dead_tup, s.n_live_tup, coalesce(array_to_string(c.reloptions, ','), '') FROM pg_class c"
        " LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid WHERE c.oid = to_regclass(:name)::oid",
        name=name,
    )
    if not rows:
        return
    dead, live, options = rows[0]
    dead, live = dead or 0, live or 0
    off = [each for each in ("autovacuum_enabled=false", "autovacuum_enabled=off") if each in options]
    if setting(connection, "autovacuum") != "on":
        said = "autovacuum is off: what is done stays as dead rows, and claims get slower with each job"
        yield Finding(Level.WRONG, check, said, "autovacuum = on in postgresql.conf, and a reload")
    elif off:
        said = f"{name} has {off[0]}: what is done stays as dead rows, and claims get slower with each job"
        yield Finding(Level.WRONG, check, said, f"ALTER TABLE {name} RESET (autovacuum_enabled)")
    elif dead > _DEAD and dead > 5 * live:
        said = f"{name} has {dead:,} dead rows beside {live:,}: vacuum doesn't keep up, or is held back"
        yield Finding(Level.WARNING, check, said, f"see `horizon`; then VACUUM {name}")
    else:
        yield Finding(Level.OK, check, f"{dead:,} dead rows beside {live:,}")


def kinds(connection: Connection, asked: Asked) -> Iterable[Finding]:
    return unknown_kinds(connection, asked, connection.scalar(text(CLOCK)))


CHECKS: tuple[tuple[str, Check], ...] = (
    ("functions", functions),
    ("rights", rights),
    ("plan", plans),
    ("vacuum", vacuum),
    ("unknown kinds", kinds),
    ("paused kinds", paused_kinds),
)

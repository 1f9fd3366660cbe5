"""What `fastjobs doctor` finds on Postgres: each thing that can be wrong, made so; and that it writes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from fastjobs.core.job import NewJob
from fastjobs.stores.sql.dialects.postgres import doctor, doctor_tables
from fastjobs.stores.sql.dialects.postgres.functions import make_functions
from fastjobs.stores.sql.inspecting import Finding, Level
from fastjobs.stores.sql.store import SQLStore
from fastjobs.stores.sql.tables import make_tables
from tests.databases.pgbouncer import PgBouncer
from tests.databases.postgres import Database, Server

pytestmark = pytest.mark.anyio

# What is so of any server of the tests, which are quick and not safe; or of a machine that others share.
USUAL = {"durability", "sessions"}


def of(found: Sequence[Finding], check: str) -> list[tuple[Level, str]]:
    return [(each.level, each.said) for each in found if each.check == check]


def bad(found: Sequence[Finding]) -> list[Finding]:
    return [each for each in found if each.level is not Level.OK and each.check not in USUAL]


def engine_of(driver: str, url: str) -> Engine | AsyncEngine:
    return (
        create_engine(url, poolclass=NullPool)
        if driver == "sync"
        else create_async_engine(url, poolclass=NullPool)
    )


@pytest.fixture
async def store(postgres_database: Database) -> AsyncIterator[SQLStore]:
    store = SQLStore(create_async_engine(postgres_database.url("asyncpg"), poolclass=NullPool))
    await store.open(["mail"])
    yield store
    await store.close()


@pytest.mark.parametrize(
    ("driver", "dialect"), [("async", "asyncpg"), ("async", "psycopg"), ("sync", "psycopg")]
)
async def test_a_database_that_is_well_has_nothing_wrong_by_each_driver_and_nothing_is_written(
    driver: str, dialect: str, store: SQLStore, postgres_database: Database
) -> None:
    engine = engine_of(driver, postgres_database.url(dialect))

    def wrote() -> Any:
        return postgres_database.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text")

    before = wrote()
    found = await SQLStore(engine).examine(["mail"])
    assert bad(found) == []
    assert {each.check for each in found} == {
        "version", "writable", "durability", "isolation", "sessions", "pooler", "clock", "horizon", "tables",
        "functions", "rights", "plan", "vacuum", "unknown kinds", "paused kinds",
    }  # fmt: skip
    assert wrote() == before, "no transaction of it had an id"


async def test_settings_that_lose_what_was_committed_are_wrong_wherever_they_are_set(
    make_postgres: Callable[..., Server],
) -> None:
    server = make_postgres(fsync="on", full_page_writes="on", synchronous_commit="on", autovacuum="off")
    database = server.create_database()
    store = SQLStore(create_async_engine(database.url("asyncpg"), poolclass=NullPool))
    assert of(await store.examine(), "durability")[0][0] is Level.OK
    database.execute("ALTER ROLE app SET synchronous_commit = off")
    ((level, said),) = of(await store.examine(), "durability")
    assert (level, said.startswith("synchronous_commit is off (set by: user): after a crash")) == (
        Level.WRONG,
        True,
    )
    database.execute("ALTER ROLE app RESET synchronous_commit")
    database.execute(f"ALTER DATABASE {database.name} SET synchronous_commit = off")
    assert "(set by: database)" in of(await store.examine(), "durability")[0][1]
    database.execute(f"ALTER DATABASE {database.name} RESET synchronous_commit")
    await store.open()
    assert of(await store.examine(), "vacuum")[0][0] is Level.WRONG
    await store.close()


async def test_a_server_that_doesnt_wait_for_its_disk_is_wrong(make_postgres: Callable[..., Server]) -> None:
    server = make_postgres(fsync="off", full_page_writes="off", synchronous_commit="local")
    store = SQLStore(create_async_engine(server.create_database().url("asyncpg"), poolclass=NullPool))
    assert [(level, said.split(":")[0]) for level, said in of(await store.examine(), "durability")] == [
        (Level.WRONG, "fsync is off"),
        (Level.WRONG, "full_page_writes is off"),
    ]


async def test_what_a_role_has_by_default_is_told_where_it_matters(
    store: SQLStore, postgres_database: Database
) -> None:
    name = postgres_database.name
    postgres_database.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    postgres_database.execute(f"ALTER DATABASE {name} SET idle_in_transaction_session_timeout = '5min'")
    found = await store.examine(["mail"])
    assert of(found, "isolation")[0][0] is Level.REMARK
    assert "transactions are serializable by default" in of(found, "isolation")[0][1]
    assert of(found, "sessions")[0][0] is Level.OK
    postgres_database.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    assert of(await store.examine(["mail"]), "writable")[0][0] is Level.WRONG


async def test_an_old_server_is_wrong(store: SQLStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor_tables.setting

    def old(connection: Connection, name: str) -> str:
        return "120017" if name == "server_version_num" else real(connection, name)

    monkeypatch.setattr(doctor, "setting", old)
    assert of(await store.examine(), "version")[0][0] is Level.WRONG


@pytest.mark.parametrize("dialect", ["asyncpg", "psycopg"])
async def test_a_pooler_is_told_of(
    dialect: str, pgbouncer: PgBouncer, store: SQLStore, postgres_database: Database
) -> None:
    arguments = {"statement_cache_size": 0} if dialect == "asyncpg" else {"prepare_threshold": None}
    engine = create_async_engine(
        pgbouncer.url(dialect, postgres_database.name), poolclass=NullPool, connect_args=arguments
    )
    found = await SQLStore(engine).examine(["mail"])
    assert [(each.level, each.check) for each in bad(found)] == [(Level.WARNING, "pooler")]


async def test_a_clock_that_is_off_is_told_of(store: SQLStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        doctor, "CLOCK", "SELECT (extract(epoch FROM clock_timestamp() - interval '7 s') * 1e6)::bigint"
    )
    ((level, said),) = of(await store.examine(), "clock")
    assert (level, said.startswith("the server's clock is 7.0 s behind this machine's")) == (
        Level.WARNING,
        True,
    )


async def test_what_is_gone_from_the_tables_is_named_with_what_mends_it(
    store: SQLStore, postgres_database: Database
) -> None:
    postgres_database.execute("DROP INDEX fastjobs_jobs_ready")
    (function,) = [
        name
        for (name,) in postgres_database.execute(
            "SELECT oid::regprocedure::text FROM pg_proc WHERE proname = 'fastjobs_claim_1'"
        )
    ]
    postgres_database.execute(f"DROP FUNCTION {function}")
    found = await store.examine(["mail"])
    assert [each.check for each in bad(found)] == ["tables", "functions", "plan"]
    assert all(each.level is Level.WRONG for each in bad(found))
    (create,) = [each.do for each in found if each.do.startswith("CREATE INDEX")]
    postgres_database.execute(create)
    assert [each.check for each in bad(await store.examine(["mail"]))] == ["functions"]


async def test_where_there_are_no_tables_that_is_all_that_is_said_of_them(
    postgres_database: Database,
) -> None:
    store = SQLStore(create_async_engine(postgres_database.url("asyncpg"), poolclass=NullPool))
    found = await store.examine()
    assert [(each.check, each.said) for each in bad(found)] == [
        ("tables", "there are none with the prefix 'fastjobs_'")
    ]


async def test_rights_that_the_role_lacks_are_named(store: SQLStore, postgres_database: Database) -> None:
    role = f"bare_{postgres_database.name}"
    postgres_database.execute(f"CREATE ROLE {role} LOGIN")
    try:
        bare = SQLStore(create_async_engine(postgres_database.url("asyncpg", user=role), poolclass=NullPool))
        assert of(await bare.examine(), "tables")[0][0] is Level.WRONG
        assert "GRANT it SELECT" in of(await bare.examine(), "tables")[0][1]
        postgres_database.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
        postgres_database.execute(f"GRANT INSERT, UPDATE, DELETE ON fastjobs_kinds TO {role}")
        postgres_database.execute("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM public")
        found = await bare.examine()
        lacks = [said for _, said in of(found, "rights")]
        assert 'the app\'s role lacks INSERT, UPDATE, DELETE on "fastjobs_jobs"' in lacks
        assert not any("fastjobs_kinds" in said for said in lacks)
        assert [level for level, _ in of(found, "functions")] == [Level.WRONG] * len(
            make_functions(make_tables())
        )
    finally:
        postgres_database.execute(f"DROP OWNED BY {role}")
        postgres_database.execute(f"DROP ROLE {role}")


async def test_what_holds_vacuum_back_is_named(
    store: SQLStore, postgres_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_tables, "_OPEN_FOR", "0 s")
    with psycopg.connect(postgres_database.url(), application_name="a report") as forgotten:
        forgotten.execute("SELECT 1")
        told = [
            said for level, said in of(await store.examine(["mail"]), "horizon") if level is Level.WARNING
        ]
        (said,) = [each for each in told if "'a report'" in each]
        assert f"pid {forgotten.info.backend_pid}" in said
        assert "idle in transaction" in said
    monkeypatch.undo()
    postgres_database.execute("ALTER TABLE fastjobs_jobs SET (autovacuum_enabled = false)")
    ((level, said),) = of(await store.examine(["mail"]), "vacuum")
    assert (level, "has autovacuum_enabled=false" in said) == (Level.WRONG, True)


async def test_a_slot_that_nobody_reads_is_named(make_postgres: Callable[..., Server]) -> None:
    server = make_postgres(wal_level="logical", max_prepared_transactions="5")
    database = server.create_database()
    database.execute("SELECT pg_create_physical_replication_slot('left_over', true)")
    with psycopg.connect(database.url(), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (x int)")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO t VALUES (1)")
        connection.execute("PREPARE TRANSACTION 'half'")
    store = SQLStore(create_async_engine(database.url("asyncpg"), poolclass=NullPool))
    told = [said for _, said in of(await store.examine(), "horizon")]
    assert [each for each in told if "the replication slot left_over is used by nobody" in each]
    assert not [each for each in told if "half" in each], "it's new"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doctor_tables, "_OPEN_FOR", "0 s")
        told = [said for _, said in of(await store.examine(), "horizon")]
    assert [each for each in told if "the prepared transaction 'half' waits for" in each]


async def test_kinds_that_wait_are_counted_by_the_servers_clock(store: SQLStore) -> None:
    hour = 3_600_000_000
    await store.push([NewJob(kind="report", payload="1", after=-3 * hour)] * 3)
    assert of(await store.examine(["mail"]), "unknown kinds") == [
        (
            Level.WARNING,
            "3 jobs wait of kind 'report', which this app has no handler for; the first was due 3 hours ago",
        )
    ]


async def test_kinds_that_are_paused_while_jobs_of_theirs_wait_are_told_of(store: SQLStore) -> None:
    await store.push([NewJob(kind="mail", payload="1")] * 3)
    await store.push([NewJob(kind="photo", payload="1")])
    for kind in ("mail", "empty"):
        await store.open([kind])
        assert await store.pause(kind, True)
    try:
        found = [each for each in await store.examine(["mail", "photo"]) if each.check == "paused kinds"]
        assert [(each.level, each.said) for each in found] == [
            (Level.REMARK, "3 jobs wait of kind 'mail', which is paused: none of them runs")
        ]
        assert "`fastjobs resume QUEUE mail`" in found[0].do
        assert await store.pause("mail", False)
        assert of(await store.examine(["mail"]), "paused kinds") == [
            (Level.OK, "no job waits as its kind is paused")
        ]
    finally:
        for _ in range(2):
            await store.close()

"""What `fastjobs doctor` finds on MariaDB and MySQL: each thing that can be wrong, made so; and it writes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import pymysql
import pytest
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from fastjobs.core.job import NewJob
from fastjobs.stores.sql.dialects.mysql import doctor, doctor_tables
from fastjobs.stores.sql.dialects.mysql.link import CLOCK
from fastjobs.stores.sql.inspecting import Finding, Level
from fastjobs.stores.sql.store import SQLStore
from tests.databases.mysql import Database, Server

pytestmark = pytest.mark.anyio

# What is so of any server of the tests, which are quick and not safe; and of its user, who has no rights on the server.
USUAL = {"durability", "purge"}
HOUR = 3_600_000_000


def of(found: Sequence[Finding], check: str) -> list[tuple[Level, str]]:
    return [(each.level, each.said) for each in found if each.check == check]


def bad(found: Sequence[Finding]) -> list[Finding]:
    return [each for each in found if each.level is not Level.OK and each.check not in USUAL]


@pytest.fixture
def database(mysql_module_database: Database) -> Database:
    """One with tables, for those who leave them as they are: they're made once."""
    return mysql_module_database


@pytest.fixture
async def store(database: Database) -> AsyncIterator[SQLStore]:
    store = SQLStore(create_async_engine(database.url("asyncmy"), poolclass=NullPool))
    await store.open()
    await store.close()
    database.clear()
    await store.open(["mail"])
    yield store
    await store.close()


@pytest.fixture
async def own(mysql_database: Database) -> AsyncIterator[SQLStore]:
    """A store for those who alter its tables."""
    store = SQLStore(create_async_engine(mysql_database.url("asyncmy"), poolclass=NullPool))
    await store.open(["mail"])
    yield store
    await store.close()


@pytest.fixture
def sees(mysql_server: Server) -> Iterator[None]:
    """The app's user may see the transactions of others."""
    mysql_server.execute("GRANT PROCESS ON *.* TO app")
    yield
    mysql_server.execute("REVOKE PROCESS ON *.* FROM app")


async def test_a_database_that_is_well_has_nothing_wrong_by_each_driver_and_nothing_is_written_or_logged(
    store: SQLStore,
    database: Database,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    engines: list[Engine | AsyncEngine] = [
        create_engine(database.url("pymysql"), poolclass=NullPool),
        *(create_async_engine(database.url(each), poolclass=NullPool) for each in ("asyncmy", "aiomysql")),
    ]

    def wrote() -> object:
        rows = database.execute(
            "SHOW GLOBAL STATUS WHERE Variable_name IN ('Handler_write', 'Handler_update', 'Handler_delete',"
            " 'Innodb_rows_inserted', 'Innodb_rows_updated', 'Innodb_rows_deleted')"
        )
        return {name: number for name, number in rows if name.startswith("Innodb_rows")}

    capfd.readouterr()
    before = wrote()
    for engine in engines:
        found = await SQLStore(engine).examine(["mail"], max_payload=256 * 1024)
        assert bad(found) == []
        assert {each.check for each in found} == {
            "version", "writable", "durability", "isolation", "sessions", "packet", "replication", "proxy", "clock",
            "purge", "tables", "rights", "columns", "plan", "unknown kinds", "paused kinds",
        }  # fmt: skip
    assert wrote() == before
    assert caplog.records == []
    assert capfd.readouterr() == ("", ""), "a driver prints what a server warns of"


async def test_settings_that_lose_what_was_committed_or_are_in_the_way_are_told(
    make_mysql_server: Callable[..., Server],
) -> None:
    server = make_mysql_server(
        innodb_flush_log_at_trx_commit="2",
        innodb_doublewrite="OFF",
        log_bin="bin",
        server_id="1",
        sync_binlog="0",
        innodb_rollback_on_timeout="ON",
        innodb_autoinc_lock_mode="0",
        sql_mode="",
        wait_timeout="20",
        max_allowed_packet="65536",
        transaction_isolation="READ-UNCOMMITTED",
    )
    database = server.create_database()
    store = SQLStore(create_async_engine(database.url("asyncmy"), poolclass=NullPool))
    found = await store.examine(max_payload=256 * 1024)
    assert [(level, said.split(":")[0]) for level, said in of(found, "durability")] == [
        (Level.WRONG, "innodb_flush_log_at_trx_commit is 2"),
        (Level.WRONG, "there is a binary log and sync_binlog is 0"),
        (Level.WRONG, "innodb_doublewrite is OFF"),
        (Level.WRONG, "innodb_flush_method is nosync"),
    ]
    assert [(level, said.split(":")[0]) for level, said in of(found, "sessions")] == [
        (Level.WARNING, "sql_mode isn't strict"),
        (Level.REMARK, "innodb_rollback_on_timeout is ON"),
        (Level.REMARK, "wait_timeout is 20 s"),
        (Level.REMARK, "innodb_autoinc_lock_mode is 0"),
    ]
    ((level, said),) = of(found, "isolation")
    assert (level, "READ-UNCOMMITTED" in said) == (Level.WRONG, True)
    ((level, said),) = of(found, "packet")
    assert (level, "65,536 bytes" in said) == (Level.WARNING, True)
    server.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 0")
    assert "after a crash of the server a push" in of(await store.examine(), "durability")[0][1]
    await store.open()
    await store.push([NewJob(kind="mail", payload="1")])
    await store.close()


async def test_a_server_that_waits_for_its_disk_is_well(make_mariadb: Callable[..., Server]) -> None:
    server = make_mariadb(
        innodb_flush_method="fsync", loose_debug_no_sync="OFF", log_bin="bin", sync_binlog="1",
        innodb_flush_log_at_trx_commit="3",
    )  # fmt: skip
    store = SQLStore(create_async_engine(server.create_database().url("asyncmy"), poolclass=NullPool))
    assert of(await store.examine(), "durability") == [
        (Level.OK, "innodb_flush_log_at_trx_commit=3, doublewrite, sync_binlog=1")
    ]
    server.execute("SET GLOBAL read_only = ON")
    ((level, said),) = of(await store.examine(), "writable")
    assert (level, said.startswith("this server is read only by read_only, as a replica is")) == (
        Level.WRONG,
        True,
    )


async def test_what_the_apps_own_connections_have_is_told(mysql_database: Database) -> None:
    url = mysql_database.url("pymysql")
    serializable = create_engine(url, isolation_level="SERIALIZABLE", poolclass=NullPool)
    ((level, said),) = of(await SQLStore(serializable).examine(), "isolation")
    assert (level, "SERIALIZABLE by default" in said) == (Level.REMARK, True)
    read_only = create_engine(
        url, connect_args={"init_command": "SET SESSION TRANSACTION READ ONLY"}, poolclass=NullPool
    )
    ((level, said),) = of(await SQLStore(read_only).examine(), "writable")
    assert (level, "read only by transaction_read_only" in said) == (Level.WRONG, True)


@pytest.mark.parametrize(
    ("says", "check", "level", "told"),
    [
        (
            {"group_replication_group_name": "a", "group_replication_single_primary_mode": "OFF"},
            "replication", Level.WARNING, "one of several primaries",
        ),
        (
            {"group_replication_group_name": "a", "group_replication_single_primary_mode": "ON"},
            "replication", Level.OK, "no other server",
        ),
        ({"super_read_only": "ON", "read_only": "ON"}, "writable", Level.WRONG, "by read_only and super_read_only"),
        ({"innodb_doublewrite": "DETECT_ONLY"}, "durability", Level.WRONG, "innodb_doublewrite is DETECT_ONLY"),
        ({"debug_no_sync": "ON"}, "durability", Level.WRONG, "debug_no_sync is ON"),
    ],
)  # fmt: skip
async def test_what_servers_say_that_the_tests_have_none_of_is_understood(
    says: dict[str, str],
    check: str,
    level: Level,
    told: str,
    mariadb: Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = doctor.settings

    def said(connection: Connection) -> dict[str, str]:
        return {**real(connection), **says}

    monkeypatch.setattr(doctor, "settings", said)
    database = mariadb.create_database()
    found = of(await SQLStore(create_engine(database.url("pymysql"), poolclass=NullPool)).examine(), check)
    assert any(each[0] is level and told in each[1] for each in found), found
    database.drop()


async def test_a_clock_that_is_off_is_told_of(store: SQLStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "CLOCK", f"{CLOCK} - 7000000")
    ((level, said),) = of(await store.examine(), "clock")
    assert (level, said.startswith("the server's clock is 7.0 s behind this machine's")) == (
        Level.WARNING,
        True,
    )


async def test_a_proxy_is_told_of(store: SQLStore, database: Database) -> None:
    engine = create_engine(database.url("pymysql"), poolclass=NullPool)
    store = SQLStore(engine)
    assert of(await store.examine(), "proxy") == [(Level.OK, "none stands between")]

    class Elsewhere(pymysql.Connection):
        """As one that a proxy has greeted."""

        def thread_id(self) -> int:
            return 1 << 30

    arguments: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": database.server.port,
        "user": "app",
        "database": database.name,
    }
    engine = create_engine("mysql+pymysql://", creator=lambda: Elsewhere(**arguments), poolclass=NullPool)
    ((level, said),) = of(await SQLStore(engine).examine(), "proxy")
    assert (level, "ProxySQL" in said) == (Level.WARNING, True)


async def test_what_is_gone_from_the_tables_is_named_with_what_mends_it(
    own: SQLStore, mysql_database: Database
) -> None:
    mysql_database.execute("DROP INDEX fastjobs_jobs_due ON fastjobs_jobs")
    mysql_database.execute("DROP INDEX fastjobs_throttles_free ON fastjobs_throttles")
    found = await own.examine(["mail"])
    assert [each.check for each in bad(found)] == ["tables", "tables", "plan"]
    assert all(each.level is Level.WRONG for each in bad(found))
    for each in found:
        if each.do.startswith("CREATE INDEX"):
            mysql_database.execute(each.do)
    assert bad(await own.examine(["mail"])) == []
    if mysql_database.server.family == "mariadb":
        return  # SQLAlchemy doesn't know its IGNORED, and warns
    mysql_database.execute("ALTER TABLE fastjobs_jobs ALTER INDEX fastjobs_jobs_due INVISIBLE")
    assert [(each.level, each.check) for each in bad(await own.examine(["mail"]))] == [(Level.WRONG, "plan")]


async def test_columns_that_were_altered_are_named_with_what_mends_them(
    own: SQLStore, mysql_database: Database
) -> None:
    for altered in (
        "fastjobs_jobs MODIFY name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        "fastjobs_jobs MODIFY payload TEXT CHARACTER SET latin1 NOT NULL",
        "fastjobs_jobs MODIFY own_key VARBINARY(8)",
        "fastjobs_jobs MODIFY due BIGINT",
        "fastjobs_kinds CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci",
        "fastjobs_slots ENGINE=MyISAM",
    ):
        mysql_database.execute(f"ALTER TABLE {altered}")
    found = [each for each in await own.examine(["mail"]) if each.check == "columns"]
    assert {each.level for each in found} == {Level.WRONG}
    assert [each.said.partition(":")[0] for each in found] == [
        "fastjobs_jobs.own_key is varbinary(8), and was made as varbinary(32)",
        "fastjobs_jobs.name is varchar(255) utf8mb4_general_ci, and was made as varbinary(1020)",
        "fastjobs_jobs.payload is text latin1_swedish_ci, and was made as longtext utf8mb4_bin",
        "fastjobs_jobs.due isn't worked out by the server any more",
        "fastjobs_kinds.kind is varchar(100) utf8mb4_unicode_ci, and was made as varchar(100) ascii_bin",
        "fastjobs_slots is kept by MyISAM, which has no transactions",
    ]
    for each in found:
        mysql_database.execute(each.do)
    assert bad(await own.examine(["mail"])) == []


async def test_where_there_are_no_tables_that_is_all_that_is_said_of_them(mysql_database: Database) -> None:
    store = SQLStore(create_async_engine(mysql_database.url("asyncmy"), poolclass=NullPool))
    found = await store.examine()
    assert [(each.check, each.said) for each in bad(found)] == [
        ("tables", "there are none with the prefix 'fastjobs_'")
    ]


async def test_rights_that_the_user_lacks_are_named(own: SQLStore, mysql_database: Database) -> None:
    mysql_database.execute("CREATE USER bare")
    try:
        mysql_database.execute("CREATE TABLE door (id INT)")
        mysql_database.execute("GRANT SELECT ON door TO bare")
        bare = SQLStore(create_async_engine(mysql_database.url("asyncmy", user="bare"), poolclass=NullPool))
        ((level, said),) = of(await bare.examine(), "tables")
        assert (level, "GRANT it SELECT" in said) == (Level.WRONG, True)
        mysql_database.execute(f"GRANT SELECT ON {mysql_database.name}.* TO bare")
        mysql_database.execute("GRANT INSERT, UPDATE ON fastjobs_jobs TO bare")
        mysql_database.execute("GRANT INSERT, UPDATE, DELETE ON fastjobs_kinds TO bare")
        lacks = [said for _, said in of(await bare.examine(), "rights")]
        assert "the app's user lacks DELETE on fastjobs_jobs" in lacks
        assert "the app's user lacks INSERT, UPDATE, DELETE on fastjobs_slots" in lacks
        assert not any("fastjobs_kinds" in said for said in lacks)
        assert len(lacks) == 5
    finally:
        mysql_database.execute("DROP USER bare")


@pytest.mark.usefixtures("sees")
async def test_a_transaction_that_is_open_for_long_is_named(
    store: SQLStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert of(await store.examine(["mail"]), "purge") == [(Level.OK, "no transaction is open for 10 minutes")]
    monkeypatch.setattr(doctor_tables, "_OPEN_FOR", -60)
    forgotten = database.server.connect(database.name)
    with forgotten.cursor() as cursor:
        cursor.execute("SELECT CONNECTION_ID()")
        ((pid,),) = cursor.fetchall()
        cursor.execute("BEGIN")
        cursor.execute("SELECT * FROM fastjobs_jobs")
        said = None
        # The server tells what it told a tenth of a second before.
        while said is None:
            told = [said for _, said in of(await store.examine(["mail"]), "purge")]
            said = next((each for each in told if f"id {pid}" in each), None)
        assert "a transaction is open for" in said
        assert "user 'app'" in said
    forgotten.close()


async def test_what_the_user_may_not_see_is_told_and_what_all_may_see_is_looked_at(
    store: SQLStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [each for each in await store.examine(["mail"]) if each.check == "purge"]
    assert [(each.level, each.do.partition(" ON")[0]) for each in found] == [(Level.REMARK, "GRANT PROCESS")]
    monkeypatch.setattr(doctor_tables, "_HISTORY", -1)
    if database.server.family == "mariadb":
        assert of(await store.examine(["mail"]), "purge")[1][0] is Level.WARNING


async def test_kinds_that_wait_are_counted_by_the_servers_clock(store: SQLStore) -> None:
    await store.push([NewJob(kind="report", payload="1", after=-3 * HOUR)] * 3)
    assert of(await store.examine(["mail"]), "unknown kinds") == [
        (
            Level.WARNING,
            "3 jobs wait of kind 'report', which this app has no handler for; the first was due 3 hours ago",
        )
    ]


async def test_kinds_that_are_paused_while_jobs_of_theirs_wait_are_told_of(store: SQLStore) -> None:
    await store.push([NewJob(kind="mail", payload="1")] * 3)
    assert await store.pause("mail", True)
    found = [each for each in await store.examine(["mail"]) if each.check == "paused kinds"]
    assert [(each.level, each.said) for each in found] == [
        (Level.REMARK, "3 jobs wait of kind 'mail', which is paused: none of them runs")
    ]

"""The MariaDB and MySQL servers that other tests stand on: private, never root's, and gone when the run is."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pymysql
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.databases import mysql as databases_mysql
from tests.databases.mysql import Database, Server
from tests.databases.mysql_binaries import FAMILIES, NAMED_BY, Family, find_server
from tests.databases.private import free_port


def test_a_server_runs_and_its_version_is_the_one_that_was_found(mysql_server: Server) -> None:
    [(said,)] = mysql_server.execute("SELECT version()")
    assert said.startswith(".".join(map(str, mysql_server.version)))
    assert ("MariaDB" in said) is (mysql_server.family == "mariadb")


def test_both_families_are_two_servers(mariadb: Server, mysql: Server) -> None:
    assert (mariadb.family, mysql.family) == ("mariadb", "mysql")
    assert mariadb.port != mysql.port


def test_a_server_does_not_run_as_root(mysql_server: Server) -> None:
    owner = (mysql_server.folder / "data").stat().st_uid
    assert owner != 0
    if Path("/proc").is_dir():
        assert Path(f"/proc/{mysql_server.pid}").stat().st_uid == owner


def test_two_servers_at_once_have_their_own_ports_and_folders(
    mysql_server: Server, request: pytest.FixtureRequest
) -> None:
    other: Server = request.getfixturevalue(f"make_{mysql_server.family}")()
    assert other.port != mysql_server.port
    assert other.folder != mysql_server.folder
    other.execute("CREATE DATABASE only_here")
    assert mysql_server.execute("SHOW DATABASES LIKE 'only_here'") == []
    assert other.execute("SHOW DATABASES LIKE 'only_here'") == [("only_here",)]


def test_a_server_comes_back_on_its_port_with_its_rows(make_mysql_server: Callable[..., Server]) -> None:
    server = make_mysql_server(max_connections="20")
    database = server.create_database()
    database.execute("CREATE TABLE one (a int)")
    port, pid = server.port, server.pid
    with contextlib.closing(database.connect()) as open_one, open_one.cursor() as cursor:
        for number in range(50):
            database.execute("INSERT INTO one VALUES (%s)", [number])
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO one VALUES (1000)")
        server.restart("immediate")
    kept = [(number,) for number in range(50)]
    assert (server.port, database.execute("SELECT a FROM one ORDER BY a")) == (port, kept)
    assert server.pid != pid
    assert "Shutdown complete" not in server.log_text()
    server.restart("fast")
    assert "Shutdown complete" in server.log_text()
    assert server.execute("SELECT @@max_connections") == [(20,)]
    assert database.execute("SELECT a FROM one ORDER BY a") == kept
    server.stop("immediate")
    with pytest.raises(pymysql.OperationalError):
        server.execute("SELECT 1")
    server.start()
    server.create_database()


def test_a_commit_is_in_the_log_when_it_is_answered(mysql_server: Server) -> None:
    assert mysql_server.execute("SELECT @@innodb_flush_log_at_trx_commit, @@innodb_doublewrite") in (
        [(1, 1)],
        [(1, "ON")],
    )


def test_a_closed_server_leaves_nothing(make_mysql_server: Callable[..., Server]) -> None:
    server = make_mysql_server()
    pid = server.pid
    server.close()
    assert not server.folder.exists()
    assert not _lives(pid)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_server_that_cannot_start_says_why_and_leaves_nothing(
    family: Family, request: pytest.FixtureRequest
) -> None:
    made: Callable[..., Server] = request.getfixturevalue(f"make_{family}")
    with pytest.raises(RuntimeError, match=r"(?s)didn't start.*no_such_thing"):
        made(no_such_thing="1")


def test_a_port_that_another_has_just_taken_is_not_the_end(
    make_mysql_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        ports = [free_port(), other.getsockname()[1]]
        monkeypatch.setattr(databases_mysql, "free_port", ports.pop)
        server = make_mysql_server()
    assert ports == []
    assert "Address already in use" in server.log_text()
    server.execute("SELECT 1")


def test_a_killed_run_leaves_no_server_and_no_folder(mysql_server: Server) -> None:
    code = (
        "from tests.databases.mysql_binaries import find_server; from tests.databases.mysql import Server\n"
        "import sys; server = Server(find_server(sys.argv[1])); server.start()\n"
        "print(server.pid, server.folder, flush=True); sys.stdin.read()"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", code, mysql_server.family],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    pid, folder = run.stdout.readline().split()
    assert _lives(int(pid))
    run.send_signal(signal.SIGKILL)
    run.communicate()
    until = time.monotonic() + 20
    while (_lives(int(pid)) or Path(folder).exists()) and time.monotonic() < until:
        time.sleep(0.02)
    assert not _lives(int(pid))
    assert not Path(folder).exists()


def test_the_app_may_do_all_in_its_databases_and_nothing_else(mysql_server: Server) -> None:
    one, named = mysql_server.create_database(), mysql_server.create_database("own_name")
    mysql_server.execute("CREATE DATABASE ownXname; CREATE DATABASE other")
    for database in (one, named):
        with contextlib.closing(database.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE mine (a int)")
            cursor.execute("INSERT INTO mine VALUES (1)")
            for refused in (
                "CREATE DATABASE more",
                "CREATE TABLE other.mine (a int)",
                "CREATE TABLE ownXname.mine (a int)",
                "SET GLOBAL max_connections = 10",
                "SELECT * FROM mysql.user",
                "CREATE USER another",
            ):
                with pytest.raises(pymysql.MySQLError) as caught:
                    cursor.execute(refused)
                # Denied: for a database, a table, a right, or a user.
                assert caught.value.args[0] in (1044, 1142, 1227), caught.value
    for name in ("own_name", "ownXname", "other", one.name):
        mysql_server.drop_database(name)


@pytest.mark.anyio
@pytest.mark.parametrize("driver", ["asyncmy", "aiomysql"])
async def test_an_async_driver_has_all_of_unicode(mysql_database: Database, driver: str) -> None:
    engine = create_async_engine(mysql_database.url(driver))
    async with engine.connect() as connection:
        assert await connection.scalar(text("SELECT :word"), {"word": "ž🐎"}) == "ž🐎"
        assert await connection.scalar(text("SELECT @@character_set_results")) == "utf8mb4"
        assert await connection.scalar(text("SELECT current_user()")) == "app@%"
    await engine.dispose()


def test_the_blocking_driver_has_all_of_unicode(mysql_database: Database) -> None:
    engine = create_engine(mysql_database.url("pymysql"))
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT :word"), {"word": "ž🐎"}) == "ž🐎"
        assert connection.scalar(text("SELECT @@character_set_results")) == "utf8mb4"
    engine.dispose()


def test_an_error_of_a_later_statement_is_raised(mysql_database: Database) -> None:
    assert mysql_database.execute("SELECT 1; SELECT 2 UNION SELECT 3") == [(2,), (3,)]
    with pytest.raises(pymysql.ProgrammingError):
        mysql_database.execute("SELECT 1; SELECT a FROM nowhere")


def test_clear_deletes_all_rows_but_those_of_the_tables_to_keep(mysql_database: Database) -> None:
    mysql_database.execute("CREATE TABLE one (a int PRIMARY KEY); INSERT INTO one VALUES (1)")
    mysql_database.execute(
        "CREATE TABLE `Two``s` (a int REFERENCES one (a)); INSERT INTO `Two``s` VALUES (1)"
    )
    mysql_database.execute("CREATE TABLE fastjobs_schema (a int); INSERT INTO fastjobs_schema VALUES (1)")
    mysql_database.execute("CREATE VIEW seen AS SELECT a FROM fastjobs_schema")
    mysql_database.clear()
    assert mysql_database.execute("SELECT a FROM one UNION SELECT a FROM `Two``s`") == []
    assert mysql_database.execute("SELECT a FROM seen") == [(1,)]


def test_clear_does_not_wait_long_for_one_who_holds_a_row(mysql_database: Database) -> None:
    mysql_database.execute("CREATE TABLE one (a int); INSERT INTO one VALUES (1)")
    with contextlib.closing(mysql_database.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT a FROM one FOR UPDATE")
        with pytest.raises(pymysql.OperationalError, match="Lock wait timeout"):
            mysql_database.clear()
    assert mysql_database.execute("SELECT a FROM one") == [(1,)]


def test_terminate_all_ends_each_connection_to_one_database(mysql_database: Database) -> None:
    with contextlib.closing(mysql_database.connect()) as connection:
        assert mysql_database.terminate_all() == 1
        with connection.cursor() as cursor, pytest.raises(pymysql.OperationalError):
            cursor.execute("SELECT 1")


def test_a_database_is_dropped_whoever_is_in_a_transaction_there(mysql_server: Server) -> None:
    database = mysql_server.create_database()
    database.execute("CREATE TABLE one (a int)")
    with contextlib.closing(database.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT a FROM one")
        database.drop()
    assert (
        mysql_server.execute(
            "SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", [database.name]
        )
        == []
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_a_named_folder_without_a_server_is_refused(
    family: Family, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(NAMED_BY[family], str(tmp_path))
    with pytest.raises(RuntimeError, match=NAMED_BY[family]):
        find_server(family)


def test_a_named_folder_with_the_other_family_is_refused(
    monkeypatch: pytest.MonkeyPatch, mysql_server: Server
) -> None:
    own = mysql_server.family
    other: Family = "mysql" if own == "mariadb" else "mariadb"
    found = find_server(own)
    assert found is not None
    monkeypatch.setenv(NAMED_BY[other], str(found.program.parent))
    with pytest.raises(RuntimeError, match=NAMED_BY[other]):
        find_server(other)
    monkeypatch.setenv(NAMED_BY[own], str(found.program.parent))
    assert find_server(own) == found


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

"""The servers that other tests stand on: private, each with its own port, never root's, and gone when the run is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.databases.binaries import NAMED_BY, find_postgres
from tests.databases.postgres import Database, Server


def test_a_server_runs_and_its_version_is_the_one_that_was_found(postgres: Server) -> None:
    [(number,)] = postgres.execute("SHOW server_version_num")
    assert int(number) // 10000 == postgres.major


def test_an_older_version_is_another_server(postgres: Server, postgres_old: Server) -> None:
    assert postgres_old.major < postgres.major
    assert postgres_old.port != postgres.port
    [(number,)] = postgres_old.execute("SHOW server_version_num")
    assert int(number) // 10000 == postgres_old.major


def test_a_server_does_not_run_as_root(postgres: Server) -> None:
    owner = (postgres.folder / "data").stat().st_uid
    assert owner != 0
    if Path("/proc").is_dir():
        assert Path(f"/proc/{postgres.pid}").stat().st_uid == owner


def test_two_servers_at_once_have_their_own_ports_and_folders(
    postgres: Server, make_postgres: Callable[..., Server]
) -> None:
    other = make_postgres()
    assert other.port != postgres.port
    assert other.folder != postgres.folder
    other.execute("CREATE DATABASE only_here")
    assert postgres.execute("SELECT 1 FROM pg_database WHERE datname = 'only_here'") == []


def test_a_server_comes_back_on_its_port_with_its_rows(make_postgres: Callable[..., Server]) -> None:
    server = make_postgres(fsync="on", max_connections="20")
    database = server.create_database("kept")
    database.execute("CREATE TABLE one (a int)")
    database.execute("INSERT INTO one VALUES (7)")
    port, pid = server.port, server.pid
    server.restart("immediate")
    assert (server.port, database.execute("SELECT a FROM one")) == (port, [(7,)])
    assert server.pid != pid
    server.restart("fast")
    assert server.execute("SHOW max_connections") == [("20",)]
    assert server.execute("SHOW fsync") == [("on",)]
    server.stop("immediate")
    with pytest.raises(psycopg.OperationalError):
        server.execute("SELECT 1")
    server.start()
    assert "interrupted" in server.log_text()


def test_a_closed_server_leaves_nothing(make_postgres: Callable[..., Server]) -> None:
    server = make_postgres()
    pid = server.pid
    server.close()
    assert not server.folder.exists()
    assert not _lives(pid)


def test_a_server_that_cannot_start_says_why_and_leaves_nothing(postgres: Server) -> None:
    server = Server(find_postgres()[0], {"max_connections": "none"})
    with pytest.raises(RuntimeError, match=r"(?s)didn't start.*max_connections"), server:
        raise AssertionError("it started")
    assert not server.folder.exists()


def test_a_killed_run_leaves_no_server_and_no_folder(postgres: Server) -> None:
    code = (
        "from tests.databases.fixtures import _found; from tests.databases.postgres import Server; import sys\n"
        "server = Server(_found()[0]); server.start()\n"
        "print(server.pid, server.folder, flush=True); sys.stdin.read()"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", code],
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


def test_the_app_is_no_superuser_and_owns_its_database(postgres_database: Database) -> None:
    with psycopg.connect(postgres_database.url()) as connection:
        connection.execute("CREATE TABLE mine (a int)")
        found = connection.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").fetchone()
    assert found == (False,)


def test_a_database_can_be_a_copy_of_another(postgres: Server, postgres_database: Database) -> None:
    postgres_database.execute("CREATE TABLE one AS SELECT 1 AS a")
    copy = postgres.create_database(template=postgres_database.name)
    assert copy.execute("SELECT a FROM one") == [(1,)]
    copy.drop()


def test_clear_deletes_all_rows_but_those_of_the_tables_to_keep(postgres_database: Database) -> None:
    postgres_database.execute("CREATE SCHEMA other")
    for table in ("public.one", 'other."Two"', "fastjobs_schema"):
        postgres_database.execute(f"CREATE TABLE {table} AS SELECT 1 AS a")
    postgres_database.clear()
    assert postgres_database.execute('SELECT a FROM one UNION SELECT a FROM other."Two"') == []
    assert postgres_database.execute("SELECT a FROM fastjobs_schema") == [(1,)]


def test_terminate_all_ends_each_connection_to_one_database(postgres_database: Database) -> None:
    with psycopg.connect(postgres_database.url(), autocommit=True) as connection:
        assert postgres_database.terminate_all() == 1
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


def test_a_named_folder_without_postgres_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(NAMED_BY, str(tmp_path))
    with pytest.raises(RuntimeError, match=NAMED_BY):
        find_postgres()


def test_a_named_postgres_is_the_primary_one(monkeypatch: pytest.MonkeyPatch, postgres_old: Server) -> None:
    old = find_postgres()[-1]
    monkeypatch.setenv(NAMED_BY, str(old.folder))
    found = find_postgres()
    assert found[0].major == old.major
    assert len({each.major for each in found}) == len(found)


@pytest.mark.skipif(
    os.name == "nt" or os.geteuid() != 0, reason="a plain user lacks what root alone can't share"
)
def test_a_wheel_that_only_root_may_read_is_copied(postgres: Server, tmp_path: Path) -> None:
    wheel = next((each for each in find_postgres() if each.wheel is not None), None)
    if wheel is None:
        pytest.skip("this machine lacks the wheel with Postgres")
    hidden = wheel.copied(tmp_path / "venv")
    tmp_path.chmod(0o700)
    with Server(hidden) as server:
        assert server.execute("SELECT 1") == [(1,)]
        assert (server.folder / "install").is_dir()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

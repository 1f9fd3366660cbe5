"""The servers as fixtures. Each is started when a test first asks for it, and stopped when the run ends."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.databases import mysql, mysql_binaries
from tests.databases.binaries import ABSENT, Binaries, find_postgres
from tests.databases.mysql_binaries import FAMILIES, Family
from tests.databases.pgbouncer import PgBouncer, find_pgbouncer
from tests.databases.postgres import Database, Server

_missing: list[str] = []
"""What the end of the run says loudly."""


@functools.cache
def _found() -> list[Binaries]:
    return find_postgres()


@functools.cache
def _found_mysql(family: Family) -> mysql_binaries.Binaries:
    found = mysql_binaries.find_server(family)
    if found is None:
        absent = mysql_binaries.ABSENT[family]
        _miss(f"NOTHING WAS TESTED ON {mysql_binaries.TITLES[family].upper()}: {absent}", absent)
    return found


def _miss(line: str, reason: str) -> NoReturn:
    if line not in _missing:
        _missing.append(line)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The newest Postgres that is found. A test that stops it, or sets something for all, uses `make_postgres`."""
    if not _found():
        _miss(f"NOTHING WAS TESTED ON POSTGRES: {ABSENT}", ABSENT)
    with Server(_found()[0]) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_old() -> Iterator[Server]:
    """The oldest other major version that is found. Where there is but one, a skip that CI allows."""
    if len(_found()) < 2:
        line = "Only one version of Postgres was found: nothing was tested on an older one."
        _miss(line, "this machine lacks an older Postgres")
    with Server(_found()[-1]) as server:
        yield server


@pytest.fixture
def make_postgres() -> Iterator[Callable[..., Server]]:
    """Makes a server of a test's own, to be stopped or set up otherwise: `make_postgres(fsync="on")`."""
    made: list[Server] = []

    def make(**settings: str) -> Server:
        if not _found():
            _miss(f"NOTHING WAS TESTED ON POSTGRES: {ABSENT}", ABSENT)
        server = Server(_found()[0], settings)
        made.append(server)
        server.start()
        return server

    yield make
    for server in made:
        server.close()


@pytest.fixture
def postgres_database(postgres: Server) -> Iterator[Database]:
    """A new, empty database for each test."""
    database = postgres.create_database()
    yield database
    database.drop()


@pytest.fixture(scope="module")
def postgres_module_database(postgres: Server) -> Iterator[Database]:
    """One database for a module, empty at first. `clear` it before each test: it's much faster than a new one."""
    database = postgres.create_database()
    yield database
    database.drop()


@pytest.fixture(scope="session")
def pgbouncer(postgres: Server) -> Iterator[PgBouncer]:
    """PgBouncer in transaction mode before `postgres`. Where it isn't installed, a skip that CI allows."""
    program = find_pgbouncer()
    if program is None:
        line = "PgBouncer was not found: nothing was tested behind it. Debian's package is `pgbouncer`."
        _miss(line, "this machine lacks PgBouncer")
    with PgBouncer(program, postgres) as bouncer:
        yield bouncer


@pytest.fixture(scope="session")
def mysql_made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a new server's data is kept, for the next one to copy."""
    folder = tmp_path_factory.mktemp("made")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def mariadb(mysql_made: Path) -> Iterator[mysql.Server]:
    """MariaDB. A test that stops it, or sets something for all, uses `make_mariadb`."""
    with _mysql_server("mariadb", mysql_made) as server:
        yield server


# Not called as its module is, which is imported here.
@pytest.fixture(scope="session", name="mysql")
def mysql_fixture(mysql_made: Path) -> Iterator[mysql.Server]:
    """MySQL. Where it isn't found, a skip that CI allows. A test that stops it uses `make_mysql`."""
    with _mysql_server("mysql", mysql_made) as server:
        yield server


@pytest.fixture
def make_mariadb(mysql_made: Path) -> Iterator[Callable[..., mysql.Server]]:
    """Makes a server of a test's own: `make_mariadb(max_connections="20")`."""
    yield from _maker("mariadb", mysql_made)


@pytest.fixture
def make_mysql(mysql_made: Path) -> Iterator[Callable[..., mysql.Server]]:
    """Makes a server of a test's own: `make_mysql(max_connections="20")`."""
    yield from _maker("mysql", mysql_made)


@pytest.fixture(params=FAMILIES)
def make_mysql_server(
    request: pytest.FixtureRequest, mysql_made: Path
) -> Iterator[Callable[..., mysql.Server]]:
    """Makes a server of a test's own, once of each family."""
    yield from _maker(request.param, mysql_made)


def _mysql_server(family: Family, kept: Path, settings: Mapping[str, str] | None = None) -> mysql.Server:
    return mysql.Server(_found_mysql(family), settings, made=kept / family)


def _maker(family: Family, kept: Path) -> Iterator[Callable[..., mysql.Server]]:
    made: list[mysql.Server] = []

    def make(**settings: str) -> mysql.Server:
        server = _mysql_server(family, kept, settings)
        made.append(server)
        server.start()
        return server

    yield make
    for server in made:
        server.close()


@pytest.fixture(scope="session", params=FAMILIES)
def mysql_server(request: pytest.FixtureRequest) -> mysql.Server:
    """MariaDB, and then MySQL: a test that asks for it is run on both."""
    server: mysql.Server = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def mysql_database(mysql_server: mysql.Server) -> Iterator[mysql.Database]:
    """A new, empty database for each test, on both servers."""
    database = mysql_server.create_database()
    yield database
    database.drop()


@pytest.fixture(scope="module")
def mysql_module_database(mysql_server: mysql.Server) -> Iterator[mysql.Database]:
    """One database on each server for a module, empty at first. `clear` it before each test."""
    database = mysql_server.create_database()
    yield database
    database.drop()


def pytest_sessionfinish(session: pytest.Session) -> None:
    # Of several processes each knows what it missed, and the first one says it.
    told: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if told is not None:
        told["missing_databases"] = _missing


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    told: dict[str, Any] = getattr(node, "workeroutput", {})
    _missing.extend(line for line in told.get("missing_databases", ()) if line not in _missing)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _missing:
        terminalreporter.section("databases", sep="!", red=True)
    for line in _missing:
        terminalreporter.write_line(line, red=True)

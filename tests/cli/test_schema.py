"""`fastjobs schema`: what it prints is run by the databases' own tools, and then the store has nothing left to make."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Engine, create_engine

from fastjobs.cli.command import main
from fastjobs.core.claiming import Claimable
from fastjobs.core.errors import StoreError
from fastjobs.core.job import NewJob
from fastjobs.core.marks import Done, Kept
from fastjobs.stores.sql.store import SQLStore
from tests.databases import mysql
from tests.databases.postgres import Database

pytestmark = pytest.mark.anyio

APP = """
import fastjobs
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
q = fastjobs.Queue(fastjobs.SQLStore(create_async_engine("sqlite+aiosqlite:///app.db"), prefix="mail_"))
servers = fastjobs.Queue(fastjobs.SQLStore(create_engine("postgresql+psycopg://app@nowhere/app"), schema="jobs"))
maria = fastjobs.Queue(fastjobs.SQLStore(create_engine("mariadb+pymysql://app@nowhere/app"), schema="jobs"))
memory = fastjobs.Queue(fastjobs.Memory())
late = fastjobs.Queue()
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the app, which is the current one."""
    (tmp_path / "shop_of_schemas.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "shop_of_schemas", raising=False)
    return tmp_path


async def works(engine: Engine, *, prefix: str, schema: str | None = None) -> None:
    """A store that may not make tables opens, and runs a job; one that may has nothing to do."""
    store = SQLStore(engine, migrate=False, prefix=prefix, schema=schema)
    await store.open(["mail"])
    (id,) = await store.push([NewJob(kind="mail", payload='{"user":1}')])
    (job,) = (await store.claim([Claimable(kind="mail", hold=60_000_000, attempts=5)], 5)).jobs
    assert job.id == id
    assert await store.mark([Done(job.id, job.claim)]) == [Kept.YES]
    await store.close()
    may = SQLStore(engine, prefix=prefix, schema=schema)
    await may.open()
    await may.close()
    found = await store.examine(["mail"])
    assert [
        each.said
        for each in found
        if each.check in ("tables", "columns", "functions", "plan") and each.level != "ok"
    ] == []
    engine.dispose()


async def test_what_it_prints_for_sqlite_makes_all_that_a_store_needs(
    app: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert main(["schema", "shop_of_schemas:q"]) == 0
    script = capsys.readouterr().out
    assert list(app.glob("app.db*")) == [], "it connects to nothing"
    engine = create_engine(f"sqlite:///{app / 'app.db'}")
    with pytest.raises(StoreError, match="run what `fastjobs schema` prints"):
        await SQLStore(engine, migrate=False, prefix="mail_").open()
    if tool := shutil.which("sqlite3"):
        subprocess.run([tool, "-bail", "app.db"], input=script, text=True, check=True, cwd=app, timeout=30)
        again = subprocess.run(
            [tool, "-bail", "app.db"], input=script, text=True, cwd=app, capture_output=True, timeout=30
        )
        assert again.returncode != 0
        assert "mail_jobs already exists" in again.stderr
    else:
        connection = sqlite3.connect("app.db")
        connection.executescript(script)
        connection.close()
    await works(engine, prefix="mail_")
    assert "made the tables" not in caplog.text


@pytest.mark.parametrize("schema", [None, "jobs"])
async def test_what_it_prints_for_postgres_makes_all_that_a_store_needs(
    schema: str | None,
    postgres_database: Database,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    words = ["schema", "--dialect", "postgresql", "--prefix", "mail_"]
    if schema is not None:
        postgres_database.execute("CREATE SCHEMA jobs AUTHORIZATION app")
        words += ["--schema", schema]
    assert main(words) == 0
    script = capsys.readouterr().out
    url = postgres_database.url()
    if tool := shutil.which("psql"):
        run = [tool, "-X", "-q", "-v", "ON_ERROR_STOP=1", url]
        subprocess.run(run, input=script, text=True, check=True, timeout=30)
        again = subprocess.run(run, input=script, text=True, capture_output=True, timeout=30)
        assert again.returncode != 0
        assert "already exists" in again.stderr
    else:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(script.encode())
    engine = create_engine(postgres_database.url("psycopg"))
    await works(engine, prefix="mail_", schema=schema)
    assert "made the tables" not in caplog.text


@pytest.mark.parametrize("schema", [None, "test_jobs"])
async def test_what_it_prints_for_mysql_makes_all_that_a_store_needs(
    schema: str | None,
    mysql_database: mysql.Database,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    server, name = mysql_database.server, mysql_database.name
    words = ["schema", "--dialect", server.family, "--prefix", "mail_"]
    if schema is not None:
        server.create_database(schema)
        words += ["--schema", schema]
    assert main(words) == 0
    script = capsys.readouterr().out
    if tool := shutil.which("mariadb") or shutil.which("mysql"):
        run = [
            tool,
            "--no-defaults",
            "--protocol=tcp",
            f"--port={server.port}",
            "--host=127.0.0.1",
            "--user=app",
            name,
        ]
        subprocess.run(run, input=script, text=True, check=True, timeout=30)
        again = subprocess.run(run, input=script, text=True, capture_output=True, timeout=30)
        assert again.returncode != 0
        assert "already exists" in again.stderr
    else:
        mysql_database.execute(script)
    engine = create_engine(mysql_database.url("pymysql").replace("mysql", server.family, 1))
    try:
        await works(engine, prefix="mail_", schema=schema)
        assert "made the tables" not in caplog.text
    finally:
        if schema is not None:
            server.drop_database(schema)


@pytest.mark.usefixtures("app")
def test_a_store_says_its_own_database_prefix_and_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "shop_of_schemas:servers"]) == 0
    told = capsys.readouterr().out
    assert "CREATE TABLE jobs.fastjobs_jobs" in told
    assert "CREATE FUNCTION" in told
    assert main(["schema", "--dialect", "postgresql", "--schema", "jobs"]) == 0
    assert capsys.readouterr().out == told
    assert main(["schema", "shop_of_schemas:maria"]) == 0
    told = capsys.readouterr().out
    assert "CREATE TABLE jobs.fastjobs_jobs" in told
    assert "GENERATED ALWAYS AS" in told
    assert main(["schema", "--dialect", "mariadb", "--schema", "jobs"]) == 0
    assert capsys.readouterr().out == told


@pytest.mark.usefixtures("app")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["shop_of_schemas:memory"],
            "shop_of_schemas:memory keeps its jobs in a Memory, and this is about an SQLStore",
        ),
        (["shop_of_schemas:late"], "shop_of_schemas:late has no store yet: name a queue that has one"),
        (["--prefix", "a_"], "--prefix and --schema go with --dialect"),
        (["shop_of_schemas:q", "--dialect", "sqlite"], "name a queue or a --dialect, not both"),
        (
            ["--dialect", "oracle"],
            "there are tables for mariadb, mysql, postgresql, sqlite, and none for 'oracle'",
        ),
        (["--dialect", "sqlite", "--schema", "jobs"], "SQLite has no schemas"),
        (["--dialect", "sqlite", "--prefix", "Mail-"], "a prefix is 1 to 31 of a-z"),
    ],
)
def test_what_has_no_schema_is_told_with_2(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schema", *words]) == 2
    written = capsys.readouterr()
    assert written.err.startswith(f"fastjobs: {told}")
    assert written.out == ""

"""Beside Alembic: its autogenerate proposes nothing for the queue's tables, and a migration of the app's makes them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Column, Engine, Index, Integer, MetaData, String, Table, create_engine, inspect, text

from fastjobs.alembic import include_name, include_name_for
from fastjobs.core.errors import StoreError
from fastjobs.stores.sql.store import SQLStore
from fastjobs.stores.sql.tables import MYSQL
from tests.databases import mysql
from tests.databases.postgres import Database

ROOT = Path(__file__).parent.parent.parent
MIGRATIONS = ROOT / "docs" / "snippets" / "migrations"

MODELS = """
from sqlmodel import Field, SQLModel
class Order(SQLModel, table=True):
    id: int | None = Field(default=None, primary_key=True)
    email: str = Field(index=True, max_length=100)  # MariaDB has no VARCHAR without a length
"""
MAKO = '''"""${message}"""
from alembic import op
import sqlalchemy as sa
import sqlmodel
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
def upgrade():
    ${upgrades if upgrades else "pass"}
def downgrade():
    ${downgrades if downgrades else "pass"}
'''


def app_metadata(schema: str | None = None) -> MetaData:
    metadata = MetaData(schema=schema)
    users = Table("users", metadata, Column("id", Integer, primary_key=True), Column("email", String(100)))
    Index("users_email", users.c.email)
    # The app's own, though its name begins as those of a queue with the prefix "mail_" do.
    Table("mail_templates", metadata, Column("id", Integer, primary_key=True))
    return metadata


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'app.db'}"
    elif request.param == "postgresql":
        database: Database = request.getfixturevalue("postgres_database")
        yield database.url("psycopg")
    else:
        server: mysql.Server = request.getfixturevalue(request.param)
        made = server.create_database()
        yield made.url("pymysql").replace("mysql+", f"{request.param}+", 1)
        made.drop()


def open_once(engine: Engine, **settings: Any) -> None:
    async def main() -> None:
        store = SQLStore(engine, **settings)
        await store.open(["mail"])
        await store.close()

    asyncio.run(main())


def proposed(engine: Engine, metadata: MetaData, **options: Any) -> list[str]:
    """What autogenerate would do."""
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts=options)
        return [str(difference) for difference in compare_metadata(context, metadata)]


@pytest.mark.parametrize("url", ["sqlite", "postgresql", "mariadb", "mysql"], indirect=True)
def test_autogenerate_proposes_nothing_for_the_queues_tables(url: str) -> None:
    engine, metadata = create_engine(url), app_metadata()
    metadata.create_all(engine)
    open_once(engine)
    assert "fastjobs_jobs" in str(proposed(engine, metadata)), "without the filter it drops them"
    assert proposed(engine, metadata, include_name=include_name) == []
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE mail_templates"))
    assert "mail_templates" in str(proposed(engine, metadata, include_name=include_name))
    engine.dispose()


def test_a_queue_of_another_prefix_is_left_out_alone_and_the_apps_own_filter_is_asked_for_the_rest(
    url: str,
) -> None:
    engine, metadata = create_engine(url), app_metadata()
    metadata.create_all(engine)
    open_once(engine)
    open_once(engine, prefix="mail_")
    asked: list[str | None] = []

    def own(name: str | None, type_: str, parents: object) -> bool:
        asked.append(name)
        return True

    assert "mail_jobs" in str(proposed(engine, metadata, include_name=include_name))
    both = include_name_for("mail_", within=include_name_for(within=own))
    assert proposed(engine, metadata, include_name=both) == []
    assert {"users", "mail_templates"} <= set(asked)
    assert not any(name and name.endswith("_jobs") for name in asked)
    assert "mail_templates" in str(proposed(engine, MetaData(), include_name=both))
    engine.dispose()


def test_tables_in_a_schema_are_left_out_where_all_schemas_are_compared(postgres_database: Database) -> None:
    postgres_database.execute("CREATE SCHEMA jobs AUTHORIZATION app")
    postgres_database.execute("CREATE SCHEMA shop AUTHORIZATION app")
    engine, metadata = create_engine(postgres_database.url("psycopg")), app_metadata("shop")
    metadata.create_all(engine)
    open_once(engine, schema="jobs")
    assert "fastjobs_jobs" in str(proposed(engine, metadata, include_schemas=True))
    assert proposed(engine, metadata, include_schemas=True, include_name=include_name) == []
    engine.dispose()


def test_what_cant_be_a_prefix_is_refused() -> None:
    with pytest.raises(StoreError, match="a prefix is 1 to 31"):
        include_name_for("Mail-")


# The pages' own files, run by Alembic.


@pytest.fixture
def project(tmp_path: Path, url: str) -> Path:
    """A folder with the page's env.py, as `alembic init` and the page have one make it."""
    versions = tmp_path / "migrations" / "versions"
    versions.mkdir(parents=True)
    (tmp_path / "alembic.ini").write_text(
        f"[alembic]\nscript_location = migrations\nsqlalchemy.url = {url}\n"
    )
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "migrations" / "script.py.mako").write_text(MAKO)
    page = (MIGRATIONS / "env.py").read_text()
    (tmp_path / "migrations" / "env.py").write_text(f"import models\n{page}")
    return tmp_path


Alembic = Callable[..., str]


@pytest.fixture
def alembic(project: Path) -> Alembic:
    """Runs Alembic's commands in the project's folder, and answers what they print."""

    def run(*commands: str, code: int = 0) -> str:
        program = (
            "import sys; sys.path.insert(0, '.')\n"
            "from alembic import command\nfrom alembic.config import Config\nconfig = Config('alembic.ini')\n"
            + "\n".join(commands)
        )
        ran = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            cwd=project, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True, timeout=50,
        )  # fmt: skip
        assert (ran.returncode != 0) == bool(code), ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    return run


def test_the_pages_env_keeps_autogenerate_empty(alembic: Alembic, url: str) -> None:
    engine = create_engine(url)
    open_once(engine)
    alembic(
        "command.revision(config, 'first', autogenerate=True)",
        "command.upgrade(config, 'head')",
        "command.check(config)",
    )
    assert {"order", "alembic_version", "fastjobs_jobs"} <= set(inspect(engine).get_table_names())
    open_once(engine, migrate=False)
    engine.dispose()


def test_the_pages_migration_makes_the_tables_for_a_store_that_may_not(
    alembic: Alembic, project: Path, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine = create_engine(url)
    migration = project / "migrations" / "versions" / "jobs_tables.py"
    page = (MIGRATIONS / "jobs_tables.py").read_text()
    migration.write_text(page.replace("upgrade(op)\n", "upgrade(op)\n    raise RuntimeError('no more')\n", 1))
    with pytest.raises(StoreError, match="run what `fastjobs schema` prints"):
        open_once(engine, migrate=False)
    assert "no more" in alembic("command.upgrade(config, 'head')", code=1)
    left = [name for name in inspect(engine).get_table_names() if name.startswith("fastjobs_")]
    # On MySQL each statement commits, and the next run of the migration finds them there.
    is_kept = engine.dialect.name in MYSQL
    assert bool(left) == is_kept, "a migration that fails takes them with it"
    migration.write_text(page)
    told = alembic("command.upgrade(config, 'head')", "command.downgrade(config, 'base')")
    alembic("command.upgrade(config, 'head')")  # nothing to do: they're there
    assert "Traceback" not in told
    caplog.set_level("INFO")
    open_once(engine, migrate=False)
    open_once(engine)
    assert "made the tables" not in caplog.text
    engine.dispose()


def test_offline_it_names_what_to_do(alembic: Alembic, project: Path) -> None:
    page = (MIGRATIONS / "jobs_tables.py").read_text()
    (project / "migrations" / "versions" / "jobs_tables.py").write_text(page)
    told = alembic("command.upgrade(config, 'head', sql=True)", code=1)
    assert "put what `fastjobs schema` prints into the script" in told

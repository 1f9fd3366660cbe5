"""Where there is no database server, the run says so: loudly at its end, and in CI as a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ONE = "tests/databases/test_postgres.py::test_a_server_runs_and_its_version_is_the_one_that_was_found"
OLDER = "tests/databases/test_postgres.py::test_an_older_version_is_another_server"
BOUNCER = "tests/databases/test_pgbouncer.py::test_a_database_is_reached_by_way_of_it"
MARIADB = (
    "tests/databases/test_mysql.py::test_a_server_runs_and_its_version_is_the_one_that_was_found[mariadb]"
)
MYSQL = "tests/databases/test_mysql.py::test_a_server_runs_and_its_version_is_the_one_that_was_found[mysql]"

RUN = """
import sys
import pytest
from tests.databases import binaries, mysql_binaries, pgbouncer
find = binaries.find_postgres
binaries.find_postgres = lambda: find()[:int(sys.argv[1])]
pgbouncer.find_pgbouncer = lambda: None
mysql_binaries.find_server = lambda family: None
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""


def run(versions: int, *tests: str, ci: bool) -> subprocess.CompletedProcess[str]:
    """A run of pytest that finds so many versions of Postgres, and no other server."""
    env = {name: value for name, value in os.environ.items() if name not in ("CI", "FASTJOBS_CI")}
    return subprocess.run(
        [sys.executable, "-c", RUN, str(versions), *tests],
        cwd=ROOT,
        env={**env, "CI": "true"} if ci else env,
        capture_output=True,
        text=True,
        timeout=50,
    )


def test_without_a_postgres_a_run_skips_and_says_so_loudly() -> None:
    done = run(0, ONE, ci=False)
    assert done.returncode == 0, done.stdout
    assert "1 skipped" in done.stdout
    assert "NOTHING WAS TESTED ON POSTGRES: no Postgres was found" in done.stdout


def test_without_a_postgres_ci_fails() -> None:
    done = run(0, ONE, ci=True)
    assert done.returncode == 1, done.stdout
    assert "in CI nothing may be skipped" in done.stdout


@pytest.mark.usefixtures("postgres")
def test_without_an_older_version_and_pgbouncer_ci_says_what_was_not_tested_and_passes() -> None:
    done = run(1, OLDER, BOUNCER, ci=True)
    assert done.returncode == 0, done.stdout
    assert "2 skipped" in done.stdout
    assert "Only one version of Postgres was found" in done.stdout
    assert "PgBouncer was not found" in done.stdout


@pytest.mark.parametrize(("test", "name"), [(MARIADB, "MARIADB"), (MYSQL, "MYSQL")], ids=["mariadb", "mysql"])
def test_without_mariadb_or_mysql_a_run_skips_and_says_so_loudly(test: str, name: str) -> None:
    done = run(0, test, ci=False)
    assert done.returncode == 0, done.stdout
    assert "1 skipped" in done.stdout
    assert f"NOTHING WAS TESTED ON {name}: " in done.stdout


def test_without_mariadb_ci_fails() -> None:
    done = run(0, MARIADB, ci=True)
    assert done.returncode == 1, done.stdout
    assert "in CI nothing may be skipped" in done.stdout


def test_without_mysql_ci_says_what_was_not_tested_and_passes() -> None:
    done = run(0, MYSQL, ci=True)
    assert done.returncode == 0, done.stdout
    assert "1 skipped" in done.stdout
    assert "NOTHING WAS TESTED ON MYSQL: this machine lacks MySQL" in done.stdout


def test_what_is_absent_is_said_once_by_a_run_of_several_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "without_mysql.py").write_text(
        "from tests.databases import mysql_binaries\nmysql_binaries.find_server = lambda family: None\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    done = run(0, "-p", "without_mysql", "-n", "2", "--dist", "load", MARIADB, MYSQL, ci=False)
    assert done.returncode == 0, done.stdout
    assert "2 skipped" in done.stdout
    assert done.stdout.count("NOTHING WAS TESTED ON MARIADB") == 1
    assert done.stdout.count("NOTHING WAS TESTED ON MYSQL") == 1

"""Runs the benchmarks, one contestant after another, round by round, and prints what was seen.

    python -m tests.benchmarks [cron carrying drain … pg-drain …] [--database postgres] [--rounds 5] [--folder FOLDER]

With no names, every table of each database; with --database, its own, whose names may then leave `pg-` out.
Trust the ratios, which are taken within each round, rather than the rates: other work on the machine moves these.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import __version__ as sqlalchemy_version

import fastjobs
from tests.benchmarks import no_database, sqlite_tables
from tests.benchmarks.frame import Ground, Table, run_table
from tests.benchmarks.mysql import tables as mysql_tables
from tests.benchmarks.postgres import tables as postgres_tables


@dataclass(frozen=True)
class Database:
    prefix: str
    tables: Mapping[str, Table]
    ground: Callable[[argparse.Namespace], AbstractContextManager[Ground]]


DATABASES = {
    "none": Database("", no_database.TABLES, lambda _: no_database.ground()),
    "sqlite": Database("", sqlite_tables.TABLES, lambda options: sqlite_tables.ground(options.folder)),
    "postgres": Database(
        "pg-",
        postgres_tables.TABLES,
        lambda options: postgres_tables.ground(options.postgres, options.folder),
    ),
    "mariadb": Database(
        "mariadb-", mysql_tables.TABLES, lambda options: mysql_tables.ground("mariadb", options.folder)
    ),
    "mysql": Database(
        "mysql-", mysql_tables.TABLES, lambda options: mysql_tables.ground("mysql", options.folder)
    ),
}


def wanted(names: list[str], database: str | None) -> dict[str, list[str]]:
    """The tables to run, by database. A name that is none ends the program, with those that are."""
    there = {
        its.prefix + name: (each, name)
        for each, its in DATABASES.items()
        if database in (None, each)
        for name in its.tables
    }
    if database:
        names = [name if name in there else DATABASES[database].prefix + name for name in names]
    if missing := [name for name in names if name not in there]:
        raise SystemExit(f"there is no table {', '.join(missing)}; there are {', '.join(there)}")
    chosen: dict[str, list[str]] = {}
    for full in names or there:
        its_database, name = there[full]
        chosen.setdefault(its_database, []).append(name)
    return chosen


def main() -> None:
    options = argparse.ArgumentParser(
        prog="python -m tests.benchmarks", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    options.add_argument("tables", nargs="*", help="which; all by default")
    options.add_argument("--database", choices=DATABASES, help="which; all by default")
    options.add_argument("--rounds", type=int, default=5, help="how often; five by default")
    options.add_argument(
        "--share", type=float, default=1.0, help="of each count, as 0.1, for a quick look; 1 by default"
    )
    options.add_argument(
        "--folder", type=Path, default=Path.cwd(), help="where the databases go: a real disk; here by default"
    )
    options.add_argument(
        "--postgres",
        metavar="URL",
        help="a server to use, postgresql://user@host:port/database, whose user may make databases;\n"
        "by default one is started, with the settings it has by itself",
    )
    chosen = options.parse_args()
    tables = wanted(chosen.tables, chosen.database)
    print(
        f"fastjobs {fastjobs.__version__}, Python {platform.python_version()}, SQLAlchemy {sqlalchemy_version},"
        f" {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start;"
        f" least / median / most of the rounds"
        + ("" if chosen.share == 1 else f"; {chosen.share:g} of each count, whatever a title says")
    )
    for name, names in tables.items():
        database = DATABASES[name]
        with database.ground(chosen) as ground:
            print(f"\n{ground.about}", flush=True)
            for each in names:
                run_table(database.prefix + each, database.tables[each], ground, chosen.rounds, chosen.share)


if __name__ == "__main__":
    main()

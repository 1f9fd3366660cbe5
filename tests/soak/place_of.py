"""Which place a run has, by the name of its database."""

from __future__ import annotations

from pathlib import Path

from tests.databases.mysql_binaries import FAMILIES
from tests.soak.mysql_place import OnMySQL
from tests.soak.places import File, OnServer, ServerPlace

DRIVERS: dict[str, tuple[str, str]] = {
    "postgres": ("asyncpg", "psycopg"),
    "mariadb": ("asyncmy", "aiomysql"),
    "mysql": ("asyncmy", "aiomysql"),
}
"""The async drivers of each server, the usual one first."""


def place_of(database: str, folder: Path, driver: str | None, url: str | None) -> File | ServerPlace:
    """The place for one of the command line's databases."""
    if database == "sqlite":
        return File(folder)
    driver = driver or DRIVERS[database][0]
    for family in FAMILIES:
        if database == family:
            return OnMySQL(family, folder, driver, url)
    return OnServer(folder, driver, url)

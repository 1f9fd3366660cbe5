"""How connections of the store's own are opened: which link an engine has, by its driver."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sqlalchemy import Connection, Engine, text

from fastjobs.core.errors import StoreError
from fastjobs.stores.sql.dialects.mysql.link import AsyncLink, Link, SyncLink

_DRIVERS = ("asyncmy", "aiomysql", "pymysql")


def check_engine(engine: Engine) -> None:
    """Raises a StoreError for an engine whose driver has no link, or whose connections lack characters."""
    driver, charset = engine.dialect.driver, engine.url.query.get("charset", "utf8mb4")
    if driver not in _DRIVERS:
        raise StoreError(
            f"the engine's driver is {driver}, and on MySQL and MariaDB the queue works with asyncmy, aiomysql and"
            " PyMySQL: write mysql+asyncmy://… as its URL, with create_async_engine, or mysql+pymysql://… with"
            " create_engine"
        )
    if charset != "utf8mb4":
        raise StoreError(
            f"the engine's URL has charset={charset}, which lacks most characters: make it charset=utf8mb4"
        )


def link_opener(engine: Engine) -> Callable[[], Awaitable[Link]]:
    """What opens a link for the engine."""

    async def open_link() -> Link:
        return await (AsyncLink.open(engine) if engine.dialect.is_async else SyncLink.open(engine))

    return open_link


def hurry(connection: Connection) -> None:
    """Has the connection wait for no lock for long."""
    connection.execute(text("SET SESSION innodb_lock_wait_timeout = 1, lock_wait_timeout = 2"))


def name_of(connection: Connection) -> str | None:
    """The name of the connection's database."""
    name: str | None = connection.execute(text("SELECT DATABASE()")).scalar_one()
    return name

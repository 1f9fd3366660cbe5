"""How connections of the store's own are opened: which link an engine has, by its driver.

A driver's module is imported once there is an engine that has it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sqlalchemy import Connection, Engine, func, select

from fastjobs.core.errors import StoreError
from fastjobs.stores.sql.dialects.postgres.links import Link


def check_engine(engine: Engine) -> None:
    """Raises a StoreError for an engine whose driver has no link."""
    dialect = engine.dialect
    if dialect.driver in ("psycopg", "psycopg_async") or (dialect.driver == "asyncpg" and dialect.is_async):
        return
    raise StoreError(
        f"the engine's driver is {dialect.driver}, and on Postgres the queue works with asyncpg and psycopg 3: write"
        " postgresql+asyncpg://… or postgresql+psycopg://… as its URL, with create_async_engine, or the latter with"
        " create_engine"
    )


def link_opener(engine: Engine) -> Callable[[], Awaitable[Link]]:
    """What opens a link for the engine."""

    async def open_link() -> Link:
        if engine.dialect.driver == "asyncpg":
            from fastjobs.stores.sql.dialects.postgres.asyncpg_link import AsyncpgLink

            return await AsyncpgLink.open(engine)
        from fastjobs.stores.sql.dialects.postgres import psycopg_link

        if engine.dialect.is_async:
            return await psycopg_link.AsyncPsycopgLink.open(engine)
        return await psycopg_link.SyncPsycopgLink.open(engine)

    return open_link


def hurry(connection: Connection) -> None:
    """Has the transaction wait for no lock for long."""
    connection.execute(select(func.set_config("lock_timeout", "200ms", True)))

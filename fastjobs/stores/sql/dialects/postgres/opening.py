"""How connections of the store's own are opened: which link an engine has, by its driver, and one for a moment.

A driver's module is imported once there is an engine that has it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from sqlalchemy import Connection, Engine, func, select

from fastjobs.core.errors import StoreError
from fastjobs.stores.sql.dialects.postgres.links import Link, Opened

log = logging.getLogger("fastjobs")


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


def aside(engine: Engine, beside: Connection, work: Callable[[Connection], object]) -> bool:
    """Does the work by a connection that is opened for it and closed, `beside` one of the app's that is in use here.

    It answers whether the work is committed. That may fail in many ways, so what calls it can do without.
    """

    def soon(connection: Connection) -> None:
        # What it may wait for may be a transaction that waits for this to be done.
        connection.execute(select(func.set_config("lock_timeout", "200ms", True)))
        work(connection)

    if engine.dialect.is_async and not beside.dialect.is_async:
        return False  # there is no loop here that an async driver could connect on
    try:
        opened = Opened(engine)
    except Exception:
        log.debug("no connection of the queue's own could be had beside the app's", exc_info=True)
        return False
    try:
        opened.in_transaction(soon)
    except Exception:
        log.debug("what was to be done beside the app's transaction is done in it", exc_info=True)
        return False
    finally:
        opened.close()
    return True

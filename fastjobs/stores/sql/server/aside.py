"""A connection of the store's own for a moment, beside one of the app's that is in use."""

from __future__ import annotations

import logging
from collections.abc import Callable

from sqlalchemy import Connection, Engine

from fastjobs.stores.sql.server.link import Opened

log = logging.getLogger("fastjobs")


def aside(
    engine: Engine,
    beside: Connection,
    work: Callable[[Connection], object],
    hurry: Callable[[Connection], object],
) -> bool:
    """Does the work by a connection that is opened for it and closed, `beside` one of the app's that is in use here.

    `hurry` is to have it wait for no lock for long: what it may wait for may be a transaction that waits for this to be
    done. It answers whether the work is committed. That may fail in many ways, so what calls it can do without.
    """

    def soon(connection: Connection) -> None:
        hurry(connection)
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

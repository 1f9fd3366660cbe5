"""A Metered of a Postgres server."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from tests.benchmarks.metered import Found, Metered, stat

__all__ = ["Found", "Metered", "asyncpg", "connect", "metered"]

asyncpg: Any = importlib.import_module("asyncpg")
"""It has no types, so what is made of it is an Any."""


async def connect(url: str) -> Any:
    """A connection of asyncpg's."""
    return await asyncpg.connect(url)


async def metered(connection: Any) -> Metered:
    """A Metered of the server that this connection is to."""
    backend = await connection.fetchval("SELECT pg_backend_pid()")
    try:
        if not Path(f"/proc/{backend}/comm").read_text().startswith("postgres"):
            return Metered(None)
    except OSError:
        return Metered(None)
    return Metered(stat(backend)[0])

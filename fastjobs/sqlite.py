"""SQLite beside the app: `configure(engine)`."""

from __future__ import annotations

from fastjobs.stores.sql.dialects.sqlite.begin import configure

__all__ = ["configure"]

"""Beside Alembic: `include_name` for env.py, and `upgrade` for a migration that makes the queue's tables."""

from __future__ import annotations

from fastjobs.stores.sql.beside_alembic import include_name, include_name_for, upgrade

__all__ = ["include_name", "include_name_for", "upgrade"]

"""What a function of the database's is: its name, and the statement that makes it."""

from __future__ import annotations

from typing import NamedTuple

VERSION = 1
"""The version of the tables that made these functions."""


class Function(NamedTuple):
    """A function of the database's."""

    name: str
    """Quoted, and in its schema."""
    create: str

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


_NESTED = "SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off"
_ONCE = "SET plan_cache_mode = force_generic_plan SET jit = off"


def pinned(name: str, create: str) -> Function:
    """A function whose plans are pinned: `{nested}` in its text stands for nested loops over indexes and nothing else,
    and `{once}` for plans that are made once."""
    return Function(name, create.replace("{nested}", _NESTED).replace("{once}", _ONCE))

"""Tells which statements only read, so that a transaction that begins at its first write need not begin for them.

Whatever isn't known to read counts as a write: a transaction that begins too early only waits, and one that begins
too late would lose what it promises.
"""

from __future__ import annotations

import re
from typing import Any

_FIRST_WORD = re.compile(r"(?>\s++|--[^\n]*+|/\*.*?\*/)*+([a-z]++)", re.IGNORECASE | re.DOTALL)
_PRAGMA = re.compile(r"\s*+(?:[a-z_]++\s*+\.\s*+)?([a-z_]++)\s*+(?:(\()|;?\s*+\Z)", re.IGNORECASE)
_CHANGES = frozenset({"incremental_vacuum", "optimize"})
"""Pragmas that write though they're given no value."""
_ASKS = frozenset(
    {
        "foreign_key_check",
        "foreign_key_list",
        "index_info",
        "index_list",
        "index_xinfo",
        "integrity_check",
        "quick_check",
        "table_info",
        "table_list",
        "table_xinfo",
        "wal_checkpoint",  # moves what's committed already, and is refused inside a transaction
    }
)
"""Pragmas whose argument in parentheses is a question, and no new value."""


def only_reads(statement: str, context: Any = None) -> bool:
    """Whether the statement needs no transaction. A SELECT … FOR UPDATE does: SQLite's dialect drops these words, and
    what they ask for is the turn to write.

    `context` is SQLAlchemy's ExecutionContext; None for a statement of which only the text is known.
    """
    if context is not None and (context.isinsert or context.isupdate or context.isdelete or context.isddl):
        return False
    found = _FIRST_WORD.match(statement)
    word = found[1].upper() if found is not None else ""
    compiled = None if context is None else context.compiled
    match word:
        case "SELECT":
            return getattr(getattr(compiled, "statement", None), "_for_update_arg", None) is None
        case "WITH":
            if compiled is None or compiled.isplaintext:
                return False
            return getattr(compiled.statement, "_for_update_arg", None) is None
        case "VALUES" | "EXPLAIN":
            return True
        case "PRAGMA":
            assert found is not None
            return _asks(statement, found.end())
        case _:
            return False


def _asks(statement: str, after: int) -> bool:
    found = _PRAGMA.match(statement, after)
    if found is None:
        return False
    name = found[1].lower()
    return name in _ASKS if found[2] else name not in _CHANGES

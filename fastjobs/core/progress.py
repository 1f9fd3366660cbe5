"""What a handler may report of how far it is."""

from __future__ import annotations

import json
from typing import Any

from fastjobs.core.errors import PayloadError

MOST_BYTES = 1024


def progress_text(value: object, kind: str) -> str:
    """The value as ASCII JSON text; a PayloadError for what is none, or too long. The value is not in its message."""
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
        if "\\ud" in text:  # a pair of surrogates, or half of one, which no response to a client can have
            _check(json.loads(text))
    except (TypeError, ValueError, RecursionError) as bad:
        raise PayloadError(
            f"kind {kind!r}: progress() takes a JSON value (dicts, lists, strings, finite numbers, booleans, None), and"
            f" this {type(value).__name__} is none: {type(bad).__name__}",
            kind=kind,
        ) from None
    if len(text) > MOST_BYTES:
        raise PayloadError(
            f"kind {kind!r}: progress() takes at most {MOST_BYTES} bytes as JSON, and this {type(value).__name__} has"
            f" {len(text)}",
            kind=kind,
        )
    return text


def progress_value(text: str | None) -> Any | None:
    """The value of what was reported; None for what no response to a client could have, as NaN or half a character.

    It has been in the database, where anyone may have written.
    """
    if text is None:
        return None
    try:
        return _check(json.loads(text))
    except (ValueError, RecursionError):
        return None


def _check(value: Any) -> Any:
    """The value; a ValueError where a JSON response can't have it."""
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    return value

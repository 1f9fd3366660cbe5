"""What a handler may report of how far it is."""

from __future__ import annotations

import json

from fastjobs.core.errors import PayloadError

MOST_BYTES = 1024


def progress_text(value: object, kind: str) -> str:
    """The value as ASCII JSON text; a PayloadError for what is none, or too long. The value is not in its message."""
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
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

"""What a job carries from where it's pushed to where it runs: a few short strings, by name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, MutableMapping
from typing import Any, Protocol, cast

from fastjobs.core.errors import CarryError

MOST_BYTES = 4096
MOST_NAMES = 32
_NAME = re.compile(r"[a-z0-9_.-]{1,64}\Z", re.ASCII)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class Carrier(Protocol):
    """Takes something from the context a job is pushed in and gives it back to the context it runs in.

    The context is Python's own: both methods read or set context variables. Each run has a fresh context, so
    nothing needs undoing. No token or password belongs in it: it's kept in the database beside the job.
    """

    def carry(self, into: MutableMapping[str, str]) -> None:
        """Puts what it takes from the current context in `into`, by names of its own ([a-z0-9_.-], 64 at most)."""
        ...

    def restore(self, carried: Mapping[str, str]) -> None:
        """Sets what `carried` has of it in the current context. It has been in the database: check it as a header."""
        ...


def packed(carried: Mapping[str, str]) -> str | None:
    """What is carried, as ASCII JSON text; None for nothing. A CarryError says what is over a limit."""
    if not carried:
        return None
    if len(carried) > MOST_NAMES:
        raise CarryError(
            f"a job carries at most {MOST_NAMES} names, and this push would carry {len(carried)}"
        )
    for name, value in carried.items():
        if not isinstance(name, str) or not _NAME.match(name):
            raise CarryError(f"a carried name is 1 to 64 of a-z 0-9 _ . -, and {name!r:.80} is none")
        if not isinstance(value, str):
            raise CarryError(f"carried {name!r} is a string, not a {type(value).__name__}")
        if _CONTROL.search(value):
            raise CarryError(f"carried {name!r} has control characters, as no header may")
    text = json.dumps(dict(carried), separators=(",", ":"))
    if len(text) > MOST_BYTES:
        raise CarryError(
            f"a job carries at most {MOST_BYTES} bytes as JSON, and this push would carry {len(text)}"
        )
    return text


def unpacked(text: str | None) -> dict[str, str]:
    """What was carried, as far as it's sound: it has been in the database, where anyone may have written."""
    if not text or len(text) > MOST_BYTES:
        return {}
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict) or len(cast("dict[str, Any]", found)) > MOST_NAMES:
        return {}
    return {
        name: value
        for name, value in cast("dict[str, Any]", found).items()
        if _NAME.match(name) and isinstance(value, str) and not _CONTROL.search(value)
    }

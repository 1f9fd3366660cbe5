"""The trace that a job's push was a part of, read from what the job carried; nothing here needs OpenTelemetry."""

from __future__ import annotations

import re
from collections.abc import Mapping

NAME = "traceparent"
_PLACE = re.compile(
    r"([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?\Z", re.ASCII
)


def carried_trace(carried: Mapping[str, str]) -> str | None:
    """The trace's id, 32 digits, if it is one: it has been in the database, where anyone may have written."""
    found = _PLACE.match(carried.get(NAME, ""))
    # By https://www.w3.org/TR/trace-context/: a version after 00 may say more behind its flags, and ff is none.
    if found is None or found[1] == "ff" or (found[1] == "00" and found[3] is not None):
        return None
    return found[2]

"""What `fastjobs doctor` looks at on any database server."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, text

from fastjobs.core.duration import SECOND
from fastjobs.stores.sql.inspecting import Asked, Finding, Level


def compare_clocks(connection: Connection, asked: Asked, ask: str) -> Iterable[Finding]:
    """Compares the server's clock, which `ask` tells in microseconds, with this machine's."""
    before = asked.clock.monotonic()
    server = connection.scalar(text(ask)) or 0
    half = (asked.clock.monotonic() - before) / 2
    ahead = (server - asked.clock.now()) / SECOND + half
    if abs(ahead) <= 1:
        yield Finding(Level.OK, "clock", f"the server's is {abs(ahead):.3f} s off this machine's")
        return
    way = "ahead of" if ahead > 0 else "behind"
    yield Finding(
        Level.WARNING,
        "clock",
        f"the server's clock is {abs(ahead):.1f} s {way} this machine's: the queue goes by the server's, so a job"
        " that is pushed at= a time of this machine's runs that much early or late",
        "have both set by NTP",
    )

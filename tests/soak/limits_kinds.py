"""The kinds whose limits are hammered, and what each promises. The processes and the checker both go by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import fastjobs
from fastjobs.core.options import KindSettings
from tests.soak.kinds import Work

POLL = 0.2
"""How often a process asks for jobs, in seconds."""
KEYS = 3
"""How many values there are of each kind that has a key."""
ATTEMPTS = 10_000


class Rate(NamedTuple):
    """At most so many starts in any so many microseconds."""

    most: int
    per: int
    by_ref: bool = False
    """For each value, rather than for the kind."""


AT_ONCE: Mapping[str, int] = {"three": 3, "one": 1, "all": 2}
ALONE = frozenset({"turn", "latest", "all"})
"""No two jobs of one value are held at once."""
UNIQUE = ALONE | {"unique"}
"""One job waits for each value."""
RATES: Mapping[str, Rate] = {
    "paced": Rate(10, 500_000),
    "each": Rate(6, 1_000_000, by_ref=True),
    "all": Rate(12, 1_000_000),
}
FIRST = frozenset({"three", "one", "turn", "latest"})
"""Kinds that no rate keeps: how soon the place of a killed process is free is told by these."""
KINDS = ("plain", "three", "one", "turn", "latest", "unique", "paced", "each", "all", "named")


def _throttle(kind: str, by: Callable[[Work], str] | None = None) -> fastjobs.Throttle:
    rate = RATES[kind]
    return fastjobs.Throttle(rate.most, per=rate.per / 1e6, by=by)


SETTINGS: Mapping[str, KindSettings] = {
    "plain": {},
    "three": {"at_once": AT_ONCE["three"]},
    "one": {"at_once": AT_ONCE["one"]},
    "turn": {"unique": fastjobs.Unique(one_at_a_time=True)},
    "latest": {"unique": fastjobs.Unique(latest=True, one_at_a_time=True, at_most=1)},
    "unique": {"unique": True},
    "paced": {"rate": _throttle("paced")},
    "each": {"rate": _throttle("each", by=lambda work: work.ref.partition("-")[0])},
    "all": {
        "unique": fastjobs.Unique(one_at_a_time=True),
        "at_once": AT_ONCE["all"],
        "rate": _throttle("all"),
    },
    "named": {"keep_name": 3600},
}

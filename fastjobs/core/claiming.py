"""What a claim is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastjobs.core.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimable:
    """A kind that this claimer has a handler for, with the claimer's own numbers for it.

    As the `others` of a claim it stands for every kind that isn't named, and `kind` is "".
    """

    kind: str
    hold: int
    """Microseconds that a claim of this kind holds its job."""
    attempts: int
    """A job claimed this often already is failed by the claim, not returned."""
    limit: int | None = None
    """At most so many of this kind in this claim, of `others` of all of them together; None for as many as come."""
    at_once: int | None = None
    """At most so many held on all instances together (AT_ONCE)."""
    priority: int = 0
    """Kinds of a higher priority are taken first; within one, jobs by when they are due."""
    ahead_ok: bool = True
    """False where none of its jobs may be claimed to wait in the prefetch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A claim's answer."""

    jobs: list[Job] = field(default_factory=list[Job])
    """The claimed jobs: by priority, then due time, then id."""
    exhausted: list[Job] = field(default_factory=list[Job])
    """Jobs that this claim failed as their attempts were used up: the caller owes each its `on_fail`.

    They take no room of the limit. Each is as it was before; the error kept with it is `core.exhausted.exhausted_text`.
    """
    again: bool = False
    """Something was in the way (parked, contended): ask again at once rather than after a poll."""
    next_in: int | None = None
    """Microseconds until the next job of these kinds is due; None where none waits.

    Told by a claim that came back short of its limit; it may be less than the truth, and never more. It's 0 where
    jobs that are due were left, as their kind's limit or `ahead` had it.
    """
    now: int = 0
    """The store's now at the claim, in Unix microseconds."""

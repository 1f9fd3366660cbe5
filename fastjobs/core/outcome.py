"""What the queue made of a run of a job, as `observe=` is told."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What became of a run. The string is the word for a metric's label."""

    DONE = "done"
    """It worked, and the job is done."""
    RETRIED = "retried"
    """It failed, or was stopped with the queue, and the job runs again."""
    FAILED = "failed"
    """It failed for good: at its last attempt, or by a permanent error."""
    HELD_BACK = "held back"
    """It wasn't an attempt: the handler snoozed, or its kind's rate, or the queue's stop, held it back before it
    started."""
    CANCELLED = "cancelled"
    """Someone cancelled the job as it ran, or was about to, and it's removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a run of a job went."""

    kind: str
    job: str
    """The job's id."""
    attempt: int
    """1 for the first."""
    outcome: Outcome
    error: Exception | None
    """What a run that was retried or failed failed with; None for the others."""
    took: float
    """How many seconds the handler ran."""
    waited: float
    """How many seconds the job waited past its time before it was claimed: how far behind the queue is."""

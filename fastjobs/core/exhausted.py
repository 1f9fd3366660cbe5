"""What a job failed with that a claim failed: its attempts were used up before it could be run once more."""

from __future__ import annotations

from fastjobs.core.errors import LostWorker, OutOfAttempts
from fastjobs.core.text import error_text, kept_text


def out_of_attempts(attempts: int, lost: int, error: str | None, limit: int) -> OutOfAttempts:
    """The error: a LostWorker where a worker of its was ever lost. `error` is what its latest attempt failed with."""
    last = f"; before that: {error}" if error else ""
    if lost:
        times = "once" if lost == 1 else f"{lost} times"
        text = f"lost its worker {times}, the last in attempt {attempts} of {limit}{last}"
        return LostWorker(text, attempts=attempts, lost=lost)
    text = f"its kind has {limit} attempts now, and it has used {attempts}{last}"
    return OutOfAttempts(text, attempts=attempts, lost=0)


def exhausted_text(attempts: int, lost: int, error: str | None, limit: int) -> str:
    """The error as a store keeps it with the job."""
    return kept_text(error_text(out_of_attempts(attempts, lost, error, limit)))

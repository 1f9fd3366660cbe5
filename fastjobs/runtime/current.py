"""The job that the current code runs for."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from fastjobs.core.errors import QueueError


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentJob:
    """The job a handler runs for."""

    id: str
    kind: str
    attempt: int
    """1 for the first."""
    last_error: str | None
    """What the attempt before failed with; None for the first."""
    carried: Mapping[str, str]
    """What its push carried, by name."""


class HasJob(Protocol):
    """What runs a job, and says which only where it's asked: most handlers never ask."""

    def current(self) -> CurrentJob:
        """The job."""
        ...


running_job: ContextVar[HasJob] = ContextVar("fastjobs.current_job")


def current_job() -> CurrentJob:
    """The job that this code runs for: in a handler, in its on_fail, and in what they call.

    Raises QueueError anywhere else. A task that a handler started and left behind still sees its job.
    """
    try:
        return running_job.get().current()
    except LookupError:
        raise QueueError("there's no current job here: only a handler, and what it calls, has one") from None

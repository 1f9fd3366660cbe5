"""What a queue shows of its jobs and kinds: values to read, made of what the store keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fastjobs.core import why
from fastjobs.core.carrier import unpacked
from fastjobs.core.duration import SECOND, moment
from fastjobs.core.errors import QueueError
from fastjobs.core.job import FailedJob, JobState, KeptJob
from fastjobs.core.progress import progress_value
from fastjobs.core.request_id import carried_id
from fastjobs.core.text import error_and_place
from fastjobs.core.trace_id import carried_trace

if TYPE_CHECKING:
    from fastjobs.core.options import KindOptions
    from fastjobs.store import KindCount

_MOST = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInfo:
    """A job as it was kept at the moment it was looked at. Times are aware, in UTC, by the store's clock."""

    id: str
    kind: str
    state: JobState
    payload: str = field(repr=False)
    """Its value as JSON text, or the beginning of it where `cut=` was asked for."""
    size: int
    """How many bytes the payload has, whole."""
    due: datetime
    """When it's due, or was; of a failed one, when it failed."""
    pushed_at: datetime
    attempts: int
    """How many have begun since its push, or since it was last run again."""
    lost: int
    """How many of these lost their worker."""
    error: str | None
    """What its latest attempt failed with."""
    where: str | None
    """Where in the app's code that was raised, as `mail.py:45 send`; None where it's not known."""
    held_until: datetime | None
    """When its hold ends, unless it's renewed; None for one that isn't held."""
    failed_at: datetime | None
    carried: Mapping[str, str] = field(repr=False)
    """What its push carried, by name."""
    name: str | None
    """What it was pushed once for."""
    unique: bool
    """Whether its kind was unique as it was pushed."""
    stop_asked: bool
    """Whether it was cancelled while it ran: it stops, or waits to be removed. False once it has failed."""
    progress: Any | None
    """What its handler last reported by `current_job().progress(…)`."""
    behind: str | None
    """Of a parked job the id of the one of its value that runs, where one does."""
    why: str
    """Why it waits, or what it is, in a sentence for people: its words may change in any release."""
    cursor: str = field(repr=False)
    """For `after=`: where the next page of its listing begins."""

    @property
    def request_id(self) -> str | None:
        """The ID of the request that pushed it, where that was carried."""
        return carried_id(self.carried)

    @property
    def trace_id(self) -> str | None:
        """The id of the trace that it was pushed in, 32 hexadecimal digits, where that was carried."""
        return carried_trace(self.carried)


@dataclass(frozen=True, slots=True, kw_only=True)
class KindInfo:
    """How many jobs of a kind there are. A number over the cap that was asked for says that there are more."""

    kind: str
    waiting: int
    """Those that wait for their time or a worker."""
    due: int
    """Of these, the ones whose time has come."""
    held: int
    """Those that run or are about to."""
    parked: int
    """Those that wait for another of their value, one at a time."""
    failed: int
    oldest: float | None
    """How many seconds the waiting job that is due longest has been due; None where none is."""
    held_back: float
    """How many seconds its rate still holds the kind back; 0 where it doesn't."""
    paused: bool
    handled: bool
    """Whether this queue has a handler of it."""


def info(job: KeptJob, options: KindOptions | None) -> JobInfo:
    """A kept job, to show; `options` are those of its kind where this queue has a handler of it."""
    error, where = _error(job.error)
    return JobInfo(
        id=job.id,
        kind=job.kind,
        state=job.state,
        payload=job.payload,
        size=job.size,
        due=moment(job.run_at if job.failed_at is None else job.failed_at),
        pushed_at=moment(job.created_at),
        attempts=job.attempts,
        lost=job.lost,
        error=error,
        where=where,
        held_until=None if job.held_until is None else moment(job.held_until),
        failed_at=None if job.failed_at is None else moment(job.failed_at),
        carried=unpacked(job.carried),
        name=job.name,
        unique=job.has_key,
        stop_asked=job.stop_asked,
        progress=progress_value(job.progress),
        behind=job.behind,
        why=why.why(job, options),
        cursor=_cursor(job.state, _place(job), job.id),
    )


def failed_info(job: FailedJob) -> JobInfo:
    """A job of the list of failed ones, to show."""
    failed_at = moment(job.failed_at)
    error, where = _error(job.error)
    return JobInfo(
        id=job.id,
        kind=job.kind,
        state=JobState.FAILED,
        payload=job.payload,
        size=job.size,
        due=failed_at,
        pushed_at=moment(job.created_at),
        attempts=job.attempts,
        lost=job.lost,
        error=error,
        where=where,
        held_until=None,
        failed_at=failed_at,
        carried=unpacked(job.carried),
        name=job.name,
        unique=job.has_key,
        stop_asked=False,
        progress=progress_value(job.progress),
        behind=None,
        why=why.failed(job.failed_at, job.attempts),
        cursor=_cursor(JobState.FAILED, job.failed_at, job.id),
    )


def kind_info(count: KindCount, *, handled: bool) -> KindInfo:
    """A kind's numbers, to show."""
    return KindInfo(
        kind=count.kind,
        waiting=count.waiting,
        due=count.due,
        held=count.held,
        parked=count.parked,
        failed=count.failed,
        oldest=None if count.oldest is None else count.oldest / SECOND,
        held_back=count.held_back / SECOND,
        paused=count.paused,
        handled=handled,
    )


def no_jobs(kind: str) -> KindInfo:
    """A kind that this queue has, and that the store has not heard of yet."""
    return KindInfo(
        kind=kind,
        waiting=0,
        due=0,
        held=0,
        parked=0,
        failed=0,
        oldest=None,
        held_back=0.0,
        paused=False,
        handled=True,
    )


def place(after: JobInfo | str | None, state: JobState) -> tuple[int, str] | None:
    """Where a page of jobs in this state begins; a QueueError for what comes from no page of them."""
    if after is None:
        return None
    cursor = after.cursor if isinstance(after, JobInfo) else after
    found, at, id = (*str(cursor).split(":", 2), "", "")[:3]
    is_number = at.removeprefix("-").isdecimal() and len(at) <= 20
    # A cursor comes from anywhere, as from a URL, and no database counts further than these.
    if found != state.value or not id or not is_number or not -_MOST <= int(at) <= _MOST:
        raise QueueError(
            f"after= is the last job of the page before, or its cursor, of a list of {state.value} jobs:"
            f" {cursor!r:.80} is none"
        )
    return int(at), id


def _place(job: KeptJob) -> int:
    at = {JobState.HELD: job.held_until, JobState.FAILED: job.failed_at}.get(job.state)
    return job.run_at if at is None else at


def _cursor(state: JobState, at: int, id: str) -> str:
    return f"{state.value}:{at}:{id}"


def _error(kept: str | None) -> tuple[str | None, str | None]:
    return (None, None) if kept is None else error_and_place(kept)

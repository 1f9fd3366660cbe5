"""What is asked of a store, as values of its statements: ids, new jobs' rows, and as many as go into one statement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from fastjobs.core.errors import StoreError
from fastjobs.core.job import Alike, NewJob
from fastjobs.core.marks import Done, Extend, Fail, GiveBack, HoldBack, Mark, TryAgain

_CHUNK = 500
_MARKS = (Done, TryAgain, Fail, GiveBack, HoldBack, Extend)
_T = TypeVar("_T")


def row_id(id: str) -> int | None:
    """The number that this id stands for; None for what is no id of this store's, so of no job."""
    if not (isinstance(id, str) and id.isascii() and id.isdigit() and len(id) <= 19):
        return None
    number = int(id)
    return number if number < 1 << 63 and str(number) == id else None


def claimed_row(id: str, claim: int) -> tuple[int, int] | None:
    """The number that this id stands for, with the claim; None where no claim of any job can be that."""
    number = row_id(id)
    return None if number is None or not 0 <= claim < 1 << 63 else (number, claim)


def check_marks(marks: Sequence[Mark]) -> None:
    """Raises a StoreError for a mark that this store doesn't keep."""
    for kind in set(map(type, marks)):
        if not issubclass(kind, _MARKS):
            raise StoreError(f"SQLStore keeps no mark {kind.__name__}")


def has_keys(jobs: Sequence[NewJob]) -> bool:
    """Whether one of the jobs has a key or a name, so that it may be there already."""
    return not isinstance(jobs, Alike) and any(job.key is not None or job.name is not None for job in jobs)


def job_values(job: NewJob, now: int) -> tuple[str, str, int, int, str | None]:
    """The new job's kind, payload, run_at, created_at and carried, of one that has neither a key nor a name."""
    return job.kind, job.payload, now + job.after if job.at is None else job.at, now, job.carried


def rows_of(jobs: Sequence[NewJob], now: int) -> list[tuple[str, str, int, int, str | None]]:
    """`job_values` of each of the jobs."""
    if isinstance(jobs, Alike):
        kind, due, carried = jobs.kind, now + jobs.after if jobs.at is None else jobs.at, jobs.carried
        return [(kind, payload, due, now, carried) for payload in jobs.payloads]
    return [job_values(job, now) for job in jobs]


def chunks(values: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """As many at a time as go into one statement."""
    for at in range(0, len(values), _CHUNK):
        yield values[at : at + _CHUNK]

"""A schedule of a kind, as `kind.schedule` registers it: checked at once, and the job that each of its runs is."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from fastjobs.core.calling import wrong_parameters
from fastjobs.core.duration import LAST, Seconds, instant, micros
from fastjobs.core.errors import PushError, RegistrationError
from fastjobs.core.job import NewJob, job_name
from fastjobs.core.schedule import Missed, Schedule
from fastjobs.core.schedule import jitter as jittered
from fastjobs.store import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """A schedule that pushes jobs of a kind."""

    name: str
    """What the store keeps its runs by: one in a queue."""
    schedule: Schedule
    job: NewJob
    """What each run pushes, due at once."""
    missed: Missed
    jitter: int
    """Microseconds that a run's job may be due later than the run."""

    def run(self, due: datetime) -> Run:
        """The run that is due then."""
        at = instant(due)
        late = jittered(self.name, due, self.jitter) if self.jitter else 0
        return Run(self.name, at, self.job._replace(at=min(at + late, LAST)))


def scheduled(
    job: NewJob, schedule: object, *, name: str | None, missed: object, jitter: Seconds | None
) -> Scheduled:
    """The schedule, checked; `job` is what it pushes. A RegistrationError for what can't be."""
    what = f"a schedule of kind {job.kind!r}"
    if isinstance(schedule, type):
        raise RegistrationError(f"{what}: {schedule.__name__} is a class: make one, as in Every(minutes=15)")
    if not callable(getattr(schedule, "next", None)):
        raise RegistrationError(
            f"{what}: it's a Cron(…), an Every(…), or an object with a next(after), and not {schedule!r}"
        )
    made = cast("Schedule", schedule)
    if inspect.iscoroutinefunction(made.next):
        raise RegistrationError(
            f"{what}: next of {schedule!r} is called and not awaited, so it's a plain function"
        )
    wrong = wrong_parameters(made.next)
    if wrong is not None:
        raise RegistrationError(
            f"{what}: next of {schedule!r} is called with one datetime, by position, as next(after), and takes {wrong}"
        )
    if missed not in ("once", "skip", "all"):
        raise RegistrationError(f'{what}: missed is "once", "skip" or "all", and not {missed!r}')
    try:
        return Scheduled(
            name=job.kind if name is None else job_name(name),
            schedule=made,
            job=job,
            missed=missed,
            jitter=0 if jitter is None else micros(jitter, "jitter"),
        )
    except PushError:
        raise RegistrationError(
            f"{what}: its name is 1 to 200 printable ASCII characters, and {name!r} is none"
        ) from None
    except ValueError as bad:
        raise RegistrationError(f"{what}: {bad}") from None


def take_names(taken: MutableMapping[str, Scheduled], some: Iterable[Scheduled]) -> None:
    """Adds the schedules to those that have a name, or raises RegistrationError where one is taken."""
    for each in some:
        other = taken.get(each.name)
        if other is not None:
            of = "this kind" if other.job.kind == each.job.kind else f"kind {other.job.kind!r}"
            raise RegistrationError(
                f"a schedule of kind {each.job.kind!r}: {each.name!r} is a schedule of {of} already. The store keeps"
                " a schedule's runs by its name, the kind's own where none is given: give this one another, as in"
                f' name="{each.name}-2"'
            )
        taken[each.name] = each

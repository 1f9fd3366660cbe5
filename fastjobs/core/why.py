"""Why a job isn't running, or what it is, in a plain sentence: pure functions of the job as it's kept."""

from __future__ import annotations

from fastjobs.core.duration import SECOND, moment
from fastjobs.core.job import JobState, KeptJob
from fastjobs.core.options import KindOptions
from fastjobs.core.rate import Limiter, Throttle
from fastjobs.core.text import error_and_place, one_line

_CANCELLED = "it's cancelled: the next claim removes it"
_ERROR = 200
"""The most characters of an error in a sentence; the job has it whole."""


def why(job: KeptJob, options: KindOptions | None) -> str:
    """The sentence; `options` are those of its kind where this queue has a handler of it."""
    match job.state:
        case JobState.FAILED:
            return failed(job.failed_at or job.now, job.attempts)
        case JobState.HELD:
            return _held(job)
        case JobState.PARKED:
            return _paused_too(job, _CANCELLED if job.stop_asked else _parked(job))
        case JobState.WAITING:
            return _waits(job, options)


def failed(at: int, attempts: int) -> str:
    """Of a job that failed for good."""
    return f"it failed for good at {told(at)}, after {attempts} attempt{'s' * (attempts != 1)}"


def told(unix_micros: int) -> str:
    """An instant as a sentence has it."""
    return f"{moment(unix_micros):%Y-%m-%d %H:%M:%S} UTC"


def _held(job: KeptJob) -> str:
    until = job.held_until or 0
    if until <= job.now:
        then = "removes it, as it's cancelled" if job.stop_asked else "takes it"
        return f"its worker was lost: its hold ran out at {told(until)}, and the next claim {then}"
    if job.stop_asked:
        return f"it was asked to stop, and runs until its handler has ended: {_attempt(job, until)}"
    return f"it runs: {_attempt(job, until)}"


def _attempt(job: KeptJob, until: int) -> str:
    return f"attempt {job.attempts}, held until {told(until)}"


def _parked(job: KeptJob) -> str:
    if job.behind is not None:
        return f"it waits for job {job.behind} of the same value, which runs (one at a time)"
    return "it waits for its turn among the jobs of the same value (one at a time)"


def _waits(job: KeptJob, options: KindOptions | None) -> str:
    if job.stop_asked:
        return _paused_too(job, _CANCELLED)
    if job.run_at > job.now:
        if job.attempts and job.error is not None:
            failed_with = one_line(error_and_place(job.error)[0], _ERROR)
            return _paused_too(job, f"it failed, and is tried again at {told(job.run_at)}: {failed_with}")
        return _paused_too(job, f"it waits for its time, {told(job.run_at)}{_held_back(options)}")
    if job.kind_paused:
        return f"its kind is paused, until it's resumed: fastjobs resume QUEUE {job.kind}"
    if job.kind_held_until > job.now:
        return f"its kind is held back until {told(job.kind_held_until)}, by its limiter"
    if options is None:
        return "no handler of its kind here: it waits for an instance that has one"
    if options.at_once is not None and job.kind_held >= options.at_once:
        return f"{job.kind_held} of its kind run{'s' * (job.kind_held == 1)}, as many as at_once lets"
    # A throttle's places are counted where they're taken, and whether there is one left isn't read for this.
    # Nor is it kept anywhere which processes are up.
    rate = "" if options.rate is None else f" for its {_named(options.rate)},"
    return f"it is due since {told(job.run_at)}, and waits for a free worker,{rate} or for a process that runs its kind"


def _held_back(options: KindOptions | None) -> str:
    """A job that its value's rate held back has a time as one that was pushed for later, so both are said."""
    rate = None if options is None else options.rate
    return (
        f", as pushed or as held back by its {_named(rate)}"
        if isinstance(rate, Throttle) and rate.by is not None
        else ""
    )


def _named(rate: Throttle | Limiter) -> str:
    if not isinstance(rate, Throttle):
        return "limiter"
    per = f"{rate.period / SECOND:,.3f}".rstrip("0").rstrip(".")
    return f"rate ({rate.max:,} in {per} s{'' if rate.by is None else ' for each answer of its by='})"


def _paused_too(job: KeptJob, sentence: str) -> str:
    return (
        f"{sentence}; and its kind is paused: fastjobs resume QUEUE {job.kind}"
        if job.kind_paused
        else sentence
    )

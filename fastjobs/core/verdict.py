"""What a handler's end means for its job. Pure functions: everything that decides a job's fate is in this file.

Exceptions that are no `Exception` (SystemExit, KeyboardInterrupt, a CancelledError of the handler's own making)
are ends like any other: no handler can stop the queue or its app.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fastjobs.core import backoff
from fastjobs.core.duration import SECOND, micros
from fastjobs.core.errors import PayloadError, Permanent, Retry, Snooze
from fastjobs.core.job import Job
from fastjobs.core.marks import Done, Fail, GiveBack, HoldBack, Mark, TryAgain
from fastjobs.core.options import KindOptions, Predicate
from fastjobs.core.outcome import Outcome
from fastjobs.core.text import error_text, kept_error


class Cut(Enum):
    """Why the queue cancelled a handler."""

    TIMEOUT = "timeout"
    STOP = "stop"
    """The queue stops."""
    LOST = "lost"
    """Another claim has the job."""
    CANCEL = "cancel"
    """Someone cancelled the job."""


@dataclass(slots=True)
class Verdict:
    """What becomes of the job. Not frozen, as one is made for each run, and freezing costs more than the rest."""

    mark: Mark | None
    """None where its claim is gone, so that there is nothing to mark."""
    outcome: Outcome
    error: Exception | None = None
    text: str = ""
    """The error as kept and logged."""
    owed: bool = False
    """Whether its kind's on_fail is to run once the mark is kept."""
    remark: str = ""
    """Something wrong beside the job's end, for the log."""
    rated: bool = False
    """Whether it was held back before it started, so that its handler never began."""


DONE = Verdict(None, Outcome.DONE)
"""That of all runs that are plainly done, whose marks are made beside it."""


def verdict(
    job: Job,
    options: KindOptions,
    error: BaseException | None,
    cut: Cut | None,
    random: float,
    permanent: Predicate | None = None,
) -> Verdict:
    """What the end of this run means: `error` is what the handler raised, `cut` why it was cancelled, if it was.

    - It returned: done, unless it had run over its timeout by then. A timeout ends the attempt, as a handler that
      swallowed its cancellation need not have done its work.
    - Its job was cancelled and it raised, whatever it raised: removed.
    - It was stopped with the queue and raised, whatever it raised: given back, due as it was, attempt and all.
    - `Snooze`: waits, no attempt counted. `Permanent`, and an error that `permanent=` says is one: fails.
    - Anything else: tries again after `Retry.after` or the kind's backoff, or fails at the last attempt. A `Retry`
      is raised on purpose, so `permanent=` isn't asked of it.
    """
    if cut is Cut.LOST:
        return Verdict(None, Outcome.RETRIED)
    if error is None and cut is not Cut.TIMEOUT:
        return Verdict(Done(job.id, job.claim), Outcome.DONE)
    if cut is Cut.CANCEL:
        return cancelled(job)
    if cut is Cut.STOP and error is not None:
        stopped = "stopped with the queue; it runs again"
        return Verdict(
            GiveBack(job.id, job.claim, error=stopped), Outcome.RETRIED, _exception(error), text=stopped
        )
    remark, raised = "", error
    if cut is Cut.TIMEOUT and not isinstance(error, (Permanent, Snooze, Retry)):
        seconds = options.timeout / SECOND
        late = TimeoutError(f"ran over its timeout of {seconds:g} s")
        late.__cause__ = error if isinstance(error, Exception) else None
        error = late
    assert error is not None
    if isinstance(error, Snooze):
        after, remark = _after(error, job, random)
        return Verdict(GiveBack(job.id, job.claim, after=after), Outcome.HELD_BACK, remark=remark)
    text = error_text(error)
    kept = kept_error(text, raised)
    fails, remark = _is_permanent(error, options, permanent)
    if fails or job.attempts >= options.attempts:
        return Verdict(
            Fail(job.id, job.claim, kept),
            Outcome.FAILED,
            _exception(error),
            text=text,
            owed=True,
            remark=remark,
        )
    if isinstance(error, Retry):
        after, why = _after(error, job, random)
    else:
        try:
            after, why = backoff.wait(options.backoff, job.attempts, random), ""
        except BaseException as bad:  # as with a handler: whatever it raises stops nothing
            after, why = backoff.fallback(job.attempts, random), f"its backoff raised {error_text(bad)}"
    remark = "; ".join(filter(None, (remark, why)))
    return Verdict(
        TryAgain(job.id, job.claim, after, kept), Outcome.RETRIED, _exception(error), text=text, remark=remark
    )


def cancelled(job: Job) -> Verdict:
    """Someone cancelled it: it's removed, and no attempt has failed."""
    return Verdict(Done(job.id, job.claim), Outcome.CANCELLED)


def refused(job: Job, kind_for: int) -> Verdict:
    """Its kind's limiter refused it: nothing of its kind is claimed for so long, and no attempt is counted."""
    return Verdict(HoldBack(job.id, job.claim, kind_for), Outcome.HELD_BACK, rated=True)


def not_its_turn(job: Job, after: int | None) -> Verdict:
    """Its value's rate has no place: it waits so long, and no attempt is counted."""
    return Verdict(GiveBack(job.id, job.claim, after), Outcome.HELD_BACK, rated=True)


def not_begun(job: Job) -> Verdict:
    """The queue stops before its handler began: it goes back as it was, and no attempt is counted."""
    return Verdict(GiveBack(job.id, job.claim), Outcome.HELD_BACK, rated=True)


def unreadable(job: Job, error: PayloadError) -> Verdict:
    """A payload that doesn't fit its kind's type any more: it fails at once, and there's no value for on_fail."""
    text = error_text(error)
    return Verdict(Fail(job.id, job.claim, text), Outcome.FAILED, error, text=text)


def _is_permanent(
    error: BaseException, options: KindOptions, permanent: Predicate | None
) -> tuple[bool, str]:
    if isinstance(error, Permanent):
        return True, ""
    if isinstance(error, Retry):
        return False, ""
    remark = ""
    for asked in (options.permanent, permanent):
        if asked is None:
            continue
        try:
            if asked(error):
                return True, remark
        except BaseException as bad:
            remark = f"permanent= raised {error_text(bad)}"
    return False, remark


def _after(error: Retry | Snooze, job: Job, random: float) -> tuple[int, str]:
    try:
        return micros(error.after, "after"), ""
    except Exception as bad:  # a subclass may have no `after`
        name = type(error).__name__
        return backoff.fallback(job.attempts, random), f"the after= of its {name} can't be: {error_text(bad)}"


def _exception(error: BaseException) -> Exception:
    """The error as `on_fail` and `observe` get it: what is no Exception is told by one."""
    if isinstance(error, Exception):
        return error
    told = RuntimeError(error_text(error))
    told.__cause__ = error
    return told

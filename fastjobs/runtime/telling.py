"""Tells of ended runs, once their mark is kept: a log line, and `observe`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from fastjobs.core.duration import SECOND
from fastjobs.core.errors import PayloadError
from fastjobs.core.exhausted import out_of_attempts
from fastjobs.core.job import Job
from fastjobs.core.marks import GiveBack, Kept, TryAgain
from fastjobs.core.outcome import Outcome, Ran
from fastjobs.core.text import error_place, error_text
from fastjobs.core.verdict import Cut
from fastjobs.runtime import following
from fastjobs.runtime.lines import at, log, say, say_error
from fastjobs.runtime.run import Ended, Owed, Run
from fastjobs.runtime.settings import Settings


class Teller:
    """Tells what became of jobs."""

    def __init__(self, settings: Settings) -> None:
        self._clock = settings.clock
        self._observe: Callable[[Ran], object] | None = settings.observe

    def ended(self, ended: Ended[Run], kept: Kept | None, resent: bool) -> Owed | None:
        """A run's mark was answered. What is owed to its job, if anything; a run that wasn't kept is not told of."""
        verdict, run = ended.verdict, ended.run
        if run.followed:
            following.end(run, verdict.outcome, ended.failed_by)
        if kept is None:
            return None
        if kept is Kept.LOST:
            if not resent:
                say(
                    logging.WARNING,
                    "a job's end came too late: its claim was gone, so it may run twice",
                    **run.fields(),
                    outcome=str(verdict.outcome),
                )
                return None
            # Sent twice within its hold, so it's this claim's own first mark that ended the claim.
            say(
                logging.INFO,
                "the end of a job was kept the first time it was sent, though the store had answered with an error",
                **run.fields(),
                outcome=str(verdict.outcome),
            )
        self._line(ended)
        self._observed(run, verdict.outcome, verdict.error, ended.took)
        if verdict.owed and verdict.error is not None and run.kind.failed is not None:
            return Owed(run, verdict.error)
        if verdict.outcome is Outcome.FAILED and run.kind.failed is not None:
            say(logging.WARNING, "on_fail was not run, as the payload doesn't fit", **run.fields())
        return None

    def done_in(self, ended: Ended[Run]) -> None:
        """A job was done by its handler's own commit, whatever became of the handler then."""
        run, raised = ended.run, ended.error
        if run.followed:
            following.end(run, Outcome.DONE, None)
        if raised is not None and run.cut is not Cut.STOP:
            say(
                logging.WARNING,
                "a handler failed after it had committed its job as done: the job doesn't run again",
                raised,
                **run.fields(),
                err=error_text(raised),
                where=error_place(raised) or None,
            )
        elif log.isEnabledFor(logging.DEBUG):
            say(
                logging.DEBUG,
                "a job is done, by its handler's commit",
                **run.fields(),
                took=f"{ended.took:.3f}s",
            )
        self._observed(run, Outcome.DONE, None, ended.took)

    def exhausted(self, run: Run, attempts: int) -> Owed | None:
        """A claim failed a job, as its attempts were used up. What is owed to it, if anything."""
        job = run.job
        error = out_of_attempts(job.attempts, job.lost, job.error, attempts)
        say(logging.ERROR, "a job failed for good", **run.fields(), err=error_text(error))
        self._observed(run, Outcome.FAILED, error, 0.0)
        return Owed(run, error) if run.kind.failed is not None else None

    def _line(self, ended: Ended[Run]) -> None:
        verdict, run = ended.verdict, ended.run
        if verdict.remark:
            say(logging.ERROR, "a job's kind is not set up well", **run.fields(), why=verdict.remark)
        if verdict.outcome is Outcome.DONE:
            if log.isEnabledFor(logging.DEBUG):
                say(logging.DEBUG, "a job is done", **run.fields(), took=f"{ended.took:.3f}s")
            return
        if verdict.outcome is Outcome.CANCELLED:
            raised = None if isinstance(ended.error, asyncio.CancelledError) else ended.error
            say(
                logging.INFO,
                "a job was cancelled, and is removed",
                raised,
                **run.fields(),
                took=f"{ended.took:.3f}s",
                err=None if raised is None else error_text(raised),
            )
            return
        if verdict.rated:
            if log.isEnabledFor(logging.DEBUG):
                why = "as the queue stopped" if run.cut is Cut.STOP else "by its rate"
                say(logging.DEBUG, f"a job was held back {why}", **run.fields())
            return
        if run.cut is Cut.STOP and isinstance(verdict.mark, GiveBack):
            say(logging.INFO, "a job was stopped with the queue, and runs again", **run.fields())
            return
        # A payload that doesn't fit is no line's fault.
        raised = None if isinstance(ended.error, PayloadError) else ended.error
        mark, where = verdict.mark, error_place(raised) if raised is not None else ""
        if isinstance(mark, TryAgain):
            say(
                logging.WARNING,
                "a job failed, and will run again",
                ended.error,
                **run.fields(),
                at=at(self._clock.now() + mark.after),
                err=verdict.text,
                where=where or None,
            )
        elif isinstance(mark, GiveBack):
            due = at(self._clock.now() + (mark.after or 0))
            say(logging.INFO, "a job was snoozed, and will run later", **run.fields(), at=due)
        else:
            say(
                logging.ERROR,
                "a job failed for good",
                ended.error,
                **run.fields(),
                err=verdict.text,
                where=where or None,
            )

    def _observed(self, run: Run, outcome: Outcome, error: Exception | None, took: float) -> None:
        if self._observe is None:
            return
        try:
            self._observe(
                Ran(
                    kind=run.job.kind,
                    job=run.job.id,
                    attempt=run.job.attempts,
                    outcome=outcome,
                    error=error,
                    took=took,
                    waited=run.waited,
                )
            )
        except BaseException as raised:  # as with a handler: a CancelledError of its own would end the ledger
            say_error("observe= failed", raised, **run.fields())


def waited(job: Job, now: int) -> float:
    """How many seconds the job waited past its time before the claim at `now`."""
    return max(0, now - job.run_at) / SECOND

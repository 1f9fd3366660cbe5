"""One claimed job in this process, from its claim to its mark."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fastjobs.core.carrier import Carrier, FollowedRun, unpacked
from fastjobs.core.duration import SECOND
from fastjobs.core.errors import ClaimLost
from fastjobs.core.job import Job
from fastjobs.core.marks import Done, Kept, Mark
from fastjobs.core.request_id import carried_id
from fastjobs.core.text import error_and_place
from fastjobs.core.trace_id import carried_trace
from fastjobs.core.verdict import DONE, Cut, Verdict
from fastjobs.runtime import ending
from fastjobs.runtime.current import CurrentJob, running_job
from fastjobs.runtime.kind import Kind

if TYPE_CHECKING:
    from fastjobs.runtime.driving import Drive
    from fastjobs.runtime.progress import Reports

FAR = float("inf")

_NOTHING: Mapping[str, str] = MappingProxyType({})
"""What most jobs carry: one for all of them, as each thing that a job has of its own is one more to collect."""

R = TypeVar("R", bound="Run | Owed")


class Run:
    """A held job: waiting for a worker here, or being run."""

    __slots__ = (
        "cancelled", "carried", "claimed_at", "cut", "deadline", "drive", "ending", "followed", "hold", "job", "kind",
        "off_loop", "renew_at", "reported", "reports", "started", "task", "trace_id", "until", "waited",
    )  # fmt: skip

    def __init__(self, job: Job, kind: Kind[Any], hold: int, claimed_at: float, waited: float) -> None:
        """`claimed_at` is the monotonic time from which the hold counts: before the claim was asked for."""
        self.job = job
        self.kind = kind
        self.hold = hold
        self.waited = waited
        """Seconds past its time before it was claimed."""
        self.claimed_at = claimed_at
        self.carried: Mapping[str, str] = unpacked(job.carried) if job.carried else _NOTHING
        self.started = 0.0
        self.deadline = FAR
        self.cut: Cut | None = None
        """Why the queue cancelled its handler, if it did."""
        self.cancelled = job.stop_asked
        """Whether someone cancelled the job. Its handler may go on all the same, as one in a thread does, but where an
        earlier claim had the job then: there it never begins."""
        self.task: asyncio.Task[Any] | None = None
        """The task that drives its handler."""
        self.ending: ending.Ending | None = None
        """Its done_in, if its handler called it."""
        self.followed: Sequence[tuple[Carrier, FollowedRun]] = ()
        """Who is to be told of its end."""
        self.trace_id: str | None = None
        """The trace that it's in, for its log lines, where a follower has said so."""
        self.drive: Drive | None = None
        self.off_loop = False
        """Whether what runs just now is in a thread or a process, so that its task only waits for it."""
        self.reports: Reports | None = None
        """Where its handler's progress goes while that runs."""
        self.reported: str | None = None
        """What it reported last."""
        self.held_from(claimed_at)

    def held_from(self, moment: float) -> None:
        """The hold counts from this monotonic time: it's renewed once a third of it has gone."""
        self.until = moment + self.hold / SECOND
        self.renew_at = moment + self.hold / SECOND / 3

    def leave_renewal(self) -> None:
        """Its hold is renewed no more. From any thread."""
        self.renew_at = FAR

    def context(self) -> Context:
        """A fresh context in which `current_job()` is this job. What it carried is not restored in it yet."""
        context = Context()
        context.run(running_job.set, self)
        return context

    def current(self) -> CurrentJob:
        """The job, as `current_job()` answers it."""
        job = self.job
        return CurrentJob(
            id=job.id,
            kind=job.kind,
            attempt=job.attempts,
            last_error=None if job.error is None else error_and_place(job.error)[0],
            carried=dict(self.carried),
            _done_in=partial(ending.done_in, self),
            _stop_asked=self._stop_asked,
            _report=self.report,
        )

    def _stop_asked(self) -> bool:
        return self.cancelled

    def report(self, text: str) -> None:
        """Its handler says how far it is. From any thread; nothing where it has ended."""
        reports = self.reports
        if reports is not None:
            reports.note(self, text)

    def fields(self) -> dict[str, object]:
        """What each log line of the job says."""
        carried = self.carried
        return {
            "kind": self.job.kind,
            "job": self.job.id,
            "attempt": self.job.attempts,
            "request_id": carried_id(carried) if carried else None,
            "trace_id": self.trace_id or (carried_trace(carried) if carried else None),
        }

    @property
    def verdict_cut(self) -> Cut | None:
        """What its end is judged by: that its job was cancelled says more than what else cut its handler off."""
        return Cut.CANCEL if self.cancelled and self.cut is not Cut.LOST else self.cut

    def cancel(self) -> None:
        """Its job was cancelled: so is its handler, but in a thread, which can't be."""
        self.cancelled = True
        if not self.off_loop or self.kind.reference is not None:
            self.interrupt(Cut.CANCEL)

    def interrupt(self, why: Cut) -> None:
        """Cancels its handler, unless that has been done.

        One that goes on after its job was cancelled is cut off once more by whatever else cuts it off. One that ran
        over its timeout is cancelled once more by a stop, and as its claim is gone: a worker that waits for a thread
        goes on waiting after the first.
        """
        first = self.cut is None or (self.cut is Cut.CANCEL and why is not Cut.CANCEL)
        if first:
            self.cut = why
        if self.task is not None and (first or (self.off_loop and why is not self.cut)):
            self.task.cancel()


@dataclass(slots=True)
class Owed:
    """An on_fail that is owed to a job that was kept as failed."""

    run: Run
    error: Exception


Told = Callable[["Ended[Run]", Kept | None, bool], None]
"""Gets a run that ended, the store's answer to the mark that was sent for it, or None where there was none in time, and
whether that was sent more than once after an error, all within its hold."""


def _nobody(ended: Ended[Run], kept: Kept | None, resent: bool) -> None: ...


class Ended(Generic[R]):
    """How a run ended, what becomes of its job, and the mark that's on its way for it.

    One thing rather than three, as a thousand of them wait at a time for their marks to be kept, and each thing more is
    one more to collect.
    """

    __slots__ = ("error", "mark", "resent", "run", "sent", "told", "took", "verdict")

    def __init__(self, run: R, verdict: Verdict, took: float, error: BaseException | None = None) -> None:
        """`took` is in seconds, `error` what the handler raised, as it raised it."""
        self.run = run
        self.verdict = verdict
        self.took = took
        self.error = error
        self.mark = verdict.mark
        """Of its end; None where there's none."""
        self.sent: Mark | None = None
        """What is on its way: its end's mark, or the question whether that was committed."""
        self.told: Told = _nobody
        """Who gets the answer."""
        self.resent = False

    def change(self, verdict: Verdict) -> None:
        """Something else becomes of its job."""
        self.verdict, self.mark = verdict, verdict.mark

    @property
    def failed_by(self: Ended[Run]) -> Exception | None:
        """What the run failed with; None where nothing did, as of one that was stopped with the queue."""
        if self.run.cut is Cut.LOST:
            return ClaimLost("its hold ran out, and another claim has the job")
        return None if self.run.cut is Cut.STOP else self.verdict.error


def done(run: Run, took: float) -> Ended[Run]:
    """The end of a handler that returned in time."""
    ended = Ended(run, DONE, took)
    ended.mark = Done(run.job.id, run.job.claim)
    return ended

"""Runs handlers: one job from its payload to its verdict, and the on_fail of one that failed for good.

The rules are in `core.verdict`; here is what surrounds a handler: its context, its deadline, and the floor under
it, so that nothing it raises or swallows reaches the queue or the app.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, cast

from fastjobs.clock import Clock
from fastjobs.core.duration import SECOND
from fastjobs.core.errors import PayloadError
from fastjobs.core.job import Job
from fastjobs.core.outcome import Outcome
from fastjobs.core.rate import Limiter
from fastjobs.core.verdict import Cut, cancelled, not_begun, not_its_turn, refused, unreadable, verdict
from fastjobs.runtime import driving, following
from fastjobs.runtime.carrying import restore
from fastjobs.runtime.deadlines import Deadlines
from fastjobs.runtime.driving import Drive
from fastjobs.runtime.ending import in_on_fail
from fastjobs.runtime.limits import ATTEMPT, Limits
from fastjobs.runtime.lines import say, say_error
from fastjobs.runtime.off_loop import OffLoop
from fastjobs.runtime.progress import Reports
from fastjobs.runtime.run import FAR, Ended, Owed, Run, done
from fastjobs.runtime.settings import Settings
from fastjobs.runtime.turns import Refused
from fastjobs.runtime.watching import Watch


class Runner:
    """Runs handlers in the tasks that ask it to."""

    def __init__(self, settings: Settings, reports: Reports) -> None:
        """`reports` is where the progress of handlers goes."""
        self._settings = settings
        self._reports = reports
        self._clock: Clock = settings.clock
        self._deadlines = Deadlines(settings.clock, self._late)
        self._off_loop = OffLoop(settings)
        self._watch = Watch(driving.__file__)
        self.closing: Callable[[], bool] = lambda: False
        """Whether every task of the loop was cancelled, as by asyncio.run at its end."""
        self.went: Callable[[Job], None] = lambda job: None
        """Called as a limiter of the app's own lets a job start: there may be more that it lets."""
        self._limits = Limits(settings.clock)

    def close(self) -> None:
        """Stops its timer, and ends its threads as they're idle."""
        self._deadlines.close()
        self._off_loop.close()
        self._watch.close()

    def job(self, run: Run, task: asyncio.Task[Any] | None = None) -> Coroutine[Any, Any, Ended[Run]]:
        """Runs the job's handler in the current task; raises nothing that the handler raised.

        `task` is that one, where the caller knows: before Python 3.12 to ask for it costs a system call.
        """
        return self._followed(run, task) if self._settings.followers else self._job(run, task)

    async def _followed(self, run: Run, task: asyncio.Task[Any] | None) -> Ended[Run]:
        try:
            ended = await self._job(run, task)
        except BaseException:  # it's left behind, and put back
            following.end(run, Outcome.RETRIED, None)
            raise
        if run.followed and (run.ending is None or not run.ending.sent):
            following.end(run, ended.verdict.outcome, ended.failed_by)
        # Of a done_in nobody knows here what becomes of the job: its end is told once the store has said so.
        return ended

    async def _job(self, run: Run, task: asyncio.Task[Any] | None) -> Ended[Run]:
        kind, job = run.kind, run.job
        if run.cancelled:  # while an earlier claim had it, or in the moment before its worker began with it
            return Ended(run, cancelled(job), 0.0)
        try:
            value = kind.codec.load(job.payload)
        except PayloadError as error:
            self._context(run, followed=True)
            return Ended(run, unreadable(job, error), 0.0, error)
        if kind.limiter is not None:
            ended = await self._limited(run, kind.limiter, task)
            if ended is not None:
                return ended
            self.went(job)
        is_async = kind.signature.is_async
        if kind.signature.takes_value:
            raised = await self._drive(run, is_async, kind.handler, value, task=task)
        else:
            raised = await self._drive(run, is_async, kind.handler, task=task)
        if raised is not None and run.cut is None and self.closing():
            run.cut = Cut.STOP  # by whoever closes the loop, and that is no fault of the job's
        if run.ending is not None:
            return self._ended_in(run, run.ending.error(raised), raised)
        took = self._clock.monotonic() - run.started
        if raised is None and run.cut is None and not run.cancelled:
            return done(run, took)
        chance = 0.0 if raised is None else self._clock.random()
        made = verdict(job, kind.options, raised, run.verdict_cut, chance, self._settings.permanent)
        return Ended(run, made, took, raised)

    def _ended_in(self, run: Run, error: BaseException | None, raised: BaseException | None) -> Ended[Run]:
        """The end of a handler that called done_in: its verdict is for where the job isn't done by that."""
        took = self._clock.monotonic() - run.started
        chance = self._clock.random()
        made = verdict(run.job, run.kind.options, error, run.verdict_cut, chance, self._settings.permanent)
        return Ended(run, made, took, raised)

    def refused(self, run: Run, why: Refused) -> Ended[Run]:
        """The end of a job that its value's rate refuses, or whose `by=` raised: that is as if its handler had."""
        if why.error is None:
            return Ended(run, not_its_turn(run.job, why.after), 0.0)
        chance = self._clock.random()
        made = verdict(run.job, run.kind.options, why.error, None, chance, self._settings.permanent)
        return Ended(run, made, 0.0, why.error)

    async def _limited(self, run: Run, limiter: Limiter, task: asyncio.Task[Any] | None) -> Ended[Run] | None:
        """Asks the kind's own limiter, in the job's context. The job's end where it isn't to start; None to go on."""
        answers: list[object] = []

        async def ask() -> None:
            answers.append(await limiter.attempt(run.kind.name))

        raised = await self._drive(run, True, ask, task=task, seconds=ATTEMPT)
        if run.cancelled or run.cut in (Cut.STOP, Cut.LOST) or (raised is not None and self.closing()):
            cut = run.verdict_cut or Cut.STOP
            if cut is Cut.STOP:
                return Ended(run, not_begun(run.job), 0.0)
            stopped = raised or asyncio.CancelledError()
            return Ended(run, verdict(run.job, run.kind.options, stopped, cut, 0.0), 0.0, raised)
        late, run.cut = run.cut is Cut.TIMEOUT, None
        if late:
            raised = TimeoutError(f"its limiter gave no answer in {ATTEMPT:g} s")
        wait = self._limits.answered(run.kind.name, answers[0] if answers else None, raised)
        return Ended(run, refused(run.job, wait), 0.0) if wait else None

    async def on_fail(self, owed: Owed) -> None:
        """Runs the kind's on_fail in the current task; what it raises goes to the log."""
        run, kind = owed.run, owed.run.kind
        failed, error = kind.failed, owed.error
        if failed is None:
            return
        try:
            value = kind.codec.load(run.job.payload) if kind.failed_takes_value else None
        except PayloadError as unfit:
            say_error("on_fail was not run, as the payload doesn't fit", unfit, **run.fields())
            return
        run.cut, run.ending = None, in_on_fail()
        raised: BaseException | None = None
        values = (value, error) if kind.failed_takes_value else (error,)
        try:
            raised = await self._drive(run, kind.failed_is_async, failed, *values, held=False)
        except BaseException as left:
            following.end(run, None, left)
            raise
        cut: Cut | None = run.cut
        if cut is Cut.TIMEOUT:
            raised = TimeoutError(f"ran over its kind's timeout of {kind.options.timeout / SECOND:g} s")
        elif cut is Cut.STOP and raised is not None:
            raised = TimeoutError("was stopped with the queue")
        following.end(run, None, raised)
        if raised is not None:
            say_error("on_fail failed", raised, **run.fields())

    async def _drive(
        self,
        run: Run,
        is_async: bool,
        handler: Callable[..., object],
        *values: object,
        held: bool = True,
        task: asyncio.Task[Any] | None = None,
        seconds: float | None = None,
    ) -> BaseException | None:
        """Runs one handler to its end, in this task and a fresh context; answers what it raised.

        `seconds` is what it may take, in place of its kind's timeout. One that isn't async runs in a thread; `held`
        says whether the job is held meanwhile.
        """
        if task is None:
            task = asyncio.current_task()
            assert task is not None
        context = self._context(run, followed=seconds is None, on_fail=not held)
        run.task, run.started = task, self._clock.monotonic()
        run.reports = self._reports if held else None
        in_process = run.kind.reference if held and seconds is None else None
        if in_process is None:
            may_take = run.kind.options.timeout / SECOND if seconds is None else seconds
            run.deadline = run.started + may_take
            self._deadlines.add(run)
        if is_async:
            self._watch.began()
        drive: Drive | None = None
        raised: BaseException | None = None
        try:
            if is_async:
                coro = cast("Coroutine[Any, Any, object]", context.run(handler, *values))
                drive = run.drive = Drive(coro, context, self._watch, run)
                await drive.run()
            else:
                run.off_loop = True
                if in_process is not None:
                    waits = self._off_loop.process(run, context, in_process, partial(self._begin, run))
                else:
                    waits = self._off_loop.thread(run, context, handler, *values, held=held)
                drive = run.drive = Drive(waits, Context(), self._watch, None)
                raised = cast("BaseException | None", await drive.run())
        except BaseException as error:  # SystemExit and a CancelledError of its own are ends too
            if drive is not None and (drive.closed or drive.abandoned):
                raise
            raised = error
        finally:
            self._deadlines.remove(run)
            if is_async:
                self._watch.ended()
            run.task, run.drive, run.deadline, run.off_loop, run.reports = None, None, FAR, False, None
        if task.cancelling():
            # What cancelled this handler is answered: the next one in this task starts afresh. A handler that
            # cancelled its own task and returned has left a CancelledError at the task's next step (before 3.13).
            while task.cancelling():
                task.uncancel()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        return raised

    def _context(self, run: Run, *, followed: bool, on_fail: bool = False) -> Context:
        """A fresh context with what the job carried. With `followed` its run begins in it."""
        context = run.context()
        if self._settings.carry:
            context.run(restore, self._settings.carry, run.carried)
            if followed and self._settings.followers:
                context.run(following.begin, self._settings.followers, run, on_fail)
        return context

    def _begin(self, run: Run, more: float) -> None:
        """Its time begins now, and it may take so many seconds more than its timeout."""
        run.started = self._clock.monotonic()
        run.deadline = run.started + run.kind.options.timeout / SECOND + more
        self._deadlines.add(run)

    def _late(self, run: Run) -> None:
        """Its time is over: it's cancelled, and told of where it goes on all the same."""
        if run.cut not in (None, Cut.CANCEL):
            return
        run.interrupt(Cut.TIMEOUT)
        if run.off_loop:
            return
        self._clock.call_later(1.0, lambda: self._still(run, run.started))

    def _still(self, run: Run, started: float) -> None:
        if run.task is not None and run.started == started:
            say(
                logging.WARNING,
                "a handler goes on after its timeout: it swallowed its cancellation, and keeps its worker",
                **run.fields(),
            )

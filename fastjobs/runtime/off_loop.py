"""Runs what would block the event loop beside it: a `def` handler in a thread, or with process=True in a process.

A thread can't be cancelled. A handler that is cut off there is left behind: it goes on, and its end changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any

from fastjobs.clock import Clock
from fastjobs.core.errors import RegistrationError
from fastjobs.core.verdict import Cut
from fastjobs.runtime.crossing import Reference, found, stand_in
from fastjobs.runtime.lines import say
from fastjobs.runtime.run import Run
from fastjobs.runtime.settings import Settings
from fastjobs.runtime.threads import Call, Threads

if TYPE_CHECKING:
    from fastjobs.runtime.processes import Processes

_WHY = {
    Cut.TIMEOUT: "it ran over its timeout",
    Cut.STOP: "the queue stopped",
    Cut.LOST: "its claim was gone",
    Cut.CANCEL: "its job was cancelled",
}

_MAKING = 60.0
"""Seconds that a process may take to start and to import its handler."""


class OffLoop:
    """The threads of one running queue."""

    def __init__(self, settings: Settings) -> None:
        self._clock: Clock = settings.clock
        self._workers = settings.workers
        self._most_processes = settings.processes
        self._followers = settings.followers
        self._stand_ins = [each for each in map(stand_in, settings.carry) if each is not None]
        self._threads: Threads | None = None
        self._processes: Processes | None = None

    def close(self) -> None:
        """Kills the processes and ends the threads; those that are busy as they return."""
        if self._processes is not None:
            self._processes.close()
            self._processes = None
        if self._threads is not None:
            self._threads.close()
            self._threads = None

    async def thread(
        self, run: Run, context: Context, fn: Callable[..., object], *values: object, held: bool
    ) -> BaseException | None:
        """Calls it in a thread, and answers what it raised: a CancelledError where it's left behind.

        With `held`, one that runs over its timeout is waited for as long as its hold lasts: until then nobody else
        runs its job. Otherwise it's left behind at once.
        """
        threads = self._made_threads()
        call = Call(threads.loop, context, fn, *values)
        threads.start(call)
        try:
            await call.changed()
        except asyncio.CancelledError:
            if held and run.cut is Cut.TIMEOUT and not call.finished:
                say(
                    logging.WARNING,
                    "a handler goes on in its thread after its timeout, and keeps its worker",
                    **run.fields(),
                    where=call.where() or None,
                )
                with suppress(asyncio.CancelledError):  # by the stop, or as its claim is gone
                    await self._outlast(run, call)
            if not call.finished:
                why = _WHY[run.cut] if run.cut is not None else "its worker was cancelled"
                say(
                    logging.WARNING,
                    "a handler was left behind in its thread, which can't be stopped: it may overlap its next run",
                    **run.fields(),
                    why=why,
                    where=call.where() or None,
                )
                threads.leave(call)
                # Not raised, as its traceback would tell of nothing but this file.
                return asyncio.CancelledError()
        return call.error

    async def process(
        self, run: Run, context: Context, at: Reference, begin: Callable[[float], None]
    ) -> BaseException | None:
        """Runs the job's handler in a process, and answers what it raised: a CancelledError where it was cut off.

        `begin` is called as its time begins, with the seconds it may take more than its timeout: once there is a
        process for it, and again, with none, as the handler itself begins.
        """
        # Here, as multiprocessing is what no queue needs without such a kind.
        from fastjobs.runtime.processes import Processes, Work

        if self._processes is None:
            self._processes = Processes(self._most_processes)
        processes, threads = self._processes, self._made_threads()
        async with processes.slots:
            begin(_MAKING)
            call: Call

            def begun() -> None:
                if not (call.finished or call.left):
                    begin(0.0)

            def started() -> None:
                with suppress(RuntimeError):  # the loop was closed
                    threads.loop.call_soon_threadsafe(begun)

            work = Work(self._request(run, context, at), started, run.report)
            call = Call(threads.loop, Context(), processes.run, work)
            threads.start(call)
            try:
                await call.changed()
            except asyncio.CancelledError:
                if not call.finished:
                    return asyncio.CancelledError()
            finally:
                if not call.finished:
                    work.kill()
                    threads.leave(call)
        return call.error

    def _made_threads(self) -> Threads:
        if self._threads is None:
            self._threads = Threads(max(1, self._workers))
        return self._threads

    def _request(self, run: Run, context: Context, at: Reference) -> dict[str, Any]:
        """What a process is asked to do. The places of functions and classes are the app's own word, as it has them."""
        if found(at) is not run.kind.handler:
            raise RegistrationError(
                f"kind {run.kind.name!r}: process=True imports its handler as {at[0]}.{at[1]}, which is another"
                " function"
            )
        job = run.current()
        return {
            "module": at[0],
            "name": at[1],
            "payload": run.job.payload,
            "restored": context.run(self._carry_on, job.carried),
            "carriers": self._stand_ins,
            "keeps_no_progress": None if run.reports is None else run.reports.refuses,
            "job": {
                "id": job.id,
                "kind": job.kind,
                "attempt": job.attempt,
                "last_error": job.last_error,
                "carried": dict(job.carried),
            },
        }

    def _carry_on(self, carried: Mapping[str, str]) -> dict[str, str]:
        """What is to be restored in a process: what the job carried, and of Followers what the run itself has."""
        into = dict(carried)
        for each in self._followers:
            with suppress(Exception):  # it would have been told of at the push
                each.carry(into)
        return into

    async def _outlast(self, run: Run, call: Call) -> None:
        """Returns once the call has finished, or just before its job's hold ends, so that its end can be kept."""
        margin = min(1.0, (run.until - run.deadline) / 4)
        while not call.finished:
            # A renewal that was under way at the timeout may have moved it.
            left = run.until - margin - self._clock.monotonic()
            if left <= 0:
                return
            timer = self._clock.call_later(left, call.stir)
            try:
                await call.changed()
            finally:
                timer.cancel()

"""Runs what would block the event loop beside it: a `def` handler in a thread.

A thread can't be cancelled. A handler that is cut off there is left behind: it goes on, and its end changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context

from fastjobs.clock import Clock
from fastjobs.core.verdict import Cut
from fastjobs.runtime.lines import say
from fastjobs.runtime.run import Run
from fastjobs.runtime.settings import Settings
from fastjobs.runtime.threads import Call, Threads

_WHY = {
    Cut.TIMEOUT: "it ran over its timeout",
    Cut.STOP: "the queue stopped",
    Cut.LOST: "its claim was gone",
}


class OffLoop:
    """The threads of one running queue."""

    def __init__(self, settings: Settings) -> None:
        self._clock: Clock = settings.clock
        self._workers = settings.workers
        self._threads: Threads | None = None

    def close(self) -> None:
        """Ends the threads; those that are busy as they return."""
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
        if self._threads is None:
            self._threads = Threads(max(1, self._workers))
        threads = self._threads
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

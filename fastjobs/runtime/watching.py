"""Names the handler that blocks the event loop: nothing else of the app moves until it lets go.

How long it took is measured on the loop, around each step of a handler, so that what blocks the loop otherwise is never
blamed on one. Where it was is seen by a thread, which also tells of one that doesn't let go. By the machine's real
time, as the loop's own may be a test's.
"""

from __future__ import annotations

import logging
import sys
import threading
from time import perf_counter

from fastjobs.core.text import running_place
from fastjobs.runtime.lines import say
from fastjobs.runtime.run import Run

BLOCKED = 0.1
"""Seconds that a handler may keep the loop."""
_STILL = 0.7
"""Seconds after which one that goes on is told of, rather than as it lets go."""
_LOOK = 0.1
_IDLE = 10
"""So many looks without a handler end the thread; the next handler makes another."""
_TOLD = 60.0
"""Seconds between two lines of a kind."""


class Watch:
    """Watches the steps that handlers take on one loop."""

    def __init__(self, under: str) -> None:
        """On the loop's thread. `under` is the file whose frames are under a handler's."""
        self._under = under
        self.run: Run | None = None
        """Whose handler takes a step just now."""
        self.since = 0.0
        """When the step began."""
        self._loop_thread = threading.get_ident()
        self._running = 0
        self._watching = False
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._seen: tuple[float, str] = (0.0, "")
        """A step, by when it began, and where in it the loop was as the thread last looked."""
        self._told_step = 0.0
        self._told: dict[str, float] = {}

    def began(self) -> None:
        """A handler runs on the loop."""
        self._running += 1
        if not self._watching:
            self._start()

    def ended(self) -> None:
        """It has ended."""
        self._running -= 1

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()

    def over(self, run: Run, since: float) -> None:
        """A step was over the limit and has ended. On the loop."""
        self._tell("a handler blocked the event loop", run, since)

    def _tell(self, sentence: str, run: Run, since: float) -> None:
        now, kind = perf_counter(), run.job.kind
        with self._lock:
            if self._told_step == since or now - self._told.get(kind, -_TOLD) < _TOLD:
                return
            self._told_step, self._told[kind] = since, now
            seen, where = self._seen
        where = where if seen == since else ""
        say(logging.WARNING, sentence, **run.fields(), took=f"{now - since:.3f}s", where=where or None)

    def _start(self) -> None:
        with self._lock:
            if self._watching or self._closed.is_set():
                return
            self._watching = True
        try:
            threading.Thread(target=self._look_on, name="fastjobs watch", daemon=True).start()
        except RuntimeError:  # no thread to be had; the next handler tries again
            self._watching = False

    def _look_on(self) -> None:
        idle = 0
        while not self._closed.wait(_LOOK):
            self._look()
            idle = 0 if self._running else idle + 1
            if idle >= _IDLE:
                with self._lock:
                    # Unset before it looks: a handler that begins now finds it unset and waits for the lock.
                    self._watching = False
                    if not self._running:
                        return
                    self._watching = True
                idle = 0

    def _look(self) -> None:
        run, since = self.run, self.since
        if run is None:
            return
        frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
        where = running_place(frames.get(self._loop_thread), self._under)
        if self.run is not run or self.since != since:
            return  # the step ended meanwhile: the place is of something else
        self._seen = (since, where)
        if perf_counter() - since > _STILL:
            self._tell("a handler blocks the event loop, and goes on", run, since)

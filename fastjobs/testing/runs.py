"""Runs a queue's jobs for a test, from sync code and async: what is due, or one handler as the queue would."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from fastjobs.core.errors import QueueError
from fastjobs.core.job import NewJob
from fastjobs.core.outcome import Outcome, Ran
from fastjobs.runtime.scheduler import Scheduler
from fastjobs.testing.watched import WatchedMemory

if TYPE_CHECKING:
    from fastjobs.runtime.kind import Kind
    from fastjobs.runtime.queue import Queue

R = TypeVar("R")

_LOOK = 0.005
"""Seconds between looks at what the workers of a queue that runs still have."""


class Runs:
    """What has run in a `q.testing()` block, and what runs more."""

    def __init__(self, queue: Queue, store: WatchedMemory, *, beside: bool) -> None:
        """`beside` says whether the queue's own workers may run beside the test."""
        self.ran: list[Ran] = []
        self._queue = queue
        self._store = store
        self._beside = beside
        self._scheduler: Scheduler | None = None
        self._told = 0
        """How many of them drains have told of."""
        self._failed: deque[Ran] = deque()
        """Those that failed and that no drain has told of."""
        self._own: set[str] = set()
        """The jobs that the test itself ran."""

    def note(self, ran: Ran) -> None:
        """A run has ended. From any thread."""
        self.ran.append(ran)
        if _is_failed(ran) and ran.job not in self._own:
            self._failed.append(ran)

    async def drain(self, raising: bool, most: int) -> int:
        """See `Jobs.drain`."""
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise QueueError(f"most= is how many jobs may run in a drain, not {most!r}")
        if not self._beside:
            self._tell()  # what ran before, the test itself has run
        if self._scheduler is not None:
            await self._scheduler.look()
        ran = await self._one(raising, most)
        while self._beside and (await self._one(raising, most) or self._is_at_work()):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK)
        if self._beside:
            ran = sum(self._began(each) for each in self.ran[self._told :])
        self._tell()
        return ran

    def _tell(self) -> None:
        self._told = len(self.ran)
        self._failed.clear()

    async def _one(self, raising: bool, most: int) -> int:
        """One drain; raises what the first failed with that hasn't been told of."""

        def ends() -> bool:
            return bool(raising and self._failed) or len(self.ran) - self._told >= most

        ran = await self._queue.draining().run(ends)
        if raising and self._failed:
            first = self._failed.popleft()
            self._told = len(self.ran)
            _raise(first)
        if len(self.ran) - self._told >= most:
            self._told = len(self.ran)
            raise QueueError(
                f"{most:,} jobs ran in one drain, the last of kind {self.ran[-1].kind!r}: a handler that pushes itself"
                " again, or snoozes, is due at once. Give it a time, or the drain a larger most="
            )
        return ran

    def _began(self, ran: Ran) -> bool:
        """Whether it was the queue's, and its handler began: one that its rate held back took no time."""
        return ran.job not in self._own and not (ran.outcome is Outcome.HELD_BACK and ran.took == 0.0)

    async def run(self, kind: Kind[Any], value: Any, attempt: int, raising: bool) -> Ran:
        """See `Jobs.run`."""
        most = kind.options.attempts
        if isinstance(attempt, bool) or not isinstance(attempt, int) or not 1 <= attempt <= most:
            raise QueueError(
                f"attempt= is one of the attempts of kind {kind.name!r}, 1 to {most}, not {attempt!r}"
            )
        payload = kind.codec.dump(value, self._queue.max_payload)
        carried, followed = self._queue.gather(None, kind.name, 1)
        new = NewJob(kind=kind.name, payload=payload, carried=carried)
        job, now = self._store.hold_one(new, attempt)
        if followed is not None:
            followed.through(lambda: [job.id])
        self._own.add(job.id)
        try:
            await self._queue.draining().run_one(job, now)
        finally:
            self._store.forget(job.id)
        ran = next((each for each in reversed(self.ran) if each.job == job.id), None)
        if ran is None:
            raise QueueError(
                f"a run of kind {kind.name!r} came to no end: its job was taken from it as it ran"
            )
        if raising and _is_failed(ran):
            _raise(ran)
        return ran

    async def look_at_schedules(self) -> None:
        """From here on the runs of schedules that have come round are pushed as each drain begins."""

        async def opened() -> None: ...

        def due_in(seconds: float) -> None: ...

        queue = self._queue
        self._scheduler = Scheduler(
            self._store, queue.clock, queue.schedules, 1.0, opened=opened, due_in=due_in
        )
        await self._scheduler.look()

    def sync(self, make: Callable[[], Coroutine[Any, Any, R]], instead: str) -> R:
        """Runs it to its end: on the queue's loop where it runs on one, else on a loop of this call's own."""
        if _has_loop():
            raise QueueError(f"an event loop runs in this thread, as in an async test: {instead}")
        loop = self._queue.loop
        if loop is not None and loop.is_running():
            return asyncio.run_coroutine_threadsafe(make(), loop).result()
        # With a factory it leaves the thread's own current loop as it is, for a plugin that has set one.
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(make())

    async def on_its_loop(self, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Awaits it on the queue's loop where it runs on another than this one, else here."""
        loop = self._queue.loop
        if loop is None or loop is asyncio.get_running_loop() or not loop.is_running():
            return await make()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(make(), loop))

    def _is_at_work(self) -> bool:
        health = self._queue.health()
        return health.running and bool(self._store.is_holding or health.busy or health.waiting)


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _is_failed(ran: Ran) -> bool:
    return ran.error is not None and ran.outcome in (Outcome.RETRIED, Outcome.FAILED)


def _raise(ran: Ran) -> None:
    assert ran.error is not None
    note = f"raised by a job of kind {ran.kind!r}, attempt {ran.attempt}: {ran.outcome}"
    if note not in getattr(ran.error, "__notes__", ()):
        ran.error.add_note(note)
    raise ran.error

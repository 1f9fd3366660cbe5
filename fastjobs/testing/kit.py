"""The test kit: `with q.testing() as jobs:` says what an app pushed, and runs it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, overload

from fastjobs.clock import SystemClock
from fastjobs.core.duration import Seconds, micros
from fastjobs.core.errors import QueueError
from fastjobs.core.job import JobState
from fastjobs.core.outcome import Ran
from fastjobs.runtime.looking import JobInfo, info
from fastjobs.testing.clock import Clock
from fastjobs.testing.pushed import Pushed, Wanted, instead, told, value_of
from fastjobs.testing.runs import Runs
from fastjobs.testing.watched import WatchedMemory

if TYPE_CHECKING:
    from fastjobs.runtime.kind import Kind
    from fastjobs.runtime.queue import Queue

T = TypeVar("T")


class Jobs:
    """A queue in a test, as `with q.testing() as jobs:` gives it.

    What runs handlers has two names, as a call can't know whether it will be awaited: `drain` and `run` are for sync
    tests, `adrain` and `arun` are awaited in async ones. In a sync test handlers run on the app's event loop, where a
    TestClient has it run, and else on a loop that ends with the call.
    """

    def __init__(self, queue: Queue, store: WatchedMemory, clock: Clock, runs: Runs) -> None:
        self.clock = clock
        """The queue's time: it stands still until `jobs.clock.advance(timedelta(days=7))`, and a job that is due by
        then runs at the next drain."""
        self._queue = queue
        self._store = store
        self._runs = runs

    @property
    def ran(self) -> list[Ran]:
        """Each run in the block so far, in order, with its outcome and its error."""
        return list(self._runs.ran)

    @overload
    def pushed(self, /, *, after: Seconds | None = None, name: str | None = None) -> Pushed[Any]: ...
    @overload
    def pushed(
        self, kind: Kind[T], /, *, after: Seconds | None = None, name: str | None = None
    ) -> Pushed[T]: ...
    @overload
    def pushed(
        self, kind: Kind[T], value: T, /, *, after: Seconds | None = None, name: str | None = None
    ) -> Pushed[T]: ...
    @overload
    def pushed(
        self, kind: str, value: Any = ..., /, *, after: Seconds | None = None, name: str | None = None
    ) -> Pushed[Any]: ...
    def pushed(
        self,
        kind: Kind[Any] | str | None = None,
        /,
        *value: Any,
        after: Seconds | None = None,
        name: str | None = None,
    ) -> Pushed[Any]:
        """The values that were pushed and committed in the block: all, of a kind, or those equal to a value of it.

            assert jobs.pushed(welcome, WelcomeMail(user=1))
            assert jobs.pushed(welcome) == [WelcomeMail(user=1), WelcomeMail(user=2)]
            assert not jobs.pushed(welcome)
            assert jobs.pushed(ask_for_review, after=timedelta(days=7))

        A push in a transaction counts once that has committed: one that was rolled back was not pushed, and neither
        was one that answered None, as a job of its value waits or its name is taken. A job that has run since was
        pushed all the same. `after` is how long from its push it was due, to the second, and `name` the name that it
        was pushed with. Raises QueueError for a kind that isn't this queue's, PayloadError for a value that its kind
        doesn't take, and PushError for what can't be a push's name.
        """
        if len(value) > 1:
            raise TypeError(f"pushed takes a kind and a value of it, and {len(value)} values were given")
        of = None if kind is None else self._kind(kind)
        wanted = Wanted(of, value, None if after is None else micros(after, "after"), name)
        kinds, pushes = self._queue.kinds, self._store.pushes
        met = [wanted.is_met_by(push) for push in pushes]

        def told_instead() -> str:
            rest = [push for push, is_met in zip(pushes, met, strict=True) if not is_met]
            rest.sort(key=lambda push: of is None or push.row.kind != of.name)  # those of its kind first
            others = [told(push.row, kinds, push.after) for push in rest]
            return instead(str(wanted), others, [told(row, kinds) for row in self._store.uncommitted])

        found = [value_of(push.row, kinds) for push, is_met in zip(pushes, met, strict=True) if is_met]
        return Pushed(found, told_instead)

    @property
    def waiting(self) -> list[JobInfo]:
        """The jobs that wait, for their time or a drain, those due first before the others."""
        return self._infos(JobState.WAITING, JobState.PARKED)

    @property
    def failed(self) -> list[JobInfo]:
        """The jobs that failed for good, the latest first. One that waits to be tried again isn't among them."""
        return self._infos(JobState.FAILED)[::-1]

    def drain(self, *, raising: bool = True, most: int = 10_000) -> int:
        """Runs the jobs that are due, one at a time, until none is, and answers how many ran; for sync tests.

        What a handler raised is raised here, once its job's end is kept and its on_fail has run; the jobs behind it
        wait for the next drain. With `raising=False` nothing is, and `jobs.ran`, `jobs.failed` and `jobs.waiting` say
        what became of each. A `Snooze`, and a job that its rate holds back, are no errors. What an on_fail raises goes
        to the log, as ever.

        Where the queue's workers run beside the test (`run=True`), it returns once nothing is due and nothing runs.
        QueueError once `most` jobs have run, as where a handler pushes itself again for ever; and in a thread whose
        event loop runs: `await jobs.adrain()` there.
        """
        return self._runs.sync(lambda: self._runs.drain(raising, most), "await jobs.adrain()")

    async def adrain(self, *, raising: bool = True, most: int = 10_000) -> int:
        """As `drain`, for async tests: `await jobs.adrain()`."""
        return await self._runs.on_its_loop(lambda: self._runs.drain(raising, most))

    @overload
    def run(
        self, kind: Kind[None], value: None = None, /, *, attempt: int = 1, raising: bool = True
    ) -> Ran: ...
    @overload
    def run(self, kind: Kind[T], value: T, /, *, attempt: int = 1, raising: bool = True) -> Ran: ...
    def run(self, kind: Kind[Any], value: Any = None, /, *, attempt: int = 1, raising: bool = True) -> Ran:
        """Runs a kind's handler for this value as the queue would, and answers how that went; for sync tests.

        The value goes to JSON and back, `current_job()` is a job at this attempt, the timeout holds, an error is judged
        and on_fail runs where the job fails. What the handler raised is raised here, unless `raising=False`. It's a job
        of the test's own: it's not among the pushed, no limit or rate of its kind keeps it from running, and however it
        ends nothing of it is kept. `kind.handler(value)` is the bare function.
        """
        return self._runs.sync(
            lambda: self._runs.run(self._kind(kind), value, attempt, raising), "await jobs.arun(…)"
        )

    @overload
    async def arun(
        self, kind: Kind[None], value: None = None, /, *, attempt: int = 1, raising: bool = True
    ) -> Ran: ...
    @overload
    async def arun(self, kind: Kind[T], value: T, /, *, attempt: int = 1, raising: bool = True) -> Ran: ...
    async def arun(
        self, kind: Kind[Any], value: Any = None, /, *, attempt: int = 1, raising: bool = True
    ) -> Ran:
        """As `run`, for async tests: `await jobs.arun(welcome, WelcomeMail(user=1))`."""
        return await self._runs.on_its_loop(lambda: self._runs.run(self._kind(kind), value, attempt, raising))

    def _kind(self, kind: Kind[Any] | str) -> Kind[Any]:
        kinds = self._queue.kinds
        if isinstance(kind, str):
            if kind not in kinds:
                raise QueueError(
                    f"the queue has no kind {kind!r}; it has {', '.join(sorted(kinds)) or 'none'}"
                )
            return kinds[kind]
        if kinds.get(kind.name) is not kind:
            whose = "no queue yet: q.include(kinds) gives it one" if kind.queue is None else "another queue"
            raise QueueError(f"kind {kind.name!r} is of {whose}, and these are the jobs of one queue")
        return kind

    def _infos(self, *states: JobState) -> list[JobInfo]:
        kinds = self._queue.kinds
        kept = sorted(
            self._store.in_states(states), key=lambda job: (job.failed_at or job.run_at, int(job.id))
        )
        return [info(job, kinds[job.kind].options if job.kind in kinds else None) for job in kept]


@contextmanager
def testing(
    queue: Queue, run: bool, schedules: bool, savepoints: bool, clock: Clock | None
) -> Generator[Jobs]:
    """See `Queue.testing`."""
    if clock is not None and not isinstance(clock, Clock):
        raise QueueError(f"clock= is a fastjobs.testing.Clock, and {clock!r} is none")
    moved = Clock(SystemClock().now()) if clock is None else clock
    store = WatchedMemory(moved, by_machine=clock is None, savepoints=savepoints)
    runs = Runs(queue, store, beside=run)
    own: list[Callable[[Ran], object]] = []

    def observe(ran: Ran) -> None:
        runs.note(ran)
        for each in own:
            each(ran)

    with queue.stood_in_for(store, observe, run=run) as observed_by:
        own += [] if observed_by is None else [observed_by]
        if schedules:
            _apart(lambda: asyncio.run(runs.look_at_schedules()))
        yield Jobs(queue, store, moved, runs)


def _apart(call: Callable[[], None]) -> None:
    """Calls it in a thread of its own, as this one's event loop may run."""
    raised: list[BaseException] = []

    def kept() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=kept, name="fastjobs testing")
    thread.start()
    thread.join()
    for error in raised:
        raise error

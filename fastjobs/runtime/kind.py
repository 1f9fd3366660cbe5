"""A kind of job: its name, its handler, its options, its schedules, and the pushes of its jobs.

Longer than 300 lines, as half of it says what its public methods promise.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast, overload

from fastjobs.core.duration import LAST, Seconds, instant, micros
from fastjobs.core.errors import PushError, QueueError, RegistrationError
from fastjobs.core.job import Alike, NewJob, job_name, kind_name
from fastjobs.core.options import KindOptions, KindSettings, checked
from fastjobs.core.payload import Codec
from fastjobs.core.rate import Limiter, Throttle
from fastjobs.core.schedule import Missed, Schedule
from fastjobs.core.unique import key_of
from fastjobs.runtime.blocking import BlockingPush
from fastjobs.runtime.crossing import Reference, reference
from fastjobs.runtime.following import Followed
from fastjobs.runtime.handlers import Signature, are_apart, signature
from fastjobs.runtime.pushing import AsyncPush, SyncPush, Unfinished
from fastjobs.runtime.scheduling import Scheduled, scheduled, take_names
from fastjobs.store import Extra, require

if TYPE_CHECKING:
    from fastjobs.runtime import current
    from fastjobs.runtime.queue import Queue
    from fastjobs.store import Pusher, Store, SyncPusher

    SyncTx = current.SyncTx
    AsyncTx = current.AsyncTx | Store

T = TypeVar("T")
R = TypeVar("R")


class Kind(Generic[T]):
    """A kind of job, as `@q.kind(name)` gives it: T is the type of its values, None for a handler without one."""

    def __init__(self, name: str, handler: Callable[..., Any], settings: KindSettings) -> None:
        self.name = kind_name(name)
        """What the store finds its handler by. It stays the same from one version of the app to the next."""
        self.handler = handler
        """The function that runs its jobs, for unit tests of it."""
        self.options: KindOptions = checked(name, settings)
        self.signature: Signature = signature(f"kind {name!r}", handler)
        self.reference: Reference | None = None
        """Where another process finds the handler, with process=True."""
        if self.options.process:
            if self.signature.is_async:
                raise RegistrationError(
                    f"kind {name!r}: with process=True a handler is a plain def, and {handler!r} is async"
                )
            self.reference = reference(f"kind {name!r}", handler)
        self.codec: Codec[T] = Codec(name, self.signature.annotation)
        if self.options.unique is not None and (found := self.codec.unordered):
            raise RegistrationError(
                f"kind {name!r}: its value has a {found} in it, whose JSON comes in any order, so unique= can't tell"
                " whether two are the same. Take a sorted tuple, or give it a PlainSerializer(sorted)"
            )
        rate = self.options.rate
        if isinstance(rate, Throttle) and rate.by is not None and not self.signature.takes_value:
            raise RegistrationError(f"kind {name!r}: it has no value, so its Throttle takes no by=")
        self.limiter: Limiter | None = None if isinstance(rate, Throttle) else rate
        """What is asked before each of its jobs, where it's no Throttle."""
        self.failed: Callable[..., object] | None = None
        """What `on_fail` was given."""
        self.failed_takes_value = False
        self.failed_is_async = False
        self.schedules: tuple[Scheduled, ...] = ()
        """What `schedule` was given."""
        self.queue: Queue | None = None

    def __repr__(self) -> str:
        return f"<Kind {self.name!r}>"

    @overload
    def on_fail(self: Kind[None], fn: Callable[[Exception], R]) -> Callable[[Exception], R]: ...
    @overload
    def on_fail(self, fn: Callable[[T, Exception], R]) -> Callable[[T, Exception], R]: ...
    def on_fail(self, fn: Callable[..., R]) -> Callable[..., R]:
        """Has `fn` run once when a job of this kind fails for good, with its value and the error of its last attempt.

        It runs once the store has kept the job as failed, on the instance that ran it, for at most the kind's
        timeout, as the app shuts down too. Its own error goes to the log. A job that failed as its payload
        doesn't fit has no value, so `fn` isn't run; one that kept losing its worker gives a LostWorker. An
        instance that is killed between the two never runs it: what must not be missed is a job of its own.

        For a kind without a value, `fn` takes the error alone. A plain `def` runs in a thread of the queue's own.
        """
        what = f"on_fail of kind {self.name!r}"
        if self.queue is not None:
            self.queue.registering(what)
        if self.failed is not None:
            raise RegistrationError(f"{what}: it has one already: {self.failed!r}")
        takes = signature(what, fn, after_value=1)
        if self.signature.takes_value and not takes.takes_value:
            raise RegistrationError(f"{what}: it takes the value and the error, and {fn!r} takes one alone")
        if takes.takes_value and are_apart(takes.annotation, self.signature.annotation):
            raise RegistrationError(
                f"{what}: it's given the kind's value, of type {self.signature.annotation.__name__}, and {fn!r} takes"
                f" one of type {takes.annotation.__name__}"
            )
        self.failed, self.failed_takes_value, self.failed_is_async = fn, takes.takes_value, takes.is_async
        return fn

    @overload
    def schedule(
        self: Kind[None],
        schedule: Schedule,
        /,
        value: None = None,
        *,
        name: str | None = None,
        missed: Missed = "once",
        jitter: Seconds | None = None,
    ) -> None: ...
    @overload
    def schedule(
        self,
        schedule: Schedule,
        /,
        value: T,
        *,
        name: str | None = None,
        missed: Missed = "once",
        jitter: Seconds | None = None,
    ) -> None: ...
    def schedule(
        self,
        schedule: Schedule,
        /,
        value: Any = None,
        *,
        name: str | None = None,
        missed: Missed = "once",
        jitter: Seconds | None = None,
    ) -> None:
        """Has a job of this kind, with this value, run at the times of a `Cron`, an `Every`, or a `Schedule` of yours.

        Each run is pushed once, by whichever instance that runs the queue, as a job due at its time, as soon as the
        run before it has come round. It carries nothing. A new schedule's first run is its next time. A run that was
        pushed runs, though the schedule has changed or is gone by then. Of a unique kind, a job of this value that
        waits as a run is pushed is that run, and isn't moved.

        - `name`: what the store keeps its runs by, 1 to 200 printable ASCII characters, one in a queue. Without it
          it's the kind's name, so a kind's second schedule needs one. It stays the same from one version of the app
          to the next; under another it's a new schedule.
        - `missed`: what becomes of runs while no instance runs the queue. "once": the one that was pushed before runs,
          late, for all of them. "all": each runs, the latest 100 of them at most. "skip": none does; such a schedule's
          runs are pushed at their times, and one that nobody could push within 30 seconds was missed.
        - `jitter`: up to how many seconds, or a timedelta, a run's job is put off, by a hash of the name and the run:
          the same on each instance, another for each run. Default none.

        Raises RegistrationError for what can't be, a name that is taken, and while the queue runs; PayloadError for a
        value that a push would refuse; StoreError where the store has no schedules.
        """
        what = f"a schedule of kind {self.name!r}"
        queue = self.queue
        if queue is not None:
            queue.registering(what)
        payload = self.codec.dump(value, sys.maxsize if queue is None else queue.max_payload)
        made = scheduled(self._new(payload), schedule, name=name, missed=missed, jitter=jitter)
        if queue is None:
            take_names({each.name: each for each in self.schedules}, [made])
        else:
            queue.free_schedule(made)
        self.schedules += (made,)

    def _new(self, payload: str) -> NewJob:
        """What a schedule pushes: it has the key of its value, and moves no job that waits."""
        unique = self.options.unique
        if unique is None:
            return NewJob(kind=self.name, payload=payload)
        key = key_of(payload)
        return NewJob(kind=self.name, payload=payload, key=key, one_at_a_time=unique.one_at_a_time)

    @property
    def needs(self) -> Extra:
        """What its options and its schedules need of a store; what its pushes need is a part of it."""
        extras, rate = self._push_needs, self.options.rate
        if self.schedules:
            extras |= Extra.SCHEDULES
        if self.options.at_once is not None:
            extras |= Extra.AT_ONCE
        if rate is not None:
            extras |= Extra.THROTTLE if isinstance(rate, Throttle) else Extra.HOLD_BACK
        return extras

    @property
    def _push_needs(self) -> Extra:
        unique = self.options.unique
        if unique is None:
            return Extra(0)
        extras = Extra.UNIQUE
        if unique.latest:
            extras |= Extra.LATEST
        return extras | Extra.ONE_AT_A_TIME if unique.one_at_a_time else extras

    @overload
    async def push(
        self: Kind[None],
        value: None = None,
        *,
        at: datetime | None = None,
        after: Seconds | None = None,
        name: str | None = None,
    ) -> str | None: ...
    @overload
    async def push(
        self, value: T, *, at: datetime | None = None, after: Seconds | None = None, name: str | None = None
    ) -> str | None: ...
    async def push(
        self,
        value: Any = None,
        *,
        at: datetime | None = None,
        after: Seconds | None = None,
        name: str | None = None,
    ) -> str | None:
        """Puts a job on the queue and answers its id: once this returns, the job is kept until it's done or failed.

        It's due now, or `at` a time (an aware datetime), or `after` seconds (or a timedelta). Raises
        PayloadError for a value that doesn't come back from JSON as it was, PushError for a time without a
        zone, CarryError for too much to carry, and what the database raises. After an error that came with the
        commit, as from a cut connection or a StoreTimeout, the job may be kept or not.

        Where the kind is unique and a job of this value waits, nothing is pushed and it answers None; with `latest`
        that job is moved to this push's time, and its id is answered. With a `name`, of 1 to 200 printable ASCII
        characters (else a PushError), it's pushed once: while a job has the name, of any kind and failed ones too,
        and for the kind's `keep_name` after that job's end, a push of it does nothing and answers None. StoreError
        where the store has no names.
        """
        jobs, followed = self.jobs((value,), at, after, name=name)
        pushed = self._queue().push(jobs)
        return (await (pushed if followed is None else followed.awaited(pushed)))[0]

    async def push_many(
        self, values: Iterable[T], *, at: datetime | None = None, after: Seconds | None = None
    ) -> list[str | None]:
        """Puts a job on the queue for each value, all or none, and answers their ids in the same order.

        Of a unique kind, None stands where a job of that value waits, as one of an equal value before it in the same
        call does.
        """
        jobs, followed = self.jobs(values, at, after)
        if not jobs:
            return []
        pushed = self._queue().push(jobs)
        return await (pushed if followed is None else followed.awaited(pushed))

    @property
    def sync(self) -> BlockingPush[T]:
        """This kind, pushing from sync code: `kind.sync.push(value)` in a thread of the app's, or with no loop."""
        return BlockingPush(self, self._queue())

    @overload
    def in_(self, tx: SyncTx) -> SyncPush[T]: ...
    @overload
    def in_(self, tx: AsyncTx) -> AsyncPush[T]: ...
    def in_(self, tx: Any) -> Any:
        """This kind, pushing through a transaction of the app's own: kept as it commits, or not at all.

        `tx` is a Session, AsyncSession (SQLModel's too), Connection, AsyncConnection, a scoped session, or what
        `fastjobs.raw` makes of a driver's connection. A sync one gives a sync push, an async one a push to await. A
        Store may stand for one. The commit wakes the
        queue. StoreError for anything else, and where the store has no transactions.
        """
        unfinished = Unfinished()
        pusher, is_sync = self._queue().within(tx, unfinished)
        if is_sync:
            return SyncPush(self, cast("SyncPusher", pusher))
        store = cast("Store", tx) if pusher is tx else None
        if store is not None:
            require(store, self._push_needs, f"kind {self.name!r}")
        return AsyncPush(self, cast("Pusher", pusher), unfinished, store)

    def jobs(
        self,
        values: Iterable[T],
        at: datetime | None,
        after: Seconds | None,
        store: Store | None = None,
        *,
        name: str | None = None,
    ) -> tuple[Sequence[NewJob], Followed | None]:
        """The jobs a push of these values would push, to `store` or the queue's own, and who follows that push.

        Whoever calls it pushes them, by what follows if there is something, and at once: the push has begun.
        """
        queue = self._queue()
        if at is not None and after is not None:
            raise PushError("a job is due at= a time or after= a wait, not both")
        try:
            due = None if at is None else instant(at)
            wait = 0 if after is None else micros(after, "after")
        except PushError:
            raise
        except ValueError as bad:
            raise PushError(str(bad)) from None
        if wait and queue.clock.now() + wait > LAST:
            raise PushError(f"after={after!r} is past the year 9999")
        if name is not None:
            require(queue.store if store is None else store, Extra.NAMES, "push(name=…)")
            name = job_name(name)
        unique, most = self.options.unique, queue.max_payload
        if unique is not None and store is not None:
            require(store, self._push_needs, f"kind {self.name!r}")
        payloads = self.codec.dump_all(values, most)
        if not payloads:
            return [], None
        # Last, as nothing of ours can fail between this and the push.
        carried, followed = queue.gather(store, self.name, len(payloads))
        keep_name = 0 if name is None else self.options.keep_name
        if unique is None:
            if len(payloads) > 1:
                return Alike(self.name, payloads, due, wait, carried), followed
            return [
                NewJob(
                    kind=self.name,
                    payload=payload,
                    at=due,
                    after=wait,
                    name=name,
                    keep_name=keep_name,
                    carried=carried,
                )
                for payload in payloads
            ], followed
        # By their places, as by their names so many take twice as long.
        options = (unique.latest, unique.most, unique.one_at_a_time, name, keep_name, carried)
        return [
            NewJob(self.name, payload, due, wait, key_of(payload), *options) for payload in payloads
        ], followed

    def _queue(self) -> Queue:
        if self.queue is None:
            raise QueueError(f"kind {self.name!r} belongs to no queue yet: q.include(kinds) gives it one")
        return self.queue


class KindDecorator(Protocol):
    """What `q.kind(name)` gives: a decorator that makes a handler's Kind."""

    @overload
    def __call__(self, fn: Callable[[T], Awaitable[object]], /) -> Kind[T]: ...
    @overload
    def __call__(self, fn: Callable[[], Awaitable[object]], /) -> Kind[None]: ...
    @overload
    def __call__(self, fn: Callable[[T], object], /) -> Kind[T]: ...
    @overload
    def __call__(self, fn: Callable[[], object], /) -> Kind[None]: ...
    def __call__(self, fn: Callable[..., object], /) -> Kind[Any]:
        """The Kind of this handler."""
        ...

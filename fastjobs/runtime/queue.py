"""The queue: kinds are registered with it, jobs are pushed through it, and it runs them.

Longer than 300 lines, as half of it says what its public methods promise.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast, overload

from fastjobs.clock import Clock, SystemClock
from fastjobs.core.carrier import Carrier
from fastjobs.core.duration import Seconds
from fastjobs.core.errors import QueueError, RegistrationError
from fastjobs.core.job import NewJob, kind_name
from fastjobs.core.options import FallbackSettings, KindSettings, PermanentIf
from fastjobs.core.outcome import Ran
from fastjobs.runtime.carrying import gather
from fastjobs.runtime.desk import Desk
from fastjobs.runtime.draining import Drain
from fastjobs.runtime.fallback import fallback_kind
from fastjobs.runtime.feed import Feed
from fastjobs.runtime.following import Followed
from fastjobs.runtime.handlers import place_of
from fastjobs.runtime.health import STOPPED, Health
from fastjobs.runtime.kind import Kind, KindDecorator
from fastjobs.runtime.kinds import Kinds, chosen
from fastjobs.runtime.life import Life
from fastjobs.runtime.lines import say
from fastjobs.runtime.living import OnCrash, live
from fastjobs.runtime.observing import Observers
from fastjobs.runtime.pushing import Unfinished, push_to
from fastjobs.runtime.scheduling import Scheduled, take_names
from fastjobs.runtime.settings import settings, with_workers
from fastjobs.store import Extra, Pusher, Store, SyncPusher, TransactionStore, require, supports

if TYPE_CHECKING:
    from fastjobs.testing.clock import Clock as MovedClock
    from fastjobs.testing.kit import Jobs

F = TypeVar("F", bound=Callable[..., object])


class Queue(Desk):
    """Keeps jobs in a store, and runs them.

    `store` may come later: `q.use(store)`, or `lifespan(q, store=…)`.

    - `workers`: how many jobs run at once in this process, 4 by default. With 0 it only pushes.
    - `processes`: how many run the handlers of kinds with `process=True`; one for each processor by default.
    - `poll`: how often, in seconds, it asks the store for jobs that came due or that others pushed; 1 by default.
      A push through this queue wakes it at once.
    - `grace`: how long, in seconds, running jobs have to finish as it stops; 10 by default. What still runs then is
      cancelled and put back, due at once, its attempt given back.
    - `hold`: how long at most, in seconds, a job is held between renewals; 120 by default. A job whose process was
      killed runs again once its hold is over: its kind's timeout and 15 s, and never more than this.
    - `carry`: what jobs take from where they're pushed to where they run: `[CarryRequestID()]`.
    - `observe`: a quick function that is told of each run (a `Ran`) once its end is kept, for metrics: `OTelMetrics`,
      `PrometheusMetrics` or one of the app's own; or a list of them. Its errors are logged.
    - `permanent`: errors that fail a job of any kind at once: exception types, or a predicate.
    - `keep_failed`: how long failed jobs are kept; 30 days by default, and None keeps them for ever. Each instance that
      runs jobs removes those that are older, a few at a time, about once a minute.
    - `max_payload`: how many bytes a value may have as JSON; 256 KiB by default.

    Durations are seconds or timedeltas. A setting that can't be is a RegistrationError.
    """

    def __init__(
        self,
        store: Store | None = None,
        *,
        workers: int = 4,
        processes: int | None = None,
        poll: Seconds = 1,
        grace: Seconds = 10,
        hold: Seconds = 120,
        carry: Sequence[Carrier] = (),
        observe: Callable[[Ran], object] | Sequence[Callable[[Ran], object]] | None = None,
        permanent: PermanentIf = (),
        keep_failed: Seconds | None = timedelta(days=30),
        max_payload: int = 256 * 1024,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings(
            workers=workers,
            processes=processes,
            poll=poll,
            grace=grace,
            hold=hold,
            carry=carry,
            observe=observe,
            permanent=permanent,
            keep_failed=keep_failed,
            max_payload=max_payload,
            clock=clock or SystemClock(),
        )
        self._observe = self._settings.observe
        self._store: Store | None = None
        self._stand_in: tuple[Store, bool] | None = None
        """What is its store in a test, and whether its workers run there."""
        self._kinds: dict[str, Kind[Any]] = {}
        self._fallback: Kind[Any] | None = None
        self._life: Life | None = None
        self._drains: set[Drain] = set()
        self._lived = False
        if store is not None:
            self.use(store)
        if isinstance(self._observe, Observers):
            self._observe.watch(self)

    # Registering.

    def kind(self, name: str, **options: Unpack[KindSettings]) -> KindDecorator:
        """Makes a handler's Kind: `@q.kind("welcome-mail", attempts=5, timeout=30)`.

        The handler is a function of one annotated value, or of nothing: an async one, or a plain `def`, which runs
        in a thread of the queue's own. Its value's type is anything that pydantic turns into JSON and back. `name`
        is kept in the database for ever. Options: `KindSettings`.

        Raises RegistrationError for a name that is taken, a bad option, a handler it can't call, and while the
        queue runs.
        """

        kind_name(name)

        def decorate(fn: Callable[..., object], /) -> Kind[Any]:
            kind: Kind[Any] = Kind(name, fn, options)
            self._add(kind)
            return kind

        return decorate

    @overload
    def fallback(self, fn: F, /) -> F: ...
    @overload
    def fallback(self, /, **options: Unpack[FallbackSettings]) -> Callable[[F], F]: ...
    def fallback(self, fn: Any = None, /, **options: Unpack[FallbackSettings]) -> Any:
        """Has a function handle the jobs of every kind without a handler: `@q.fallback`, or `@q.fallback(attempts=3)`.

        Jobs of all kinds are claimed then, and `current_job().kind` says of which one it is. The function takes the
        value as JSON has it, annotated `Any` (or a type that each payload is to fit, else it fails at once), or
        nothing. It's async or a plain `def`, and how it ends means what it does of a handler. Its options are
        `attempts`, `backoff`, `timeout`, `permanent` and `priority`, with a kind's defaults.

        All that is kept in the store is meant: kinds of another queue on the same database, too, and in a deploy those
        that only the new version has. Their own options, as at_once and rate, aren't known here; of jobs one at a time
        no two of a value run at once all the same. A process that runs some kinds alone (`kinds=`) has no fallback, and
        two queues on one store aren't run together where one's fallback would take the other's kinds (a QueueError).

        Gives the function back. RegistrationError for a second one, a bad option, a function that can't be a handler,
        and while the queue runs.
        """

        def decorate(fn: Callable[..., object], /) -> Callable[..., object]:
            self.registering("the fallback")
            if self._fallback is not None:
                raise RegistrationError(
                    f"the queue has a fallback already: {place_of(self._fallback.handler)}"
                )
            self._fallback = fallback_kind(fn, **options)
            return fn

        return decorate if fn is None else decorate(fn)

    def include(self, kinds: Kinds) -> None:
        """Takes in the kinds of another module, as a router's routes: all of them, or none where a name is taken."""
        self.registering("these kinds")
        taken = {each.name: each for each in self.schedules}

        def free(kind: Kind[Any]) -> None:
            self._free(kind)
            take_names(taken, kind.schedules)

        for kind in kinds.given_to(self, free):
            self._add(kind)

    def use(self, store: Store) -> None:
        """Gives the queue its store. QueueError while it runs."""
        if self._life is not None:
            raise QueueError("the queue runs: give it another store once it has stopped")
        is_store = isinstance(getattr(store, "extras", None), Extra) and callable(
            getattr(store, "claim", None)
        )
        if not is_store or isinstance(store, type):
            raise RegistrationError(
                f"a queue keeps its jobs in a store, such as SQLStore(engine) or Memory(), and {store!r} is none"
            )
        for kind in self._kinds.values():
            require(store, kind.needs, f"kind {kind.name!r}")
        self._store = store

    def registering(self, what: str) -> None:
        """Raises RegistrationError where nothing can be registered now."""
        if self._life is not None:
            raise RegistrationError(
                f"{what}: the queue runs already; register it before, as the app is imported"
            )

    def _add(self, kind: Kind[Any]) -> None:
        self.registering(f"kind {kind.name!r}")
        self._free(kind)
        kind.queue = self
        self._kinds[kind.name] = kind

    def _free(self, kind: Kind[Any]) -> None:
        if kind.name in self._kinds:
            raise RegistrationError(
                f"kind {kind.name!r} has a handler already: {place_of(self._kinds[kind.name].handler)}"
            )
        if self._store is not None:
            require(self._store, kind.needs, f"kind {kind.name!r}")
        for each in kind.schedules:
            kind.codec.dump(kind.codec.load(each.job.payload), self.max_payload)

    def free_schedule(self, made: Scheduled) -> None:
        """Raises where the queue can't have this schedule: its name is taken, or the store has none."""
        if self._store is not None:
            require(self._store, Extra.SCHEDULES, f"a schedule of kind {made.job.kind!r}")
        take_names({each.name: each for each in self.schedules}, [made])

    # Running.

    def running(
        self,
        *,
        run: bool = True,
        on_crash: OnCrash = "log",
        workers: int | None = None,
        kinds: Sequence[str | Kind[Any]] | None = None,
    ) -> AbstractAsyncContextManager[None]:
        """Runs jobs while entered, as `fastjobs.lifespan` does; leaving it returns within grace and a second.

        With `run=False` it opens the store and runs nothing. `on_crash` says what follows a bug of fastjobs' own,
        which is always logged: "log" goes on, "stop" sends this process SIGTERM, a callable is given the error.
        `workers` is how many jobs run at once this time, in place of the queue's own number. `kinds` are those whose
        jobs it runs this time, by name or as Kind objects: jobs of the others can be pushed, and are left to an
        instance that runs them. RegistrationError, as it's entered, for a kind that the queue doesn't have.
        """
        return live([self], run=run, on_crash=on_crash, workers=workers, kinds=kinds)

    async def run(self) -> None:
        """Runs jobs until it's cancelled, then stops within grace and a second. A bug of fastjobs' own is raised."""
        crashed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def crash(error: BaseException) -> None:
            if not crashed.done():
                crashed.set_exception(error)

        async with self.running(on_crash=crash):
            await crashed

    async def drain(self) -> int:
        """Runs the jobs that are due, one at a time, until none is, and answers how many it ran.

        A job that fails is put back or kept as failed, and runs again in the same drain if it's due again by then.
        An error of the store's is raised. For tests, and for programs that run what's due and exit.
        """
        return await self.draining().run()

    def draining(self) -> Drain:
        """One drain of it."""
        return Drain(self.store, self._settings, dict(self._kinds), self._drains, self._fallback)

    def testing(
        self,
        *,
        run: bool = False,
        schedules: bool = False,
        savepoints: bool = False,
        clock: MovedClock | None = None,
    ) -> AbstractContextManager[Jobs]:
        """For tests: `with q.testing() as jobs:` puts a `Memory` in place of the queue's store for the block.

        `jobs` says what was pushed and runs it: see `fastjobs.testing.Jobs`. In the block the app's lifespan runs no
        workers, so a job runs as the test drains, and not before. Enter it before the lifespan.

        - `run=True`: the lifespan runs the workers, beside the test.
        - `schedules=True`: each drain first pushes the runs of the queue's schedules that have come round.
        - `savepoints=True`: a savepoint that is released counts as a commit, for tests whose transaction never
          commits. A session's own commit always counts, in a transaction of the test's too.
        - `clock`: a `fastjobs.testing.Clock` for the block. Without one it's the machine's time as the block begins,
          which stands still until `jobs.clock.advance(…)`; then `push(at=…)` is due as long from the clock's now as it
          is from the machine's. A clock that is given takes it as it is.

        Blocks may be nested. QueueError where the queue runs as the block begins or as it ends.
        """
        kit = import_module("fastjobs.testing.kit")
        made: AbstractContextManager[Jobs] = kit.testing(self, run, schedules, savepoints, clock)
        return made

    @contextmanager
    def stood_in_for(
        self, store: Store, observe: Callable[[Ran], object], *, run: bool
    ) -> Generator[Callable[[Ran], object] | None]:
        """For `testing`: the block's store and observer stand in for its own, and it's given its own observer.

        `use` in the block gives the queue the store that it has after it.
        """
        if self._life is not None:
            raise QueueError(
                "the queue runs: enter q.testing() before the app's lifespan, as in"
                " with q.testing() as jobs, TestClient(app) as client:"
            )
        before = self._stand_in, self._settings
        self._stand_in, self._settings = (store, run), replace(self._settings, observe=observe)
        try:
            yield self._observe
        finally:
            self._stand_in, self._settings = before
        if self._life is not None:
            raise QueueError("q.testing() ends while the queue runs: leave the app's lifespan before it")

    def health(self) -> Health:
        """What is so of the queue in this process, for a readiness probe: `q.health().ok`.

        It asks the store nothing and takes microseconds. From any thread, and also while the queue doesn't run.
        """
        life = self._life
        return STOPPED if life is None else life.health()

    def wake(self) -> None:
        """Looks for jobs at once rather than at the next poll. From any thread; nothing while it doesn't run."""
        life = self._life
        if life is None:
            return
        if threading.get_ident() == life.thread:
            life.feed.wake()
        else:
            life.feed.wake_soon(life.loop)

    @asynccontextmanager
    async def begin(
        self,
        *,
        run: bool,
        crashed: Callable[[BaseException], None],
        workers: int | None = None,
        kinds: Sequence[str | Kind[Any]] | None = None,
    ) -> AsyncGenerator[Life]:
        """Gives the queue its life; for `live`, which starts and stops it."""
        if self._life is not None:
            raise QueueError("the queue runs already")
        settings = with_workers(self._settings, workers)
        run = run and (self._stand_in is None or self._stand_in[1])
        # Kinds that were left to others have a handler elsewhere, and the fallback would take their jobs.
        fallback = self._fallback if kinds is None else None
        life = Life(self.store, settings, chosen(self._kinds, kinds), crashed, run=run, fallback=fallback)
        self._life, self._lived = life, True
        try:
            yield life
        finally:
            self._life = None

    def _cancel_here(self, id: str) -> None:
        here: list[Life | Drain] = [*self._drains]
        if self._life is not None:
            here.append(self._life)
        for each in here:
            if threading.get_ident() == each.thread:
                each.cancel(id)
            else:
                with suppress(RuntimeError):  # the loop was closed meanwhile
                    each.loop.call_soon_threadsafe(each.cancel, id)

    # Pushing, for the kinds.

    @property
    def store(self) -> Store:
        """The queue's store; QueueError where it has none yet."""
        store = self._store if self._stand_in is None else self._stand_in[0]
        if store is None:
            raise QueueError(
                "the queue has no store yet: Queue(store), q.use(store) or lifespan(q, store=…) gives it"
            )
        return store

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop it runs on; None while it doesn't run."""
        return None if self._life is None else self._life.loop

    @property
    def grace(self) -> float:
        """How many seconds running jobs have to finish as it stops."""
        return self._settings.grace

    @property
    def workers(self) -> int:
        """How many jobs run at once where it runs; 0 where it only pushes."""
        return self._settings.workers

    @property
    def kinds(self) -> Mapping[str, Kind[Any]]:
        """The kinds that are registered with it, by name; not to be changed."""
        return MappingProxyType(self._kinds)

    @property
    def has_fallback(self) -> bool:
        """Whether it handles kinds that have no handler, by its `fallback`."""
        return self._fallback is not None

    @property
    def schedules(self) -> tuple[Scheduled, ...]:
        """The schedules of its kinds."""
        return tuple(each for kind in self._kinds.values() for each in kind.schedules)

    @property
    def clock(self) -> Clock:
        """The clock of the queue's timers."""
        return self._settings.clock

    @property
    def keep_failed(self) -> timedelta | None:
        """How long failed jobs are kept; None for ever."""
        kept = self._settings.keep_failed
        return None if kept is None else timedelta(microseconds=kept)

    @property
    def max_payload(self) -> int:
        """How many bytes a value may have as JSON."""
        return self._settings.max_payload

    def gather(self, store: Store | None, kind: str, count: int) -> tuple[str | None, Followed | None]:
        """What a push of so many jobs carries from the current context, and who follows it.

        `store` is the one that is pushed to, None for the queue's own. One that doesn't keep it carries nothing.
        """
        if not self._settings.carriers:
            return None, None
        if store is None and (self._store or self._stand_in):
            store = self.store
        keeps = store is None or supports(store, Extra.CARRY)
        return gather(self._settings.carriers, kind, count, keeps=keeps)

    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        """Pushes jobs and wakes the workers."""
        store = self.store
        self._say_if_never_started(jobs[0].kind if jobs else None)
        feed, first = self._feed_here(), jobs[0] if jobs else None
        if feed is None or first is None or first.at is not None or first.after > 0 or first.key is not None:
            ids = await push_to(store, jobs)
        else:
            since = feed.beside()
            ids = await push_to(store, jobs)
            if feed.has(ids, since):
                return ids
        self.wake()
        return ids

    def _feed_here(self) -> Feed | None:
        """What claims on this thread's loop."""
        life = self._life
        return life.feed if life is not None and life.thread == threading.get_ident() else None

    def within(self, tx: object, unfinished: Unfinished) -> tuple[Pusher | SyncPusher, bool]:
        """What pushes through `tx`, and whether it's sync."""
        if isinstance(getattr(tx, "extras", None), Extra):
            return cast("Pusher", tx), False
        store = self.store
        require(store, Extra.TRANSACTIONS, "in_()")
        pusher = cast("TransactionStore", store).within(tx, self._committed, unfinished)
        return pusher, pusher.sync

    def _committed(self) -> None:
        self._say_if_never_started(None)
        self.wake()

    def _say_if_never_started(self, kind: str | None) -> None:
        if not self._lived:
            self._lived = True
            # A store with nothing to open is a test's: it runs its jobs by drain().
            kept = (
                self._stand_in is None and self._store is not None and supports(self._store, Extra.LIFECYCLE)
            )
            say(
                logging.WARNING if kept and _running_loop() is not None else logging.DEBUG,
                "a job was pushed through a queue that was never started in this process, and waits for one that runs:"
                " FastAPI(lifespan=fastjobs.lifespan(q)) starts it, with run=False where it only pushes (the lifespan"
                " of an app that is mounted in another never runs)",
                kind=kind,
            )


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None

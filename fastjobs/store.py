"""The Store's Protocol: three verbs, each for a batch, and the extras, one small Protocol each.

A docstring here is the contract: `fastjobs.testing.StoreSuite` checks each sentence of whatever a store says it
supports. A store says what it has in one class attribute, `extras`, and `supports` reads that and nothing else.
Every method may be called from several tasks at once, and with a database from several processes.

It's over 300 lines, as whoever writes a store reads its promises together.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import Enum, Flag, auto
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, overload

from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.core.errors import StoreError
from fastjobs.core.job import FailedJob, Job, JobState, KeptJob, NewJob
from fastjobs.core.marks import Done, Extend, Fail, GiveBack, HoldBack, Kept, Mark, TryAgain

if TYPE_CHECKING:
    from typing_extensions import TypeIs

__all__ = [
    "CancelStore", "Cancelled", "CarryStore", "Claimable", "Claimed", "CountsStore", "Done", "DoneInStore", "Ender",
    "Extend", "Extra", "Fail", "FailedJob", "FailedStore", "GiveBack", "HoldBack", "Job", "JobState", "Kept", "KeptJob",
    "KindCount", "LifecycleStore", "ListenStore", "Mark", "NewJob", "PauseStore", "Places", "ProgressStore",
    "PruneStore", "Pusher", "Run", "ScheduleStore", "Store", "SyncEnder", "SyncPusher", "ThrottleStore", "Throttled",
    "TransactionStore", "TryAgain", "require", "supports",
]  # fmt: skip


class Extra(Flag):
    """What a store may have beside the three verbs."""

    UNIQUE = auto()
    """`NewJob.key`: while a job of a kind and key waits, a push of another answers None and pushes nothing.

    A claim lets its job's key go, so a push while it runs is pushed. `TryAgain` doesn't take the key back;
    `GiveBack` and `HoldBack` do, unless another job has it by then. Of several pushes of one key at once, one
    is kept. A push that meets the uncommitted push of another transaction waits for its outcome.
    """
    LATEST = auto()
    """`NewJob.latest`: a push whose job waits gives that job its own time, earlier or later, and answers its id.

    `at_most` caps how far from its first push a job can be moved. What it carried stays its first push's.
    """
    ONE_AT_A_TIME = auto()
    """`NewJob.one_at_a_time`: no claim returns such a job while another of its kind and key is held."""
    AT_ONCE = auto()
    """`Claimable.at_once`: no more than so many jobs of a kind are held at once, on all instances together."""
    HOLD_BACK = auto()
    """The mark `HoldBack`, and no job of that kind is claimed until its time."""
    SCHEDULES = auto()
    """`ScheduleStore`."""
    FAILED = auto()
    """`FailedStore`."""
    CARRY = auto()
    """`NewJob.carried` is kept with the job and given back by each claim, and with the failed."""
    TRANSACTIONS = auto()
    """`TransactionStore`."""
    NAMES = auto()
    """`NewJob.name`: a push of a name that is taken answers None. A name is taken while its job is kept, and
    `keep_name` microseconds after it has ended."""
    LISTEN = auto()
    """`ListenStore`."""
    COUNTS = auto()
    """`CountsStore`."""
    CANCEL = auto()
    """`CancelStore`."""
    PRUNE = auto()
    """`PruneStore`."""
    PAUSE = auto()
    """`PauseStore`."""
    THROTTLE = auto()
    """`ThrottleStore`."""
    DONE_IN = auto()
    """`DoneInStore`."""
    LIFECYCLE = auto()
    """`LifecycleStore`."""
    PROGRESS = auto()
    """`ProgressStore`."""


class Store(Protocol):
    """Keeps jobs, from their push until they are done, or kept as failed.

    Its calls come side by side. An idle queue asks a claim in the turn of the loop in which a push is sent, and a queue
    whose job has ended a claim beside its mark: a store that keeps both at once, the claim last, has the next job start
    sooner. To one that doesn't, a claim that came too early is made again.
    """

    extras: ClassVar[Extra]

    async def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        """Keeps new jobs, all or none, and answers their ids in the same order.

        None stands where nothing was pushed, as one is there already (UNIQUE, NAMES). Once it has answered, a
        job is kept through any crash until it's done or failed. Ids are never used again.
        """
        ...

    async def claim(
        self,
        kinds: Sequence[Claimable],
        limit: int,
        *,
        ahead: int = 0,
        others: Claimable | None = None,
    ) -> Claimed:
        """Takes up to `limit` jobs that are due, each held for its kind's `hold`, its attempts one more.

        - Only jobs of `kinds`, or with `others` of any kind. A job of another kind is left as it is.
        - Of jobs that wait, those due soonest first, then by id, over all kinds of one priority.
        - No two claims have a job at once: a held job is claimed again only after its hold ran out.
        - A job whose attempts have come to its kind's `attempts` is failed instead, and is in `exhausted`.
        - `ahead` of `limit` will wait for a worker: a job that lost a worker before, or whose kind is not
          `ahead_ok`, takes none of these, so at most `limit - ahead` such jobs are returned.
        - A claim that finds nothing writes nothing.
        """
        ...

    async def mark(self, marks: Sequence[Mark]) -> list[Kept]:
        """Keeps what became of claimed jobs, and answers each in the same order.

        One mark that changes nothing never keeps another from being kept. See `fastjobs.core.marks`.
        """
        ...


class LifecycleStore(Store, Protocol):
    """Has connections to open and close (LIFECYCLE)."""

    async def open(self, kinds: Sequence[str] = ()) -> None:
        """Connects, makes or upgrades the tables, and notes the kinds' names. Counted: each open has its close.

        A store that was not opened opens itself at its first call. Raises StoreError where the database can't
        hold a queue, and the driver's own error where it can't be reached.
        """
        ...

    async def close(self) -> None:
        """Lets all connections go, once every open has been closed. It may be opened again, on another loop too."""
        ...


class CarryStore(Store, Protocol):
    """Keeps what jobs carry (CARRY). It has no methods of its own: the promise is in its pushes and claims."""


class FailedStore(Store, Protocol):
    """Lists the jobs that failed for good, and puts them back to run (FAILED)."""

    async def failed(
        self,
        *,
        kind: str | None = None,
        after: tuple[int, str] | None = None,
        limit: int = 100,
        cut: int | None = None,
    ) -> list[FailedJob]:
        """The failed jobs, the latest first; `after` is the (failed_at, id) of the last one seen before this page.

        No more than `cut` characters of each payload are read out of the store, all of it for None.
        """
        ...

    async def run_again(self, ids: Sequence[str]) -> list[bool]:
        """Puts failed jobs back, due now, with no attempts, none lost and their last error kept, and says of each
        whether it was there and failed. Its claim token moves on, so that no mark of an old claim is kept."""
        ...

    async def delete(self, ids: Sequence[str]) -> list[bool]:
        """Removes failed jobs, and says of each whether it was there and failed."""
        ...


class Pusher(Protocol):
    """Pushes through someone's transaction (TRANSACTIONS)."""

    sync: ClassVar[Literal[False]] = False

    def push(self, jobs: Sequence[NewJob]) -> Coroutine[Any, Any, list[str | None]]:
        """As `Store.push`, kept as the transaction commits and not at all as it, or its savepoint, rolls back."""
        ...


class SyncPusher(Protocol):
    """Pushes through someone's sync transaction (TRANSACTIONS)."""

    sync: ClassVar[Literal[True]] = True

    def push(self, jobs: Sequence[NewJob]) -> list[str | None]:
        """As `Pusher.push`."""
        ...


class TransactionStore(Store, Protocol):
    """Pushes in a transaction of the app's own (TRANSACTIONS)."""

    def within(
        self,
        tx: object,
        committed: Callable[[], None],
        unfinished: Callable[[], str | None] = lambda: None,
    ) -> Pusher | SyncPusher:
        """What pushes through `tx`: a SyncPusher for a sync session or connection, a Pusher for an async one.

        `committed` is called after a commit that made pushed jobs visible, from whichever thread, at least once
        and maybe more often, also where nothing was kept in the end; it never raises and is quick.
        `unfinished` is asked just before the outermost commit; a text it answers is raised there as NotAwaited,
        and nothing commits. A StoreError for what is no transaction of this store's kind.
        """
        ...


class Ender(Protocol):
    """Marks one job done through someone's transaction (DONE_IN)."""

    sync: ClassVar[Literal[False]] = False

    def done(self) -> Coroutine[Any, Any, bool]:
        """Marks it done as the transaction commits, and not at all as it, or its savepoint, rolls back.

        Answers whether its claim has it: False changes nothing, as `Kept.LOST`. Until the transaction has ended no
        claim takes the job, also after its hold, and a mark of it is answered BUSY, or waits.
        """
        ...


class SyncEnder(Protocol):
    """Marks one job done through someone's sync transaction (DONE_IN)."""

    sync: ClassVar[Literal[True]] = True

    def done(self) -> bool:
        """As `Ender.done`."""
        ...


class DoneInStore(Store, Protocol):
    """Marks a job done through a transaction of the app's own (DONE_IN)."""

    def done_within(
        self,
        tx: object,
        job: Job,
        committed: Callable[[], None] = lambda: None,
        unfinished: Callable[[], str | None] = lambda: None,
    ) -> Ender | SyncEnder:
        """What marks the claimed job done in `tx`: a SyncEnder for a sync session or connection, else an Ender.

        `tx`, `unfinished` and the StoreError are those of `TransactionStore.within`, and so is `committed`, but for
        a transaction whose end no one is told of: there it may never be called.
        """
        ...


class Run(NamedTuple):
    """A run of a schedule (SCHEDULES)."""

    schedule: str
    due: int
    """The instant it's for, in Unix microseconds; its job may be due later (jitter)."""
    job: NewJob


class ScheduleStore(Store, Protocol):
    """Keeps which run of each schedule was pushed last (SCHEDULES)."""

    async def now(self) -> int:
        """The store's now, in Unix microseconds: the one by which its jobs are due."""
        ...

    async def runs(self, schedules: Sequence[str]) -> Mapping[str, int]:
        """The last run that was pushed of each of these schedules that had one, in Unix microseconds. A read alone."""
        ...

    async def push_run(self, run: Run) -> bool:
        """Pushes the run unless one of its schedule due then or later was pushed already, and says whether it did.

        The run and its job are kept together or not at all; of several instances that push a run, one does. A
        run of a key that waits (UNIQUE) is kept without a job of its own, and moves nothing, its job `latest` too.
        What is kept of a schedule stays: nobody says that one is gone.
        """
        ...


class ListenStore(Store, Protocol):
    """Hears of pushes of other instances (LISTEN)."""

    def listen(self, wake: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """While entered, calls `wake`, from any thread, when another instance may have pushed.

        A hint: it may come late, for nothing, or never. A wake that raises ends nothing, and once the block is left
        none is called. It may be entered several times at once. Entering may raise, as the database is down, and so
        may the block itself, where the way to hear is lost for good: then it's entered again.
        """
        ...


class KindCount(NamedTuple):
    """How many jobs of a kind there are, each number capped (COUNTS)."""

    kind: str
    waiting: int
    """Those that wait, due or not, but for the parked."""
    due: int
    """Of these, the ones whose time has come."""
    held: int
    """Those that run, or whose worker was lost since and whom no claim has seen yet."""
    parked: int
    failed: int
    oldest: int | None
    """How many microseconds the waiting job that is due longest has been due; None where none is."""
    held_back: int
    """How many microseconds the kind is still held back."""
    paused: bool


class CountsStore(Store, Protocol):
    """Counts and shows jobs (COUNTS). Each of these reads alone, and waits for nobody's transaction."""

    async def counts(self, *, cap: int = 10_000) -> list[KindCount]:
        """A row for each kind that was ever registered or pushed, in the order of their names.

        A store hears of a registered kind by its `open` (LIFECYCLE), or else by the first claim that names it. No
        number goes past `cap` + 1, nor does what is read to find it, however many jobs there are.
        """
        ...

    async def job(self, id: str, *, cut: int | None = None) -> KeptJob | None:
        """One job as it's kept, or None: it's done, was removed, or never was. `cut` as in `FailedStore.failed`."""
        ...

    async def jobs(
        self,
        kind: str,
        state: JobState,
        *,
        after: tuple[int, str] | None = None,
        limit: int = 100,
        cut: int | None = None,
    ) -> list[KeptJob]:
        """The jobs of a kind that are WAITING, in the order they're due, or HELD, in the order their holds end.

        `after` is the (run_at, id) of the last one seen before this page, or the (held_until, id) of a held one.
        What `job` tells beside the job itself (`behind`, `kind_…`) is told here too. A StoreError for another state.
        """
        ...


class Cancelled(Enum):
    """What a store answers to a cancel."""

    REMOVED = "removed"
    """It waited, and is gone."""
    ASKED = "asked"
    """It's held: whoever holds it is asked to stop it, and no later claim runs it."""
    BUSY = "busy"
    """Someone's open transaction has the row. Nothing changed; ask again."""
    NOT_THERE = "not there"
    """No such job is kept, or it has failed. Nothing changed."""


class CancelStore(Store, Protocol):
    """Cancels jobs that wait, and asks those that run to stop (CANCEL)."""

    async def cancel(self, ids: Sequence[str]) -> list[Cancelled]:
        """Removes jobs that wait, parked ones too, and asks held ones to stop; says what became of each, in order.

        What is removed has its key and name let go as by `Done`, and the next of its key woken; a mark of it is LOST.
        Each `Extend` of a job that was asked to stop is kept and answers STOP, and `asked` names it. A job whose hold
        has run out counts as one that waits. An id given twice is answered as by two cancels, one after the other.

        A stop outlives the claim that it was asked of: each later one returns the job with `stop_asked`, for its
        worker to remove it. A mark that has such a job wait leaves it due as it was, and its key to others. One that
        fails for good is kept as any other, and `run_again` ends the stop. Others hear of a cancel that lets the next
        of a key go as of a push (LISTEN).
        """
        ...

    async def asked(self, held: Sequence[tuple[str, int]]) -> set[str]:
        """Of these jobs, each with its claim, the ids of those that were asked to stop and whose claim has them still.

        A read alone.
        """
        ...


class ProgressStore(Store, Protocol):
    """Keeps how far running jobs are (PROGRESS)."""

    async def progress(self, reports: Sequence[tuple[str, int, str]]) -> None:
        """Keeps the JSON text of each (id, claim, text) whose claim has the job, as a mark's must, and leaves all else.

        Of several of one claim the last is kept. It stays until the next report, through retries, in the failed and by
        a run again, and goes with the job. A row that someone's transaction has is left as it is, and nobody waits
        for it.
        """
        ...


class PruneStore(Store, Protocol):
    """Removes what is kept no longer, and mends what only a sweep can (PRUNE)."""

    async def prune(self, failed_for: int, limit: int) -> int:
        """Removes at most `limit` rows: jobs that failed over `failed_for` microseconds ago, and ended names,
        slots and counters. Answers how many."""
        ...

    async def sweep(self) -> int:
        """Wakes a parked job of each key that nobody holds. Answers how many."""
        ...


class PauseStore(Store, Protocol):
    """Pauses kinds on all instances (PAUSE)."""

    async def pause(self, kind: str, paused: bool) -> bool:
        """While a kind is paused no claim returns a job of it, or fails one, or has it in `next_in`; the jobs that run
        go on, and pushes are kept.

        It stays paused, through restarts and deploys, until it's resumed by `paused=False`. Answers whether there is
        such a kind: one that was never registered or pushed (`CountsStore.counts`) is not paused. Others hear of an end
        of a pause as of a push (LISTEN).
        """
        ...


class Places(NamedTuple):
    """Places of a throttle that were taken (THROTTLE): each lets one job start."""

    name: str
    key: str
    slots: tuple[int, ...]
    until: int
    """What tells these from whoever takes the slots later: they're kept free for them until then, in Unix microseconds
    by the store's clock, and are free again after it."""
    wait: int
    """Where fewer were taken than were wanted: microseconds until the next may be free. 0 else."""


class Throttled(NamedTuple):
    """What is asked of a throttle (THROTTLE)."""

    name: str
    key: str
    most: int
    per: int
    """Microseconds."""
    wanted: int


class ThrottleStore(Store, Protocol):
    """Counts for rates, on all instances together (THROTTLE)."""

    async def take(self, asked: Sequence[Throttled]) -> list[Places]:
        """Takes up to `wanted` places of each, such that no window of `per` ever has more than `most` starts.

        The places count as taken until they're settled. Whoever dies in between loses them: they're free again
        10 seconds and `per` later. One that finds no place free writes nothing.
        """
        ...

    async def settle(self, started: Sequence[tuple[Places, int, int]]) -> None:
        """Of each of these places so many started, at that time by the store's clock (a claim's `now`); the rest
        are free again. Places that were lost meanwhile are left as they are."""
        ...


_NEEDS: Mapping[Extra, Extra] = {
    Extra.LATEST: Extra.UNIQUE,
    Extra.ONE_AT_A_TIME: Extra.UNIQUE,
}


@overload
def supports(store: Store, extra: Literal[Extra.FAILED]) -> TypeIs[FailedStore]: ...
@overload
def supports(store: Store, extra: Literal[Extra.TRANSACTIONS]) -> TypeIs[TransactionStore]: ...
@overload
def supports(store: Store, extra: Literal[Extra.DONE_IN]) -> TypeIs[DoneInStore]: ...
@overload
def supports(store: Store, extra: Literal[Extra.SCHEDULES]) -> TypeIs[ScheduleStore]: ...
@overload
def supports(store: Store, extra: Literal[Extra.LISTEN]) -> TypeIs[ListenStore]: ...
@overload
def supports(store: Store, extra: Literal[Extra.COUNTS]) -> TypeIs[CountsStore]: ...
@overload
def supports(store: Store, extra: Literal[Extra.CANCEL]) -> TypeIs[CancelStore]: ...
@overload
def supports(store: Store, extra: Literal[Extra.PRUNE]) -> TypeIs[PruneStore]: ...
@overload
def supports(store: Store, extra: Literal[Extra.PAUSE]) -> TypeIs[PauseStore]: ...
@overload
def supports(store: Store, extra: Literal[Extra.THROTTLE]) -> TypeIs[ThrottleStore]: ...
@overload
def supports(store: Store, extra: Literal[Extra.LIFECYCLE]) -> TypeIs[LifecycleStore]: ...
@overload
def supports(store: Store, extra: Literal[Extra.PROGRESS]) -> TypeIs[ProgressStore]: ...
@overload
def supports(store: Store, extra: Extra) -> bool: ...
def supports(store: Store, extra: Extra) -> bool:
    """Whether the store has the extra (all of them, for several), and what that one stands on."""
    for part, needed in _NEEDS.items():
        if part in extra:
            extra |= needed
    return extra in store.extras


def require(store: Store, extra: Extra, what: str) -> None:
    """Raises a StoreError that names the store and what asked, where the store lacks the extra."""
    if not supports(store, extra):
        lacking = ", ".join(part.name or "" for part in extra if not supports(store, part))
        raise StoreError(
            f"{what} needs a store with {lacking}, and {type(store).__name__} has"
            f" {', '.join(part.name or '' for part in store.extras) or 'no extras'}"
        )

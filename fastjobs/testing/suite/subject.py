"""What every subject of the suite stands on: the fixtures, the time limit, and the words its tests are written in."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar

import pytest

from fastjobs.core.claiming import Claimable, Claimed
from fastjobs.core.job import Job, NewJob
from fastjobs.core.marks import Done, Extend, Fail, GiveBack, Kept, Mark, TryAgain
from fastjobs.store import Extra, Store, supports
from fastjobs.testing.clock import Clock

SECOND = 1_000_000
MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE
HOLD = MINUTE
"""What the suite's claims hold for, where a test says nothing else."""
NO_IDS = ("", "0", "-1", "999999999", "9" * 40, "x", "1.5", "\u0663", "1 or 1=1")
"""What is no job's id, unless a test's own job has it."""


class Subject:
    """A part of the suite. Its tests are async, run by anyio's pytest plugin, and each has `time_limit`."""

    pytestmark: ClassVar = [pytest.mark.anyio]

    races: ClassVar[int] = 8
    """How many tasks a race has."""
    time_limit: ClassVar[float] = 30
    """Seconds that a test may take."""
    heard_within: ClassVar[float] = 10
    """Seconds within which a push of another instance is to be heard of (LISTEN)."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        for name, test in list(vars(cls).items()):
            if name.startswith("test_") and inspect.iscoroutinefunction(test):
                setattr(cls, name, _limited(test))

    @pytest.fixture
    def anyio_backend(self) -> str:
        """The suite is asyncio's."""
        return "asyncio"

    @pytest.fixture
    def clock(self) -> Clock:
        """The store's clock, which the tests move. Where a store takes none, one whose `advance` really waits."""
        return Clock()

    @pytest.fixture
    async def store(self, clock: Clock) -> Store:
        """A store with no jobs, on the suite's clock. Each suite gives its own."""
        raise NotImplementedError(f"{type(self).__name__} gives no `store` fixture")

    @pytest.fixture
    async def other(self, store: Store) -> Store:
        """Another instance's store of the same jobs, on the same clock; a store that is all there is gives itself.
        A suite for a store with LISTEN gives it."""
        if not supports(store, Extra.LISTEN):
            return store
        raise NotImplementedError(f"{type(self).__name__} gives no `other` fixture")

    async def writes(self, store: Store) -> int | None:
        """How often the store's database has been written to, for the promises that what finds nothing writes nothing.

        None, the default, skips those tests.
        """
        return None

    async def writes_nothing(self, store: Store, look: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Sees that a few looks write nothing; skips where nobody counts the writes."""
        before = await self.writes(store)
        if before is None:
            pytest.skip(f"{type(self).__name__} lacks `writes`, which counts them")
        for _ in range(3):
            await look()
        assert await self.writes(store) == before, "what found nothing wrote"


def _limited(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Coroutine[Any, Any, None]]:
    @functools.wraps(test)
    async def limited(self: Subject, *args: Any, **more: Any) -> None:
        async with asyncio.timeout(self.time_limit):
            await test(self, *args, **more)

    return limited


class Heard:
    """What a store is to wake, from whichever thread, and the wait for that."""

    def __init__(self, within: float, *, raises: Exception | None = None) -> None:
        """`raises` is what each wake raises, once it has been noted."""
        self._within = within
        self._raises = raises
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def wake(self) -> None:
        self._loop.call_soon_threadsafe(self._event.set)
        if self._raises is not None:
            raise self._raises

    def is_set(self) -> bool:
        """Whether it was woken since it was cleared."""
        return self._event.is_set()

    def clear(self) -> None:
        self._event.clear()

    async def once_more(self, otherwise: str) -> None:
        """Returns as it's woken after the wakes before; fails with `otherwise` where it isn't in time."""
        try:
            async with asyncio.timeout(self._within):
                await self._event.wait()
        except TimeoutError:
            pytest.fail(f"{otherwise}, in {self._within:g} s")
        self._event.clear()

    async def settled(self) -> None:
        """Returns once the wakes that threads have asked of the loop by now are noted."""
        for _ in range(3):
            await asyncio.sleep(0)


def need(store: Store, extra: Extra) -> None:
    """Skips the test, with the extra's name, where the store lacks it."""
    if not supports(store, extra):
        pytest.skip(f"{type(store).__name__} lacks {extra.name}")


def of(
    kind: str = "mail",
    *,
    hold: int = HOLD,
    attempts: int = 5,
    limit: int | None = None,
    priority: int = 0,
    ahead_ok: bool = True,
    at_once: int | None = None,
) -> Claimable:
    """A claimer's numbers for a kind."""
    return Claimable(
        kind=kind,
        hold=hold,
        attempts=attempts,
        limit=limit,
        priority=priority,
        ahead_ok=ahead_ok,
        at_once=at_once,
    )


def key_of(value: str) -> bytes:
    """The key of a value, as a queue makes them: 32 bytes that may be any."""
    return hashlib.sha256(value.encode()).digest()


def keyed(
    payload: str,
    key: str = "a",
    *,
    kind: str = "mail",
    at: int | None = None,
    after: int = 0,
    latest: bool = False,
    at_most: int | None = None,
    alone: bool = False,
    name: str | None = None,
    carried: str | None = None,
) -> NewJob:
    """A job of a unique kind."""
    return NewJob(
        kind=kind,
        payload=payload,
        at=at,
        after=after,
        key=key_of(key),
        latest=latest,
        at_most=at_most,
        one_at_a_time=alone,
        name=name,
        carried=carried,
    )


async def push_one(store: Store, job: NewJob) -> str | None:
    """Pushes a job that may be there already."""
    (id,) = await store.push([job])
    return id


async def push(
    store: Store, *payloads: str, kind: str = "mail", at: int | None = None, after: int = 0
) -> list[str]:
    """Pushes a job for each payload, in one batch."""
    return pushed(
        await store.push([NewJob(kind=kind, payload=each, at=at, after=after) for each in payloads])
    )


def pushed(ids: Sequence[str | None]) -> list[str]:
    """The ids that a push answered, each of which must be one."""
    assert all(isinstance(id, str) and id for id in ids), f"a push answered {ids}"
    return [id for id in ids if id is not None]


async def claim(
    store: Store,
    *kinds: Claimable,
    limit: int = 100,
    ahead: int = 0,
    others: Claimable | None = None,
) -> Claimed:
    """Claims, of kind "mail" where nothing is named, and again while the store says that something was in the way."""
    asked = kinds or (() if others is not None else (of(),))
    found = await store.claim(asked, limit, ahead=ahead, others=others)
    for _ in range(100):
        if not found.again or len(found.jobs) >= limit:
            break
        more = await store.claim(asked, limit - len(found.jobs), ahead=ahead, others=others)
        found = Claimed(
            jobs=[*found.jobs, *more.jobs],
            exhausted=[*found.exhausted, *more.exhausted],
            again=more.again,
            next_in=more.next_in,
            now=more.now,
        )
    return found


async def take(store: Store, *kinds: Claimable, limit: int = 100) -> list[Job]:
    """The jobs that a claim returns."""
    return (await claim(store, *kinds, limit=limit)).jobs


async def take_one(store: Store, *kinds: Claimable) -> Job:
    """The one job that a claim returns."""
    (job,) = await take(store, *kinds)
    return job


async def payloads(store: Store, *kinds: Claimable, limit: int = 100) -> list[str]:
    """What the jobs that a claim returns were pushed with."""
    return [job.payload for job in await take(store, *kinds, limit=limit)]


async def mark(store: Store, *marks: Mark) -> list[Kept]:
    """Marks, and sees that each is answered."""
    kept = await store.mark(marks)
    assert len(kept) == len(marks), f"{len(marks)} marks were answered by {kept}"
    return list(kept)


async def mark_in_the_end(store: Store, *marks: Mark) -> list[Kept]:
    """As `mark`, and again, for a second, while another transaction has one of the rows, as in a race it may."""
    kept = await mark(store, *marks)
    for _ in range(200):
        busy = [n for n, each in enumerate(kept) if each is Kept.BUSY]
        if not busy:
            break
        await asyncio.sleep(0.005)
        for n, each in zip(busy, await mark(store, *(marks[n] for n in busy)), strict=True):
            kept[n] = each
    return kept


MakeMark = Callable[[Job], Mark]

ENDS: dict[str, MakeMark] = {
    "Done": lambda job: Done(job.id, job.claim),
    "TryAgain": lambda job: TryAgain(job.id, job.claim, 0, "it failed"),
    "Fail": lambda job: Fail(job.id, job.claim, "it failed for good"),
    "GiveBack": lambda job: GiveBack(job.id, job.claim),
}
"""The marks that end a claim."""
MARKS: dict[str, MakeMark] = {**ENDS, "Extend": lambda job: Extend(job.id, job.claim, 10 * HOLD)}


async def is_held_by(store: Store, job: Job) -> None:
    """Sees that the claim has its job, by what only its holder can do, and ends it."""
    assert await take(store) == [], "a held job was claimed"
    assert await mark(store, Extend(job.id, job.claim, HOLD)) == [Kept.YES], "the job's holder has it no more"
    assert await mark(store, Done(job.id, job.claim)) == [Kept.YES], "the job's holder has it no more"

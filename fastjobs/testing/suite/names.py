"""The suite on names: a push of a name that is taken pushes nothing (NAMES)."""

from __future__ import annotations

import asyncio

from fastjobs.core.job import NewJob
from fastjobs.core.marks import Done, Fail, GiveBack, Kept, TryAgain
from fastjobs.store import Extra, Store, supports
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.subject import (
    HOLD,
    MINUTE,
    SECOND,
    Subject,
    claim,
    keyed,
    mark,
    need,
    of,
    payloads,
    push_one,
    take,
    take_one,
)


class Names(Subject):
    """A name is taken while its job is kept, and `keep_name` microseconds after it has ended."""

    async def test_a_push_of_a_name_that_is_taken_pushes_nothing(self, store: Store) -> None:
        need(store, Extra.NAMES)
        assert await push_one(store, _named("1")) is not None
        assert await push_one(store, _named("2")) is None
        assert await payloads(store) == ["1"]
        assert await take(store) == []

    async def test_other_names_and_none_are_pushed(self, store: Store) -> None:
        need(store, Extra.NAMES)
        names = [
            "a",
            "A",
            "a ",
            "a.",
            "ä",
            "\N{SLIGHTLY SMILING FACE}",
            "x" * 100,
            "x" * 99,
            "'; --",
            None,
            None,
        ]
        for n, name in enumerate(names):
            assert await push_one(store, _named(str(n), name)) is not None, f"{name!r} was another's"
        for name in names[:-2]:
            assert await push_one(store, _named('"gone"', name)) is None
        assert await payloads(store) == [str(n) for n in range(len(names))]

    async def test_a_name_is_one_of_all_kinds(self, store: Store) -> None:
        need(store, Extra.NAMES)
        assert await push_one(store, _named("1", kind="mail")) is not None
        assert await push_one(store, _named("2", kind="photo")) is None
        assert await payloads(store, of("mail"), of("photo")) == ["1"]

    async def test_of_one_push_the_first_of_a_name_is_kept(self, store: Store) -> None:
        need(store, Extra.NAMES)
        ids = await store.push([_named("1", "a"), _named("2", "b"), _named("3", "a"), _named("4", None)])
        assert [id is None for id in ids] == [False, False, True, False]
        assert await payloads(store) == ["1", "2", "4"]

    async def test_a_name_is_taken_while_its_job_is_kept(self, store: Store, clock: Clock) -> None:
        """Whether it waits, is held, tries again, was given back, lost its worker, or failed."""
        need(store, Extra.NAMES)
        await push_one(store, _named("1"))
        await self._is_taken(store)
        job = await take_one(store)
        await self._is_taken(store)
        await mark(store, TryAgain(job.id, job.claim, 0, "x"))
        await self._is_taken(store)
        job = await take_one(store)
        await mark(store, GiveBack(job.id, job.claim))
        await self._is_taken(store)
        await take_one(store)
        clock.advance(HOLD / SECOND + 1)
        job = await take_one(store)
        await self._is_taken(store)
        await mark(store, Fail(job.id, job.claim, "x"))
        clock.advance(60 * MINUTE / SECOND)
        await self._is_taken(store)

    async def test_a_name_is_taken_by_a_job_that_used_up_its_attempts(
        self, store: Store, clock: Clock
    ) -> None:
        need(store, Extra.NAMES)
        await push_one(store, _named("1"))
        await take_one(store, of(attempts=1))
        clock.advance(HOLD / SECOND + 1)
        assert len((await claim(store, of(attempts=1))).exhausted) == 1
        await self._is_taken(store)

    async def test_a_name_with_nothing_kept_is_free_as_its_job_ends(self, store: Store) -> None:
        need(store, Extra.NAMES)
        for n in range(3):
            assert await push_one(store, _named(str(n))) is not None
            job = await take_one(store)
            await mark(store, Done(job.id, job.claim))

    async def test_a_name_stays_taken_so_long_after_its_jobs_end(self, store: Store, clock: Clock) -> None:
        need(store, Extra.NAMES)
        for n in range(2):
            assert await push_one(store, _named(str(n), keep_name=10 * SECOND)) is not None
            clock.advance(30)
            job = await take_one(store)
            clock.advance(30)
            await mark(store, Done(job.id, job.claim))
            await self._is_taken(store)
            clock.advance(9.999999)
            await self._is_taken(store)
            clock.advance(0.000001)
        assert await push_one(store, _named('"free"')) is not None

    async def test_a_batch_of_ends_keeps_each_name_its_own_time(self, store: Store, clock: Clock) -> None:
        need(store, Extra.NAMES)
        names = [f"name {n}" for n in range(10)]
        await store.push([_named(str(n), name, keep_name=n * SECOND) for n, name in enumerate(names)])
        jobs = await take(store)
        assert await mark(store, *(Done(job.id, job.claim) for job in jobs)) == [Kept.YES] * len(names)
        for n in range(10):
            ids = await store.push([_named('"again"', name, keep_name=60 * MINUTE) for name in names])
            assert [at for at, id in enumerate(ids) if id is not None] == [n]
            clock.advance(1)

    async def test_a_deleted_jobs_name_is_kept_so_long_too(self, store: Store, clock: Clock) -> None:
        need(store, Extra.NAMES | Extra.FAILED)
        assert supports(store, Extra.FAILED)
        await push_one(store, _named("1", keep_name=10 * SECOND))
        await push_one(store, _named("2", "other"))
        one, two = await take(store)
        await mark(store, Fail(one.id, one.claim, "x"), Fail(two.id, two.claim, "x"))
        assert await store.delete([one.id, two.id]) == [True, True]
        await self._is_taken(store)
        assert await push_one(store, _named("3", "other")) is not None
        clock.advance(10)
        assert await push_one(store, _named("4")) is not None

    async def test_a_job_run_again_has_its_name(self, store: Store, clock: Clock) -> None:
        need(store, Extra.NAMES | Extra.FAILED)
        assert supports(store, Extra.FAILED)
        await push_one(store, _named("1", keep_name=10 * SECOND))
        job = await take_one(store)
        await mark(store, Fail(job.id, job.claim, "x"))
        await store.run_again([job.id])
        await self._is_taken(store)
        job = await take_one(store)
        await mark(store, Done(job.id, job.claim))
        await self._is_taken(store)
        clock.advance(10)
        assert await push_one(store, _named("2")) is not None

    async def test_a_late_done_frees_no_name(self, store: Store, clock: Clock) -> None:
        need(store, Extra.NAMES)
        await push_one(store, _named("1"))
        old = await take_one(store)
        clock.advance(HOLD / SECOND + 1)
        await take_one(store)
        assert await mark(store, Done(old.id, old.claim)) == [Kept.LOST]
        await self._is_taken(store)

    # Beside keys

    async def test_a_name_that_is_refused_touches_no_job_of_its_key(self, store: Store, clock: Clock) -> None:
        need(store, Extra.NAMES | Extra.LATEST)
        await push_one(store, keyed("1", "a", latest=True))
        await push_one(store, _named("2", "taken"))
        assert await push_one(store, keyed("3", "a", after=MINUTE, latest=True, name="taken")) is None
        assert await payloads(store) == ["1", "2"], "a push whose name was refused moved the job of its key"

    async def test_a_key_that_is_refused_takes_no_name(self, store: Store) -> None:
        need(store, Extra.NAMES | Extra.UNIQUE)
        await push_one(store, keyed("1", "a"))
        assert await push_one(store, keyed("2", "a", name="free")) is None
        assert await push_one(store, keyed("3", "b", name="free")) is not None
        assert await payloads(store) == ["1", "3"]

    async def test_a_push_that_moves_a_job_gives_it_no_name(self, store: Store) -> None:
        need(store, Extra.NAMES | Extra.LATEST)
        id = await push_one(store, keyed("1", "a", latest=True, name="its own"))
        assert await push_one(store, keyed("2", "a", latest=True, name="free")) == id
        assert await push_one(store, keyed("3", "b", name="free")) is not None
        assert await push_one(store, keyed("4", "c", name="its own")) is None

    # At once

    async def test_of_pushes_of_one_name_at_once_one_is_kept(self, store: Store, other: Store) -> None:
        need(store, Extra.NAMES)
        for n in range(4):
            ids = await asyncio.gather(
                *(push_one([store, other][m % 2], _named(str(m), f"name {n}")) for m in range(2 * self.races))
            )
            kept = [id for id in ids if id is not None]
            assert len(kept) == 1, f"{len(kept)} pushes of one name at once were kept"
            job = await take_one(store)
            assert job.id == kept[0]

    async def test_pushes_beside_a_jobs_end_keep_its_name(
        self, store: Store, other: Store, clock: Clock
    ) -> None:
        """Between the job and the time that its name is kept there's no moment at which the name is free."""
        need(store, Extra.NAMES)
        for n in range(6):
            await push_one(store, _named("1", f"name {n}", keep_name=10 * SECOND))
            job = await take_one(store)
            kept, *ids = await asyncio.gather(
                mark(store, Done(job.id, job.claim)),
                *(push_one(other, _named('"gone"', f"name {n}")) for _ in range(4)),
            )
            assert (kept, ids) == ([Kept.YES], [None] * 4)

    async def _is_taken(self, store: Store) -> None:
        assert await push_one(store, _named('"gone"')) is None


def _named(
    payload: str, name: str | None = "report of May", *, kind: str = "mail", keep_name: int = 0
) -> NewJob:
    return NewJob(kind=kind, payload=payload, name=name, keep_name=keep_name)

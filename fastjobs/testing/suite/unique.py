"""The suite on keys: one job of a kind and key waits at a time (UNIQUE).

Longer than 300 lines, as it's one subject: when a key is taken, let go and had back.
"""

from __future__ import annotations

import asyncio

import pytest

from fastjobs.core.job import Job, NewJob
from fastjobs.core.marks import Done, Fail, GiveBack, HoldBack, Kept, Mark, TryAgain
from fastjobs.store import Extra, Store, supports
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.chance import Chance
from fastjobs.testing.suite.subject import (
    ENDS,
    HOLD,
    MINUTE,
    SECOND,
    MakeMark,
    Subject,
    claim,
    key_of,
    keyed,
    mark,
    mark_in_the_end,
    need,
    of,
    payloads,
    push_one,
    pushed,
    take,
    take_one,
)

BACK: dict[str, MakeMark] = {
    "GiveBack": lambda job: GiveBack(job.id, job.claim),
    "HoldBack": lambda job: HoldBack(job.id, job.claim, SECOND),
}
"""The marks that undo a claim."""


class Unique(Subject):
    """While a job of a kind and key waits, a push of another answers None and pushes nothing."""

    async def test_a_push_of_a_key_that_waits_pushes_nothing(self, store: Store) -> None:
        need(store, Extra.UNIQUE)
        assert await push_one(store, keyed("1")) is not None
        for _ in range(3):
            assert await push_one(store, keyed('"gone"')) is None
        assert await payloads(store) == ["1"]
        assert await take(store) == []

    async def test_what_a_waiting_job_was_pushed_with_stays(self, store: Store, clock: Clock) -> None:
        need(store, Extra.UNIQUE)
        carries = supports(store, Extra.CARRY)
        carried = ['{"n":"1"}', '{"n":"2"}'] if carries else [None, None]
        due = clock.now() + MINUTE
        id = await push_one(store, keyed("1", after=MINUTE, carried=carried[0]))
        clock.advance(1)
        for at in (0, due + MINUTE):
            assert await push_one(store, keyed("2", at=at, carried=carried[1])) is None
        assert await take(store) == [], "a push of a key that waits moved its job"
        clock.advance(59)
        job = await take_one(store)
        assert (job.id, job.payload, job.run_at, job.carried) == (id, "1", due, carried[0])

    async def test_a_key_is_its_kinds_own(self, store: Store) -> None:
        need(store, Extra.UNIQUE)
        assert await push_one(store, keyed("1", kind="mail")) is not None
        assert await push_one(store, keyed("2", kind="photo")) is not None
        assert await push_one(store, keyed("3", kind="photo")) is None
        assert await payloads(store, of("mail"), of("photo")) == ["1", "2"]

    async def test_another_key_is_pushed(self, store: Store) -> None:
        """A key may be any bytes, and none is another's, whatever a database thinks of text."""
        need(store, Extra.UNIQUE)
        first = key_of("a")
        keys = [first, first[:-1] + bytes([first[-1] ^ 1]), bytes([first[0] ^ 0x20]) + first[1:]]
        keys += [bytes(32), bytes(31) + b"\x20", b"\xff" * 32, b"A" * 32, b"a" * 32, b" " * 32]
        for n, key in enumerate(keys):
            assert await push_one(store, NewJob(kind="mail", payload=str(n), key=key)) is not None
        for key in keys:
            assert await push_one(store, NewJob(kind="mail", payload='"gone"', key=key)) is None
        assert await payloads(store) == [str(n) for n in range(len(keys))]

    async def test_jobs_without_a_key_are_in_nobodys_way(self, store: Store) -> None:
        need(store, Extra.UNIQUE)
        plain = NewJob(kind="mail", payload="1")
        assert pushed(await store.push([plain, keyed("2"), plain]))
        assert await push_one(store, plain) is not None
        assert await push_one(store, keyed("3")) is None
        assert await payloads(store) == ["1", "2", "1", "1"]

    async def test_of_one_push_the_first_of_a_key_is_kept(self, store: Store) -> None:
        need(store, Extra.UNIQUE)
        ids = await store.push(
            [keyed("1", "a"), keyed("2", "b"), keyed("3", "a"), keyed("4", "c"), keyed("5", "b")]
        )
        assert [id is None for id in ids] == [False, False, True, False, True]
        assert [(job.id, job.payload) for job in await take(store)] == [
            (ids[0], "1"),
            (ids[1], "2"),
            (ids[3], "4"),
        ]

    async def test_a_push_answers_each_of_many_in_its_place(self, store: Store) -> None:
        need(store, Extra.UNIQUE)
        keys = [n % 70 for n in range(200)]
        await store.push([keyed('"before"', str(n)) for n in range(0, 70, 7)])
        ids = await store.push([keyed(str(at), str(n)) for at, n in enumerate(keys)])
        assert [id is not None for id in ids] == [at < 70 and at % 7 > 0 for at in range(200)]
        found = {job.id: job.payload for job in await take(store, limit=300) if job.payload != '"before"'}
        assert found == {id: str(at) for at, id in enumerate(ids) if id is not None}

    # When a key is let go

    async def test_a_claim_lets_its_jobs_key_go(self, store: Store) -> None:
        need(store, Extra.UNIQUE)
        await push_one(store, keyed("1"))
        job = await take_one(store)
        assert await push_one(store, keyed("2")) is not None
        assert await push_one(store, keyed("3")) is None
        assert await payloads(store) == ["2"]
        assert await mark(store, Done(job.id, job.claim)) == [Kept.YES]

    async def test_a_job_to_try_again_does_not_take_its_key_back(self, store: Store) -> None:
        need(store, Extra.UNIQUE)
        await push_one(store, keyed("1"))
        job = await take_one(store)
        assert await mark(store, TryAgain(job.id, job.claim, 0, "x")) == [Kept.YES]
        assert await push_one(store, keyed("2")) is not None
        assert await push_one(store, keyed("3")) is None
        assert sorted(await payloads(store)) == ["1", "2"]

    async def test_a_job_that_lost_its_worker_does_not_take_its_key_back(
        self, store: Store, clock: Clock
    ) -> None:
        need(store, Extra.UNIQUE)
        await push_one(store, keyed("1"))
        await take_one(store)
        clock.advance(HOLD / SECOND + 1)
        assert await take(store, of("mail", limit=0)) == []
        assert await push_one(store, keyed("2")) is not None
        assert await push_one(store, keyed("3")) is None
        assert sorted(await payloads(store)) == ["1", "2"]

    async def test_a_job_that_ended_has_no_key(self, store: Store) -> None:
        need(store, Extra.UNIQUE)
        for end in (ENDS["Done"], ENDS["Fail"]):
            assert await push_one(store, keyed("1")) is not None
            assert await mark(store, end(await take_one(store))) == [Kept.YES]
        assert await push_one(store, keyed("2")) is not None
        assert await payloads(store) == ["2"]

    async def test_a_job_that_has_its_key_and_no_attempts_left_fails_without_it(self, store: Store) -> None:
        need(store, Extra.UNIQUE)
        await push_one(store, keyed("1"))
        job = await take_one(store)
        await mark(store, TryAgain(job.id, job.claim, 0, "x"))
        job = await take_one(store)
        await mark(store, GiveBack(job.id, job.claim))
        assert await push_one(store, keyed("2")) is None, "it has its key again"
        # A deploy has made them fewer.
        assert [job.payload for job in (await claim(store, of(attempts=1))).exhausted] == ["1"]
        assert await push_one(store, keyed("3")) is not None, "a failed job keeps its value from being pushed"

    async def test_a_job_run_again_does_not_take_its_key_back(self, store: Store) -> None:
        need(store, Extra.UNIQUE | Extra.FAILED)
        assert supports(store, Extra.FAILED)
        await push_one(store, keyed("1"))
        job = await take_one(store)
        await mark(store, Fail(job.id, job.claim, "x"))
        assert await store.run_again([job.id]) == [True]
        assert await push_one(store, keyed("2")) is not None
        assert await push_one(store, keyed("3")) is None
        assert sorted(await payloads(store)) == ["1", "2"]

    # When it's had back

    @pytest.mark.parametrize("back", BACK.values(), ids=BACK.keys())
    async def test_a_job_whose_claim_was_undone_has_its_key_again(
        self, store: Store, clock: Clock, back: MakeMark
    ) -> None:
        await _take_back(store, back)
        assert await push_one(store, keyed("2")) is None
        clock.advance(2)
        assert await payloads(store) == ["1"]
        assert await push_one(store, keyed("3")) is not None

    @pytest.mark.parametrize("back", BACK.values(), ids=BACK.keys())
    async def test_a_key_that_another_took_meanwhile_stays_the_others(
        self, store: Store, clock: Clock, back: MakeMark
    ) -> None:
        _need_back(store, back)
        await push_one(store, keyed("1"))
        job = await take_one(store)
        other = await push_one(store, keyed("2", after=MINUTE))
        assert other is not None
        assert await mark(store, back(job)) == [Kept.YES]
        assert await push_one(store, keyed("3")) is None
        clock.advance(2)
        job = await take_one(store)
        assert (job.payload, job.attempts) == ("1", 1)
        assert await push_one(store, keyed("3")) is None, "a claim let the key of another job go"
        clock.advance(58)
        assert (await take_one(store)).id == other
        assert await push_one(store, keyed("4")) is not None

    @pytest.mark.parametrize("back", BACK.values(), ids=BACK.keys())
    async def test_a_job_without_a_key_has_none_after_its_claim_was_undone(
        self, store: Store, clock: Clock, back: MakeMark
    ) -> None:
        _need_back(store, back)
        await store.push([NewJob(kind="mail", payload="1")])
        await mark(store, back(await take_one(store)))
        await store.push([NewJob(kind="mail", payload="2")])
        assert await push_one(store, keyed("3")) is not None
        clock.advance(2)
        assert await payloads(store) == ["1", "2", "3"]

    async def test_a_batch_of_give_backs_takes_each_key_once(self, store: Store, clock: Clock) -> None:
        """Two jobs of a key may be held at once: one pushed as the other ran. One of them has it back."""
        need(store, Extra.UNIQUE)
        jobs: list[Job] = []
        for n in range(6):
            await push_one(store, keyed(str(n), str(n % 2)))
            jobs.append(await take_one(store))
        marks: list[Mark] = [GiveBack(job.id, job.claim) for job in jobs]
        assert await mark(store, *marks) == [Kept.YES] * 6
        assert await store.push([keyed('"gone"', "0"), keyed('"gone"', "1")]) == [None, None]
        assert await payloads(store) == [str(n) for n in range(6)]
        assert pushed(await store.push([keyed("6", "0"), keyed("7", "1")]))

    @pytest.mark.parametrize("back", BACK.values(), ids=BACK.keys())
    async def test_a_late_mark_takes_no_key_back(self, store: Store, clock: Clock, back: MakeMark) -> None:
        _need_back(store, back)
        await push_one(store, keyed("1"))
        old = await take_one(store)
        clock.advance(HOLD / SECOND + 1)
        await take_one(store)
        assert await mark(store, back(old)) == [Kept.LOST]
        assert await push_one(store, keyed("2")) is not None

    # At once

    async def test_of_pushes_of_one_key_at_once_one_is_kept(self, store: Store, other: Store) -> None:
        need(store, Extra.UNIQUE)
        for n in range(4):
            pushes = (
                push_one([store, other][m % 2], keyed(f"[{n},{m}]", f"{n}")) for m in range(2 * self.races)
            )
            ids = await asyncio.gather(*pushes)
            kept = [(id, m) for m, id in enumerate(ids) if id is not None]
            assert len(kept) == 1, f"{len(kept)} pushes of one key at once were kept"
            job = await take_one(store)
            assert (job.id, job.payload) == (kept[0][0], f"[{n},{kept[0][1]}]")

    async def test_pushes_of_many_keys_at_once_keep_each_once(self, store: Store, other: Store) -> None:
        """In whichever order each names them: nobody waits for whoever waits for him."""
        need(store, Extra.UNIQUE)
        keys = [str(n) for n in range(20)]
        chance = Chance(7)
        answers = await asyncio.gather(
            *(
                [store, other][n % 2].push(
                    [keyed(f'"{each}"', each) for each in chance.sample(keys, len(keys))]
                )
                for n in range(2 * self.races)
            )
        )
        kept = [id for ids in answers for id in ids if id is not None]
        assert len(kept) == len(set(kept)) == len(keys)
        assert sorted(await payloads(store)) == sorted(f'"{each}"' for each in keys)

    async def test_pushes_and_claims_of_one_key_at_once_lose_none(self, store: Store, other: Store) -> None:
        """Each push that was kept is claimed once, and after the last of them one that answered None had a job."""
        need(store, Extra.UNIQUE)
        kept: list[str] = []
        got: list[str] = []

        async def pusher(through: Store) -> None:
            for n in range(15):
                id = await push_one(through, keyed(str(n)))
                kept.extend([] if id is None else [id])
                await asyncio.sleep(0)

        async def claimer(through: Store) -> None:
            for _ in range(15):
                jobs = await take(through)
                got.extend(job.id for job in jobs)
                assert await mark_in_the_end(through, *(Done(job.id, job.claim) for job in jobs)) == [
                    Kept.YES
                ] * len(jobs)

        both = (store, other)
        await asyncio.gather(*(run(both[n % 2]) for n in range(4) for run in (pusher, claimer)))
        left = await take(store)
        assert len(left) <= 1, "two jobs of one key waited"
        got += [job.id for job in left]
        assert sorted(got) == sorted(kept)

    @pytest.mark.parametrize("back", BACK.values(), ids=BACK.keys())
    async def test_pushes_and_marks_that_undo_claims_at_once_leave_one_key(
        self, store: Store, other: Store, clock: Clock, back: MakeMark
    ) -> None:
        _need_back(store, back)
        for n in range(4):
            await push_one(store, keyed(str(n), str(n)))
            job = await take_one(store)
            kept, *ids = await asyncio.gather(
                mark_in_the_end(store, back(job)),
                *(push_one(other, keyed('"new"', str(n))) for _ in range(4)),
            )
            assert kept == [Kept.YES]
            assert sum(id is not None for id in ids) <= 1, "two pushes of one key were kept"
            assert await push_one(store, keyed('"gone"', str(n))) is None
            clock.advance(2)
            jobs = await take(store)
            assert job.id in [each.id for each in jobs]
            assert len(jobs) == 1 + sum(id is not None for id in ids)


def _need_back(store: Store, back: MakeMark) -> None:
    need(store, Extra.UNIQUE)
    if back is BACK["HoldBack"]:
        need(store, Extra.HOLD_BACK)


async def _take_back(store: Store, back: MakeMark) -> None:
    """Pushes a job of a key, claims it and undoes the claim."""
    _need_back(store, back)
    await push_one(store, keyed("1"))
    assert await mark(store, back(await take_one(store))) == [Kept.YES]

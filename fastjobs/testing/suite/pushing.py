"""The suite on `Store.push`."""

from __future__ import annotations

import asyncio

import pytest

from fastjobs.core.job import NewJob
from fastjobs.core.marks import Done, Kept
from fastjobs.store import Store
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.subject import DAY, MINUTE, SECOND, Subject, claim, mark, of, payloads, push, take
from fastjobs.testing.suite.subject import pushed as answered

_YEAR_9999 = 253_370_764_800 * SECOND
_TEXTS = {
    "empty": "",
    "null": "null",
    "escapes": '{"nul":"a\\u0000b","lone":"\\ud800","pair":"\\ud83d\\ude42","quote":"\\"\'`","back":"\\\\"}',
    "sql": "'; DROP TABLE jobs; -- %s :name $1 ?",
    "spaces": ' {"a" : 1}\n\t\r\n ',
    "long number": "1" * 5000,
    "256 KB": '"' + "x" * (256 * 1024 - 2) + '"',
}


class Pushing(Subject):
    """What is pushed is kept, all or none, until it's done or failed."""

    async def test_a_push_answers_an_id_for_each_job_in_order(self, store: Store) -> None:
        ids = await push(store, '"a"', '"b"', '"c"')
        assert len(set(ids)) == 3
        assert {job.id: job.payload for job in await take(store)} == dict(
            zip(ids, ('"a"', '"b"', '"c"'), strict=True)
        )

    async def test_a_push_of_no_jobs_answers_no_ids(self, store: Store) -> None:
        assert list(await store.push([])) == []
        assert await take(store) == []

    async def test_a_pushed_job_is_claimed_with_its_kind_and_payload(
        self, store: Store, clock: Clock
    ) -> None:
        (id,) = await push(store, '{"user":7}', kind="welcome-mail")
        (job,) = await take(store, of("welcome-mail"))
        assert (job.id, job.kind, job.payload) == (id, "welcome-mail", '{"user":7}')
        assert (job.run_at, job.lost, job.error, job.carried) == (clock.now(), 0, None, None)

    async def test_one_push_may_have_jobs_of_several_kinds_and_times(self, store: Store) -> None:
        await store.push(
            [
                NewJob(kind="mail", payload="1", after=MINUTE),
                NewJob(kind="photo", payload="2"),
                NewJob(kind="mail", payload="3"),
            ]
        )
        assert await payloads(store, of("photo")) == ["2"]
        assert await payloads(store) == ["3"]

    async def test_a_push_of_many_jobs_keeps_each(self, store: Store) -> None:
        ids = await push(store, *(str(n) for n in range(1000)))
        jobs = await take(store, limit=1001)
        assert sorted((job.id, job.payload) for job in jobs) == sorted(
            (id, str(n)) for n, id in enumerate(ids)
        )

    async def test_a_push_keeps_all_of_its_jobs_or_none(self, store: Store) -> None:
        """A lone surrogate is no text a database takes. A store may refuse the batch, or keep it whole."""
        jobs = [NewJob(kind="mail", payload=each) for each in ("1", '"\ud800"', "3")]
        try:
            await store.push(jobs)
        except Exception:
            kept = 0
        else:
            kept = 3
        assert len(await take(store)) == kept

    @pytest.mark.parametrize("text", _TEXTS.values(), ids=_TEXTS.keys())
    async def test_a_payload_comes_back_as_it_was(self, store: Store, text: str) -> None:
        await push(store, text)
        assert await payloads(store) == [text]

    async def test_a_kinds_name_is_kept_to_the_letter(self, store: Store) -> None:
        names = ["Mail", "mail", "mail.", "mail:1", "mail_1", "mail-1", "m" * 100, "m" * 99]
        for name in names:
            await push(store, f'"{name}"', kind=name)
        for name in names:
            assert await payloads(store, of(name)) == [f'"{name}"']

    async def test_ids_are_never_used_again(self, store: Store) -> None:
        seen: set[str] = set()
        for _ in range(3):
            ids = await push(store, "1", "2")
            assert not seen & set(ids), "an id of a job that is done was given to another"
            seen.update(ids)
            jobs = await take(store)
            assert await mark(store, *(Done(job.id, job.claim) for job in jobs)) == [Kept.YES, Kept.YES]

    async def test_a_job_with_no_time_is_due_at_once(self, store: Store) -> None:
        await push(store, "1")
        assert await payloads(store) == ["1"]

    async def test_after_is_measured_from_the_stores_now(self, store: Store, clock: Clock) -> None:
        clock.advance(500)
        due = clock.now() + MINUTE
        await push(store, "1", after=MINUTE)
        clock.advance(59)
        assert await take(store) == []
        clock.advance(1)
        (job,) = await take(store)
        assert job.run_at == due

    async def test_a_job_with_a_time_is_due_then(self, store: Store, clock: Clock) -> None:
        at = clock.now() + DAY + 1
        await push(store, "1", at=at)
        clock.advance(DAY // SECOND)
        assert await take(store) == []
        clock.advance(0.000001)
        (job,) = await take(store)
        assert job.run_at == at

    async def test_a_time_in_the_past_is_due_at_once_and_keeps_its_place(
        self, store: Store, clock: Clock
    ) -> None:
        await push(store, "2")
        await push(store, "1", at=clock.now() - 365 * DAY)
        await push(store, "0", at=0)
        assert await payloads(store) == ["0", "1", "2"]

    async def test_a_time_in_the_year_9999_is_kept(self, store: Store, clock: Clock) -> None:
        await push(store, "1", at=_YEAR_9999)
        found = await claim(store)
        assert found.jobs == []
        assert found.next_in is not None
        assert 0 <= found.next_in <= _YEAR_9999 - clock.now()

    async def test_a_job_is_kept_while_others_come_and_go(self, store: Store, clock: Clock) -> None:
        await push(store, '"kept"', after=MINUTE)
        for n in range(20):
            await push(store, str(n))
            (job,) = await take(store)
            await mark(store, Done(job.id, job.claim))
        clock.advance(60)
        assert await payloads(store) == ['"kept"']

    async def test_pushes_at_once_each_keep_their_jobs(self, store: Store) -> None:
        batches = await asyncio.gather(
            *(
                store.push([NewJob(kind="mail", payload=f"[{n},{m}]") for m in range(5)])
                for n in range(self.races)
            )
        )
        ids = {id: f"[{n},{m}]" for n, batch in enumerate(batches) for m, id in enumerate(answered(batch))}
        assert len(ids) == 5 * self.races, "two jobs have one id"
        assert {job.id: job.payload for job in await take(store, limit=5 * self.races + 1)} == ids

"""The suite on what jobs carry (CARRY)."""

from __future__ import annotations

import pytest

from fastjobs.core.job import NewJob
from fastjobs.core.marks import Fail, GiveBack, TryAgain
from fastjobs.store import Extra, Store, supports
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.subject import Subject, claim, mark, need, of, take, take_one

_TEXTS = {
    "short": '{"request_id":"abc"}',
    "escapes": '{"a":"\\u00e9\\ud83d\\ude42\\"\\\\"}',
    "the longest": '{"a":"' + "x" * (4096 - 8) + '"}',
}


class Carrying(Subject):
    """What a push carried comes with its job at each claim, and with the failed."""

    @pytest.mark.parametrize("text", _TEXTS.values(), ids=_TEXTS.keys())
    async def test_what_a_push_carried_comes_with_its_job(self, store: Store, text: str) -> None:
        await _push(store, text)
        assert (await take_one(store)).carried == text

    async def test_each_job_carries_its_own(self, store: Store) -> None:
        need(store, Extra.CARRY)
        carried = ['{"n":"1"}', None, '{"n":"3"}']
        await store.push([NewJob(kind="mail", payload="1", carried=each) for each in carried])
        assert [job.carried for job in await take(store)] == carried

    async def test_a_job_carries_it_through_every_run(self, store: Store, clock: Clock) -> None:
        await _push(store, '{"a":"b"}')
        job = await take_one(store)
        await mark(store, TryAgain(job.id, job.claim, 0, "x"))
        job = await take_one(store)
        await mark(store, GiveBack(job.id, job.claim))
        await take_one(store)
        clock.advance(61)
        assert (await take_one(store)).carried == '{"a":"b"}'

    async def test_an_exhausted_job_carries_it(self, store: Store, clock: Clock) -> None:
        await _push(store, '{"a":"b"}')
        await take_one(store, of(attempts=1))
        clock.advance(61)
        (job,) = (await claim(store, of(attempts=1))).exhausted
        assert job.carried == '{"a":"b"}'

    async def test_a_failed_job_carries_it_and_so_does_its_run_again(self, store: Store) -> None:
        need(store, Extra.FAILED)
        assert supports(store, Extra.FAILED)
        await _push(store, '{"a":"b"}')
        job = await take_one(store)
        await mark(store, Fail(job.id, job.claim, "x"))
        assert [each.carried for each in await store.failed()] == ['{"a":"b"}']
        await store.run_again([job.id])
        assert (await take_one(store)).carried == '{"a":"b"}'


async def _push(store: Store, carried: str) -> None:
    need(store, Extra.CARRY)
    await store.push([NewJob(kind="mail", payload="1", carried=carried)])

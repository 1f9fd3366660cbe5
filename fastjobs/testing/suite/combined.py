"""The suite on keys and limits together: every combination of them holds, through random histories too."""

from __future__ import annotations

from typing import ClassVar

import pytest

from fastjobs.core.marks import Done, HoldBack, Kept
from fastjobs.store import Extra, Store
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.history import ActedOn, History
from fastjobs.testing.suite.subject import (
    MINUTE,
    SECOND,
    Subject,
    keyed,
    mark,
    need,
    of,
    payloads,
    push,
    push_one,
    pushed,
    take,
    take_one,
)

_LIMITS = Extra.UNIQUE | Extra.LATEST | Extra.ONE_AT_A_TIME | Extra.AT_ONCE | Extra.HOLD_BACK


class Combined(Subject):
    """All combinations of unique, latest, one at a time, at once and hold back work."""

    histories: ClassVar[int] = 10
    """How many random histories are tried."""

    async def test_one_at_a_time_and_at_once_hold_together(self, store: Store) -> None:
        need(store, Extra.ONE_AT_A_TIME | Extra.AT_ONCE)
        keys = ["a", "b", "c"]
        pushed(await store.push([keyed(f'"{each} 1"', each, alone=True) for each in keys]))
        terms = of(at_once=2)
        first, second = await take(store, terms)
        pushed(await store.push([keyed(f'"{each} 2"', each, alone=True) for each in ("a", "b")]))
        assert await take(store, terms) == []
        await mark(store, Done(first.id, first.claim))
        assert await payloads(store, terms) == ['"c 1"']
        await mark(store, Done(second.id, second.claim))
        assert await payloads(store, terms) == ['"a 2"']
        assert await take(store, terms) == []

    async def test_a_job_that_waits_for_another_takes_no_place_of_its_kind(self, store: Store) -> None:
        need(store, Extra.ONE_AT_A_TIME | Extra.AT_ONCE)
        await push_one(store, keyed("1", "a", alone=True))
        await take_one(store, of(at_once=2))
        pushed(await store.push([keyed("2", "a", alone=True), keyed("3", "b", alone=True)]))
        assert await payloads(store, of(at_once=2)) == ["3"]
        assert await payloads(store, of(at_once=3)) == []

    async def test_jobs_that_wait_for_another_use_up_no_limit_of_their_kind(
        self, store: Store, clock: Clock
    ) -> None:
        need(store, Extra.ONE_AT_A_TIME)
        keys = [str(n) for n in range(6)]
        pushed(await store.push([keyed(f'"{each} 1"', each, alone=True) for each in keys]))
        assert len(await take(store)) == 6
        pushed(await store.push([keyed(f'"{each} 2"', each, alone=True) for each in keys]))
        await push(store, '"free"')
        assert await payloads(store, of(limit=1)) == ['"free"']

    async def test_an_end_that_comes_while_the_kind_is_held_back_is_not_forgotten(
        self, store: Store, clock: Clock
    ) -> None:
        need(store, Extra.ONE_AT_A_TIME | Extra.HOLD_BACK)
        pushed(await store.push([keyed("1", "a", alone=True), keyed("2", "b", alone=True)]))
        first, second = await take(store)
        pushed(await store.push([keyed("3", "a", alone=True), keyed("4", "b", alone=True)]))
        assert await take(store) == []
        await mark(store, HoldBack(first.id, first.claim, 10 * SECOND))
        await mark(store, Done(second.id, second.claim))
        assert await take(store) == []
        clock.advance(10)
        jobs = await take(store)
        assert len(jobs) == 2
        assert {job.payload for job in jobs} in ({"1", "4"}, {"3", "4"})

    async def test_a_latest_push_of_a_held_back_kind_moves_its_job(self, store: Store, clock: Clock) -> None:
        need(store, Extra.LATEST | Extra.HOLD_BACK)
        id = await push_one(store, keyed("1", latest=True))
        job = await take_one(store)
        await mark(store, HoldBack(job.id, job.claim, 10 * SECOND))
        assert await push_one(store, keyed("2", after=MINUTE, latest=True)) == id
        clock.advance(10)
        assert await take(store) == []
        clock.advance(50)
        assert (await take_one(store)).attempts == 1

    async def test_a_held_back_job_gives_its_place_to_no_one_meanwhile(
        self, store: Store, clock: Clock
    ) -> None:
        need(store, Extra.AT_ONCE | Extra.HOLD_BACK)
        await push(store, "1", "2", "3")
        one, two = await take(store, of(at_once=2))
        await mark(store, HoldBack(one.id, one.claim, 10 * SECOND))
        await mark(store, Done(two.id, two.claim))
        assert await take(store, of(at_once=2)) == []
        clock.advance(10)
        assert await payloads(store, of(at_once=2)) == ["1", "3"]

    @pytest.mark.parametrize("name", [False, True], ids=["unnamed", "named"])
    async def test_a_job_may_have_every_option(self, store: Store, clock: Clock, name: bool) -> None:
        need(store, _LIMITS | (Extra.NAMES if name else _LIMITS))
        taken = "its name" if name else None
        job = keyed("1", after=SECOND, latest=True, at_most=MINUTE, alone=True, name=taken)
        id = await push_one(store, job)
        assert await push_one(store, job) == (None if name else id)
        clock.advance(1)
        terms = of(at_once=1, ahead_ok=False)
        held = await take_one(store, terms)
        again = await push_one(store, job._replace(name=None))
        assert again not in (None, id)
        clock.advance(1)
        assert await take(store, terms) == []
        assert await mark(store, HoldBack(held.id, held.claim, SECOND)) == [Kept.YES]
        assert await push_one(store, job._replace(name=None)) == again
        clock.advance(1)
        held = await take_one(store, terms)
        assert held.id == id
        await mark(store, Done(held.id, held.claim))
        assert (await take_one(store, terms)).id == again

    async def test_random_histories_keep_every_rule(self, store: Store, other: Store, clock: Clock) -> None:
        """Pushes, claims, marks and time, as they come: each answer is what a small model of the rules expects."""
        need(store, _LIMITS)
        for seed in range(self.histories):
            await _holds(History(seed, store, other, clock))

    async def test_random_histories_with_cancels_and_pauses_keep_every_rule(
        self, store: Store, other: Store, clock: Clock
    ) -> None:
        """As they come between all else: what is cancelled or paused is in nobody's way, and is counted right."""
        need(store, _LIMITS | Extra.CANCEL | Extra.PAUSE | Extra.COUNTS)
        for seed in range(self.histories):
            await _holds(ActedOn(seed, store, other, clock))


async def _holds(history: History) -> None:
    """Sees that all of the history is as the model has it."""
    try:
        await history.run()
    except AssertionError as broken:
        lines = "\n".join(history.told)
        pytest.fail(f"in history {history.seed}: {broken}\nafter\n{lines}")

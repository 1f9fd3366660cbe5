"""The suite on counting for rates (THROTTLE).

Longer than 300 lines, as it's one subject: what is taken, what is settled, and who dies in between.
"""

from __future__ import annotations

import asyncio

import pytest

from fastjobs.store import Extra, Places, Store, Throttled, ThrottleStore, supports
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.chance import Chance
from fastjobs.testing.suite.subject import SECOND, Subject, need

_LOST_AFTER = 10 * SECOND
"""Places that nobody settles are kept so long, and then as though they had started."""


class Throttle(Subject):
    """No window of `per` ever has more than `most` starts, and a place is free again as soon as that allows."""

    async def test_a_take_gives_what_is_wanted_and_no_more_than_most(self, store: Store) -> None:
        throttle = _throttle(store)
        first = await _take(throttle, 3, most=5)
        assert (len(first.slots), first.wait, first.name, first.key) == (3, 0, "mails", "k")
        second = await _take(throttle, 4, most=5)
        assert len(second.slots) == 2
        assert second.wait > 0
        assert len({*first.slots, *second.slots}) == 5, "a place was given twice"
        third = await _take(throttle, 1, most=5)
        assert third.slots == ()
        assert third.wait > 0

    async def test_each_throttle_and_key_has_its_own_places(self, store: Store) -> None:
        throttle = _throttle(store)
        asked = [
            Throttled(name, key, 2, SECOND, 2)
            for name, key in (("a", "x"), ("a", "X"), ("A", "x"), ("b", "x"), ("a", ""), ("a", "é"))
        ]
        taken = await throttle.take(asked)
        assert [(each.name, each.key, len(each.slots)) for each in taken] == [
            (each.name, each.key, 2) for each in asked
        ]
        assert [each.slots for each in await throttle.take(asked)] == [()] * len(asked)

    async def test_a_take_asks_for_several_in_any_order(self, store: Store) -> None:
        throttle = _throttle(store)
        asked = [Throttled(f"throttle {n}", "k", n + 1, SECOND, 3) for n in (4, 0, 3, 1)]
        assert [len(each.slots) for each in await throttle.take(asked)] == [3, 1, 3, 2]
        assert [len(each.slots) for each in await throttle.take(asked[::-1])] == [0, 1, 0, 2]
        assert list(await throttle.take([])) == []

    async def test_a_take_of_nothing_takes_nothing(self, store: Store) -> None:
        throttle = _throttle(store)
        assert (await _take(throttle, 0, most=1)).slots == ()
        assert len((await _take(throttle, 1, most=1)).slots) == 1
        assert (await _take(throttle, 0, most=1)).slots == ()

    async def test_a_start_is_counted_for_per_from_its_time_exactly(self, store: Store, clock: Clock) -> None:
        throttle = _throttle(store)
        taken = await _take(throttle, 2, most=2, per=20)
        clock.advance(1)
        await throttle.settle([(taken, 2, clock.now())])
        clock.advance(19.999999)
        none = await _take(throttle, 2, most=2, per=20)
        assert none.slots == ()
        assert none.wait == 1, "the wait says when the first place is free"
        clock.advance(0.000001)
        assert len((await _take(throttle, 2, most=2, per=20)).slots) == 2

    async def test_the_wait_is_never_later_than_the_next_place_is_free(
        self, store: Store, clock: Clock
    ) -> None:
        throttle = _throttle(store)
        for seconds in (0, 3, 4):
            clock.advance(seconds)
            taken = await _take(throttle, 1, most=3, per=30)
            await throttle.settle([(taken, 1, clock.now())])
        for truth in (23, 3, 4):
            none = await _take(throttle, 5, most=3, per=30)
            assert none.slots == ()
            assert 0 < none.wait <= truth * SECOND
            clock.advance(truth)
            taken = await _take(throttle, 5, most=3, per=30)
            assert len(taken.slots) == 1, "a place isn't free once the start that had it is past"
            await throttle.settle([(taken, 1, clock.now())])

    async def test_places_that_did_not_start_are_free_again(self, store: Store, clock: Clock) -> None:
        throttle = _throttle(store)
        taken = await _take(throttle, 4, most=5)
        await throttle.settle([(taken, 1, clock.now())])
        again = await _take(throttle, 9, most=5)
        assert len(again.slots) == 4
        await throttle.settle([(again, 0, clock.now())])
        assert len((await _take(throttle, 9, most=5)).slots) == 4

    async def test_several_are_settled_at_once(self, store: Store, clock: Clock) -> None:
        throttle = _throttle(store)
        asked = [Throttled("mails", key, 3, 60 * SECOND, 3) for key in "abc"]
        taken = await throttle.take(asked)
        await throttle.settle([(each, n, clock.now()) for n, each in enumerate(taken)])
        await throttle.settle([])
        assert [len(each.slots) for each in await throttle.take(asked)] == [3, 2, 1]

    # Who dies in between

    async def test_places_that_nobody_settles_are_free_ten_seconds_and_per_later(
        self, store: Store, clock: Clock
    ) -> None:
        throttle = _throttle(store)
        dead = await _take(throttle, 2, most=2, per=5)
        assert dead.until == clock.now() + _LOST_AFTER
        clock.advance(14.999999)
        none = await _take(throttle, 2, most=2, per=5)
        assert none.slots == ()
        assert none.wait == 1
        clock.advance(0.000001)
        assert len((await _take(throttle, 2, most=2, per=5)).slots) == 2

    async def test_the_wait_for_places_that_are_not_settled_is_that_for_a_start_now(
        self, store: Store, clock: Clock
    ) -> None:
        # Whoever took them is about to settle them: to wait for the ten seconds as well would leave places unused.
        throttle = _throttle(store)
        both = await _take(throttle, 3, most=2, per=5)
        assert (len(both.slots), both.wait) == (2, 5 * SECOND)
        clock.advance(1)
        assert 0 < (await _take(throttle, 1, most=2, per=5)).wait <= 5 * SECOND
        clock.advance(10)
        assert 0 < (await _take(throttle, 1, most=2, per=5)).wait <= 4 * SECOND, (
            "they count as started by then"
        )

    async def test_places_that_were_lost_are_left_to_whoever_has_them_now(
        self, store: Store, clock: Clock
    ) -> None:
        throttle = _throttle(store)
        for started in (0, 2):
            lost = await _take(throttle, 2, most=2, per=5)
            clock.advance(15)
            mine = await _take(throttle, 2, most=2, per=5)
            assert sorted(mine.slots) == sorted(lost.slots)
            await throttle.settle([(lost, started, clock.now())])
            assert (await _take(throttle, 2, most=2, per=5)).slots == ()
            await throttle.settle([(mine, 1, clock.now()), (lost, 0, clock.now())])
            assert len((await _take(throttle, 2, most=2, per=5)).slots) == 1
            clock.advance(60)

    async def test_places_settled_twice_are_settled_once(self, store: Store, clock: Clock) -> None:
        throttle = _throttle(store)
        taken = await _take(throttle, 2, most=2, per=20)
        await throttle.settle([(taken, 2, clock.now())])
        clock.advance(5)
        await throttle.settle([(taken, 0, clock.now())])
        assert (await _take(throttle, 2, most=2, per=20)).slots == (), "a settle freed what has started"
        await throttle.settle([(taken, 2, clock.now())])
        clock.advance(15)
        assert len((await _take(throttle, 2, most=2, per=20)).slots) == 2

    async def test_places_are_settled_before_they_are_lost_though_late(
        self, store: Store, clock: Clock
    ) -> None:
        """What started as the claim said has its own time, though the settle comes later."""
        throttle = _throttle(store)
        taken = await _take(throttle, 2, most=2, per=5)
        started = clock.now()
        clock.advance(9)
        await throttle.settle([(taken, 2, started)])
        assert len((await _take(throttle, 2, most=2, per=5)).slots) == 2

    # Its numbers

    async def test_a_throttle_that_has_more_places_gives_more(self, store: Store, clock: Clock) -> None:
        throttle = _throttle(store)
        taken = await _take(throttle, 2, most=2, per=20)
        await throttle.settle([(taken, 2, clock.now())])
        assert len((await _take(throttle, 9, most=5, per=20)).slots) == 3
        assert (await _take(throttle, 9, most=3, per=20)).slots == ()

    async def test_a_throttle_that_has_fewer_places_counts_the_starts_of_all(
        self, store: Store, clock: Clock
    ) -> None:
        """As an instance has that was deployed with a lower rate, beside those that were not."""
        throttle = _throttle(store)
        first = await _take(throttle, 3, most=5, per=20)
        last = await _take(throttle, 2, most=5, per=20)
        await throttle.settle([(first, 0, clock.now()), (last, 2, clock.now())])
        none = await _take(throttle, 2, most=2, per=20)
        assert none.slots == ()
        assert 0 < none.wait <= 20 * SECOND
        clock.advance(20)
        assert len((await _take(throttle, 2, most=2, per=20)).slots) == 2

    async def test_a_throttle_may_have_ten_thousand_places(self, store: Store, clock: Clock) -> None:
        throttle = _throttle(store)
        taken = await _take(throttle, 9_000, most=10_000)
        assert len(set(taken.slots)) == 9_000
        await throttle.settle([(taken, 8_000, clock.now())])
        assert len((await _take(throttle, 9_000, most=10_000)).slots) == 2_000

    async def test_a_take_that_finds_no_place_writes_nothing(self, store: Store) -> None:
        throttle = _throttle(store)
        assert len((await _take(throttle, 2, most=2)).slots) == 2

        async def look() -> None:
            assert (await _take(throttle, 2, most=2)).slots == ()

        await self.writes_nothing(store, look)

    # At once

    async def test_takes_at_once_never_exceed_most(self, store: Store, other: Store, clock: Clock) -> None:
        _throttle(store)
        for n in range(3):
            for most, wanted in ((7, 3), (20, 2)):
                taken = await asyncio.gather(
                    *(
                        _take(_throttle([store, other][m % 2]), wanted, most=most, key=f"{n} {most}")
                        for m in range(2 * self.races)
                    )
                )
                slots = [slot for each in taken for slot in each.slots]
                assert len(slots) == len(set(slots)) == most, "takers at once were given a place twice"
            await asyncio.gather(
                *(
                    _throttle([store, other][m % 2]).settle([(each, 1, clock.now())])
                    for m, each in enumerate(taken)
                )
            )
            clock.advance(1)

    async def test_takes_of_several_at_once_wait_for_nobody_who_waits_for_them(
        self, store: Store, other: Store
    ) -> None:
        _throttle(store)
        asked = [Throttled("mails", str(n), 5, SECOND, 1) for n in range(8)]
        chance = Chance(5)
        answers = await asyncio.gather(
            *(
                _throttle([store, other][n % 2]).take(chance.sample(asked, len(asked)))
                for n in range(2 * self.races)
            )
        )
        for each in asked:
            slots = [
                slot for taken in answers for place in taken if place.key == each.key for slot in place.slots
            ]
            assert sorted(slots) == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize("rate", [(1, 1), (3, 4), (5, 25), (14, 1)], ids="{0[0]} in {0[1]} s".format)
    async def test_no_window_of_a_history_has_more_than_most_starts(
        self, store: Store, other: Store, clock: Clock, rate: tuple[int, int]
    ) -> None:
        """Takers that start some of what they took at any time until it's lost, settle late, or die."""
        _throttle(store)
        most, per = rate[0], rate[1] * SECOND
        chance = Chance(most)
        history: list[str] = []
        starts: list[int] = []
        open: list[tuple[int, Places, int, int]] = []
        for _ in range(120):
            now = clock.now()
            for due in [each for each in open if each[0] <= now]:
                open.remove(due)
                _, places, count, at = due
                history.append(f"{now}: settles {places.slots}, {count} started at {at}")
                await _throttle(chance.choice([store, other])).settle([(places, count, at)])
            wanted = chance.randint(1, most + 1)
            (taken,) = await _throttle(chance.choice([store, other])).take(
                [Throttled("mails", "k", most, per, wanted)]
            )
            history.append(
                f"{now}: wanted {wanted}, took {taken.slots} until {taken.until}, wait {taken.wait}"
            )
            assert len(taken.slots) <= wanted
            assert (taken.wait > 0) == (len(taken.slots) < wanted), history
            count = chance.choice([0, len(taken.slots), chance.randint(0, len(taken.slots))])
            # A claim comes a little after the take, and has one now for all that it returns.
            at = now + chance.choice([0, 0, 0, 1, SECOND // 2, 3 * SECOND])
            starts += [at] * count
            if taken.slots and chance.random() < 0.95:
                open.append((at + chance.choice([0, 0, 0, 0, 1, SECOND, 5 * SECOND]), taken, count, at))
            for start in starts:
                inside = sum(start <= each < start + per for each in starts)
                assert inside <= most, f"{inside} starts in {per} us, {most} is the most: {history}"
            clock.advance(chance.choice([0, 0, 0.000001, 0.1, 0.3, per / SECOND / 3, per / SECOND, 2]))
        clock.advance((_LOST_AFTER + per) / SECOND + 10)
        taken = await _take(_throttle(store), most, most=most, per=per / SECOND)
        assert len(taken.slots) == most, "places were lost for ever"


def _throttle(store: Store) -> ThrottleStore:
    need(store, Extra.THROTTLE)
    assert supports(store, Extra.THROTTLE)
    return store


async def _take(throttle: ThrottleStore, wanted: int, *, most: int, per: float = 1, key: str = "k") -> Places:
    """Takes places of the throttle "mails", `per` in seconds."""
    (taken,) = await throttle.take([Throttled("mails", key, most, round(per * SECOND), wanted)])
    assert len(set(taken.slots)) == len(taken.slots) <= wanted
    return taken

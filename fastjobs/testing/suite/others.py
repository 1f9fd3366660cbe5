"""The suite on claims that take every kind, as those of a queue with a fallback do."""

from __future__ import annotations

from collections import Counter

from fastjobs.store import Store
from fastjobs.testing.clock import Clock
from fastjobs.testing.suite.subject import MINUTE, Subject, claim, of, push, take


class Others(Subject):
    """With `others` a claim takes kinds that it doesn't name: they share its numbers, the named have their own."""

    async def test_with_others_a_claim_takes_every_kind(self, store: Store) -> None:
        await push(store, "1", kind="mail")
        await push(store, "2", kind="photo")
        await push(store, "3", kind="report")
        found = await claim(store, of("mail"), others=of(""))
        assert sorted((job.kind, job.payload) for job in found.jobs) == [
            ("mail", "1"),
            ("photo", "2"),
            ("report", "3"),
        ]

    async def test_others_and_named_kinds_each_have_their_own_numbers(
        self, store: Store, clock: Clock
    ) -> None:
        await push(store, "1", kind="mail")
        await push(store, "2", kind="photo")
        await claim(store, of("mail", hold=10 * MINUTE), others=of("", hold=MINUTE))
        clock.advance(61)
        found = await claim(store, of("mail", attempts=1), others=of("", attempts=1))
        assert (found.jobs, [job.kind for job in found.exhausted]) == ([], ["photo"])

    async def test_a_named_kind_without_room_is_not_taken_as_one_of_the_others(self, store: Store) -> None:
        await push(store, *(str(n) for n in range(20)), kind="mail")
        await push(store, '"photo"', kind="photo")
        found = await claim(store, of("mail", limit=0), others=of(""), limit=10)
        assert [job.payload for job in found.jobs] == ['"photo"']
        assert len(await take(store)) == 20

    async def test_others_take_at_most_their_limit_together(self, store: Store) -> None:
        for kind in ("photo", "report", "tick"):
            await push(store, "1", "2", kind=kind)
        await push(store, "3", "4", kind="mail")
        found = await claim(store, of("mail"), others=of("", limit=3))
        assert Counter(job.kind == "mail" for job in found.jobs) == {True: 2, False: 3}

"""The suite on hearing of other instances' pushes (LISTEN)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from fastjobs.store import Extra, Store, supports
from fastjobs.testing.suite.subject import Heard, Subject, need, payloads, push


class Listening(Subject):
    """A push of another instance wakes those that listen, once it can be claimed, within `heard_within` seconds."""

    async def test_a_push_of_another_instance_wakes(self, store: Store, other: Store) -> None:
        heard = Heard(self.heard_within)
        async with _listens(store)(heard.wake):
            await push(other, "1")
            await heard.once_more("a push of another instance woke nobody")
            assert await payloads(store) == ["1"]

    async def test_each_push_of_another_instance_wakes(self, store: Store, other: Store) -> None:
        heard = Heard(self.heard_within)
        async with _listens(store)(heard.wake):
            for n in range(5):
                await push(other, str(n))
                await heard.once_more("only the first pushes of another instance woke anyone")
                assert await payloads(store) == [str(n)]

    async def test_a_push_for_later_wakes_too(self, store: Store, other: Store) -> None:
        """So that who sleeps until the poll can sleep until its time."""
        heard = Heard(self.heard_within)
        async with _listens(store)(heard.wake):
            await push(other, "1", after=60_000_000)
            await heard.once_more("a push of a job that is due later woke nobody")

    async def test_all_that_listen_are_woken(self, store: Store, other: Store) -> None:
        listens = _listens(store)
        one, two = Heard(self.heard_within), Heard(self.heard_within)
        async with listens(one.wake), listens(two.wake):
            await push(other, "1")
            for each in (one, two):
                await each.once_more("of two that listen to one store only one was woken")

    async def test_one_that_left_is_woken_no_more_and_another_still_is(
        self, store: Store, other: Store
    ) -> None:
        listens = _listens(store)
        gone, there = Heard(self.heard_within), Heard(self.heard_within)
        async with listens(there.wake):
            async with listens(gone.wake):
                await push(other, "0")
                for each in (gone, there):
                    await each.once_more("of two that listen to one store only one was woken")
            await gone.settled()
            gone.clear()
            for n in range(1, 4):
                await push(other, str(n))
                await there.once_more("one that left took another's wakes with it")
            await gone.settled()
            assert not gone.is_set(), "one that has left was woken"

    async def test_one_that_left_may_listen_again(self, store: Store, other: Store) -> None:
        heard = Heard(self.heard_within)
        for n in range(3):
            async with _listens(store)(heard.wake):
                await push(other, str(n))
                await heard.once_more("one that listened again was never woken")
            await heard.settled()
            heard.clear()

    async def test_a_wake_that_raises_ends_nothing(self, store: Store, other: Store) -> None:
        heard = Heard(self.heard_within, raises=ValueError("what was to be woken is broken"))
        async with _listens(store)(heard.wake):
            for n in range(3):
                await push(other, str(n))
                await heard.once_more("after a wake that raised no other came")
        assert await payloads(store) == ["0", "1", "2"]

    async def test_pushes_claims_and_marks_go_on_while_someone_listens(
        self, store: Store, other: Store
    ) -> None:
        async with _listens(store)(lambda: None):
            await asyncio.gather(*(push(each, str(n)) for n in range(self.races) for each in (store, other)))
            found = [*await payloads(store, limit=self.races), *await payloads(other)]
        assert sorted(found) == sorted(str(n) for n in range(self.races) for _ in range(2))


def _listens(store: Store) -> Callable[[Callable[[], None]], AbstractAsyncContextManager[None]]:
    need(store, Extra.LISTEN)
    assert supports(store, Extra.LISTEN)
    return store.listen

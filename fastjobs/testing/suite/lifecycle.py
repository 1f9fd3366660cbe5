"""The suite on a store's opening and closing (LIFECYCLE)."""

from __future__ import annotations

import asyncio

from fastjobs.store import Extra, LifecycleStore, Store, supports
from fastjobs.testing.suite.subject import Subject, need, of, payloads, push


class Lifecycle(Subject):
    """Each open has its close, and a closed store may be opened again. The `store` fixture gives it unopened."""

    async def test_a_store_that_was_not_opened_opens_itself(self, store: Store) -> None:
        _lifecycle_store(store)
        await push(store, "1")
        assert await payloads(store) == ["1"]

    async def test_a_store_stays_open_until_each_open_has_its_close(self, store: Store) -> None:
        opened = _lifecycle_store(store)
        await opened.open(["mail"])
        await opened.open(["mail", "photo"])
        await opened.close()
        await push(store, "1")
        assert await payloads(store) == ["1"]
        await opened.close()

    async def test_a_closed_store_may_be_opened_again_and_has_its_jobs(self, store: Store) -> None:
        opened = _lifecycle_store(store)
        for n in range(3):
            await opened.open()
            await push(store, str(n))
            await opened.close()
        await opened.open()
        assert await payloads(store) == ["0", "1", "2"]
        await opened.close()

    async def test_a_closed_store_may_be_opened_on_another_loop(self, store: Store) -> None:
        opened = _lifecycle_store(store)
        await opened.open()
        await push(store, "1")
        await opened.close()

        async def elsewhere() -> list[str]:
            await opened.open()
            try:
                await push(store, "2", kind="photo")
                return await payloads(store)
            finally:
                await opened.close()

        assert await asyncio.to_thread(asyncio.run, elsewhere()) == ["1"]
        await opened.open()
        assert await payloads(store, of("photo")) == ["2"]
        await opened.close()

    async def test_opens_at_once_are_one(self, store: Store) -> None:
        opened = _lifecycle_store(store)
        await asyncio.gather(*(opened.open(["mail"]) for _ in range(self.races)))
        await push(store, "1")
        for _ in range(self.races):
            await opened.close()
        await opened.open()
        assert await payloads(store) == ["1"]
        await opened.close()


def _lifecycle_store(store: Store) -> LifecycleStore:
    need(store, Extra.LIFECYCLE)
    assert supports(store, Extra.LIFECYCLE)
    return store

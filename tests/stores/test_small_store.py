"""The store that the docs show keeps every promise of the three verbs."""

from __future__ import annotations

import pytest

from docs.snippets.small_store import SmallStore
from fastjobs.store import Extra
from fastjobs.testing import Clock, StoreSuite


class TestSmallStore(StoreSuite):
    @pytest.fixture
    async def store(self, clock: Clock) -> SmallStore:
        return SmallStore(clock=clock)


def test_the_small_store_says_it_has_no_extras() -> None:
    assert SmallStore.extras == Extra(0)

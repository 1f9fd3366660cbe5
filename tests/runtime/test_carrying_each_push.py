"""What a job carries from where it's pushed to where it runs, by each way to push."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar
from datetime import UTC, datetime

import pytest

from fastjobs import Kind, Memory, Queue, Unique, current_job
from fastjobs.testing import Clock

pytestmark = pytest.mark.anyio

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


class CarryTenant:
    def carry(self, into: MutableMapping[str, str]) -> None:
        into["tenant"] = tenant.get()

    def restore(self, carried: Mapping[str, str]) -> None:
        tenant.set(carried["tenant"])


async def test_each_way_to_push_carries_and_a_push_that_moves_a_job_leaves_it_what_it_carried() -> None:
    clock = Clock()
    queue = Queue(Memory(clock=clock), clock=clock, carry=[CarryTenant()])
    seen = list[tuple[str, int, str]]()

    async def handler(n: int) -> None:
        seen.append((current_job().kind, n, tenant.get()))

    plain: Kind[int] = queue.kind("plain")(handler)
    unique: Kind[int] = queue.kind("unique", unique=True)(handler)
    latest: Kind[int] = queue.kind("latest", unique=Unique(latest=True))(handler)
    tenant.set("one")
    for kind in (plain, unique, latest):
        await kind.push(1)
        await kind.push(2, at=datetime.fromtimestamp(clock.now() / 1e6, UTC))
        await kind.push(3, after=5)
        await kind.push(4, name=f"{kind.name}-4")
        await kind.push_many([5, 6])
        await kind.in_(queue.store).push(7)
        await asyncio.to_thread(kind.sync.push, 8)
    tenant.set("two")
    assert await unique.push(3) is None
    assert await latest.push(3) is not None
    clock.advance(5)
    tenant.set("mine")
    await queue.drain()
    wanted = [(kind, n, "one") for kind in ("latest", "plain", "unique") for n in range(1, 9)]
    assert sorted(seen) == wanted

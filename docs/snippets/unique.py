import asyncio

from pydantic import BaseModel

import fastjobs

q = fastjobs.Queue(fastjobs.Memory())


class Reindex(BaseModel):
    post: int


@q.kind("reindex-post", unique=fastjobs.Unique(latest=True, one_at_a_time=True, at_most=600))
async def reindex(job: Reindex) -> None:
    print(f"post {job.post} is indexed")


@q.kind("invoice")
async def invoice(order: int) -> None:
    print(f"order {order} has its invoice")


async def main() -> None:
    # Edits of two posts: each post is indexed once, a moment after its last edit.
    first = await reindex.push(Reindex(post=1), after=0.1)
    await reindex.push(Reindex(post=2), after=0.1)
    assert await reindex.push(Reindex(post=1), after=0.1) == first

    # A webhook that comes twice.
    assert await invoice.push(7, name="order-7") is not None
    assert await invoice.push(7, name="order-7") is None

    await asyncio.sleep(0.2)
    await q.drain()

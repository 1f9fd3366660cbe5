"""Every verb of a store at once, from several: what has locks in two orders meets itself here."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

import fastjobs
from fastjobs.core.job import Job
from fastjobs.store import Claimable, Done, Fail, GiveBack, HoldBack, Kept, Mark, NewJob, Pusher, TryAgain

SECOND = 1_000_000

TERMS = (
    Claimable(kind="mail", hold=SECOND // 5, attempts=1000),
    Claimable(kind="photo", hold=SECOND // 5, attempts=1000, at_once=3, ahead_ok=False),
    Claimable(kind="account", hold=SECOND // 5, attempts=1000, ahead_ok=False),
)
EACH = ("Done", "TryAgain", "GiveBack", "HoldBack", "Fail", "pushed", "run again", "deleted", "pruned")
"""What there is to be some of before it's over."""


def _new(chance: random.Random) -> NewJob:
    kind = chance.choice([term.kind for term in TERMS])
    key = f"{kind} {chance.randrange(25)}".encode().ljust(32)
    return NewJob(
        kind,
        "null",
        after=chance.choice([0, 0, 20_000]),
        key=key if kind != "photo" or chance.random() < 0.3 else None,
        latest=kind == "mail" and chance.random() < 0.5,
        one_at_a_time=kind == "account",
        name=f"name {chance.randrange(200)}" if chance.random() < 0.2 else None,
        keep_name=chance.choice([0, 50_000]),
    )


def _end(job: Job, chance: random.Random) -> Mark:
    what = chance.random()
    if what < 0.6:
        return Done(job.id, job.claim)
    if what < 0.75:
        return TryAgain(job.id, job.claim, chance.randrange(10_000), "again")
    if what < 0.85:
        return GiveBack(job.id, job.claim)
    if what < 0.9:
        return HoldBack(job.id, job.claim, 10_000)
    return Fail(job.id, job.claim, "failed")


async def all_at_once(
    engine: AsyncEngine,
    stores: Sequence[fastjobs.SQLStore],
    rounds: int = 120,
    least: int = 5,
    refused: Callable[[DBAPIError], bool] = lambda error: False,
) -> Counter[str]:
    """Has six stores claim, three push, one push in transactions and two look, run again, delete, prune and sweep,
    until there were `least` of each; answers how many. What any of them raises is raised, but where `refused` says that
    it's the transaction's."""
    chance = random.Random(3)
    counts: Counter[str] = Counter()
    pushing = 0

    def count(what: str, more: int) -> None:
        counts[what] += more

    async def claimer(store: fastjobs.SQLStore) -> None:
        while pushing:
            claimed = await store.claim(TERMS, chance.choice([1, 8, 40]))
            if not claimed.jobs:
                await asyncio.sleep(0.002)
                continue
            if chance.random() < 0.05:
                await asyncio.sleep(0.25)  # past the hold, so that others have taken it
            marks = [_end(job, chance) for job in claimed.jobs]
            for mark, kept in zip(marks, await store.mark(marks), strict=True):
                counts[type(mark).__name__] += kept is Kept.YES

    async def push(store: fastjobs.SQLStore, in_tx: bool) -> None:
        nonlocal pushing
        pushing += 1
        turns = 0
        while (turns := turns + 1) <= rounds or (turns < 3000 and any(counts[each] < least for each in EACH)):
            jobs = [_new(chance) for _ in range(chance.choice([1, 2, 40]))]
            if not in_tx:
                count("pushed", sum(id is not None for id in await store.push(jobs)))
                continue
            async with AsyncSession(engine) as session:
                pusher = cast("Pusher", store.within(session, lambda: None))
                try:
                    await pusher.push(jobs[:1])
                    await (session.rollback() if chance.random() < 0.3 else session.commit())
                except DBAPIError as error:
                    if not refused(error):
                        raise
                    count("refused", 1)
        pushing -= 1

    async def hand(store: fastjobs.SQLStore) -> None:
        while pushing:
            failed = await store.failed(limit=20)
            ids = [job.id for job in failed]
            chance.shuffle(ids)
            half = len(ids) // 2
            count("run again", sum(await store.run_again(ids[: half + 1])))
            count("deleted", sum(await store.delete(ids[half:])))
            if chance.random() < 0.2:
                count("pruned", await store.prune(0, 1))
            count("swept", await store.sweep())
            await asyncio.sleep(0.01)

    works: list[Callable[[], Awaitable[None]]] = [
        *(lambda store=store: push(store, False) for store in stores[:3]),
        lambda: push(stores[3], True),
        *(lambda store=store: claimer(store) for store in stores),
        *(lambda store=store: hand(store) for store in stores[4:]),
    ]
    await asyncio.gather(*(work() for work in works))
    return counts
